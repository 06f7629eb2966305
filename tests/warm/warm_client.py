"""A Python that need not import torch: takes the arguments of `python`, and behaves as that.

What begins otherwise than with a script or with -c is given to a fresh interpreter, as is what
has another environment where torch reads it as it is imported.
"""

import json
import os
import resource
import signal
import socket
import sys

READ_AT_IMPORT = ("TORCH", "PYTHON", "OMP_", "ATEN_", "CUDA_", "LD_", "MKL_", "TRITON_")
READ_LATER = {"TORCHINDUCTOR_CACHE_DIR"}


def fresh(arguments: list[str], settings: dict[str, str]) -> bool:
    """Whether another interpreter has to run this."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] != "-c"):
        return True
    names = {*settings, *(n for n in os.environ if n.startswith(READ_AT_IMPORT))} - READ_LATER
    return any(os.environ.get(n, settings.get(n)) != settings.get(n) for n in names)


def main(address: str, settings: dict[str, str]) -> None:
    """Have it run; end as it ended."""
    arguments = sys.argv[1:]
    if fresh(arguments, settings):
        os.execv(sys.executable, [sys.executable, *arguments])
    request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
    text = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [len(text).to_bytes(8, "big")], [0, 1, 2])
        server.sendall(text)
        status = int(server.recv(64))
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
