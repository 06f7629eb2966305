"""An interpreter that has imported torch and tcdebug, and forks itself for each program.

python warm_server.py SOCKET PYTHON. A test starts PYTHON, which is `warm_client.py`, instead of
Python. A program finds what a fresh interpreter would give it: arguments, folder, environment,
standard files, and an empty `__main__`. But the modules in `PRELOADED` are imported. If the client
ends, its program is killed. `tcdebug` gets its own server for the processes that it starts: see
`warm_popen.py`.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from huge_pages import collapse
from torch.utils import _config_module
from warm_client import READ_AT_IMPORT
from warm_popen import DIE_WITH_PARENT, become_child_of, prctl, warm_popen

PRELOADED = (
    "torch._dynamo",
    "torch._dynamo.repro.after_dynamo",
    "torch._functorch.aot_autograd",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.compile_fx",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.serialized_patterns.*",
    "torch.distributed.tensor.experimental._func_map",
    "torch.export._trace",
    "safetensors.torch",
    "setuptools",
    "structlog",
    "sympy.tensor.tensor",
    "tcdebug.api.*",
    "tcdebug.cli.*",
    "tcdebug.commands.*",
    "tcdebug.compiler.backend",
    "tcdebug.compiler.events.writer",
    "tcdebug.fuzz.campaign",
    "tcdebug.fuzz.hunt",
    "tcdebug.fuzz.runner",
    "tcdebug.minifier.sessions.execution",
    "tcdebug.minifier.sessions.script_session",
)
"""Modules; `.*` stands for all modules of a package."""

FORCED = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": ("torch._inductor.config", "fx_graph_cache"),
    "TORCHINDUCTOR_AUTOGRAD_CACHE": ("torch._functorch.config", "enable_autograd_cache"),
}
"""Settings that repros have and users' scripts do not, by their variables."""


def preload() -> None:
    """Import what most tests import, skip what conftest.py skips, and pick the instructions.

    Another version of torch may lack some of it.
    """
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name.removesuffix(".*"))
            inside = pkgutil.iter_modules(module.__path__) if name.endswith(".*") else ()
            for found in inside:
                importlib.import_module(f"{module.__name__}.{found.name}")
    guards: Any = importlib.import_module("torch._dynamo.guards")
    guards.profile_guard_manager = lambda *_: 0.0  # as in conftest.py
    with contextlib.suppress(ImportError):
        cpu_vec_isa: Any = importlib.import_module("torch._inductor.cpu_vec_isa")
        cpu_vec_isa.VecISA.check_build = lambda *_: True  # as in conftest.py
        cpu_vec_isa.pick_vec_isa()


def compile_once() -> None:
    """Do once what each fork would do at its first compile. Afterwards Dynamo is as it was."""
    embedded = importlib.import_module("tcdebug.minifier.targets.warm_embedded")
    embedded.warm_up()
    inductor = importlib.import_module("tcdebug.minifier.targets.inductor.warm")
    inductor.set_up()


def skip_finalizers() -> None:
    """Leave torch's operators registered when a fork exits.

    To remove them one by one would copy 9000 pages, in 35 ms of CPU time.
    """
    for registered in weakref.finalize._registry.values():  # type: ignore[attr-defined] # private
        registered.atexit = False


