"""python -m tcdebug"""

from tcdebug.cli.main import main

main()
