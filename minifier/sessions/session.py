"""The program of the process that runs a user's script for a command.

`python -m tcdebug.minifier.sessions.session job.json` does the job in the file.
"""

from __future__ import annotations

import gc
from importlib import import_module


def main() -> None:
    """Import what a session needs without searching it for garbage, which takes 0.7 CPU-seconds."""
    gc.disable()  # imports make a million objects that stay
    session = import_module("tcdebug.minifier.sessions.script_session")
    gc.freeze()
    gc.enable()
    session.main()


if __name__ == "__main__":
    main()
