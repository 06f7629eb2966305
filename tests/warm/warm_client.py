"""A Python without torch: takes the arguments of `python` and behaves like it.

It passes scripts, -c, pytest and modules of tcdebug to the warm server. A fresh interpreter runs
everything else, and everything with a different environment if torch reads it at import.
"""

import json
import os
import resource
import signal
import socket
import sys

READ_AT_IMPORT = (
    "TORCH", "PYTHON", "OMP_", "ATEN_", "CUDA_", "LD_", "MKL_", "TRITON_", "TCDEBUG_REPRO",
)  # fmt: skip
MODULES = {"pytest", "tcdebug"}
"""Packages whose modules `python -m` runs on the server."""
READ_LATER = {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
"""Variables that torch also sets, on its first use of a cache."""


def fresh(arguments: list[str], environment: dict[str, str], settings: dict[str, str]) -> bool:
    """Whether another interpreter must run this. `settings` are those that the server has read."""
    module = arguments[:1] == ["-m"] and "".join(arguments[1:2]).partition(".")[0] in MODULES
    if not arguments or (arguments[0].startswith("-") and arguments[0] != "-c" and not module):
        return True
    names = {*settings, *(n for n in environment if n.startswith(READ_AT_IMPORT))} - READ_LATER
    if environment.get("PYTHONWARNINGS") == "ignore":
        names.discard("PYTHONWARNINGS")  # the server does that
    return any(environment.get(n, settings.get(n)) != settings.get(n) for n in names)


def main(address: str, settings: dict[str, str]) -> None:
    """Run it on the server, and exit with its status."""
    arguments, environment = sys.argv[1:], dict(os.environ)
    if fresh(arguments, environment, settings):
        os.execv(sys.executable, [sys.executable, *arguments])
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": environment}
    with socket.socket(socket.AF_UNIX) as server:
        send(server, address, request, [0, 1, 2])
        status = int(server.recv(64))
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def send(server: socket.socket, address: str, request: dict[str, object], files: list[int]) -> None:
    """Ask the server to run something with our standard files."""
    text = json.dumps(request).encode()
    server.connect(address)
    socket.send_fds(server, [len(text).to_bytes(8, "big")], files)
    server.sendall(text)
