"""The program of a process that imports modules once, and is forked for each session.

`python -m tcdebug.minifier.processes.warm.server ADDRESS MODULE...` imports the modules, connects
to the socket at the address, and obeys the orders that arrive there. It ends when the socket
closes.

What it runs is a child of the process that sent the order (see `adoption`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import sys
from multiprocessing.connection import Client, Connection
from typing import Any

from tcdebug.minifier.processes.adoption import forked_for
from tcdebug.minifier.processes.prctl import ADOPT_ORPHANS, process_control
from tcdebug.minifier.processes.spawn import input_again

Orders = dict[str, Any]
"""What a process runs, and where; or, with the key `call`, a function to call."""


def main() -> None:
    """Import, serve, and in a forked process run what was ordered."""
    _, address, *names = sys.argv
    process_control()(ADOPT_ORPHANS, 0, 0, 0, 0)  # orphans belong to the sender of the orders
    gc.disable()  # imports make a million objects that stay
    for name in names:
        importlib.import_module(name)
    gc.freeze()  # without a collection, which finds hardly anything
    run(served(Client(address)))


def served(sender: Connection[bytes, bytes]) -> Orders:
    """Handle orders until the sender closes the connection. Return in each fork that runs one."""
    while True:
        try:
            orders: Orders = json.loads(sender.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        if "call" in orders:
            with contextlib.suppress(Exception):  # it only saves time
                module, _, function = orders["call"].rpartition(".")
                getattr(importlib.import_module(module), function)()
            gc.collect()
            gc.freeze()
            continue
        if forked_for(orders["parent"], lambda pid: sender.send_bytes(b"%d" % pid)):
            sender.close()
            return orders


def run(orders: Orders) -> None:
    """Run a module as `python -m` does, with the environment, folder and output of the orders."""
    os.environ.clear()
    os.environ.update(orders["environment"])
    os.chdir(orders["folder"])
    output = os.open(orders["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    with input_again() as entered:  # forks share the position in the file
        os.dup2(entered.fileno(), 0)
    _reseed()
    gc.enable()
    sys.path[0] = os.getcwd()
    sys.argv[:] = orders["arguments"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _reseed() -> None:
    """Give this process random numbers of its own. Python itself seeds `random` in each child."""
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


if __name__ == "__main__":
    main()
