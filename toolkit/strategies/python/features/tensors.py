"""Operations on tensors: exact ones mostly, views, writes in place, and what depends on shapes."""

from __future__ import annotations

from tcdebug.strategies.python.feature import Feature, statements, written
from tcdebug.strategies.python.scene import ProgramScene
from tcdebug.strategies.python.ways import GRAPH_BREAK


def _text(scene: ProgramScene) -> None:
    name = scene.name("text")
    scene.write(f"{name} = f'{{n}} of {{x.dim()}}'")
    scene.keep(name)


TENSORS = (
    written("add", "{a} + {b}"),
    written("multiply", "{a} * {c}"),
    written("subtract", "{a} - {b}"),
    written("relu", "torch.relu({a})"),
    written("sine", "torch.sin({a})"),
    written("sum", "{a}.sum()"),
    written("keep dimension", "{a}.sum(-1, keepdim=True) if {a}.dim() else {a}"),
    written("where", "torch.where({a} > {c}, {a}, {b})"),
    written("detach", "{a}.detach()"),
    written("clone", "{a}.clone()"),
    written("view", "{a}[...]"),
    written("first row", "{a}[:1] if {a}.dim() else {a}"),
    written("reshaped view", "{a}.view({a}.shape)"),
    written("double", "{a}.to(torch.float64)"),
    written("same dtype", "{a}.to({b}.dtype)"),
    written("full like", "torch.full_like({a}, {c})"),
    written("scalar tensor", "torch.tensor({c}) * {a}"),
    written("size as number", "{a} * {b}.numel()"),
    written("size of a dimension", "{a} + x.shape[-1]"),
    written("stride as number", "{a} + x.stride()[0]"),
    written("number of a tensor", "{a} + {b}.sum().item()"),
    written("parameter n", "{a} * n"),
    written("parameter n in Python", "{a} + (n // 2 + n % 3)"),
    written("length", "{a} + len(x)"),
    statements("add in place", "{t} = {a}.clone()\n{t}.add_({c})"),
    statements("write to an input", "x.mul_({c})"),
    statements("write to the other input", "y.add_({c})"),
    statements("write to a view of an input", "{t} = x[:1]\n{t}.add_({c})"),
    statements("write to a view", "{t} = {a} * 1\n{t}[...].fill_({c})"),
    statements("index assignment", "{t} = {a} + 0\n{t}[...] = {c}"),
    statements("detached write", "{t} = {a} * 2\n{t}.detach().add_({c})"),
    statements("copy into", "{t} = {a} * 1\n{t}.copy_({b}.sum())"),
    statements("attribute of a tensor", "{t} = {a} * getattr(x, 'scale', {c})"),
    statements("set an attribute of a tensor", "x.scale = {c}\n{t} = {a} * x.scale"),
    statements("replace data", "x.data = x.data * {c}\n{t} = x + 0"),
    statements("data in place", "x.data.add_({c})\n{t} = x * 1"),
    statements("unbind", "first, {t} = torch.stack([{a} * 1.0, {b} * 2.0]).unbind(0) "
               "if {a}.shape == {b}.shape else ({a}, {b})"),
    statements("chunk", "{t} = ({a} * 2).chunk(2)[0] if {a}.dim() else {a}"),
    statements("split of an input", "{t} = x.split(1)[0] if x.dim() and len(x) else {a}"),
    statements("views of one value", "whole = {a} * 2\nrow = whole[...]\n{t} = whole.view_as(row)"),
    written("expanded view", "{a}.expand(2, *{a}.shape)"),
    written("alias of an input", "x.view_as(x)"),
    written("transposed twice", "{a}.mT.mT if {a}.dim() > 1 else {a}"),
    written("squeeze", "{a}.squeeze()"),
    written("complex", "torch.view_as_real(torch.complex({a}.float(), {a}.float())).sum(-1)"),
    written("nonzero", "{a} * torch.nonzero({b}).shape[0]"),
    written("tolist", "{a} * len({b}.tolist()) if {b}.dim() else {a} * {b}.tolist()"),
    written("numpy", "{a} * torch.from_numpy({b}.detach().numpy() * 2).sum() "
            "if {b}.dtype == torch.float32 else {a}"),
    written("slice by n", "{a} + x[:n].sum()"),
    written("roll by n", "torch.roll({a}, n, -1)"),
    written("range of a size", "{a} + torch.arange(x.shape[0]).sum()"),
    written("masked values", "{a} + {b}[{b} > {c}].sum()"),
    written("number of unique values", "{a} * torch.unique({b}).shape[0]"),
    written("size from a tensor", "{a} + torch.ones(int({b}.sum()) % 5 + 1).sum()"),
    written("index from a tensor", "{a} * x[int({b}.sum()) % len(x)].sum()"),
    written("branch on a number of a tensor", "{a} if {b}.sum().item() > 2 else {a} * {c}"),
    written("type of a tensor", "{a} * len({b}.type())"),
    written("abs of a size", "{a} * abs(2 - x.shape[0])"),
    written("largest number", "{a} * max(n, 2.5)"),
    written("power of a number", "{a} * n**-1 if n else {a}"),
    written("rounded number", "{a} + round(n, -1)"),
    written("conjugate", "{a} * (CONJUGATE * 1j).real",
            "CONJUGATE = torch.tensor([2j, 3j, 4j]).conj()", "CONJUGATE = CONJUGATE.conj()"),
    Feature("text", _text),
    statements("view in no_grad", "with torch.no_grad():\n    {t} = {a}[...]"),
    statements("graph break", GRAPH_BREAK),
    statements("gradient of an input", "{t} = {a} if x.grad is None else {a} + x.grad"),
    statements("select_scatter", "base = {a} * 2.0\n{t} = base * 1.0\n"
               "if base.dim() and len(base):\n"
               "    {t} = torch.select_scatter(base, base.select(0, 0), 0, 0)\nbase.add_(1)"),
    statements("slice_scatter", "base = {a} * 2.0\n{t} = base * 1.0\nif base.dim():\n"
               "    {t} = torch.slice_scatter(base, base[:1], 0, 0, 1)\nbase.mul_(3)"),
    statements("diagonal_scatter", "base = {a} * 2.0\n{t} = base * 1.0\nif base.dim() == 2:\n"
               "    {t} = torch.diagonal_scatter(base, base.diagonal())\nbase.fill_(3)"),
    statements("where of equal tensors", "base = {a} * 2.0\n"
               "{t} = torch.where(torch.ones((), dtype=torch.bool), base, base)\nbase.mul_(3)"),
    statements("contiguous or itself", "base = {a} * 2.0\n{t} = base.contiguous()\n{t}.add_(1)\n"
               "{t} = {t} + base"),
    statements("conversion or itself", "base = {a} * 2.0\n{t} = base.to({b}.dtype)\n{t}.add_(1)\n"
               "{t} = {t} + base"),
    statements("reshape or itself", "base = {a} * 2.0\n{t} = base.reshape(base.shape)\n"
               "base.add_(1)"),
    statements("exchanged data", "one, two = {a} * 1.0, {a} * 2.0\n"
               "one.data, two.data = two.data, one.data\n{t} = one"),
    written("sum of sizes", "{a} * (type(x.shape + (2,)) is torch.Size) + (x.shape + (2,))[-1]"),
    written("size as a key", "{a} * {{x.shape: 2.0}}.get(torch.Size((2, 3)), 4.0)"),
    written("bits of a size", "{a} * (x.shape[0] ^ 3) + (x.shape[0] << 1) + (~x.shape[0])"),
    written("chained comparison of a size", "{a} * (1 < x.shape[0] <= 3) + (x.shape[0] in (2, 3))"),
)  # fmt: skip
