"""Optimizers whose step is part of the compiled function, with all of their flags."""

from __future__ import annotations

from tcdebug.strategies.python.feature import Feature
from tcdebug.strategies.python.scene import ProgramScene

DEFINITION = """
WEIGHT = torch.nn.Parameter(torch.full((3,), 2.0))
OTHER_WEIGHT = torch.nn.Parameter(torch.full((2, 2), 3.0))
OPTIMIZER = torch.optim.{name}([{{"params": [WEIGHT]}}, {{"params": [OTHER_WEIGHT]}}]{flags})
"""
SHARED = ("lr=0.5", "foreach=True", "foreach=False", "maximize=True", "differentiable=True")
"""Flags of most optimizers. Those of which one excludes another are drawn one at a time."""
OWN = {  # without capturable, which eager refuses on a CPU and torch.compile ignores
    "SGD": ("momentum=0.5", "momentum=0.5, nesterov=True", "weight_decay=0.1", "dampening=0.2",
            "fused=True"),
    "Adam": ("amsgrad=True", "weight_decay=0.1", "fused=True",
             "betas=(0.5, 0.5)", "lr=torch.tensor(0.5)", "decoupled_weight_decay=True"),
    "AdamW": ("amsgrad=True", "weight_decay=0.0", "fused=True"),
    "NAdam": ("momentum_decay=0.1", "decoupled_weight_decay=True"),
    "RAdam": ("decoupled_weight_decay=True", "weight_decay=0.1"),
    "Adamax": ("weight_decay=0.1", "betas=(0.5, 0.5)"),
    "Adagrad": ("lr_decay=0.5", "initial_accumulator_value=0.5", "fused=True"),
    "Adadelta": ("rho=0.5", "weight_decay=0.1"),
    "ASGD": ("t0=1", "lambd=0.5", "weight_decay=0.1"),
    "RMSprop": ("momentum=0.5", "centered=True", "weight_decay=0.1"),
    "Rprop": ("etas=(0.4, 1.3)", "step_sizes=(0.1, 2.0)"),
    "Adafactor": ("weight_decay=0.1", "beta2_decay=-0.5", "d=2.0"),
}  # fmt: skip
CHANGES = (
    "OPTIMIZER.param_groups[0]['lr'] = 0.25", "OPTIMIZER.param_groups[1]['lr'] = 2.0",
    "OPTIMIZER.param_groups[0]['weight_decay'] = 0.3", "OPTIMIZER.state.clear()",
    "OPTIMIZER.param_groups[0]['maximize'] = True", "OPTIMIZER.param_groups.reverse()",
    "OPTIMIZER.load_state_dict(OPTIMIZER.state_dict())", "WEIGHT.grad = None",
    "OPTIMIZER.param_groups[0]['params'].append(torch.nn.Parameter(torch.ones(2)))",
    "WEIGHT.requires_grad_(False)", "OTHER_WEIGHT.grad = torch.ones(2, 2)",
)  # fmt: skip
LINES = """
WEIGHT.grad = {a}.detach().sum().float().expand(3).contiguous()
OPTIMIZER.step()
{t} = {a} + WEIGHT.detach()
"""


def _step(scene: ProgramScene) -> None:
    name = scene.choose(tuple(OWN))
    flags = dict.fromkeys((scene.choose(("", *SHARED)), scene.choose(("", *OWN[name]))))
    given = {flag.split("=")[0]: flag for flag in flags if flag}
    text = "".join(f", {flag}" for flag in given.values())
    scene.define("OPTIMIZER", DEFINITION.format(name=name, flags=text), *CHANGES)
    target = scene.assign(f"{scene.tensor()} * 1")
    scene.write(LINES.format(a=target, t=target))


def _closure(scene: ProgramScene) -> None:
    definition = DEFINITION.format(name="SGD", flags="")
    scene.define("OPTIMIZER", definition, *CHANGES)
    target = scene.assign(f"{scene.tensor()} * 1")
    scene.write("def closure():\n    OPTIMIZER.zero_grad()\n    return (WEIGHT * 2).sum()")
    scene.write(f"{target} = {target} + OPTIMIZER.step(closure)")


def _zero_grad(scene: ProgramScene) -> None:
    scene.define("OPTIMIZER", DEFINITION.format(name="SGD", flags=", momentum=0.5"), *CHANGES)
    scene.write(f"OPTIMIZER.zero_grad(set_to_none={scene.flag()})")
    scene.assign(f"{scene.tensor()} * (2 if WEIGHT.grad is None else 3)")


OPTIMIZERS = (
    Feature("optimizer", _step),
    Feature("optimizer with a closure", _closure),
    Feature("zero_grad", _zero_grad),
)
