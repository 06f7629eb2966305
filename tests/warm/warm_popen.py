"""A `subprocess.Popen` whose Python processes are forked from a warm server, as our children.

The server must descend from this process. It forks twice and the process in between exits, so Linux
makes this process the parent. Waiting, signals, limits and CPU-seconds are then those of a child.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import threading
from typing import Any

from warm_client import fresh, send

DIE_WITH_PARENT = 1
ADOPT_ORPHANS = 36


def prctl(option: int, value: int) -> None:
    """prctl(2)"""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def warm_popen(python: str, address: str, settings: dict[str, str]) -> type[subprocess.Popen[Any]]:
    """The class for a server at an address. It forks commands that begin with `python`."""
    adopting = threading.Lock()  # the setting is that of all threads of this process

    class WarmPopen(subprocess.Popen):  # type: ignore[type-arg] # of both
        def _execute_child(self, *given: Any) -> None:
            (args, _, before, _, _, folder, environment, _, _, _, stdin, _, _, stdout, _, stderr,
             *_, own_session, _) = given  # fmt: skip
            arguments = [args] if isinstance(args, str) else [*map(os.fspath, args)]
            variables = dict(os.environ if environment is None else environment)
            if arguments[0] != python or fresh(arguments[1:], variables, settings):
                super()._execute_child(*given)  # type: ignore[misc] # known to no stub
                return
            request = {
                "arguments": arguments[1:], "folder": os.fspath(folder or os.getcwd()),
                "environment": variables, "parent": os.getpid(),
                "own_session": own_session, "bound": before is not None,
            }  # fmt: skip
            pipes = zip((stdin, stdout, stderr), (0, 1, 2), strict=True)
            files = [own if pipe == -1 else pipe for pipe, own in pipes]
            with adopting, socket.socket(socket.AF_UNIX) as server:
                prctl(ADOPT_ORPHANS, 1)
                send(server, address, request, files)
                self.pid = int(server.recv(64))
                prctl(ADOPT_ORPHANS, 0)
            self._child_created = True
            self._close_pipe_fds(*given[10:16])  # type: ignore[attr-defined] # known to no stub

    return WarmPopen


def become_child_of(parent: int, *, own_session: bool, bound: bool) -> None:
    """Wait until `parent` is our parent, then do what it does to a child before it runs."""
    while (found := os.getppid()) != parent:
        if found == 1:  # it was not adopted: no one waits for it
            os._exit(1)
        os.sched_yield()
    if own_session:
        os.setsid()
    if bound:  # as tcdebug.minifier.processes.prctl binds it
        prctl(DIE_WITH_PARENT, signal.SIGKILL)
        prctl(ADOPT_ORPHANS, int(own_session))
