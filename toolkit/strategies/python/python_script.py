"""A Python program as a script that compares compiled with eager. It needs only torch."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from tcdebug.strategies.python.process_flags import MODES, PROCESS_FLAGS
from tcdebug.strategies.python.python_program import (
    CALL,
    INDENT,
    CallStep,
    PythonProgram,
    names_assigned,
)
from tcdebug.strategies.python.ways import (
    CACHE_VARIABLES,
    EAGER_DRAWS,
    INDUCTOR,
    NUMBER,
    OF_INDUCTOR,
    WAYS,
)


def python_script(program: PythonProgram, call: Mapping[str, object]) -> str:
    """Return the script. It exits with 1 and prints the first difference if compiled differs."""
    given = dict(call) if program.dynamic is None else {**call, "dynamic": program.dynamic}
    text = ", ".join(f"{name}={value!r}" for name, value in given.items())
    names = names_assigned([line for step in program.steps for line in step.lines])
    lines = [f"global {', '.join(names)}"] if names else []
    for step in program.steps:
        lines += [*step.lines, *_call_lines(step)]
    body = textwrap.indent("\n".join(lines), INDENT)
    way = WAYS[program.way]
    changed = list(way.settings)
    if way.inference or call.get("backend") == INDUCTOR:
        changed.append((OF_INDUCTOR, EAGER_DRAWS, True))
    settings = "".join(
        f"    import {module}\n    {module}.{name} = {value!r}\n" for module, name, value in changed
    )
    plain = 'eager["program"]'
    main = _MAIN.format(
        flags=_FLAGS, modes=f"[{', '.join(MODES)}]",
        call=text, settings=settings, compared=1 if way.exports else None,
        eager=f'eager["wrapped"]({plain})' if way.wrapper else plain,
    )  # fmt: skip
    threads = _THREADS if any(step.thread for step in program.steps) else ""
    functions = f"{way.wrapper}\n{way.definition}{threads}".strip()
    ending = _IN_PROCESSES if way.processes else _ENDING
    return f"{program.source()}\n\n{functions}\n\n\ndef calls(program):\n{body}\n{main}{ending}"


def _call_lines(step: CallStep) -> list[str]:
    after = f"{step.backward}, {chr(10).join(step.between)!r}"
    if step.thread:
        mode = step.mode or "contextlib.nullcontext()"
        return [f"yield lambda: in_second_thread(lambda: {CALL}, lambda: {mode}), {after}"]
    call = f"yield lambda: {CALL}, {after}"
    return [f"with {step.mode}:", f"{INDENT}{call}"] if step.mode else [call]


_THREADS = """

import concurrent.futures
import contextlib

_second_thread = concurrent.futures.ThreadPoolExecutor(1)


def in_second_thread(call, mode):
    def work():
        with mode():
            return call()

    return _second_thread.submit(work).result()
