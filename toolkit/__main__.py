"""python -m tcdebug"""

from tcdebug.cli import main

main()
