"""Runs all programs of `interpret_programs.py`, of which the default tests run a sixth.

TRITON_INTERPRET=1 python interpret_all_programs.py
"""

from __future__ import annotations

import interpret_programs


def main() -> None:
    """A line for each program: its name, and its difference from eager."""
    interpret_programs.main(step=1)


if __name__ == "__main__":
    main()
