"""Transforms of functions, derivatives of higher order, hooks, custom operators and modules."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

SETUP = """
class Cubed(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(value, factor):
        return value * value * factor
    @staticmethod
    def setup_context(ctx, inputs, output):
        value, ctx.factor = inputs
        ctx.save_for_backward(value)
        ctx.set_materialize_grads(True)
    @staticmethod
    def backward(ctx, gradient):
        (value,) = ctx.saved_tensors
        return gradient * 3 * value * ctx.factor, None
"""
NEEDED = """
class Needed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, other):
        ctx.needed = ctx.needs_input_grad
        ctx.shape = other.shape
        return value * 2, n_of(value)
    @staticmethod
    def backward(ctx, gradient, unused):
        rate = 3.0 if ctx.needed[1] else 5.0
        return gradient * rate, gradient.new_zeros(ctx.shape) if ctx.needed[1] else None
def n_of(value):
    return value.dim()
"""
ONCE = """
class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value, None)
        ONCE_LOG.append("forward")
        return value.clone()
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        ONCE_LOG.append("backward")
        return gradient * len(ctx.saved_tensors)
ONCE_LOG = []
"""
OPERATOR = """
@torch.library.custom_op("drawn::scaled", mutates_args=())
def scaled_op(value: torch.Tensor, factor: float) -> torch.Tensor:
    return value * factor
@scaled_op.register_fake
def _fake_scaled(value, factor):
    return torch.empty_like(value)
scaled_op.register_autograd(
    lambda ctx, gradient: (gradient * ctx.factor, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
)
"""
WRITING_OPERATOR = """
@torch.library.custom_op("drawn::bump", mutates_args={"value"})
def bump(value: torch.Tensor, by: float) -> None:
    value.add_(by)
@bump.register_fake
def _fake_bump(value, by):
    return None
"""
PARAMETRIZED = """
import torch.nn.utils.parametrize as parametrize
class Twice(torch.nn.Module):
    rate = 2.0
    def forward(self, weight):
        return weight * self.rate
PARAMETRIZED = torch.nn.Linear(3, 3, bias=False)
with torch.no_grad():
    PARAMETRIZED.weight.copy_(torch.eye(3))
parametrize.register_parametrization(PARAMETRIZED, "weight", Twice())
"""
CONTAINERS = """
class Contained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.many = torch.nn.ParameterList([torch.full((3,), 2.0), torch.full((3,), 3.0)])
        self.named = torch.nn.ParameterDict({"a": torch.full((3,), 4.0)})
        self.acts = torch.nn.ModuleDict({"relu": torch.nn.ReLU(), "tanh": torch.nn.Tanh()})
        self.chain = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Identity())
        self.register_buffer("hidden", torch.ones(3), persistent=False)
        self.act = "relu"
    def forward(self, value):
        for parameter in self.many:
            value = value * parameter
        value = self.acts[self.act](value) + self.named["a"] * self.hidden
        return self.chain[:1](value)
CONTAINED = Contained()
"""
CONTAINED_CHANGES = (
    "CONTAINED.act = 'tanh'", "CONTAINED.many[0] = torch.nn.Parameter(torch.ones(3))",
    "CONTAINED.many.append(torch.full((3,), 5.0))", "CONTAINED.named['a'].data.fill_(7.0)",
    "CONTAINED.acts['relu'] = torch.nn.Sigmoid()", "CONTAINED.chain.insert(0, torch.nn.Tanh())",
    "CONTAINED.hidden = torch.zeros(3)", "CONTAINED.hidden = None", "CONTAINED.eval()",
    "CONTAINED.load_state_dict({k: v + 1 for k, v in CONTAINED.state_dict().items()})",
    "CONTAINED.chain[0].inplace = True", "CONTAINED.requires_grad_(False)",
)  # fmt: skip
BACKWARD_HOOK = """
BACKWARD_LOG = []
BACKWARD = torch.nn.Tanh()
BACKWARD.register_full_backward_hook(
    lambda module, inputs, outputs: BACKWARD_LOG.append(len(outputs)))
"""
POLICY = """
import functools
from torch.utils.checkpoint import (
    CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts)
def policy(ctx, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE
CONTEXTS = functools.partial(create_selective_checkpoint_contexts, policy)
"""
FORWARD_MODE = "import torch.autograd.forward_ad as forward_ad"
CONSTANT = """
RESULTS = {"level": 2.0}
@torch.compiler.allow_in_graph
def allowed(value):
    return value * 2 + 1
"""
SEVERAL = """
MODELS = [torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)]
with torch.no_grad():
    for k, model in enumerate(MODELS):
        model.weight.fill_(k + 1.0)
        model.bias.zero_()
