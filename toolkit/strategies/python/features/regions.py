"""Regions, checkpoints, marked sizes, and further forms of transforms and autograd functions."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

METHOD = """
class Regional(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))
    @torch.compiler.nested_compile_region
    def forward(self, value, factor):
        return torch.sin(value * self.weight) * factor
REGIONAL = [Regional(), Regional()]
"""
SEQUENCE = """
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
CHECKPOINTED = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Identity(), torch.nn.Tanh())
FACTORS_INSIDE = [2.0]
"""
PREFERRED = """
import functools
from torch.utils.checkpoint import (
    CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts)
def preferring(ctx, operator, *args, **kwargs):
    saved = operator is torch.ops.aten.mul.Tensor
    return CheckpointPolicy.PREFER_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE
PREFERRING = functools.partial(create_selective_checkpoint_contexts, preferring)
"""
MARKS = (
    "torch._dynamo.maybe_mark_dynamic(x, 0)",
    "torch._dynamo.mark_static(x, 0)",
    "torch._dynamo.maybe_mark_dynamic(y, -1)",
)
JVP = """
class Squared(torch.autograd.Function):
    @staticmethod
    def forward(value):
        return value * value
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3 * ctx.saved_tensors[0]
    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2 * ctx.saved_tensors[0]
    @staticmethod
    def vmap(info, dims, value):
        return Squared.apply(value), dims[0]
"""
OUTPUT = """
class Exponent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, *others):
        result = value.exp()
        ctx.save_for_backward(result)
        ctx.count = len(others)
        return result
    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0] * 2, *(None,) * ctx.count
class Outermost(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return Exponent.apply(value, 1, 2) + 1
    @staticmethod
    def backward(ctx, gradient):
        OUTERMOST_LOG.append(tuple(gradient.shape))
        return gradient * 7
OUTERMOST_LOG = []
"""
SAME = """
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3
class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.shape = value.shape
        return value.view(-1) if value.is_contiguous() else value.reshape(-1)
    @staticmethod
    def backward(ctx, gradient):
        return gradient.reshape(ctx.shape) * 5
"""
FLEX = """
from torch.nn.attention.flex_attention import flex_attention
QUERY = torch.arange(32.0).reshape(1, 1, 4, 8) / 32
"""
WHILE = "from torch._higher_order_ops import while_loop"
SCAN = "from torch._higher_order_ops import scan"
RANDOM = "torch.manual_seed(0)"
REGIONS = (
    statements("regions of modules", "{t} = {a} * 1.0\nfor part in REGIONAL:\n"
               "    {t} = part({t}, {c})", METHOD, "REGIONAL[1].weight.data.fill_(3.0)",
               "REGIONAL.reverse()", "REGIONAL.pop()", "REGIONAL[0] = Regional()"),
    written("checkpoint of a sequence",
            "checkpoint_sequential(CHECKPOINTED, 2, {a} * 1.0, use_reentrant=False)", SEQUENCE,
            "CHECKPOINTED[1] = torch.nn.Sigmoid()"),
    written("nested checkpoints", "checkpoint(lambda v: checkpoint(torch.sin, v * FACTORS_INSIDE[0]"
            ", use_reentrant=False) * v, {a} * 1.0, use_reentrant=False)", SEQUENCE,
            "FACTORS_INSIDE[0] = 3.0"),
    written("checkpoint with flags", "checkpoint(lambda v, k: torch.cos(v) * k, {a} * 1.0, {c}, "
            "use_reentrant=False, preserve_rng_state=False, determinism_check='none')", SEQUENCE),
    written("checkpoint that prefers", "checkpoint(lambda v: torch.sin(v * v) * v, {a} * 1.0, "
            "use_reentrant=False, context_fn=PREFERRING)", PREFERRED),
    written("marked size", "{a} * (2 if x.shape[0] > 2 else 3) * len(x)", "MARKED = 1", *MARKS),
    written("autograd function in forward mode",
            "torch.func.jvp(Squared.apply, ({a} * 1.0,), ({a} * 2.0,))[1]", JVP),
    written("rule of vmap", "torch.vmap(Squared.apply)({a} * 1.0) if {a}.dim() else {a}", JVP),
    written("gradient of an autograd function",
            "torch.func.grad(lambda v: Squared.apply(v).sum())({a} * 1.0)", JVP),
    written("autograd function saves its result", "Exponent.apply({a} * 0.1, {b}, n)", OUTPUT),
    written("autograd function in another", "Outermost.apply({a} * 0.1)", OUTPUT,
            "OUTERMOST_LOG.clear()"),
    written("autograd function returns its input", "Same.apply({a})", SAME),
    written("autograd function returns a view", "Viewed.apply({a} * 1.0).sum() + {a}", SAME),
    written("vmap in chunks", "torch.vmap(lambda v: v * {c}, chunk_size=1)({a}) "
            "if {a}.dim() else {a}"),
    written("vmap of a dict", "torch.vmap(lambda table: table['a'] * 2 + table['b'])("
            "{{'a': {a}, 'b': {a} * {c}}}) if {a}.dim() else {a}"),
    written("vmap with random numbers", "torch.vmap(lambda v: v + torch.rand(()), "
            "randomness='same')({a} * 1.0) if {a}.dim() else {a}", RANDOM,
            "torch.manual_seed(5)"),
    written("grad of two arguments", "sum(torch.func.grad(lambda v, w: (v * w * {c}).sum(), "
            "argnums=(0, 1))({a} * 1.0, {a} * 2.0))"),
    written("vjp with auxiliary", "torch.func.vjp(lambda v: (v * v, {{'sum': v.sum()}}), "
            "{a} * 1.0, has_aux=True)[2]['sum'] + {a}"),
    written("jvp over vjp", "torch.func.jvp(torch.func.grad(lambda v: (v ** 3).sum()), "
            "({a} * 1.0,), ({a} * 1.0,))[1]"),
    written("jacrev in chunks", "torch.func.jacrev(lambda v: v * v, chunk_size=2)("
            "torch.ones(3) * {a}.sum().float()).sum() + {a}"),
)  # fmt: skip
FURTHER_HIGHER_ORDER = (
    statements("cond with closures", "held = {a} * 1.0\n{t} = torch.cond({b}.sum() > 1, "
               "lambda: held * {c}, lambda: held - {c}, ())"),
    statements("nested cond", "{t} = torch.cond({b}.sum() > 1, lambda v: torch.cond(v.sum() > 2, "
               "lambda w: w * 2, lambda w: w + 1, (v,)), lambda v: v - {c}, ({a} * 1.0,))"),
    statements("while_loop with a closure", "held = {a}.sum().float()\n{t} = while_loop("
               "lambda k, v: k < 3, lambda k, v: (k + 1, v * 2 + held), "
               "(torch.tensor(0), torch.ones(3)))[1]", WHILE),
    statements("scan in reverse", "{t} = scan(lambda carry, part: ({{'s': carry['s'] + part}}, "
               "carry['s'] * part), {{'s': torch.zeros(3)}}, torch.ones(2, 3) * "
               "{a}.sum().float(), reverse=True)[1]", SCAN),
    statements("flex attention", "{t} = {a} + flex_attention(QUERY, QUERY, QUERY, "
               "score_mod=lambda score, batch, head, row, column: score * 2.0 + row)"
               ".sum()", FLEX),
)  # fmt: skip
