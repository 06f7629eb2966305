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

from tcdebug.minifier.processes.channel import Parent, channel
from tcdebug.minifier.processes.fork import divided
from tcdebug.minifier.processes.memory import resident
from tcdebug.minifier.processes.prctl import become_child_of, bound_to_this_process
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

    def start(
        self, candidate: bytes, graph: tuple[int, int], limits: Limits, spares: int, output: Path
    ) -> Child:
        """Give a candidate to a replay that has reached its graph; wait for one if there is none.

        The graph is given by its ordinal and that of its call. `limits` are those of the candidate,
        without the script. A replay that does not reach the graph, or not in time, ends without a
        phase and without an answer. `spares` replays are left for the next candidates. The output
        of replays is appended to the file `output`. Raises NoReplay.
        """
        if graph != self._graph:
            self.end()
            self._graph = graph
            script = time.monotonic() - self._divided
            self._limits = Limits(LEAST_SECONDS + SLOWER * script, None)
        while len(self._spares) <= spares:
            self._spares.append(self._begun(output))
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

    def _begun(self, output: Path) -> Child:
        """Let the stopped process fork a replay that runs the script."""
        ours, theirs = channel()
        text = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            order = ORDER.pack(os.getpid(), *self._graph)
            socket.send_fds(self.orders, [order], [theirs.fileno(), text])
            (pid,) = PID.unpack(self.orders.recv(PID.size))
        except (OSError, struct.error) as problem:
            raise NoReplay("the process that is forked has ended") from problem
        finally:
            theirs.close()
            os.close(text)
        if not pid:
            raise NoReplay("a forked process did not become a child of this one")
        return Child(pid, self._limits, ours)


def divided_for_replays(warm_up: Callable[[], None]) -> ScriptReplays | ScriptReplay:
    """Fork a process that stops here, and is forked for each replay. It is warmed up before that.

    Returns in this process, with what starts replays, and in each replay. This process must adopt
    orphans (see `prctl`), and must not have initialised CUDA.
    """
    ours, theirs = socket.socketpair()
    bind = bound_to_this_process(adopts=False)  # this process adopts what its child forks
    if divided():
        theirs.close()
        return ScriptReplays(ours)
    bind()
    ours.close()
    return _served(theirs, warm_up)


def _served(orders: socket.socket, warm_up: Callable[[], None]) -> ScriptReplay:
    """Fork a process for each order, until no more can come. Return in each of them."""
    if orders.recv(1, socket.MSG_PEEK):
        warm_up()
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, ORDER.size, 2)
        if len(descriptors) != 2:
            os._exit(0)
        end, output = descriptors
        between = divided()
        if between == 0:
            if divided():
                os._exit(0)
            sender, ordinal, call = ORDER.unpack(order)
            adopted = become_child_of(sender)
            orders.send(PID.pack(os.getpid() if adopted else 0))
            orders.close()
            if not adopted:
                os._exit(1)
            _redirect(output)
            return ScriptReplay(Parent(Connection(end)), ordinal, call)
        os.waitpid(between, 0)
        os.close(end)
        os.close(output)


def _redirect(output: int) -> None:
    """Read nothing, write to a file, and leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, standard)
    os.close(nothing)
    os.close(output)
