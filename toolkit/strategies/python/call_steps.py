"""The calls of a program: arguments, and what changes between calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tcdebug.strategies.python.python_program import RESULT, CallStep, CodeLine
from tcdebug.strategies.python.scene import ProgramScene

FIRST = (
    "torch.arange(6.0).reshape(2, 3)",
    "torch.ones(2, 3, requires_grad=True)",
    "torch.arange(12.0).reshape(4, 3)",
    "torch.arange(6.0).reshape(3, 2).t()",
    "torch.arange(12.0).reshape(2, 6)[:, ::2]",
    "torch.ones(2, 3, dtype=torch.float64)",
    "torch.arange(6).reshape(2, 3)",
    "torch.ones(1, 3)",
    "torch.ones(0, 3)",
    "torch.nn.Parameter(torch.ones(2, 3))",
    "torch.arange(9.0).reshape(3, 3)",
    "torch.ones(3)",
    "torch.ones(1, 1, requires_grad=True).expand(2, 3)",
    "torch.arange(8.0)[2:].reshape(2, 3)",
)
SECOND = (
    "torch.ones(3)",
    "x",
    "torch.arange(3.0, requires_grad=True)",
    "torch.tensor(2.0)",
    "x",
    "x[:1]",
    "x[0]",
    "x.detach()",
    "x.view(x.shape)",
    "torch.ones(1, 3, dtype=torch.float64)",
    "torch.tensor(3)",
    "torch.tensor(True)",
    "torch.ones(3, dtype=torch.bfloat16)",
    "torch.zeros(1, 3)",
)
NEAR_FIRST = (
    "torch.cat([x.detach()] * 2)", "x.detach().clone()", "x.detach().double()", "x.detach()[:1]",
    "x.detach().t().contiguous().t()", "x.detach().float().requires_grad_()",
    "torch.nn.Parameter(x.detach().float())",
)  # fmt: skip
"""Arguments that differ from those of the call before in one property."""
NEAR_SECOND = ("y.detach().clone()", "y.detach().double()", "y.detach().float().requires_grad_()")
NUMBERS = (
    "1", "2", "3", "True", "2.5", "0", "False", "1.0", "-1", "5", "-0.0", "float('nan')", "1j",
)  # fmt: skip
NEAR_NUMBER = ("n + 1", "not n", "float(n)", "-n", "bool(n)")
MODES = (
    "", "", "", "", "", "torch.no_grad()", "torch.inference_mode()", "torch.enable_grad()",
    "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.device('cpu')",
    "torch.compiler.set_stance('force_eager')", "torch.compiler.set_stance('eager_on_recompile')",
)  # fmt: skip
MODES_READ = {
    "is_grad_enabled": ("torch.no_grad()", "torch.enable_grad()"),
    "is_inference_mode_enabled": ("torch.inference_mode()",),
    "is_inference": ("torch.inference_mode()",),
    "is_autocast_enabled": ("torch.autocast('cpu', dtype=torch.bfloat16)",),
}
"""For functions that read a mode: the contexts that change what they return."""
OF_RESULTS = (
    "result[-1].add_(1)", "result[0].mul_(2)", "result[0].requires_grad_()",
    "result[-1].sum().backward()", "x = result[0]", "y = result[-1]", "result = None",
)  # fmt: skip
"""What a program may do with the results of a call."""
KEPT = "kept = x * x"
"""A statement that keeps a value, whose gradient needs the contents of `x` before a call."""
AFTER_KEPT = "kept.sum().backward()"
ARGUMENTS = {
    "x": (*FIRST, *NEAR_FIRST * 2), "y": (*SECOND, *NEAR_SECOND),
    "n": (*NUMBERS, *NEAR_NUMBER * 2),
}  # fmt: skip
"""What an argument may be in a later call."""
WORD = re.compile(r"\w+")
WRITE = re.compile(r"\b[xyv]\w*\.\w+_\(")
"""A method that writes to a tensor."""
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
INSTANCE = re.compile(r"^([A-Z_]+) = (\w+)\(", re.MULTILINE)
MOST_TURNS = 3
"""How often an argument that is read often is drawn for a change, beside four turns of state."""
LATER_CALLS = (1, 1, 1, 2, 2, 3)
CHANGES = (0, 0, 1, 1, 1, 2, 2)
"""How many statements run between calls. Equal calls show recompiles and effects that add up."""
RECORDED = tuple(v for v in FIRST if "requires_grad" in v or "Parameter" in v)
ALIASES = ("x", "x[:1]", "x[0]", "x.detach()", "x.view(x.shape)")


def draw_steps(scene: ProgramScene) -> tuple[CallStep, ...]:
    """Draw the calls, the first with new arguments.

    If the function reads whether a tensor requires a gradient, the first argument often does. If it
    writes to a tensor, the arguments often share memory.
    """
    text = "\n".join(_texts(scene.body()))
    read = WORD.findall(text)
    hiding = tuple(_hiding(scene, text))
    with_gradients = "requires_grad" in read and scene.flag()
    with_aliases = bool(WRITE.search(text)) and scene.flag()
    first = [
        f"x = {scene.choose(RECORDED if with_gradients else FIRST)}",
        f"y = {scene.choose(ALIASES if with_aliases else SECOND)}",
        f"n = {scene.choose(NUMBERS)}",
    ]
    backward = scene.flag() or with_gradients
    if scene.integer(0, 9) == 9:
        first.append(KEPT)
        scene.changes[AFTER_KEPT] = None
    modes = [mode for name, likely in MODES_READ.items() if name in read for mode in likely * 3]
    steps = [_step(scene, first, backward, ("", *modes))]
    for _ in range(scene.choose(LATER_CALLS)):
        lines = [_change(scene, read, hiding) for _ in range(scene.choose(CHANGES))]
        steps.append(_step(scene, lines, backward, (steps[-1].mode, *modes)))
    return tuple(steps)


def _hiding(scene: ProgramScene, text: str) -> Iterator[str]:
    """Return assignments to objects that hide attributes of their classes that are read."""
    parts = (line.rendered() for lines in scene.definitions.values() for line in lines)
    definitions = "\n".join(parts)
    classes = CLASS.findall(definitions)
    for name, kind in INSTANCE.findall(definitions):
        if kind not in classes:
            continue
        for attribute, called in re.findall(rf"\b{name}\.([a-z]\w*)(\()?", text):
            if f"self.{attribute} = " not in definitions:
                value = "lambda *values: values[0] * 7" if called else "7.5"
                yield f"{name}.{attribute} = {value}"


def _step(scene: ProgramScene, lines: list[str], backward: bool, likely: Sequence[str]) -> CallStep:
    """Draw a call. Its mode is most often that of the call before, the first of the `likely` ones.

    Another mode compiles again, and so hides that a guard is missing.
    """
    before, *others = likely
    mode = scene.choose((*(before,) * len(MODES) * 2, *MODES, *scene.modes, *others))
    between: tuple[str, ...] = ()
    if backward and scene.between and scene.flag():
        between = (scene.choose(tuple(scene.between)),)
    thread = scene.integer(0, 9) == 9
    return CallStep(tuple(dict.fromkeys(lines)), mode, backward, between, thread)


def _change(scene: ProgramScene, read: Sequence[str], hiding: tuple[str, ...]) -> str:
    """Return a statement that changes what the program reads, or sometimes something else."""
    arguments = [name for name in "xyn" for _ in range(min(read.count(name), MOST_TURNS))]
    state = bool(scene.changes or hiding)
    kind = scene.choose((*("state",) * 4 * state, *(arguments or "x"), RESULT))
    if kind == "state":
        changes = (*scene.changes, *hiding * 2)
        likely = [change for change in changes if written_names(change) <= set(read)]
        return scene.choose((*likely, *changes) if scene.flag() else likely or changes)
    if kind == RESULT:
        return scene.choose(OF_RESULTS)
    return f"{kind} = {scene.choose(ARGUMENTS[kind])}"


def _texts(lines: Sequence[CodeLine]) -> Iterator[str]:
    for line in lines:
        yield line.text
        yield from _texts(line.body)


def written_names(change: str) -> set[str]:
    """Return the names that a statement writes to.

    Methods and subscripts do not count: `BOX.parts[0] = 1` and `BOX.parts.pop()` write to `BOX` and
    `parts`.
    """
    target = re.split(r" = |[(\[]", change.removeprefix("def ").removeprefix("del "))[0]
    names = target.split(".")
    called = change.startswith(f"{target}(")
    return set(names[:-1] if called else names)
