"""Faults of torch that occur only in compiled code, and for each a feature or way that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from tcdebug.strategies.python.python_program import PythonProgram
from tests.planted_in_dynamo import EFFECTS, GUARDS, PlantedUnit, doubling, nothing, program
from tests.python_findings import DrawnConstruct

LEAF = ("x = torch.ones(2, 3, requires_grad=True)", "y = torch.ones(3)", "n = 1")
DEBUGGING = "torch._dynamo.backends.debugging"


def _more(result: Any) -> Any:
    """The tensors of a result, plus one."""
    if isinstance(result, torch.Tensor):
        return result + 1
    if isinstance(result, (tuple, list)):
        return type(result)(_more(part) for part in result)
    return result


def otherwise(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function returns other tensors when it is compiled."""

    def unit(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        return _more(result) if torch.compiler.is_compiling() else result

    return unit


def omitted(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function does nothing when it is compiled."""

    def unit(*args: Any, **kwargs: Any) -> Any:
        return None if torch.compiler.is_compiling() else original(*args, **kwargs)

    return unit


def without_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    """A module runs no hooks when it is compiled."""

    def unit(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.forward(*args, **kwargs)
        return original(self, *args, **kwargs)

    return unit


def other_calls(original: Callable[..., Any]) -> Callable[..., Any]:
    """What the function returns, or a module that it compiles, gives other results."""

    def unit(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if made is not None:
            return lambda *inputs: _more(made(*inputs))
        module = args[0]
        compiled = module._compiled_call_impl
        module._compiled_call_impl = lambda *inputs: _more(compiled(*inputs))
        return None

    return unit


def only_strict(original: Callable[..., Any]) -> Callable[..., Any]:
    """A strict export exports another program."""

    def unit(module: torch.nn.Module, *args: Any, strict: bool = False, **kwargs: Any) -> Any:
        if strict:
            call = module.forward
            module.forward = lambda *inputs: _more(call(*inputs))
        return original(module, *args, strict=False, **kwargs)

    return unit


def only_with_a_budget(original: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient is wrong if there is a memory budget."""

    def unit(*args: Any, **kwargs: Any) -> Any:
        limited = torch._functorch.config.activation_memory_budget < 1
        return (doubling(original) if limited else original)(*args, **kwargs)

    return unit


def _feature(name: str, change: str = "", wanted: tuple[str, ...] = ()) -> PythonProgram:
    return DrawnConstruct(name, change, first=LEAF, wanted=wanted).program()


def _with_backward(made: PythonProgram) -> PythonProgram:
    steps = tuple(msgspec.structs.replace(step, backward=True) for step in made.steps)
    return msgspec.structs.replace(made, steps=steps)


MODULE = "torch.nn.modules.module:Module"
HIGHER = "torch._higher_order_ops"
MARKED = (
    "x = torch.ones(4, 3)", "torch._dynamo.maybe_mark_dynamic(x, 0)", "y = x[0]", "n = 1",
)  # fmt: skip
PLANTED_IN_FEATURES = {
    "hooks with keywords": PlantedUnit(
        MODULE, "_call_impl", without_hooks, _feature("hooks with keywords")
    ),
    "shared buffer": PlantedUnit(
        GUARDS, "DUPLICATE_INPUT", nothing,
        _feature("shared buffer", "OTHER_OWNER.total = torch.full((3,), 5.0)"),
    ),
    "state of a module in forward": PlantedUnit(
        EFFECTS, "codegen_update_mutated", nothing, _feature("state of a module in forward")
    ),
    "forward replaced": PlantedUnit(
        GUARDS, "EQUALS_MATCH", nothing, _feature("forward replaced", "Steady.rate = 6.0")
    ),
    "normed weight": PlantedUnit(
        "torch.nn.utils.parametrize:ParametrizationList", "forward", otherwise,
        _feature("normed weight"),
    ),
    "checkpoint of a sequence": PlantedUnit(
        "torch.utils.checkpoint", "checkpoint_sequential", otherwise,
        _feature("checkpoint of a sequence"),
    ),
    "nested checkpoints": PlantedUnit(
        "torch.utils.checkpoint", "checkpoint", otherwise, _feature("nested checkpoints")
    ),
    "marked size": PlantedUnit(
        GUARDS, "SHAPE_ENV", nothing,
        program("return x * (2 if x.shape[0] > 2 else 3)", "x = torch.ones(2, 3)", first=MARKED),
    ),
    "autograd function in forward mode": PlantedUnit(
        "torch.func", "jvp", otherwise, _feature("autograd function in forward mode")
    ),
    "cond with closures": PlantedUnit("torch", "cond", otherwise, _feature("cond with closures")),
    "scan in reverse": PlantedUnit(HIGHER, "scan", otherwise, _feature("scan in reverse")),
    "Muon": PlantedUnit("torch.optim:Muon", "step", omitted, _feature("Muon")),
    "schedule": PlantedUnit(
        "torch.optim.lr_scheduler:StepLR", "step", omitted, _feature("schedule")
    ),
    "clipped gradient": PlantedUnit(
        "torch.nn.utils", "clip_grad_norm_", otherwise, _feature("clipped gradient")
    ),
    "averaged weights": PlantedUnit(
        "torch.optim.swa_utils:AveragedModel", "update_parameters", omitted,
        _feature("averaged weights"),
    ),
    "compiled module": PlantedUnit(
        MODULE, "compile", other_calls, program("return [x * 2]", way="compiled module")
    ),
    "memory budget": PlantedUnit(
        DEBUGGING, "min_cut_rematerialization_partition", only_with_a_budget,
        program("return [torch.sin(x)]", first=LEAF, backward=True, way="memory budget"),
        "aot_eager_decomp_partition",
    ),
    "torch.export, strict": PlantedUnit(
        "torch.export", "export", only_strict,
        program("return [x * 2]", way="torch.export, strict"),
    ),
    "torch.export, unflattened": PlantedUnit(
        "torch.export", "unflatten", other_calls,
        program("return [x * 2]", way="torch.export, unflattened"),
    ),
    "torch.export, compiled": PlantedUnit(
        "torch", "compile", other_calls, program("return [x * 2]", way="torch.export, compiled")
    ),
}  # fmt: skip
"""By the name of the feature or way."""
