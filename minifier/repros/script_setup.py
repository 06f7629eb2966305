"""Repeats in a repro script what the user's script does before its failing graph.

The repro runs the user's script with a backend that stops at that graph. Registrations, patches and
options are therefore made by the script's own lines. A backend that is an object of the script is
taken from there too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tcdebug.minifier.processes.callers import ENTRANCES
from tcdebug.minifier.processes.job import Rank
from tcdebug.minifier.processes.spawn import input_again, input_is_file
from tcdebug.minifier.repros.setup_entries import replaced_besides

ALONE = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "TORCHELASTIC_USE_AGENT_STORE": "False",
}  # fmt: skip
"""The environment that torchrun would give to a single rank."""


INPUT = "repro_input"
"""The standard input of a script, beside the repro."""


@dataclass(frozen=True)
class Script:
    """A Python file and its arguments."""

    path: str
    args: tuple[str, ...] = ()
    imported: bool = False
    """Whether multiprocessing started this process, which then only imports the script."""

    @classmethod
    def given(cls, path: str, args: Sequence[str]) -> Script:
        """Return a script by its path. The script may change the current folder later."""
        return cls(str(Path(path).resolve()), tuple(args))

    @classmethod
    def running(cls) -> Script | None:
        """Return the script of this process; None in a notebook or for `python -c`."""
        main = sys.modules.get("__main__")
        path = getattr(main, "__file__", None)
        if path is None or not Path(path).is_file():
            return None
        imported = getattr(main, "__name__", "") == "__mp_main__"
        return cls(str(Path(path).resolve()), tuple(sys.argv[1:]), imported)


def script_setup(
    script: Script,
    ordinal: int,
    folder: Path,
    backend: str = "",
    *,
    entered: bool = False,
    rank: Rank | None = None,
    group: Rank | None = None,
) -> str:
    """Return Python for a repro in `folder` that needs the script's set-up before graph `ordinal`.

    A script that is only imported may define the `backend`. `entered` says that the script gives
    graphs directly to inductor. If it runs as a `rank` alone, so does the repro. `group` is
    the place in the process group that the graph needs, which a script that is only imported does
    not create. A copy of the script is put beside the repro, in case the original is missing or has
    changed, and so is the standard input if it is a file.
    """
    place = ""
    if rank is not None:
        place = f"\n    os.environ.update({rank.variables})  # it was {rank}"
    elif "RANK" in os.environ:
        place = f"\n    os.environ.update({ALONE})  # it was one of several ranks"
    if not script.imported and keeps_input(folder):
        place += f"\n    os.dup2(os.open(os.path.join(os.path.dirname(COPY), {INPUT!r}), 0), 0)"
    path = Path(script.path).resolve()
    copy = folder / "repro_script.py"
    shutil.copyfile(path, copy)
    return (_IMPORTED if script.imported else _SETUP).format(
        script=str(path),
        found=found_text(path, copy.name),
        args=list(script.args),
        ordinal=ordinal,
        folder=str(path.parent),
        working=os.getcwd(),
        backend=backend,
        entrances=ENTRANCES,
        entering=replaced_besides(path.read_text(), entered),
        place=place,
        grouping=_GROUPING.format(init=_init_text(rank), writing=_writing_text(rank) or _FINISHED)
        if rank
        else "",
        group=_grouped(_GROUP_OF_IMPORTED, group) if group else "",
    )


def keeps_input(folder: Path) -> bool:
    """Put our standard input beside a repro if it is a file, and return whether it is one."""
    if not input_is_file():
        return False
    with input_again() as given:
        (folder / INPUT).write_bytes(given.read())
    return True


def fake_group_setup(rank: Rank) -> str:
    """Return Python for a repro whose graph needs the process group of a rank."""
    return _grouped(_FAKE_GROUP, rank)


def _grouped(text: str, rank: Rank) -> str:
    return text.format(init=_init_text(rank), writing=_writing_text(rank))


def _writing_text(rank: Rank) -> str:
    """Return Python that gives results to all collectives; empty if torch's group gives them."""
    from tcdebug.minifier.repros.fake_group import results_are_written  # noqa: PLC0415 - imports torch

    return "" if results_are_written() else _WRITING.format(rank=rank.rank)


