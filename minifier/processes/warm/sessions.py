"""Starts sessions as forks of one process that has imported what they import."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path

import psutil

from tcdebug.minifier.processes.prctl import ADOPT_ORPHANS, process_control
from tcdebug.minifier.processes.process import Child, Limits, has_exited
from tcdebug.minifier.processes.spawn import spawn

SERVER = "tcdebug.minifier.processes.warm.server"
POLL = 0.1
ANSWERED = 120.0
"""Seconds in which the process answers, even if it has to call a function first."""


@dataclass
class WarmSessions:
    """A process that imports modules once, in this environment, and is forked for each session.

    A fork costs 20 ms; the imports of torch take seconds of CPU time. A fork shares the hash seed
    and the addresses of the process that it comes from. Results are therefore confirmed in fresh
    processes before they are reported.
    """

    environment: Mapping[str, str]
    imports: Sequence[str]
    _place: tempfile.TemporaryDirectory[str] | None = None
    _listener: socket.socket | None = None
    _server: Child | None = None
    _sender: connection.Connection[bytes, bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Start the process, which begins to import. Raises OSError."""
        self._place = tempfile.TemporaryDirectory(prefix="tcdebug-warm-")
        address = str(Path(self._place.name, "orders"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen()
        command = [sys.executable, "-m", SERVER, address, *self.imports]
        output = Path(self._place.name, "output")
        self._server = spawn(command, self.environment, output=output)

    def begin(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: Path,
        limits: Limits | None,
    ) -> Child | None:
        """Run a module in a fork, in our folder. None if no process can be forked for us."""
        orders = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "output": str(output),
            "parent": os.getpid(),
        }
        with self._lock:
            if not self._ready() or self._sender is None:
                return None
            control = process_control()
            control(ADOPT_ORPHANS, 1, 0, 0, 0)
            try:
                self._sender.send_bytes(json.dumps(orders).encode())
                if self._sender.poll(ANSWERED) and (pid := int(self._sender.recv_bytes())):
                    return Child(pid, limits)
            except (EOFError, OSError):
                pass  # it has ended
            finally:
                control(ADOPT_ORPHANS, 0, 0, 0, 0)
            self._close()
            return None

    def call(self, function: str) -> None:
        """Call a function, given by its full name, in the process, before it is forked again."""
        with self._lock:
            if self._sender is not None:
                with contextlib.suppress(OSError):
                    self._sender.send_bytes(json.dumps({"call": function}).encode())

    @property
    def cpu_seconds(self) -> float:
        """The CPU-seconds that the process has used so far, without its forks."""
        if self._server is None:
            return 0.0
        try:
            times = psutil.Process(self._server.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return times.user + times.system

    def end(self) -> None:
        """End the process. Its forks go on."""
        with self._lock:
            self._close()

    def _ready(self) -> bool:
        """Wait until the process has imported everything. Return whether it has."""
        if self._listener is None or self._server is None:
            return False
        while self._sender is None:
            if has_exited(self._server.pid):
                self._close()
                return False
            if connection.wait([self._listener], POLL):
                self._sender = connection.Connection(self._listener.accept()[0].detach())
        return True

    def _close(self) -> None:
        for end in (self._sender, self._listener):
            if end is not None:
                end.close()
        if self._server is not None:
            self._server.end()
        if self._place is not None:
            self._place.cleanup()
        self._sender = self._listener = self._server = self._place = None
