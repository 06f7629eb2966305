"""Autograd functions, hooks, modules, transforms and higher-order operators."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

FUNCTION = """
class Scaled(torch.autograd.Function):
    rate = 2.0
    @staticmethod
    def forward(ctx, value, factor):
        ctx.factor = factor
        ctx.save_for_backward(value)
        return value * factor
    @staticmethod
    def backward(ctx, gradient):
        (value,) = ctx.saved_tensors
        return gradient * ctx.factor * Scaled.rate + value, None
"""
TWO_RESULTS = """
class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        whole = value * 2
        marked = value * 3
        ctx.mark_non_differentiable(marked)
        return whole, marked
    @staticmethod
    def backward(ctx, gradient, unused):
        return gradient * 4
"""
DIRTY = """
class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.mark_dirty(value)
        return value.mul_(0.5)
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3
"""
MODEL = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))
        self.register_buffer("steps", torch.zeros(1))
        self.calls = 0
        self.last = None
    def forward(self, value):
        self.calls += 1
        self.steps += 1
        self.last = value * self.weight
        return self.last + self.steps if self.training else self.last - self.calls
MODEL = Model()
"""
MODEL_CHANGES = (
    "MODEL.eval()", "MODEL.train()", "MODEL.weight.data.fill_(3.0)",
    "MODEL.weight = torch.nn.Parameter(torch.full((3,), 4.0))",
    "MODEL.weight.requires_grad_(False)",
    "MODEL.steps = torch.full((1,), 9.0)", "MODEL.zero_grad()", "MODEL.weight.grad = None",
    "MODEL = Model()", "MODEL.calls = 7", "MODEL.double()", "MODEL.float()",
)  # fmt: skip
LAYERS = """
FIRST = torch.nn.Linear(3, 3)
SECOND = torch.nn.Linear(3, 3)
with torch.no_grad():
    for layer in (FIRST, SECOND):
        layer.weight.copy_(torch.eye(3))
        layer.bias.fill_(1.0)
LAYERS = torch.nn.ModuleList([FIRST, torch.nn.ReLU(), SECOND])
"""
LAYER_CHANGES = (
    "SECOND.weight = FIRST.weight", "LAYERS[1] = torch.nn.Tanh()", "LAYERS.append(FIRST)",
    "del LAYERS[0]", "FIRST.bias = None", "SECOND.bias.requires_grad_(False)",
)  # fmt: skip
NORM = """
NORM = torch.nn.BatchNorm1d(3)
DROP = torch.nn.Dropout(1.0)
"""
HOOKED = """
RATE = [2.0]
HOOKED = torch.nn.Identity()
HOOKED.register_forward_hook(lambda module, inputs, output: output * RATE[0])
HOOKED.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
"""
RATES = "RATES = [2.0]"
ROUNDED = """
from torch.overrides import TorchFunctionMode
class AddingOne(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.sin else result
"""
REGION = """
REGION_RATES = [2.0]
@torch.compiler.nested_compile_region
def region(value):
    return torch.sin(value) * REGION_RATES[0]
"""
DISABLED = """
DISABLED_CALLS = []
@torch.compiler.disable
def disabled(value):
    DISABLED_CALLS.append(1)
    return value * len(DISABLED_CALLS)
"""
SUBCLASS = """
class Marked(torch.Tensor):
    unit = 1.0
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return super().__torch_function__(function, types, args, kwargs or {})
    def in_units(self):
        return self * self.unit
"""
TIED = """
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(3, 3, bias=False)
        self.two = torch.nn.Linear(3, 3, bias=False)
        self.two.weight = self.one.weight
        with torch.no_grad():
            self.one.weight.fill_(0.5)
    def forward(self, value):
        self.seen = value.shape
        return self.two(self.one(value))
TIED = Tied()
"""
LOOP = "from torch._higher_order_ops import while_loop"
SCAN = "from torch._higher_order_ops import scan"
ASSOCIATIVE = "from torch._higher_order_ops import associative_scan"
MAP = "from torch._higher_order_ops.map import map as map_rows"
CHECKPOINT = "from torch.utils.checkpoint import checkpoint\nFACTORS = [2.0]"
PRODUCT = """
class Product(torch.autograd.Function):
    rate = 1.0
    @staticmethod
    def forward(ctx, one, two):
        ctx.save_for_backward(one, two)
        return one * two + one
    @staticmethod
    def backward(ctx, gradient):
        one, two = ctx.saved_tensors
        return gradient * (two + Product.rate), gradient * one
"""
AUTOGRAD = (
    written("autograd function", "Scaled.apply({a}, {c})", FUNCTION, "Scaled.rate = 3.0"),
    statements("autograd function with two results", "{t}, other = Split.apply({a})\n"
               "{t} = {t} + other", TWO_RESULTS),
    statements("autograd function of one tensor twice", "twice = {a} * 1.0\n"
               "{t} = Product.apply(twice, twice)", PRODUCT, "Product.rate = 3.0"),
    statements("autograd function of a view", "twice = {a} * 1.0\n"
               "{t} = Product.apply(twice, twice.view_as(twice))", PRODUCT, "Product.rate = 3.0"),
    statements("autograd function of a detached tensor", "twice = {a} * 1.0\n"
               "{t} = Product.apply(twice, twice.detach())", PRODUCT, "Product.rate = 3.0"),
    statements("autograd function in place", "{t} = {a} * 1\n{t} = Halved.apply({t})", DIRTY),
    statements("hook on a tensor", "{t} = {a} * 2\nif {t}.requires_grad:\n"
               "    {t}.register_hook(lambda gradient: gradient * {c})"),
    statements("hook on an input", "if x.requires_grad:\n"
               "    x.register_hook(lambda gradient: gradient * {c})\n{t} = x * 2"),
    statements("hook on an accumulated gradient", "if x.requires_grad and x.is_leaf:\n"
               "    x.register_post_accumulate_grad_hook(lambda leaf: RATES.append(n))\n"
               "{t} = x * 2", RATES, "RATES.clear()"),
    statements("hook removed", "{t} = {a} * 2\nif {t}.requires_grad:\n"
               "    {t}.register_hook(lambda gradient: gradient * {c}).remove()"),
    statements("hook reads a list", "{t} = {a} * 2\nif {t}.requires_grad:\n"
               "    {t}.register_hook(lambda gradient: gradient * RATES[0])", RATES,
               "RATES[0] = 3.0", between=("RATES[0] = 5.0", "RATES = [7.0]")),
    statements("hook writes to a list", "{t} = {a} * 2\nif {t}.requires_grad:\n"
               "    {t}.register_hook(lambda gradient: RATES.append(n))", RATES, "RATES.clear()",
               between=("RATES.append(3.0)",)),
    statements("function mode", "{t} = torch.sin({a})", ROUNDED, modes=("AddingOne()",)),
    statements("function mode inside", "with AddingOne():\n    {t} = torch.sin({a})", ROUNDED,
               modes=("AddingOne()",)),
    statements("nested region", "{t} = region({a} * 1.0) + region({b} * 1.0)", REGION,
               "REGION_RATES[0] = 3.0"),
    statements("disabled function", "{t} = disabled({a}) + 1", DISABLED, "DISABLED_CALLS.clear()"),
    statements("tensor subclass", "{t} = (({a} * 1).as_subclass(Marked).in_units())"
               ".as_subclass(torch.Tensor)", SUBCLASS, "Marked.unit = 3.0"),
    statements("tied weights", "{t} = TIED(torch.ones(1, 3) * {a}.sum().float())", TIED,
               "TIED.two.weight = torch.nn.Parameter(torch.ones(3, 3))",
               "TIED.requires_grad_(False)", "TIED.one.weight.data.fill_(2.0)", "TIED.eval()"),
    statements("retain_grad", "{t} = {a} * 2\nif {t}.requires_grad:\n    {t}.retain_grad()"),
    statements("requires_grad_", "{t} = {a}.detach().requires_grad_({a}.is_floating_point())"),
    statements("gradient inside", "leaf = {a}.detach().double().requires_grad_()\n"
               "{t} = torch.autograd.grad((leaf * leaf).sum(), leaf)[0]"),
    written("module", "MODEL({a})", MODEL, *MODEL_CHANGES),
    written("parameter", "{a} * MODEL.weight", MODEL, *MODEL_CHANGES),
    statements("buffer in place", "MODEL.steps.mul_({c})\n{t} = {a} + MODEL.steps", MODEL,
               *MODEL_CHANGES),
    written("functional_call", "torch.func.functional_call(MODEL, {{'weight': {b}}}, ({a},))",
            MODEL,
            *MODEL_CHANGES),
    statements("module list", "{t} = x.float() if x.dim() == 2 else torch.ones(1, 3)\n"
               "for layer in LAYERS:\n    {t} = layer({t})", LAYERS, *LAYER_CHANGES),
    statements("state of a module", "{t} = {a} + len(list(MODEL.named_parameters())) + "
               "sum(p.sum() for p in MODEL.parameters())", MODEL, *MODEL_CHANGES),
    statements("batch norm", "{t} = NORM(torch.arange(6.0).reshape(2, 3) * {a}.sum())", NORM,
               "NORM.eval()", "NORM.train()", "NORM.momentum = None",
               "NORM.running_mean.fill_(2.0)"),
    written("dropout", "DROP({a} * 1.0)", NORM, "DROP.eval()", "DROP.p = 0.0", "DROP.train()"),
    written("hooks of a module", "HOOKED({a})", HOOKED, "RATE[0] = 3.0"),
    written("checkpoint",
            "checkpoint(lambda v: torch.sin(v) * FACTORS[0], {a}, use_reentrant=False)",
            CHECKPOINT, "FACTORS[0] = 3.0"),
    written("vmap", "torch.vmap(lambda v: v * 2 + {c})({a}) if {a}.dim() else {a}"),
    written("vmap in place",
            "torch.vmap(lambda v: v.clone().add_({c}))({a}) if {a}.dim() else {a}"),
    written("func.grad", "torch.func.grad(lambda v: (v * v).sum())({a} * 1.0)"),
    written("func.grad_and_value",
            "torch.func.grad_and_value(lambda v: (v * {c}).sum())({a} * 1.0)[0]"),
    written("func.jvp", "torch.func.jvp(lambda v: v * v, ({a} * 1.0,), ({a} * 1.0,))[1]"),
    written("func.vjp", "torch.func.vjp(lambda v: v * {c}, {a} * 1.0)[1]({a} * 1.0)[0]"),
    statements("saved tensors hooks", "with torch.autograd.graph.saved_tensors_hooks("
               "lambda t: t * 2, lambda t: t):\n    {t} = {a} * {a}"),
    statements("deterministic flag", "{t} = {a} * (2 if "
               "torch.are_deterministic_algorithms_enabled() else 3)", "FLAG = None",
               "torch.use_deterministic_algorithms(True)"),
    statements("default dtype", "{t} = torch.ones(3) * {a}", "FLAG = None",
               "torch.set_default_dtype(torch.float64)"),
)  # fmt: skip
HIGHER_ORDER = (
    written("cond",
            "torch.cond({a}.sum() > 1, lambda v: v * {c}, lambda v: v - {c}, ({b} * 1.0,))"),
    statements("cond on a size", "{t} = torch.cond(x.shape[0] > 2, lambda v: v + 1, "
               "lambda v: v - 1, ({a} * 1.0,))"),
    statements("while_loop", "{t} = while_loop(lambda k, v: k < 3, lambda k, v: (k + 1, v * 2), "
               "(torch.tensor(0), {a} * 1.0))[1]", LOOP),
    statements("scan", "{t} = scan(lambda carry, part: (carry + part, carry * part), "
               "torch.zeros(3), torch.ones(2, 3) * {a}.sum().float())[1]", SCAN),
    statements("associative_scan", "{t} = associative_scan(lambda p, q: p * q, "
               "torch.ones(4, 3) * {a}.sum(), 0, combine_mode='generic')[-1]", ASSOCIATIVE),
    statements("map", "{t} = map_rows(lambda row, k: row * k, torch.ones(2, 3), {a}.sum())", MAP),
)  # fmt: skip
