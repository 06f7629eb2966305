"""The construct of each finding in docs/findings/python, as the strategies draw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tcdebug.strategies.python.call_steps import AFTER_KEPT, KEPT, MODES, OF_RESULTS
from tcdebug.strategies.python.feature import Feature
from tcdebug.strategies.python.python_program import CallStep, PythonProgram
from tcdebug.strategies.python.python_programs import TABLES
from tcdebug.strategies.python.scene import ProgramScene
from tcdebug.strategies.python.ways import COMPILE

T = TypeVar("T")
FIRST = ("x = torch.ones(2, 3, requires_grad=True)", "y = torch.ones(3)", "n = 1")
RECENT = (
    "stored_generator", "data_attribute", "random_dtype", "function_name", "docstring",
    "vmap_function", "dynamic_buffer", "call_counter",
)  # fmt: skip
"""Regressions in torch 2.15."""
MENDED = ("generator_throw", "nan_key", "region_modules")
"""Findings that torch 2.14 and later do not have."""


@dataclass
class ChosenScene(ProgramScene):
    """Draws the wanted options, and the simplest one where none is wanted."""

    wanted: tuple[str, ...] = ()

    def choose(self, options: Sequence[T]) -> T:
        """The first wanted option, or else the first."""
        return next((o for o in options if o in self.wanted), options[0])

    def flag(self) -> bool:
        """Always False."""
        return False

    def integer(self, low: int, high: int) -> int:
        """The least number."""
        return low


@dataclass(frozen=True)
class DrawnConstruct:
    """Features, the options that they choose, and what happens before and between two calls.

    `then` is a second feature, which makes sure that there is a graph.
    """

    feature: str
    change: str = ""
    then: str = ""
    wanted: tuple[str, ...] = ()
    mode: str = ""
    later_mode: str = ""
    """The mode of the second call."""
    between: str = ""
    first: tuple[str, ...] = FIRST
    dynamic: bool | None = None
    way: str = COMPILE
    backend: str = "eager"

    def scene(self) -> ProgramScene:
        """The scene after the feature was drawn."""
        scene = ChosenScene(_never, _nothing, wanted=("x", *self.wanted))
        for name in filter(None, (self.feature, self.then)):
            scene.feature = name
            _named(name).draw(scene)
        if KEPT in self.first:
            scene.changes[AFTER_KEPT] = None
        return scene

    def program(self) -> PythonProgram:
        """The program. Raises ValueError if the strategies do not draw the construct."""
        scene = self.scene()
        if self.change and self.change not in (*scene.changes, *OF_RESULTS):
            raise ValueError(f"no change {self.change!r}")
        for mode in filter(None, (self.mode, self.later_mode)):
            if mode not in (*scene.modes, *MODES):
                raise ValueError(f"no mode {mode!r}")
        if self.between and self.between not in scene.between:
            raise ValueError(f"nothing between: {self.between!r}")
        between = (self.between,) if self.between else ()
        backward = bool(self.between)
        steps = [CallStep(self.first, self.mode, backward, between)]
        if not self.mode and not self.between:
            steps.append(CallStep((self.change,) if self.change else (), self.later_mode))
        definitions = tuple(line for lines in scene.definitions.values() for line in lines)
        return PythonProgram(definitions, scene.body(), tuple(steps), self.dynamic, self.way)


def _named(name: str) -> Feature:
    return next(f for _, table in TABLES for f in table if f.name == name)


def _never(strategy: object) -> object:
    raise AssertionError("a chosen scene draws nothing")


def _nothing(scene: ProgramScene) -> None:
    pass


GRADIENT = ("x = torch.ones(2, 3, requires_grad=True)", "y = x", "n = 1")
PLAIN = ("x = torch.arange(6.0).reshape(2, 3)", "y = torch.ones(3)", "n = 1")
WHOLE = ("x = torch.arange(6).reshape(2, 3)", "y = torch.ones(3)", "n = 5")
NEGATIVE = (*FIRST[:2], "n = -1")
CONSTRUCTS = {
    "abstract_class": DrawnConstruct("abstract class", "Shape.register(Square)"),
    "array_in_inference_mode": DrawnConstruct(
        "function of an array", mode="torch.inference_mode()"
    ),
    "backward_state": DrawnConstruct(
        "hook before backward of a module",
        between="RATES.append(3.0)",
        then="hook writes to a list",
        way="compiled autograd",
        backend="aot_eager",
        first=GRADIENT,
    ),
    "bound_method": DrawnConstruct("get across a break", first=PLAIN),
    "builtin_shadowed": DrawnConstruct("shadowed builtin", "max = min"),
    "call_counter": DrawnConstruct("decorated function"),
    "chain_map": DrawnConstruct("chain map", "CHOSEN_LEVELS['level'] = 7.5"),
    "chunk_write": DrawnConstruct("unbind", "result[-1].add_(1)", backend="aot_eager"),
    "class_bases": DrawnConstruct("bases of a class", "Based.__bases__ = (Tripling,)"),
    "class_getitem": DrawnConstruct("__class_getitem__", "Typed.rate = 4.0"),
    "compiled_attribute": DrawnConstruct("mark on a compiled function"),
    "complex_type": DrawnConstruct(
        "parameter n", then="type of a tensor", wanted=("v1",), first=(*FIRST[:2], "n = 1j")
    ),
    "data_attribute": DrawnConstruct("replace data", then="data in place", first=PLAIN),
    "data_dtype": DrawnConstruct(
        "replace data", first=("x = torch.arange(6).reshape(2, 3)", *PLAIN[1:])
    ),
    "data_version": DrawnConstruct(
        "data in place", AFTER_KEPT, first=(*FIRST, KEPT), backend="aot_eager"
    ),
    "deque_full": DrawnConstruct("extend a full deque"),
    "descriptor": DrawnConstruct("descriptor"),
    "device_mode_number": DrawnConstruct(
        "thread local", then="graph break", later_mode="torch.device('cpu')"
    ),
    "dict_order": DrawnConstruct("dict methods", "TABLE['a'] = TABLE.pop('a')"),
    "docstring": DrawnConstruct("docstring", "levelled.__doc__ = None"),
    "dynamic_alias": DrawnConstruct(
        "write to the other input",
        then="multiply",
        first=("x = torch.ones(3)", "y = x.detach()", "n = 1"),
        dynamic=True,
        backend="aot_eager",
    ),
    "dynamic_buffer": DrawnConstruct(
        "state of a module saved", first=PLAIN, dynamic=True, backend="aot_eager"
    ),
    "export_abs": DrawnConstruct(
        "abs of a size", dynamic=True, way="torch.export, saved and loaded"
    ),
    "export_autocast": DrawnConstruct("nested contexts", way="torch.export, saved and loaded"),
    "export_checkpoint": DrawnConstruct("checkpoint", way="torch.export, strict"),
    "export_checkpoints": DrawnConstruct("nested checkpoints", first=GRADIENT, way="torch.export"),
    "export_conjugate": DrawnConstruct("conjugate", way="torch.export, saved and loaded"),
    "export_detach": DrawnConstruct("detach", first=FIRST, way="torch.export, decomposed"),
    "export_gradient": DrawnConstruct("func.grad", way="torch.export"),
    "export_functionalize": DrawnConstruct("func.functionalize", way="torch.export"),
    "export_jacfwd": DrawnConstruct("func.jacfwd", way="torch.export"),
    "export_jvp": DrawnConstruct("jvp over vjp", first=PLAIN, way="torch.export"),
    "export_no_grad": DrawnConstruct("context", way="torch.export, decomposed"),
    "export_number": DrawnConstruct("scalar of an array", way="torch.export, strict"),
    "export_string": DrawnConstruct("text", way="torch.export, saved and loaded"),
    "function_hasattr": DrawnConstruct("attribute that a function lacks", "noted.rate = 3.0"),
    "functionalize": DrawnConstruct("func.functionalize", backend="aot_eager"),
    "function_attributes": DrawnConstruct("attributes of a function", "levelled.extra = 1"),
    "function_name": DrawnConstruct("name of a function", "levelled.__name__ = 'other_name'"),
    "function_identity": DrawnConstruct(
        "autograd function returns its input", then="multiply", first=PLAIN
    ),
    "function_mode": DrawnConstruct("function mode", mode="AddingOne()"),
    "generator_left": DrawnConstruct("generator left early", then="multiply"),
    "generator_throw": DrawnConstruct("throw into a generator"),
    "getattr_shadowed": DrawnConstruct("shadowed __getattr__", "ANSWERING.scale = 9.0"),
    "global_argument": DrawnConstruct(
        "argument in a container",
        "ARGUMENTS['x'] = y",
        first=(PLAIN[0], "y = x * 2", "n = 1", "ARGUMENTS['x'] = x"),
    ),
    "globals_written": DrawnConstruct("write to globals()", "LEVEL_NOW = 3.0"),
    "grad_mode_number": DrawnConstruct("set_grad_enabled", wanted=("n == 1",), dynamic=True),
    "hook_closure": DrawnConstruct("hook reads a list", between="RATES[0] = 5.0"),
    "hook_removed": DrawnConstruct("hook removed"),
    "inference_result": DrawnConstruct(
        "context", wanted=("torch.inference_mode()",), backend="aot_eager"
    ),
    "intermediate_grad": DrawnConstruct("try", wanted=("x.grad is not None",)),
    "inherited_attribute": DrawnConstruct("write a class attribute"),
    "instance_dict": DrawnConstruct("__dict__", "PLAIN.other = 1.0"),
    "keywords_order": DrawnConstruct("keywords of a dict", "TABLE['a'] = TABLE.pop('a')"),
    "lazy_module": DrawnConstruct("lazy module", "LAZY = torch.nn.LazyLinear(3)"),
    "list_iterator": DrawnConstruct("iterator across a break", first=PLAIN),
    "locals_resumed": DrawnConstruct("graph break", then="locals()"),
    "locals_unbound": DrawnConstruct("locals()", then="nonlocal"),
    "long_handler": DrawnConstruct("long handler", then="graph break"),
    "maximum_bool": DrawnConstruct("min and max", first=(*PLAIN[:2], "n = True"), dynamic=True),
    "maximum_number": DrawnConstruct("largest number", first=WHOLE, dynamic=True),
    "nan_key": DrawnConstruct("default dict", first=(*PLAIN[:2], "n = float('nan')")),
    "negative_power": DrawnConstruct("power of a number", first=NEGATIVE, dynamic=True),
    "negative_zero": DrawnConstruct("counter", first=(*PLAIN[:2], "n = -0.0"), dynamic=True),
    "optimizer_inference": DrawnConstruct(
        "optimizer", wanted=("Adam",), mode="torch.inference_mode()"
    ),
    "random_dtype": DrawnConstruct(
        "random module", wanted=("y",), first=(FIRST[0], "y = torch.tensor(2.0)", "n = 1")
    ),
    "region_array": DrawnConstruct("scalar of an array", way="nested_compile_region"),
    "region_buffer": DrawnConstruct("module", way="nested_compile_region"),
    "region_float": DrawnConstruct("nested region", dynamic=True),
    "region_modules": DrawnConstruct(
        "regions of modules", "x = result[0]", first=(*PLAIN[:1], "y = x", "n = 1"), dynamic=True
    ),
    "region_number": DrawnConstruct("nested region", "REGION_RATES[0] = 3.0"),
    "region_transform": DrawnConstruct(
        "func.grad", then="write an attribute", way="nested_compile_region"
    ),
    "replaced_method": DrawnConstruct(
        "method of an instance or a class", "Plain.act = lambda self, value: value + 9"
    ),
    "round_number": DrawnConstruct("rounded number", first=WHOLE, dynamic=True),
    "setattr_dotted": DrawnConstruct("setattr", first=(*FIRST[:2], "n = 2.5")),
    "stored_generator": DrawnConstruct("stored generator"),
    "vars_length": DrawnConstruct("vars", "PLAIN.other = 1.0"),
    "version_branch": DrawnConstruct(
        "early return",
        wanted=("x._version > 0",),
        first=(*PLAIN, "x.detach().mul_(2)"),
        backend="aot_eager",
    ),
    "vmap_function": DrawnConstruct(
        "vmap of an autograd function", then="hook writes to a list", between="RATES.append(3.0)"
    ),
    "view_in_no_grad": DrawnConstruct("view in no_grad", backend="aot_eager"),
    "zero_sign": DrawnConstruct("sign of a number", first=(*PLAIN[:2], "n = -0.0"), dynamic=True),
}
