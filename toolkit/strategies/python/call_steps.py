"""The calls of a program: arguments, and what changes between calls."""

from __future__ import annotations

from tcdebug.strategies.python.python_program import CallStep
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
NUMBERS = ("1", "2", "3", "True", "2.5", "0", "False", "1.0", "-1", "5")
MODES = (
    "", "", "", "", "torch.no_grad()", "torch.inference_mode()", "torch.enable_grad()",
    "torch.autocast('cpu', dtype=torch.bfloat16)", "torch.device('cpu')",
)  # fmt: skip
OF_RESULTS = (
    "result[-1].add_(1)", "result[0].mul_(2)", "result[0].requires_grad_()",
    "result[-1].sum().backward()", "x = result[0]", "y = result[-1]", "result = None",
)  # fmt: skip
"""What a program may do with the results of a call."""
KEPT = "kept = x * x"
"""Keeps a value whose gradient needs the contents of `x` from before a call."""
AFTER_KEPT = "kept.sum().backward()"
LATER_CALLS = (1, 1, 1, 2, 2, 3)
MOST_CHANGES = 2


def draw_steps(scene: ProgramScene) -> tuple[CallStep, ...]:
    """Draw the calls, the first with new arguments."""
    first = [
        f"x = {scene.choose(FIRST)}",
        f"y = {scene.choose(SECOND)}",
        f"n = {scene.choose(NUMBERS)}",
    ]
    backward = scene.flag()
    if scene.integer(0, 9) == 9:
        first.append(KEPT)
        scene.changes[AFTER_KEPT] = None
    steps = [_step(scene, first, backward)]
    for _ in range(scene.choose(LATER_CALLS)):
        lines: list[str] = []
        for _ in range(scene.integer(0, MOST_CHANGES)):
            lines.append(_change(scene))
        steps.append(_step(scene, lines, backward))
    return tuple(steps)


def _step(scene: ProgramScene, lines: list[str], backward: bool) -> CallStep:
    mode = scene.choose((*MODES, *scene.modes))
    between: tuple[str, ...] = ()
    if backward and scene.between and scene.flag():
        between = (scene.choose(tuple(scene.between)),)
    thread = scene.integer(0, 9) == 9
    return CallStep(tuple(dict.fromkeys(lines)), mode, backward, between, thread)


def _change(scene: ProgramScene) -> str:
    kind = scene.integer(0, 9)
    if kind <= 5 and scene.changes:
        return scene.choose(tuple(scene.changes))
    if kind <= 6:
        return f"x = {scene.choose(FIRST)}"
    if kind == 7:
        return f"y = {scene.choose(SECOND)}"
    if kind == 8:
        return f"n = {scene.choose(NUMBERS)}"
    return scene.choose(OF_RESULTS)
