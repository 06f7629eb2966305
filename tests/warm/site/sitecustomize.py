"""Found by PYTHONPATH: the processes of a command start scripts by the interpreter that is warm."""

import os
import sys

sys.executable = os.environ["WARM_PYTHON"]