def _init_text(rank: Rank) -> str:
    return f'"fake", rank={rank.rank}, world_size={rank.world_size}, store=FakeStore()'


def found_text(script: Path, copy: str) -> str:
    """Return Python that finds the script a repro was made from, or its copy, by its hash."""
    digest = sha256(script.read_bytes()).hexdigest()
    return _FOUND.format(copy=copy, digest=digest)


def sets_up(backend: object) -> bool:
    """Return whether this is the backend of a set-up, which compiles nothing and is left alone."""
    return getattr(backend, "tcdebug_setup", False) is True


_FOUND = '''COPY = os.path.join(os.path.dirname(os.path.abspath(__file__)), {copy!r})
DIGEST = {digest!r}


def found_script():
    """Return the script this repro was made from: at its original path, or else the copy."""
    import hashlib
    for path in (SCRIPT, COPY):
        if os.path.exists(path):
            with open(path, "rb") as file:
                if hashlib.sha256(file.read()).hexdigest() == DIGEST:
                    return path
    raise FileNotFoundError(f"neither {{SCRIPT}} nor {{COPY}} is the script of this repro")
'''

_GROUPING = """
    # This rank runs alone, with torch's fake process group: what other ranks would send is
    # replaced by what this rank sends.
    def like_the_default_group(create):
        import inspect

        def new_group(*args, **kwargs):
            given = inspect.signature(create).bind(*args, **kwargs).arguments
            for name in ("backend", "pg_options", "device_id"):
                given.pop(name, None)
            return create(**given)
        return new_group

    def fake_group(init):
        from torch.testing._internal.distributed.fake_pg import FakeStore
        return lambda *args, **kwargs: init({init})

    for name in ("", ".distributed_c10d", ".device_mesh"):
        module = importlib.import_module("torch.distributed" + name)
        replace(module, "init_process_group", fake_group(module.init_process_group))
        replace(module, "new_group", like_the_default_group(module.new_group)){writing}"""

_FINISHED = """
    @torch.compiler.disable
    def finished(tensors, *others, **named):  # DistributedDataParallel reads the future's value
        device = tensors[0].device
        future = torch.futures.Future(devices=[] if device.type == "cpu" else [device])
        future.set_result(tensors)
        work = torch._C._distributed_c10d._create_work_from_future(future)
        return tensors, work.boxed()

    import warnings
    collectives = torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in ("CPU", "CUDA"):
            collectives.impl("allreduce_", finished, key)"""

_WRITING = """
    from tcdebug.minifier.repros.fake_group import write_results
    globals()["written"] = write_results({rank})  # the group of this torch leaves some unwritten"""

_FAKE_GROUP = """
# The graph communicates with other ranks. It runs alone, with torch's fake process group: what
# other ranks would send is replaced by what this rank sends.
def set_up(then):
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.distributed.init_process_group({init}){writing}
    then()
"""

_GROUP_OF_IMPORTED = """
    # Its graph communicates with other ranks. It runs alone, with torch's fake process group: what
    # other ranks would send is replaced by what this rank sends.
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore
    torch.distributed.init_process_group({init}){writing}"""

