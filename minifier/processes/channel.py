"""Messages between a parent and its forked child: phases, requests, replies and an answer."""

from __future__ import annotations

import socket
import struct
from multiprocessing.connection import Connection
from typing import TypeAlias

PHASE, REPLY, ANSWER = b"P", b"R", b"A"
"""The prefixes of a child's messages."""
PATIENCE = 5.0
"""Seconds that a parent waits for the rest of a message. The child may have been stopped."""
LARGEST = 1 << 28
"""The largest message in bytes. A larger one is treated as garbage."""

Channel: TypeAlias = "Connection[bytes, bytes]"


def channel() -> tuple[Channel, Channel]:
    """Return the ends of parent and child. The parent's raises BlockingIOError after `PATIENCE`."""
    ours, theirs = socket.socketpair()
    seconds, fraction = divmod(PATIENCE, 1)
    timeout = struct.pack("ll", int(seconds), int(fraction * 1e6))  # a timeval
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        ours.setsockopt(socket.SOL_SOCKET, option, timeout)
    return Connection(ours.detach()), Connection(theirs.detach())


class Parent:
    """The parent, as seen by its forked child. Calling it with a phase reports that phase."""

    def __init__(self, end: Channel) -> None:
        self._end = end

    def __call__(self, phase: str) -> None:
        """Report the phase of the work."""
        self._end.send_bytes(PHASE + phase.encode())

    def request(self) -> bytes | None:
        """Wait for the next request of the parent. Return None when there are no more."""
        try:
            return self._end.recv_bytes(LARGEST)
        except EOFError:
            return None

    def reply(self, reply: bytes) -> None:
        """Reply to a request."""
        self._end.send_bytes(REPLY + reply)

    def answer(self, answer: bytes) -> None:
        """Send the final answer."""
        self._end.send_bytes(ANSWER + answer)
