"""Lines of the user's program, from the stack traces that FX nodes carry."""

from __future__ import annotations

import re
from functools import lru_cache

from tcdebug.compiler.ir.graph import Location

FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')


@lru_cache(maxsize=4096)
def innermost_line(trace: str) -> tuple[Location, str] | None:
    """Return the place and the code of the innermost frame of a printed stack trace, if any."""
    place, _, code = trace[trace.rfind('File "') :].partition("\n")
    frame = FRAME.match(place)
    if frame is None:
        return None
    return Location(frame[1], int(frame[2]), frame[3]), code.strip().partition("\n")[0]