_SETUP = """
# The failure needs what the script sets up. The script runs up to graph {ordinal}, from its
# original path or from the copy beside this file. The graph is judged inside that call, where
# everything that the script has set up is in force.
SCRIPT, ARGS, GRAPH = {script!r}, {args!r}, {ordinal}
{found}

class Reached(BaseException):
    pass


def set_up(then):
    import contextlib
    import runpy
    import threading{place}
    script = found_script()
    seen, original, arguments = [], torch._dynamo.optimize, sys.argv
    replaced = []

    def replace(owner, name, value):
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def restore():
        while replaced:
            setattr(*replaced.pop())

    def stopping(backend):
        def stop(module, inputs):
            place = len(seen)
            seen.append(module)

            def call(*values):
                if place == GRAPH:
                    names = module.graph.python_code("self").globals  # functions of the script
                    for name, value in names.items():
                        globals().setdefault(name.lstrip("_"), value)
                    CALL["backend"] = CALL["backend"] or backend
                    restore()
                    then()
                    raise Reached
                return module(*values)
            return call
        stop.tcdebug_setup = True
        return stop

    def stopping_at(packaging):
        def package(program, *args, **kwargs):
            if not called_by_user(sys._getframe(1)):
                return packaging(program, *args, **kwargs)
            for backend in ways(packaging, program, *args, **kwargs):
                if len(seen) == GRAPH:
                    CALL["backend"] = CALL["backend"] or backend
                    restore()
                    then()
                    raise Reached
                seen.append(program)
            return packaging(program, *args, **kwargs)
        return package

    def ways(packaging, *args, **kwargs):  # as torch.compile compiles it, and as AOTInductor does
        import functools
        import inspect
        from tcdebug.minifier.targets.aotinductor import aotinductor
        from tcdebug.minifier.targets.entries import compile_fx
        given = inspect.signature(packaging).bind(*args, **kwargs).arguments
        settings = dict(given.get("inductor_configs") or given.get("options") or {{}})
        shared = {{n: v for n, v in settings.items() if not n.startswith("aot_inductor.")}}
        yield functools.partial(compile_fx, options=shared)
        yield functools.partial(aotinductor, options=settings)

    def called_by_user(frame):  # rather than by torch, which compiles `scan` and others itself
        torch_folder = os.path.dirname(torch.__file__) + os.sep
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(torch_folder):
                if not name[len(torch_folder):].startswith({entrances!r}):
                    return False
            elif frame.f_code.co_name != "optimize":
                return True
            frame = frame.f_back
        return True

    def optimize(backend="inductor", *args, **kwargs):
        nested = getattr(backend, "tcdebug_setup", False)  # the script is itself a repro
        left_alone = nested or not called_by_user(sys._getframe(1))
        return original(backend if left_alone else stopping(backend), *args, **kwargs)

    replace(torch._dynamo, "optimize", optimize)
    for name in ("aoti_compile_and_package", "aot_compile"):
        replace(torch._inductor, name, stopping_at(getattr(torch._inductor, name)))
{entering}{grouping}
    os.environ["TCDEBUG_SESSION"] = "1"  # so that a repro runs its graph in this process
    sys.argv = [script, *ARGS]
    sys.path.insert(0, {folder!r})
    if os.path.isdir({working!r}):
        os.chdir({working!r})  # the original working folder
    try:
        with contextlib.suppress(SystemExit):
            runpy.run_path(script, run_name="__main__")
        threading._shutdown()  # python's wait for other threads, which may reach the graph
    except Reached:
        pass
    finally:
        sys.argv = arguments
        restore()
"""

_IMPORTED = """
# The failure needs what the script sets up. The script is imported as multiprocessing imports it,
# from its original path or from the copy beside this file.
SCRIPT, ARGS = {script!r}, {args!r}
{found}

def set_up(then):
    import runpy{place}
    script, arguments = found_script(), sys.argv
    sys.argv = [script, *ARGS]
    sys.path.insert(0, {folder!r})
    if os.path.isdir({working!r}):
        os.chdir({working!r})  # the original working folder
    try:
        names = runpy.run_path(script, run_name="__mp_main__")
    finally:
        sys.argv = arguments
    CALL["backend"] = CALL["backend"] or names.get({backend!r})
    for name in Graph.forward.__code__.co_names:  # functions of the script
        if name in names:
            globals().setdefault(name, names[name]){group}
    then()
"""
