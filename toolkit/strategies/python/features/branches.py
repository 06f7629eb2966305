"""Branches, loops, exceptions and contexts: features with a block of further lines."""

from __future__ import annotations

from tcdebug.strategies.python.feature import Feature, statements
from tcdebug.strategies.python.scene import ProgramScene

CONDITIONS: dict[str, tuple[str, ...]] = {
    "x.shape[0] > 2": (),
    "n > 1": (),
    "x.requires_grad": (),
    "x.is_contiguous()": (),
    "x.dtype == torch.float32": (),
    "torch.is_grad_enabled()": ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"),
    "x is y": (),
    "x.shape == y.shape": (),
    "isinstance(n, bool)": (),
    "type(n) is int": (),
    "isinstance(n, (float, bool))": (),
    "x.dim() == 2 and n": (),
    "not n": (),
    "y.dim()": (),
    "x.sum() > 2": (),
    "x.is_leaf": (),
    "x.grad is not None": ("x.grad = x.detach() * 2", "x.grad = None"),
    "hasattr(x, 'scale')": ("x.scale = 2.0", "del x.scale"),
    "isinstance(x, torch.nn.Parameter)": (),
    "torch.is_autocast_enabled('cpu')": ("torch.set_autocast_enabled('cpu', True)",),
    "torch.is_inference_mode_enabled()": (),
    "x.is_inference()": (),
    "torch.are_deterministic_algorithms_enabled()": ("torch.use_deterministic_algorithms(True)",),
    "torch.get_default_dtype() == torch.float64": ("torch.set_default_dtype(torch.float64)",),
    "torch.compiler.is_exporting()": (),
    "n == 1.0": (),
    "x.numel() == 0": (),
    "n in (1, 3)": (),
    "x._version > 0": ("x.detach().mul_(2)",),
    "y._base is not None": (),
}
"""Conditions, each with the statements that change it besides new arguments and modes."""
CONTEXTS = (
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.set_grad_enabled(n == 1)",
    "torch.autocast('cpu', dtype=torch.bfloat16)",
    "torch.autocast('cpu', enabled=False)",
    "torch.inference_mode(False)",
    "torch.inference_mode()",
)
MATCHED = ("n", "x.shape", "(n, x)", "{'n': n}")
RAISED = ("ValueError('drawn')", "KeyError('drawn')", "Refused(x)")
REFUSED = "class Refused(Exception):\n    pass"
CAUGHT = ("Exception", "ValueError", "(KeyError, Refused)", "LookupError")
MANAGER = """
class Recorded:
    def __init__(self, log, swallows=False):
        self.log = log
        self.swallows = swallows
    def __enter__(self):
        self.log.append("enter")
        return self
    def __exit__(self, kind, error, trace):
        self.log.append("exit" if kind is None else kind.__name__)
        return self.swallows
"""
GENERATED_MANAGER = """
import contextlib
@contextlib.contextmanager
def counted(step):
    LOG.append(step)
    try:
        yield step * 2
    finally:
        LOG.append(-step)
"""


def condition(scene: ProgramScene) -> str:
    """Draw a condition, and what may change it between calls."""
    chosen = scene.choose(tuple(CONDITIONS))
    scene.changes.update(dict.fromkeys(CONDITIONS[chosen]))
    return chosen


def _branch(scene: ProgramScene) -> None:
    with scene.block(f"if {condition(scene)}:"):
        scene.fill()
    if scene.flag():
        with scene.block("else:"):
            scene.fill()


def _return(scene: ProgramScene) -> None:
    with scene.block(f"if {condition(scene)}:"):
        scene.write(f"return {scene.tensor()}")


def _chosen(scene: ProgramScene) -> None:
    tested = condition(scene)
    scene.assign(f"{scene.tensor()} if {tested} else {scene.tensor()} * {scene.constant()}")