def listening(address: str) -> socket.socket:
    """A socket to which clients can connect."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def serve(listener: socket.socket, end: list[int]) -> dict[str, Any]:
    """Serve until a file of `end` closes. In a forked process, return what it must run."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    clients: dict[int, socket.socket] = {}
    while True:
        waited: list[Any] = [listener, woken, *end, *clients.values()]
        ready, _, _ = select.select(waited, [], [])
        if any(file in ready for file in end):
            os._exit(0)
        if listener in ready:
            connection, _ = listener.accept()
            request, files = asked(connection)
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                if "parent" in request:
                    if os.fork():
                        os._exit(0)
                    become_child_of(
                        request["parent"],
                        own_session=request["own_session"],
                        bound=request["bound"],
                    )
                    connection.send(b"%d" % os.getpid())
                for number, file in enumerate(files):
                    os.dup2(file, number)
                for number in (*files, woken, wake):
                    os.close(number)
                for ours in (listener, connection, *clients.values()):
                    ours.close()
                return request
            for file in files:
                os.close(file)
            if "parent" in request:
                os.waitpid(process, 0)
                connection.close()
            else:
                clients[process] = connection
        if woken in ready:
            os.read(woken, 4096)
        for process, connection in list(clients.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                with contextlib.suppress(BrokenPipeError):  # the client may have gone
                    connection.send(b"%d" % os.waitstatus_to_exitcode(status))
                del clients[process]
                connection.close()
            elif connection in ready:  # the client sends nothing: it has gone
                os.kill(process, signal.SIGKILL)


def asked(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The request of a client, and its standard files."""
    size, sent, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * 4))
    files = array.array("i")
    files.frombytes(sent[0][2])
    text, rest = b"", int.from_bytes(size, "big")
    while len(text) < rest:
        text += connection.recv(rest - len(text))
    return json.loads(text), list(files)


def serving_commands(
    request: dict[str, Any], address: str, python: str, settings: dict[str, str]
) -> dict[str, Any]:
    """The request that this process must run. One that runs `tcdebug` forks its sessions.

    Its server is forked before anything runs, so that it is as fresh as this one.
    """
    sys.executable = python
    if request["arguments"][0] != "-m":
        return request
    for variable, (module, setting) in FORCED.items():
        if variable not in request["environment"]:
            entry = vars(sys.modules[module])["_config"][setting]
            entry.env_value_force = _config_module._UNSET_SENTINEL
    if request["arguments"][1] != "tcdebug":
        return request
    address, parent = f"{address}-{os.getpid()}", os.getpid()
    listener = listening(address)
    if os.fork() == 0:
        prctl(DIE_WITH_PARENT, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        if os.getppid() != parent:
            os._exit(0)
        return serving_commands(serve(listener, []), address, python, settings)
    listener.close()
    subprocess.Popen = warm_popen(python, address, settings)  # type: ignore[misc] # of it alone
    return request


def run(arguments: list[str]) -> None:
    """Run a script, -c or -m as Python would."""
    script = sys.modules["__main__"] = ModuleType("__main__")
    names: dict[str, Any] = {"__annotations__": {}, "__builtins__": __builtins__}
    kind, sys.argv = arguments[0], arguments
    if kind == "-m":
        name, sys.path[0] = sys.argv.pop(1), os.getcwd()
        script.__dict__.update(names)
        runpy._run_module_as_main(name)  # type: ignore[attr-defined] # what -m does
    elif kind == "-c":
        text, sys.path[0] = sys.argv.pop(1), ""
        script.__dict__.update(names)
        exec(compile(text, "<string>", "exec"), script.__dict__)
    else:
        place = os.path.abspath(kind)
        sys.path[0] = os.path.dirname(place)
        script.__dict__.update(names | {"__file__": place, "__cached__": None})
        exec(compile(Path(kind).read_text(), kind, "exec"), script.__dict__)


def exit_status(arguments: list[str]) -> int:
    """Run it, and print exceptions that it did not catch."""
    try:
        run(arguments)
    except SystemExit as end:
        if isinstance(end.code, int):
            return end.code
        if end.code is not None:
            print(end.code, file=sys.stderr)  # noqa: T201 # what sys.exit("text") does
        return int(end.code is not None)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error, trace)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def leave(status: int) -> NoReturn:
    """Exit as Python does, but without the second that it takes to clear the modules."""
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 255)


if __name__ == "__main__":
    address, python = sys.argv[1:]
    settings = {k: v for k, v in os.environ.items() if k.startswith(READ_AT_IMPORT)}
    assert torch.get_num_threads() == 1  # by a variable: a call of torch makes a pool for all forks
    gc.disable()  # imports make a million objects that stay
    preload()
    gc.freeze()  # what imports have made is not searched
    compile_once()
    skip_finalizers()
    gc.enable()
    gc.collect()
    gc.freeze()  # a collection in a child need not copy our objects
    collapse()
    listener = listening(address)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    request = serving_commands(serve(listener, [0]), address, python, settings)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if os.environ.get("PYTHONWARNINGS") == "ignore":
        warnings.simplefilter("ignore")
    leave(exit_status(request["arguments"]))
