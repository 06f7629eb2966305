"""An interpreter that has imported torch, and forks itself for each script that it is given.

python warm_server.py SOCKET. `warm_client.py` is what a test starts in its place. A script finds
what a fresh interpreter would give it: its arguments, folder, environment, files, an empty
`__main__`; torch, Dynamo and nothing of tcdebug are in `sys.modules`. Where the client goes away,
so does the script.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys
from types import ModuleType
from typing import Any

import torch
import torch._dynamo
import torch._functorch.aot_autograd


def main(address: str) -> dict[str, Any]:
    """Serve until standard input ends; returns, in a forked process, what that is asked to run."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    clients: dict[int, socket.socket] = {}
    while True:
        waited: list[Any] = [listener, woken, 0, *clients.values()]
        ready, _, _ = select.select(waited, [], [])
        if 0 in ready:
            sys.exit()
        if listener in ready:
            connection, _ = listener.accept()
            request, files = asked(connection)
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number, file in enumerate(files):
                    os.dup2(file, number)
                for number in (*files, woken, wake):
                    os.close(number)
                for ours in (listener, connection, *clients.values()):
                    ours.close()
                return request
            for file in files:
                os.close(file)
            clients[process] = connection
        if woken in ready:
            os.read(woken, 4096)
        for process, connection in list(clients.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                with contextlib.suppress(BrokenPipeError):  # it may have gone
                    connection.send(b"%d" % os.waitstatus_to_exitcode(status))
                del clients[process]
                connection.close()
            elif connection in ready:  # it sends nothing: it has gone
                os.kill(process, signal.SIGKILL)


def asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a client wants to be run, and its standard files."""
    size, sent, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4))
    files = array.array("i")
    files.frombytes(sent[0][2])
    text, rest = b"", int.from_bytes(size, "big")
    while len(text) < rest:
        text += connection.recv(rest - len(text))
    return json.loads(text), list(files)


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = main(sys.argv[1])
    os.chdir(given["folder"])
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.argv = given["arguments"]
    if sys.argv[0] == "-c":
        path, text = "<string>", sys.argv.pop(1)
    else:
        path = sys.argv[0]
        with open(path) as file:
            text = file.read()
    sys.path[0] = "" if path == "<string>" else os.path.dirname(os.path.abspath(path))
    script = sys.modules["__main__"] = ModuleType("__main__")
    names: dict[str, Any] = {"__annotations__": {}, "__builtins__": __builtins__}
    if path != "<string>":
        names |= {"__file__": os.path.abspath(path), "__cached__": None}
    script.__dict__.update(names)
    exec(compile(text, path, "exec"), script.__dict__)