"""
_FLAGS = "\n".join(f"    (lambda: {read}, lambda value: {put})," for read, put in PROCESS_FLAGS)
_MAIN = '''

import decimal
import os
import random

_FLAGS = [  # what a program may change in its process
{flags}
]


def described(value, known):
    """A value and all that it refers to, as text."""
    if isinstance(value, torch.Tensor):
        try:
            leaf, history = value.is_leaf, (value.requires_grad, value.grad_fn is None)
        except RuntimeError:  # a view under no_grad, whose base was written to
            leaf, history = False, (value.requires_grad, "forbidden")
        grad = value.grad if leaf and value.requires_grad else None
        text = f"{{value.dtype}} {{history}}"
        parts = [text, value.detach().double().tolist()]
        if grad is not None:
            parts += ["grad", described(grad, known)]
        known, own = {{*known, id(value)}}, vars(value)
        return [*parts, {{k: described(v, known) for k, v in own.items() if k[0] != "_"}}]
    seen = id(value) in known or isinstance(value, type(torch))
    if seen or callable(value) and not isinstance(value, torch.nn.Module):
        own = {{}}
        if isinstance(value, type) and value.__module__ == __name__ and not seen:
            own = vars(value).items()
            own = {{k: v for k, v in own if k[0] != "_" and not hasattr(v, "__get__")}}
        elif not seen:
            own = {{"defaults": getattr(value, "__defaults__", None)}}
        own = {{k: described(v, {{*known, id(value)}}) for k, v in own.items()}}
        return [type(value).__name__, own]
    if isinstance(value, float):
        return value
    if value is None or isinstance(value, (int, str, torch.dtype, torch.Size)):
        return repr(value)
    known = {{*known, id(value)}}
    items = dict(vars(value)) if hasattr(value, "__dict__") else {{}}
    if isinstance(value, dict):
        items["keys"] = [repr(key) for key in dict.keys(value)]
        items.update((f"[{{key!r}}]", item) for key, item in dict.items(value))
    elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        items.update((f"[{{k}}]", item) for k, item in enumerate(type(value).__iter__(value)))
    elif isinstance(value, (set, frozenset)):
        return f"{{sorted(value, key=repr)}}"
    return {{name: described(item, known) for name, item in items.items()}}


def differ(right, other):
    """Whether two descriptions differ by more than rounding."""
    if type(right) is not type(other):
        return True
    if isinstance(right, float):
        close = 1e-4 * max(1, abs(right)) >= abs(right - other)
        return not (right == other or close or right != right and other != other)
    if isinstance(right, dict):
        return right.keys() != other.keys() or any(differ(right[k], other[k]) for k in right)
    if isinstance(right, list):
        return len(right) != len(other) or any(map(differ, right, other))
    return right != other


def outcomes(program):
    """What each call returns or raises, and the variables of this module afterwards."""
    steps = calls(program)
    while True:
        try:
            call, backward, between = next(steps)
        except StopIteration:
            return
        except Exception as error:  # of the lines before a call
            yield type(error).__name__, {{}}
            return
        try:
            result = globals()["result"] = call()
            exec(between, globals())
            values = result if isinstance(result, (list, tuple)) else [result]
            roots = [v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
            if backward and roots:
                sum(root.sum() for root in roots).backward()
        except Exception as error:
            result = type(error).__name__
        state = {{k: described(v, ()) for k, v in globals().items() if k[0] != "_"}}
        state.pop("outcome", None)
        state["modes of torch"] = repr({modes})
        yield described(result, ()), state


result = None


def loaded(name):
    """This file as a module of this name, which Dynamo can import."""
    import sys

    torch.manual_seed(0)
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = __file__
    with open(__file__) as file:
        exec(compile(file.read(), __file__, "exec"), vars(module))
    return vars(module)


def restore(found):
    """Give the process back as it was before the program ran."""
    torch.set_default_device(None)
    for put, value in found:
        put(value)


def main():
    import sys

    found = [(put, read()) for read, put in _FLAGS]
    eager = loaded("eager")
    wanted = list(eager["outcomes"]({eager}))
    restore(found)
    there = loaded("compiled")
{settings}    actual = list(there["outcomes"](there["compiled"](there["program"], {call})))
    for number, (right, other) in enumerate(zip(wanted[:{compared}], actual), 1):
        if differ(right[0], other[0]):
            sys.exit(f"call {{number}} gives {{other[0]}} instead of {{right[0]}}")
        if {compared}:
            break  # an exported program leaves the variables of this module alone
        for name, value in right[1].items():
            now = other[1].get(name)
            if differ(value, now):
                sys.exit(f"after call {{number}}, {{name}} is {{now}}, not {{value}}")

'''
_ENDING = """

if __name__ == "__main__":
    main()
"""
_IN_PROCESSES = f'''

def in_processes():
    """Run this file with other numbers, then twice as it is. All processes share their caches."""
    import os
    import re
    import subprocess
    import sys
    import tempfile

    with open(__file__) as file:
        program, found, rest = file.read().partition("def calls(")
    numbers = re.sub(r"{NUMBER.pattern}", lambda n: f"{{int(n[1]) + 1}}.{{n[2]}}", program)
    with tempfile.TemporaryDirectory() as folder:
        others = os.path.join(folder, "others.py")
        with open(others, "w") as file:
            file.write(numbers + found + rest)
        caches = {{name: folder for name in {CACHE_VARIABLES}}}
        for name, path in ("other", others), ("first", __file__), ("second", __file__):
            command = [sys.executable, path, "alone"]
            done = subprocess.run(
                command, env={{**os.environ, **caches}}, capture_output=name == "other"
            )
            if done.returncode and name != "other":
                sys.exit(f"the {{name}} process fails")


if __name__ == "__main__":
    import sys

    if sys.argv[1:]:
        main()
    else:
        in_processes()
'''
