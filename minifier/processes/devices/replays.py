"""Processes that run a script again, from just before it initialises CUDA.

A process that has initialised CUDA cannot be forked for candidates, and what a script sets up after
that is missing in forks of the process that stopped before. A replay has it: it is forked from the
stopped process and runs the rest of the script on the device, up to the graph that a candidate
comes from. There it waits for one candidate. So that a search need not wait for the script, several
replays are kept waiting.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from tcdebug.minifier.processes.adoption import forked_for
from tcdebug.minifier.processes.channel import Parent, channel
from tcdebug.minifier.processes.fork import divided, redirect
from tcdebug.minifier.processes.memory import resident
from tcdebug.minifier.processes.prctl import bound_to_this_process
from tcdebug.minifier.processes.process import Child, Ended, Limits

ORDER = struct.Struct("qqq")
"""What the process that is forked gets: the id of the sender, the ordinals of graph and call."""
PID = struct.Struct("q")
READY = b"ready"
"""The reply of a replay that has reached its graph."""
LEAST_SECONDS, SLOWER = 60.0, 10.0
"""A replay may take so many seconds to reach its graph, and so many times as long as the script."""


class NoReplay(Exception):
    """No process could be forked to run the script again."""


@dataclass(frozen=True)
class ScriptReplay:
    """This process, which runs the script again for a candidate of one call of one graph."""

    parent: Parent
    ordinal: int
    call: int

    def candidate(self) -> bytes:
        """Say that the call has been reached, and return the candidate. Ends with its parent."""
        if self.parent.request() is not None:
            self.parent.reply(READY)
            if (candidate := self.parent.request()) is not None:
                return candidate
        os._exit(0)

    def answer(self, answer: bytes) -> NoReturn:
        """Send the answer, and end this process at once."""
        self.parent.answer(answer)
        os._exit(0)


@dataclass(eq=False)
class ScriptReplays:
    """Starts replays for the process that runs the script and searches its graphs."""

    orders: socket.socket
    """The socket to the process that is forked. That process ends when the socket closes."""
    _spares: deque[Child] = field(default_factory=deque)
    """Replays on their way to the graph, or waiting there."""
    _graph: tuple[int, int] = (-1, -1)
    _divided: float = field(default_factory=time.monotonic)
    """When the script went on."""
    _limits: Limits | None = None
    """The limits of a replay on its way to the graph."""

    def start(self, candidate: bytes, graph: tuple[int, int], limits: Limits, spares: int) -> Child:
        """Give a candidate to a replay that has reached its graph; wait for one if there is none.

        The graph is given by its ordinal and that of its call. `limits` are those of the candidate,
        without the script. A replay that does not reach the graph, or not in time, ends without a
        phase and without an answer. `spares` replays are left for the next candidates. Raises
        NoReplay.
        """
        if graph != self._graph:
            self.end()
            self._graph = graph
            script = time.monotonic() - self._divided
            self._limits = Limits(LEAST_SECONDS + SLOWER * script, None)
        while len(self._spares) <= spares:
            self._spares.append(self._begun())
        child = self._spares.popleft()
        if isinstance(child.ask(READY), Ended):
            return child
        child.baseline = resident(child.pid)
        child.restart_time(limits)
        assert child.channel is not None
        with contextlib.suppress(OSError):  # it has ended meanwhile
            child.channel.send_bytes(candidate)
        return child

    def end(self) -> None:
        """End the replays that wait."""
        while self._spares:
            self._spares.popleft().end()

    def _begun(self) -> Child:
        """Let the stopped process fork a replay that runs the script."""
        ours, theirs = channel()
        try:
            order = ORDER.pack(os.getpid(), *self._graph)
            socket.send_fds(self.orders, [order], [theirs.fileno()])
            (pid,) = PID.unpack(self.orders.recv(PID.size))
        except (OSError, struct.error) as problem:
            raise NoReplay("the process that is forked has ended") from problem
        finally:
            theirs.close()
        if not pid:
            raise NoReplay("a forked process did not become a child of this one")
        return Child(pid, self._limits, ours)


def divided_for_replays(warm_up: Callable[[], None], output: Path) -> ScriptReplays | ScriptReplay:
    """Fork a process that stops here, and is forked for each replay. It is warmed up before that.

    Returns in this process, with what starts replays, and in each replay, whose output is appended
    to the file `output`. This process must adopt orphans (see `prctl`), and must not have
    initialised CUDA.
    """
    ours, theirs = socket.socketpair()
    bind = bound_to_this_process(adopts=False)  # this process adopts what its child forks
    if divided():
        theirs.close()
        return ScriptReplays(ours)
    bind()
    ours.close()
    replay = _served(theirs, warm_up)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    redirect(output)
    return replay


def _served(orders: socket.socket, warm_up: Callable[[], None]) -> ScriptReplay:
    """Fork a process for each order, until no more can come. Return in each of them."""
    if orders.recv(1, socket.MSG_PEEK):
        warm_up()
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, ORDER.size, 1)
        if not descriptors:
            os._exit(0)
        sender, ordinal, call = ORDER.unpack(order)
        if forked_for(sender, lambda pid: _announce(orders, pid), divided):
            orders.close()
            return ScriptReplay(Parent(Connection(descriptors[0])), ordinal, call)
        os.close(descriptors[0])


def _announce(orders: socket.socket, pid: int) -> None:
    orders.send(PID.pack(pid))
