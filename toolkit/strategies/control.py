"""Control flow in the graph: a branch, a loop, a scan.

Outside torch.compile, these calls compile their bodies themselves, which is slow: see
`program.stance_for`. While a program is drawn, Python itself chooses the branch. Loops are drawn
without gradients: with gradients, torch 2.13 runs them through the backend `eager`, with a graph
break.
"""

from __future__ import annotations

from tcdebug.strategies.row import Row
from tcdebug.strategies.scope import Scope, Want

SAME = ("t.sin()", "t * 2", "t + 1", "torch.relu(t)", "t.softmax(-1)", "t.cumsum(-1)", "t.flip(-1)")
"""Bodies of loops. They return a float tensor with the size, strides and dtype of `x`."""
ENDING = Want("f", 1, 3, nonempty=True, plain=True)


def _operand(scope: Scope, *, detached: bool) -> str:
    """Return a contiguous float tensor."""
    x = str(scope.operand(ENDING))
    return f"{x}.detach()" if detached and scope.gradients else x


def _cond(scope: Scope) -> str:
    x = _operand(scope, detached=False)
    test = scope.choose((f"{x}.sum() > 0", f"{x}.isnan().any()", f"torch.tensor({scope.flag()})"))
    true, false = (f"lambda t: ({scope.choose(SAME)}).clone()" for _ in range(2))
    text = f"torch.cond({test}, {true}, {false}, ({x},))"
    scope.in_eager[text] = f"(({true}) if {test} else ({false}))({x})"
    return text


def _while_loop(scope: Scope) -> str:
    """Return a while_loop with a given number of rounds. A tensor counts them."""
    x, rounds = _operand(scope, detached=True), scope.integer(0, 3)
    body = f"lambda i, t: (i + 1, {scope.choose(SAME)})"
    start = "torch.tensor(0)"
    return f"torch.while_loop(lambda i, t: i < {rounds}, {body}, ({start}, {x}))[1]"


def _scan(scope: Scope) -> str:
    """Return a scan along the first dimension: its final state, or the results of all steps."""
    x = _operand(scope, detached=True)
    body = f"lambda c, t: (c + t, {scope.choose(('c * t', 't + 1', 'torch.maximum(c, t)'))})"
    start, taken = f"torch.zeros_like({x}[0])", scope.choose((0, 1))
    return f"torch._higher_order_ops.scan({body}, {start}, {x}, dim=0)[{taken}]"


CONTROL = (
    Row("cond", _cond),
    Row("while_loop", _while_loop),
    Row("scan", _scan),
)
