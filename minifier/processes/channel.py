"""Messages between a parent and its forked child: phases, requests, replies and an answer."""

from __future__ import annotations

import socket
import struct
from multiprocessing.connection import Connection
from typing import TypeAlias

PHASE, REPLY, ANSWER = b"P", b"R", b"A"
"""How the messages of a child begin."""
PATIENCE = 5.0
"""Seconds that a parent waits in the middle of a message: the child may have been stopped there."""
LARGEST = 1 << 28
"""Bytes of the longest message; a longer one is taken for garbage."""

Channel: TypeAlias = "Connection[bytes, bytes]"


def channel() -> tuple[Channel, Channel]:
    """The end of a parent, which raises BlockingIOError after `PATIENCE`, and that of its child."""
    ours, theirs = socket.socketpair()
    timeout = struct.pack("ll", int(PATIENCE), 0)  # a timeval
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        ours.setsockopt(socket.SOL_SOCKET, option, timeout)
    return Connection(ours.detach()), Connection(theirs.detach())


class Parent:
    """The parent, as its forked child talks to it. Called with a phase, it is told the phase."""

    def __init__(self, end: Channel) -> None:
        self._end = end

    def __call__(self, phase: str) -> None:
        """Say which phase the work is in."""
        self._end.send_bytes(PHASE + phase.encode())

    def request(self) -> bytes | None:
        """Wait for what the parent wants next; None when it wants no more."""
        try:
            return self._end.recv_bytes(LARGEST)
        except EOFError:
            return None

    def reply(self, reply: bytes) -> None:
        """Answer a request."""
        self._end.send_bytes(REPLY + reply)

    def answer(self, answer: bytes) -> None:
        """Send the last word."""
        self._end.send_bytes(ANSWER + answer)