"""
TRANSFORMS = (
    written("func.jacrev", "torch.func.jacrev(lambda v: (v * v).sum(-1))({a} * 1.0).sum()"),
    written("func.jacfwd", "torch.func.jacfwd(lambda v: (v * {c}).sum(-1))({a} * 1.0).sum()"),
    written("func.hessian", "torch.func.hessian(lambda v: (v * v * v).sum())({a} * 1.0).sum()"),
    written("func.linearize", "torch.func.linearize(lambda v: v * v, {a} * 1.0)[1]({a} * 1.0)"),
    written("vmap over grad",
            "torch.vmap(torch.func.grad(lambda v: (v * v * {c}).sum()))({a} * 1.0) "
            "if {a}.dim() else {a}"),
    written("vmap of two arguments", "torch.vmap(lambda v, w: v * w + n, in_dims=(0, None))({a}, "
            "{b}) if {a}.dim() > 1 else {a}"),
    written("vmap with dimensions", "torch.vmap(lambda v: v * {c}, in_dims=-1, out_dims=-1)({a}) "
            "if {a}.dim() else {a}"),
    written("nested vmap", "torch.vmap(torch.vmap(lambda v: v * v + {c}))({a}) "
            "if {a}.dim() == 2 else {a}"),
    written("vmap with a closure", "torch.vmap(lambda v: v * {b}.sum() + x.sum())({a}) "
            "if {a}.dim() else {a}"),
    written("vmap of a reduction", "torch.vmap(torch.sum)({a}) if {a}.dim() else {a}"),
    statements("grad with a side effect", "def squared(v):\n    GRAD_LOG.append(n)\n"
               "    return (v * v).sum()\n{t} = torch.func.grad(squared)({a} * 1.0)",
               "GRAD_LOG = []", "GRAD_LOG.clear()"),
    written("func.functionalize", "torch.func.functionalize(lambda v: v.clone().mul_({c}))({a})"),
    written("grad with auxiliary", "torch.func.grad(lambda v: ((v * v).sum(), v * {c}), "
            "has_aux=True)({a} * 1.0)[1]"),
    statements("models of an ensemble", "parameters, buffers = "
               "torch.func.stack_module_state(MODELS)\n"
               "{t} = {a} + torch.vmap(lambda p: torch.func.functional_call("
               "MODELS[0], p, (torch.ones(3),)))(parameters).sum()", SEVERAL,
               "MODELS[1].weight.data.fill_(5.0)", "MODELS.reverse()"),
    statements("second derivative", "leaf = {a}.detach().double().requires_grad_()\n"
               "(first,) = torch.autograd.grad((leaf**3).sum(), leaf, create_graph=True)\n"
               "{t} = torch.autograd.grad(first.sum(), leaf)[0]"),
    statements("backward inside", "leaf = {a}.detach().double().requires_grad_()\n"
               "(leaf * leaf * {c}).sum().backward()\n{t} = leaf.grad"),
    statements("derivative in forward mode", "with forward_ad.dual_level():\n"
               "    dual = forward_ad.make_dual({a}.detach() * 1.0, {a}.detach() * 2.0)\n"
               "    {t} = forward_ad.unpack_dual(dual * dual).tangent", FORWARD_MODE),
    statements("selective checkpoint", "{t} = checkpoint(lambda v: torch.sin(v * v), {a} * 1.0, "
               "use_reentrant=False, context_fn=CONTEXTS)", POLICY),
    statements("saved on the CPU", "with torch.autograd.graph.save_on_cpu():\n"
               "    {t} = {a} * {a}"),
    statements("hook on a node", "{t} = {a} * 2\nif {t}.grad_fn is not None:\n"
               "    {t}.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 3,))"),
    statements("hook on several gradients", "if x.requires_grad:\n"
               "    torch.autograd.graph.register_multi_grad_hook([x], "
               "lambda gradients: MULTI_LOG.append(len(gradients)))\n{t} = x * 2",
               "MULTI_LOG = []"),
    statements("backward hook of a module", "{t} = BACKWARD({a} * 1.0)", BACKWARD_HOOK,
               "BACKWARD_LOG.clear()"),
    written("autograd function with a context", "Cubed.apply({a}, {c})", SETUP),
    written("vmap of an autograd function", "torch.vmap(lambda v: Cubed.apply(v, 2.0))({a}) "
            "if {a}.dim() else {a}", SETUP),
    written("needed gradients", "Needed.apply({a}, {b})[0]", NEEDED),
    written("autograd function with a log", "Once.apply({a})", ONCE, "ONCE_LOG.clear()"),
    written("custom operator", "scaled_op({a}, {c} * 1.0)", OPERATOR),
    statements("custom operator in place", "{t} = {a} * 1\nbump({t}, 2.0)", WRITING_OPERATOR),
    statements("custom operator on an input", "bump(x, 2.0)\n{t} = x * 1", WRITING_OPERATOR),
    statements("custom operator on a view", "{t} = {a} * 1\nbump({t}[...], 2.0)",
               WRITING_OPERATOR),
    statements("parametrized weight", "{t} = PARAMETRIZED(torch.ones(3) * {a}.sum().float())",
               PARAMETRIZED, "PARAMETRIZED.parametrizations.weight[0].rate = 3.0",
               "PARAMETRIZED.parametrizations.weight.original.data.fill_(2.0)",
               "parametrize.remove_parametrizations(PARAMETRIZED, 'weight')",
               "parametrize.register_parametrization(PARAMETRIZED, 'weight', Twice())",
               modes=("parametrize.cached()",)),
    statements("containers of a module", "{t} = CONTAINED({a} * 1.0)", CONTAINERS,
               *CONTAINED_CHANGES),
    statements("write to a parameter", "with torch.no_grad():\n    CONTAINED.many[0].mul_({c})\n"
               "{t} = CONTAINED({a} * 1.0)", CONTAINERS, *CONTAINED_CHANGES),
    statements("submodule replaced", "CONTAINED.acts['relu'] = torch.nn.Tanh()\n"
               "{t} = CONTAINED({a} * 1.0)", CONTAINERS, *CONTAINED_CHANGES),
    statements("buffer registered", "CONTAINED.register_buffer('extra', {a}.detach() * 2)\n"
               "{t} = {a} + CONTAINED.extra", CONTAINERS, *CONTAINED_CHANGES),
    written("names of a module", "{a} * len([k for k, _ in CONTAINED.named_modules()]) "
            "+ len(CONTAINED.state_dict())", CONTAINERS, *CONTAINED_CHANGES),
    written("allowed in the graph", "allowed({a})", CONSTANT),
)  # fmt: skip
