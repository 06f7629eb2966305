"""For tests of the whole command: puts `support` on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "support"))