def _loop(scene: ProgramScene) -> None:
    over = scene.choose(("range(2)", "range(x.dim())", "(1, 2.0)", "enumerate((x, y))"))
    index = scene.name("k")
    total = scene.assign(f"{scene.tensor()} * 1")
    target = f"{index}, part" if over.startswith("enum") else index
    with scene.block(f"for {target} in {over}:"):
        scene.write(f"{total} = {total} * 2 + {index}")
        if scene.flag():
            with scene.block(f"if {condition(scene)}:"):
                scene.write(scene.choose(("continue", "break")))
        scene.fill()
    if scene.flag():
        with scene.block("else:"):
            scene.write(f"{total} = {total} - 1")


def _while(scene: ProgramScene) -> None:
    count, total = scene.name("count"), scene.assign(f"{scene.tensor()} + 0")
    scene.write(f"{count} = 0")
    with scene.block(f"while ({count} := {count} + 1) < {scene.choose(('3', 'x.dim() + 1'))}:"):
        scene.write(f"{total} = {total} * 2")
        scene.fill()


def _try(scene: ProgramScene) -> None:
    scene.define("Refused", REFUSED)
    with scene.block("try:"):
        scene.fill()
        with scene.block(f"if {condition(scene)}:"):
            scene.write(f"raise {scene.choose(RAISED)}")
    with scene.block(f"except {scene.choose(CAUGHT)} as error:"):
        scene.fill()
        if scene.flag():
            scene.write(f"{scene.choose(scene.tensors[2:] or ['x'])} = len(error.args) * x")
        if scene.integer(0, 3) == 3:
            scene.write(scene.choose(("raise", "raise ValueError('again') from error")))
    if scene.flag():
        with scene.block("finally:"):
            scene.define("LOG", "LOG = []")
            scene.write("LOG.append(n)")


def _raise(scene: ProgramScene) -> None:
    scene.define("Refused", REFUSED)
    with scene.block(f"if {condition(scene)}:"):
        scene.write(f"raise {scene.choose(RAISED)}")


def _context(scene: ProgramScene) -> None:
    scene.assign(f"{scene.tensor()} * 1")
    with scene.block(f"with {scene.choose(CONTEXTS)}:"):
        scene.fill()


def _manager(scene: ProgramScene) -> None:
    scene.define("Refused", REFUSED)
    scene.define("LOG", "LOG = []", "LOG.clear()")
    scene.define("Recorded", MANAGER)
    with scene.block(f"with Recorded(LOG{scene.choose(('', ', True'))}):"):
        scene.fill()
        if scene.flag():
            with scene.block(f"if {condition(scene)}:"):
                scene.write(f"raise {scene.choose(RAISED)}")


def _generated_manager(scene: ProgramScene) -> None:
    scene.define("LOG", "LOG = []", "LOG.clear()")
    scene.define("counted", GENERATED_MANAGER)
    step = scene.name("step")
    with scene.block(f"with counted({scene.choose(('3', 'n'))}) as {step}:"):
        scene.fill()
        scene.assign(f"{scene.tensor()} * {step}")


def _grad_mode(scene: ProgramScene) -> None:
    scene.write(f"torch.set_grad_enabled({scene.choose(('False', 'True', 'n == 1'))})")


def _assertion(scene: ProgramScene) -> None:
    scene.write(f"assert {condition(scene)} or n != 3, 'drawn'")


def _match(scene: ProgramScene) -> None:
    total = scene.assign(f"{scene.tensor()} * 1")
    with scene.block(f"match {scene.choose(MATCHED)}:"):
        for case in ("case int() if n > 1:", "case [k, *rest]:", "case {'n': k}:", "case _:"):
            with scene.block(case):
                scene.write(f"{total} = {total} + {scene.constant()}")


BRANCHES = (
    Feature("branch", _branch),
    Feature("early return", _return),
    Feature("conditional expression", _chosen),
    Feature("for loop", _loop),
    Feature("while loop", _while),
    Feature("try", _try),
    Feature("raise", _raise),
    Feature("context", _context),
    statements("nested contexts", "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
               "    with torch.no_grad():\n        {t} = {a} * {c}"),
    Feature("context manager", _manager),
    Feature("context manager of a generator", _generated_manager),
    Feature("set_grad_enabled", _grad_mode),
    Feature("assert", _assertion),
    Feature("match", _match),
)  # fmt: skip
