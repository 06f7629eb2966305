"""Modules that share parts, change in forward or between calls, and have hooks of all kinds."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

KEYWORDS = """
RATE_OF_HOOK = [2.0]
class Taking(torch.nn.Module):
    def forward(self, value, *, factor=1.0):
        return value * factor
TAKING = Taking()
def before_taking(module, inputs, keywords):
    return inputs, {**keywords, "factor": RATE_OF_HOOK[0]}
TAKING.register_forward_pre_hook(before_taking, with_kwargs=True)
TAKING.register_forward_hook(
    lambda module, inputs, keywords, output: output + keywords["factor"], with_kwargs=True)
"""
HANDLES = """
HANDLES = []
OPEN = torch.nn.Identity()
"""
BEFORE_BACKWARD = """
RATE_BEFORE = [2.0]
BEFORE = torch.nn.Tanh()
BEFORE.register_full_backward_pre_hook(
    lambda module, gradients: (gradients[0] * RATE_BEFORE[0],))
"""
SHARED = """
class Owner(torch.nn.Module):
    def __init__(self, layer, total):
        super().__init__()
        self.layer = layer
        self.register_buffer("total", total)
        self.seen = []
    def forward(self, value):
        self.total.add_(1.0)
        return self.layer(value) + self.total
LAYER = torch.nn.Linear(3, 3, bias=False)
with torch.no_grad():
    LAYER.weight.fill_(0.5)
OWNER = Owner(LAYER, torch.zeros(3))
OTHER_OWNER = Owner(LAYER, OWNER.total)
"""
SHARED_CHANGES = (
    "OTHER_OWNER.total = torch.full((3,), 5.0)", "OTHER_OWNER.layer = torch.nn.Identity()",
    "LAYER.weight.data.fill_(2.0)", "OWNER.layer.weight = torch.nn.Parameter(torch.ones(3, 3))",
    "OWNER.total.zero_()", "OTHER_OWNER.total = OWNER.total", "LAYER.requires_grad_(False)",
)  # fmt: skip
STATEFUL = """
class Stateful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.history = []
        self.rates = {"up": 2.0}
    def forward(self, value):
        self.total = self.total + 1
        self.history.append(len(self.history))
        self.rates["up"] += 1.0
        return value * self.total + self.rates["up"] + len(self.history)
STATEFUL = Stateful()
"""
STATEFUL_CHANGES = (
    "STATEFUL.total = torch.ones(())", "STATEFUL.history.clear()", "STATEFUL.rates = {'up': 7.0}",
    "STATEFUL.rates['up'] = 1.0", "STATEFUL = Stateful()", "STATEFUL.history = [1, 2]",
    "STATEFUL.train(False)",
)  # fmt: skip
REPLACED = """
class Steady(torch.nn.Module):
    rate = 2.0
    def forward(self, value):
        return value * self.rate
class Doubling(Steady):
    rate = 4.0
    def forward(self, value):
        return value * self.rate + 1
STEADY = Steady()
"""
REPLACED_CHANGES = (
    "STEADY.forward = lambda value: value + 5",
    "STEADY.__class__ = Doubling",
    "Steady.forward = lambda self, value: value - self.rate",
    "STEADY.rate = 3.0",
    "Steady.rate = 6.0",
)
ANSWERING = """
class Forwarding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.inner.level = 2.0
    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)
    def forward(self, value):
        return value * self.level + self.in_features
FORWARDING = Forwarding()
"""
LAZY = """
torch.manual_seed(0)
LAZY = torch.nn.LazyLinear(3)
"""
NORMED = """
NORMED = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3, bias=False))
with torch.no_grad():
    NORMED.parametrizations.weight.original0.fill_(2.0)
    NORMED.parametrizations.weight.original1.fill_(1.0)
"""
MODULES = (
    statements("hooks with keywords", "{t} = TAKING({a}, factor={c})", KEYWORDS,
               "RATE_OF_HOOK[0] = 3.0"),
    statements("hook registered inside", "HANDLES.append(OPEN.register_forward_hook("
               "lambda module, inputs, output: output + 2.0))\n{t} = OPEN({a})\n"
               "HANDLES.pop().remove()", HANDLES),
    written("hook before backward of a module", "BEFORE({a} * 1.0)", BEFORE_BACKWARD,
            "RATE_BEFORE[0] = 3.0"),
    statements("shared parts of modules", "{t} = OWNER(torch.ones(1, 3) * {a}.sum().float())\n"
               "{t} = OTHER_OWNER({t})", SHARED, *SHARED_CHANGES),
    statements("shared buffer", "OWNER.total.mul_({c})\n{t} = {a} + OTHER_OWNER.total", SHARED,
               *SHARED_CHANGES),
    written("one module twice", "OWNER(OWNER(torch.ones(1, 3) * {a}.sum().float()))", SHARED,
            *SHARED_CHANGES),
    written("state of a module in forward", "STATEFUL({a})", STATEFUL, *STATEFUL_CHANGES),
    statements("module moved to a mode", "STATEFUL.train(n != 1)\n"
               "{t} = STATEFUL({a}) if STATEFUL.training else {a} + 1", STATEFUL,
               *STATEFUL_CHANGES),
    written("forward replaced", "STEADY({a})", REPLACED, *REPLACED_CHANGES),
    written("forward called directly", "STEADY.forward({a})", REPLACED, *REPLACED_CHANGES),
    written("__getattr__ of a module", "FORWARDING({a})", ANSWERING,
            "FORWARDING.inner.level = 5.0", "FORWARDING.level = 9.0"),
    written("lazy module", "LAZY(torch.ones(1, 3) * {a}.sum().float())", LAZY,
            "LAZY = torch.nn.LazyLinear(3)"),
    written("normed weight", "NORMED(torch.ones(1, 3) * {a}.sum().float())", NORMED,
            "NORMED.parametrizations.weight.original0.data.fill_(5.0)"),
    statements("state of a module saved", "saved = {{k: v.clone() for k, v in "
               "OWNER.state_dict().items()}}\n{t} = {a} + OWNER(torch.ones(1, 3)).detach()\n"
               "OWNER.load_state_dict(saved)", SHARED, *SHARED_CHANGES),
)  # fmt: skip
