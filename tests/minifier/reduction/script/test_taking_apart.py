"""Objects, classes, loops and checks of a script are replaced by the parts that a failure needs."""

from __future__ import annotations

import ast

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.failures import RaisesToAssertions
from tcdebug.minifier.reduction.script.importing import ImportsByPackage
from tcdebug.minifier.reduction.script.inlining import InlineMethods
from tcdebug.minifier.reduction.script.loops import UnrollLoops
from tcdebug.minifier.reduction.script.objects.components import HoistComponents, UnwrapContainers
from tcdebug.minifier.reduction.script.objects.dissolving import DissolveObjects, MergeBases
from tcdebug.minifier.reduction.script.objects.holding import FlattenObjects, InlineForwards
from tcdebug.minifier.reduction.script.objects.records import AttributesOfNewObjects
from tcdebug.minifier.reduction.script.randomness import ReplaceDraws
from tcdebug.minifier.reduction.script.rewriting import SyntaxReduction
from tcdebug.minifier.reduction.script.script_reducer import ScriptReducer
from tcdebug.minifier.reduction.script.tables import LookUpEntries


def plain(text: str) -> str:
    """A script in the form that the reductions write."""
    return ast.unparse(ast.parse(text))


BLOCK = """
class Block(Module):
    def __init__(self, width):
        self.proj = Linear(width, 2)
"""
MODEL = f"""{BLOCK}class Model(Module):
    def __init__(self, width, depth=2):
        self.blocks = ModuleList([Block(width) for _ in range(depth)])
        size = depth + 1
        self.head = Linear(size, 1)
"""
COUNTER = """
class Counter:
    step = 1
    def __init__(self, first):
        self.seen = [first]
        self.total = first
    def add(self, value):
        self.seen.append(value)
        self.total += value * self.step
"""

TAKEN_APART = {
    "a component": (
        HoistComponents(), f"{MODEL}model = Model(8)",
        [
            MODEL.replace("Block(width)", "Linear(width, 2)").replace(BLOCK, "")
            + "model = Model(8)",
            f"{BLOCK}model = Sequential(*[Block(8) for _ in range(2)])",
            f"{BLOCK}model = Block(8)",
        ],
    ),
    "a list of components": (
        HoistComponents(),
        "class A(nn.Module):\n    def __init__(self, n):\n"
        "        self.parts = nn.ModuleList([B(n), B(2)])\nmodel = A(1)",
        ["model = nn.Sequential(B(1), B(2))", "model = B(1)", "model = B(2)"],
    ),
    "a component of a component": (
        HoistComponents(), f"{BLOCK}model = Block(width=4)", ["model = Linear(4, 2)"],
    ),
    "a class with another use": (
        HoistComponents(), f"{BLOCK}model = Block(4)\nmodel = Block",
        [f"{BLOCK}model = Linear(4, 2)\nmodel = Block"],
    ),
    "no component": (
        HoistComponents(),
        "class A:\n    def __init__(self, n):\n        for k in n:\n            B(k)\na = A(1)",
        [],
    ),
    "a list of one": (
        UnwrapContainers(), "blocks = [Block()]\nb = blocks[0]\nprint(next(iter(blocks)))",
        ["blocks = Block()\nb = blocks\nprint(blocks)"],
    ),
    "a list of one module": (
        UnwrapContainers(),
        "class A:\n    def __init__(self):\n        self.parts = nn.ModuleList([B()])\n"
        "    def forward(self, x):\n        return self.parts[0](x)",
        [
            "class A:\n    def __init__(self):\n        self.parts = B()\n"
            "    def forward(self, x):\n        return self.parts(x)",
        ],
    ),
    "a list that grows": (UnwrapContainers(), "a = [x]\na = [*a, y]\nprint(a[0])", []),
    "a list that is not looked up": (UnwrapContainers(), "a = [x]\nprint(a)", []),
    "the only object": (
        DissolveObjects(), f"{COUNTER}c = Counter(3)\nc.add(4)\nprint(c.total, c.seen)",
        [
            "step = 1\ndef add(value):\n    global total\n    seen.append(value)\n"
            "    total += value * step\nfirst = 3\nseen = [first]\ntotal = first\n"
            "add(4)\nprint(total, seen)",
        ],
    ),
    "an attribute with the name of a variable": (
        DissolveObjects(),
        "class A:\n    def __init__(self):\n        self.n = 1\nn = 2\na = A()\nprint(n, a.n)",
        ["n = 2\na_n = 1\nprint(n, a_n)"],
    ),
    "an object with keywords": (
        DissolveObjects(),
        "class A:\n    def __init__(self, n, **more):\n        self.more = more\n"
        "a = A(1, x=2, y=3)\nprint(a.more)",
        ["n = 1\nmore = dict(x=2, y=3)\na_more = more\nprint(a_more)"],
    ),
    "two objects": (DissolveObjects(), f"{COUNTER}c = Counter(3)\nd = Counter(4)", []),
    "an object that is passed on": (DissolveObjects(), f"{COUNTER}c = Counter(3)\nf(c)", []),
    "an object with a base": (
        DissolveObjects(), "class A(B):\n    pass\na = A()\nprint(a.n)", [],
    ),
    "an object with a special method": (
        DissolveObjects(), "class A:\n    def __len__(self):\n        return 1\na = A()\na.n", [],
    ),
    "a module": (
        DissolveObjects(),
        "class A(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.inner = B()\n    def forward(self, x):\n"
        "        return self.inner(x) + self.inner(x)\na = A()\nprint(compiled(a)(1), a.inner)",
        ["def a(x):\n    return inner(x) + inner(x)\ninner = B()\nprint(compiled(a)(1), inner)"],
    ),
    "a module of which more is used": (
        DissolveObjects(),
        "class A(nn.Module):\n    def forward(self, x):\n        return x\na = A()\na.eval()",
        [],
    ),
    "a module that is bound again": (
        DissolveObjects(),
        "class A(nn.Module):\n    def forward(self, x):\n        return x\na = A()\na = f(a)",
        [],
    ),
    "a method that passes its object on": (
        DissolveObjects(),
        "class A:\n    def f(self):\n        return g(self)\na = A()\nprint(a.f())",
        [],
    ),
    "an object that another one holds and calls": (
        InlineForwards(),
        "class A:\n    def forward(self, x):\n        return x * self.n\nclass B:\n"
        "    def __init__(self):\n        self.a = A()\n    def forward(self, x):\n"
        "        return self.a(x) + self.a(1)",
        [
            "class A:\n    pass\nclass B:\n    def __init__(self):\n        self.a = A()\n"
            "    def forward(self, x):\n        return x * self.a.n + 1 * self.a.n",
        ],
    ),
    "an object with several statements that another one calls": (
        InlineForwards(),
        "class A:\n    def forward(self, x):\n        y = x + self.n\n        return y\n"
        "class B:\n    def __init__(self):\n        self.a = A()\n    def forward(self, z):\n"
        "        return self.a(z) * 2",
        [
            "class A:\n    pass\nclass B:\n    def __init__(self):\n        self.a = A()\n"
            "    def forward(self, z):\n        x = z\n        y = x + self.a.n\n"
            "        return y * 2",
        ],
    ),
    "objects that others hold and call": (
        InlineForwards(),
        "class A:\n    def forward(self, x):\n        return x\nb.a, b.c = A(), A()\nb.a(1)",
        [],
    ),
    "an object whose attributes another one reads": (
        FlattenObjects(),
        "class A(Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.n, self.m = n, f(n)\nclass B(Module):\n    def __init__(self):\n"
        "        self.a = A(3)\n    def forward(self, x):\n"
        "        return x.m + self.a.n + self.a.m",
        [
            "class B(Module):\n    def __init__(self):\n        n = 3\n"
            "        self.n, self.a_m = n, f(n)\n    def forward(self, x):\n"
            "        return x.m + self.n + self.a_m",
        ],
    ),
    "an object that another one passes on": (
        FlattenObjects(),
        "class A:\n    def __init__(self):\n        self.n = 1\nb.a = A()\nprint(b.a.n, b.a)",
        [],
    ),
    "an object with methods": (
        FlattenObjects(),
        "class A:\n    def __init__(self):\n        self.n = 1\n    def f(self):\n        pass\n"
        "b.a = A()\nprint(b.a.n)",
        [],
    ),
    "a base": (
        MergeBases(),
        "class A(M):\n    n = 1\n    def f(self):\n        return 1\n"
        "class B(A, N):\n    def f(self):\n        return 2\nB().f()",
        ["class B(M, N):\n    n = 1\n    def f(self):\n        return 2\nB().f()"],
    ),
    "a base of two classes": (
        MergeBases(), "class A:\n    pass\nclass B(A):\n    pass\nclass C(A):\n    pass", [],
    ),
    "a base whose method is extended": (
        MergeBases(),
        "class A:\n    def f(self):\n        return 1\n"
        "class B(A):\n    def f(self):\n        return super().f()",
        [],
    ),
    "a loop over written elements": (
        UnrollLoops(), "for n, m in ((1, x), (2, y)):\n    a = f(n)\n    check(a, m)",
        [
            "a = f(2)\ncheck(a, y)",
            "a = f(1)\na = f(2)\ncheck(a, y)",
            "check(a, x)\na = f(2)\ncheck(a, y)",
        ],
    ),
    "a loop that counts": (
        UnrollLoops(), "for _ in range(2):\n    f(x)", ["f(x)", "f(x)\nf(x)"],
    ),
    "a loop over calls": (
        UnrollLoops(), "for k in [g(), h()]:\n    f(k)",
        ["k = h()\nf(k)", "k = g()\nf(k)\nk = h()\nf(k)"],
    ),
    "a loop over an enumeration": (
        UnrollLoops(),
        "class Mode(enum.Enum):\n    A = 1\n    B = 2\nfor m in Mode:\n    f(m)",
        [
            "class Mode(enum.Enum):\n    A = 1\n    B = 2\nf(Mode.B)",
            "class Mode(enum.Enum):\n    A = 1\n    B = 2\nf(Mode.A)\nf(Mode.B)",
        ],
    ),
    "a loop over pairs": (
        UnrollLoops(),
        "names = ['a', 'b']\nfor k, (n, v) in enumerate(zip(names, [x, y])):\n    f(k, n, v)",
        [
            "names = ['a', 'b']\nf(1, 'b', y)",
            "names = ['a', 'b']\nf(0, 'a', x)\nf(1, 'b', y)",
        ],
    ),
    "a loop that is left": (UnrollLoops(), "for k in (1, 2):\n    if f(k):\n        break", []),
    "a loop of many": (UnrollLoops(), "for k in range(9):\n    f(k)", []),
    "a loop over unknown elements": (UnrollLoops(), "for k in x:\n    f(k)", []),
    "a raise": (
        RaisesToAssertions(), "if not f(x):\n    raise AssertionError('wrong')", ["assert f(x)"],
    ),
    "another error": (RaisesToAssertions(), "if f(x):\n    raise ValueError('wrong')", []),
    "a list of failures": (
        RaisesToAssertions(),
        "bad = []\nif f(x):\n    bad.append(x)\nif bad:\n    raise AssertionError(bad)",
        [
            "bad = []\nif f(x):\n    bad.append(x)\nassert not bad",
            "if f(x):\n    raise AssertionError",
        ],
    ),
    "an empty list of failures": (
        RaisesToAssertions(), "bad = []\nif f(x):\n    bad.append(x)\nassert not bad, len(bad)",
        ["if f(x):\n    raise AssertionError"],
    ),
    "an import": (
        ImportsByPackage(),
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\nnn.Linear(F.relu(x))",
        [
            "import torch\nimport torch.nn.functional as F\ntorch.nn.Linear(F.relu(x))",
            "import torch\nfrom torch import nn\nnn.Linear(torch.nn.functional.relu(x))",
        ],
    ),
    "an import of another package": (
        ImportsByPackage(), "import torch\nfrom numpy import pi\nprint(pi)", [],
    ),
    "an import that the package may not load by itself": (
        ImportsByPackage(),
        "import torch\nfrom torch._functorch.aot_autograd import a\n"
        "from torch._inductor import config\nimport torch._dynamo.config as c\na(config, c)",
        [],
    ),
    "an imported name that is bound again": (
        ImportsByPackage(), "import torch\nfrom torch import nn\nnn = nn.functional", [],
    ),
    "a static method": (
        InlineMethods(),
        "class A:\n    @staticmethod\n    def f(x):\n        y = x + 1\n        return y\n"
        "z = A.f(3)",
        ["class A:\n    pass\nx = 3\ny = x + 1\nz = y"],
    ),
    "a method of a class": (
        InlineMethods(),
        "class A:\n    @classmethod\n    def make(cls, n):\n        g(n)\n        return cls(n)\n"
        "z = A.make(3)",
        ["class A:\n    pass\nn = 3\ng(n)\nz = A(n)"],
    ),
    "a method of one expression": (
        InlineMethods(),
        "class A:\n    def f(self, x):\n        return x * self.n\nprint(a.f(1), a.b.f(y))",
        ["class A:\n    pass\nprint(1 * a.n, y * a.b.n)"],
    ),
    "a method that calls another of its name": (
        InlineMethods(),
        "class A:\n    def add(self, x):\n        print(x)\n        self.seen.add(x)\na.add(1)",
        ["class A:\n    pass\nx = 1\nprint(x)\na.seen.add(x)"],
    ),
    "a method of a new object": (
        InlineMethods(),
        "class A:\n    def f(self, x):\n        y = x + 1\n        print(y)\nA().f(2)",
        ["class A:\n    pass\nx = 2\ny = x + 1\nprint(y)"],
    ),
    "a method that needs its new object": (
        InlineMethods(),
        "class A:\n    def f(self, x):\n        self.n = x\n        print(self.n)\nA().f(2)",
        [],
    ),
    "a method that is read": (
        InlineMethods(),
        "class A:\n    def f(self, x):\n        return x\nprint(a.f(1), a.f)",
        [],
    ),
    "a list with one entry": (
        UnwrapContainers(), "seen = []\nfor k in x:\n    seen.append(k)\nprint(seen[0], seen[-1])",
        ["for k in x:\n    seen = k\nprint(seen, seen)"],
    ),
    "a list with two entries": (
        UnwrapContainers(), "seen = []\nseen.append(x)\nseen.append(y)\nprint(seen[0])",
        ["seen = [x]\nseen.append(y)\nprint(seen[0])"],
    ),
    "a list that is counted": (
        UnwrapContainers(), "seen = [1]\nseen.append(x)\nprint(len(seen))",
        ["seen = [1, x]\nprint(len(seen))"],
    ),
    "a list that grows later": (
        UnwrapContainers(), "seen = []\nf()\nseen.append(x)\nprint(len(seen))", [],
    ),
    "an attribute of a new object": (
        AttributesOfNewObjects(),
        "class A:\n    def __init__(self, n, m=2):\n        self.n, self.k = n, n\n"
        "        self.m = [m]\nprint(A(x).m, A(x, 3).m, A(1).n)",
        [
            "class A:\n    def __init__(self, n, m=2):\n        self.n, self.k = n, n\n"
            "        self.m = [m]\nprint([2], A(x, 3).m, A(1).n)",
            "class A:\n    def __init__(self, n, m=2):\n        self.n, self.k = n, n\n"
            "        self.m = [m]\nprint(A(x).m, [3], A(1).n)",
        ],
    ),
    "an attribute of a new record": (
        AttributesOfNewObjects(),
        "@dataclass\nclass A:\n    m: list = field(default_factory=list)\nprint(A().m)",
        ["@dataclass\nclass A:\n    m: list = field(default_factory=list)\nprint(list())"],
    ),
    "a record": (
        DissolveObjects(),
        "class A(NamedTuple):\n    n: int\n    m: int = 2\n    def sum(self):\n"
        "        return self.n + self.m\na = A(n=x)\nprint(a.sum(), a.n)",
        [
            "def a_sum():\n    return a_n + a_m\nm = 2\nn = x\na_n = n\na_m = m\n"
            "print(a_sum(), a_n)",
        ],
    ),
    "random tensors": (
        ReplaceDraws(),
        "torch.manual_seed(0)\nx = torch.randn(2, 3, requires_grad=True)\n"
        "y = f(torch.rand_like(x), torch.randint(4, 9, (2,)))",
        [
            "x = torch.ones(2, 3, requires_grad=True)\n"
            "y = f(torch.ones_like(x), torch.full((2,), 4))",
        ],
    ),
    "random tensors without a seed": (ReplaceDraws(), "x = torch.randn(2)", []),
    "the first of two columns": (
        LookUpEntries(), "a, b = next(iter(zip(x, f(y))))", ["a, b = (x[0], f(y)[0])"],
    ),
    "the first of a sequence": (LookUpEntries(), "a = next(iter(x))", ["a = x[0]"]),
    "the next of an iterator": (LookUpEntries(), "a = next(x)", []),
}  # fmt: skip


@pytest.mark.parametrize(("reduction", "text", "results"), TAKEN_APART.values(), ids=TAKEN_APART)
def test_what_is_made_of_parts_is_taken_apart(
    reduction: SyntaxReduction, text: str, results: list[str]
) -> None:
    given = ScriptText(plain(text))
    made = [reduction.apply(given, [edit]) for edit in reduction.edits(given)]
    assert [m and m.text for m in made] == [plain(r) for r in results]


PLUGINS = """
import dataclasses
import enum

class Mode(enum.Enum):
    PLAIN = "plain"
    SCALED = "scaled"

@dataclasses.dataclass
class Config:
    width: int = 8
    modes: list = dataclasses.field(default_factory=lambda: list(Mode))

class Scaling:
    factor = 1

    def scale(self, x):
        return x * self.factor

class Gate(Scaling):
    def __init__(self, width):
        self.width = width

    def run(self, x):
        return self.scale(x)

class Stack:
    def __init__(self, config):
        self.gates = [Gate(config.width)]
        self.config = config

    def run(self, x):
        for gate in self.gates:
            x = gate.run(x)
        return x

class Log:
    def __init__(self):
        self.lines = []

    def add(self, text):
        self.lines.append(text)

def main():
    config = Config()
    model = Stack(config)
    log = Log()
    failures = []
    for mode in Mode:
        if mode is Mode.SCALED:
            Gate.factor = 4
        log.add(mode.value)
        got = model.run(5)
        if not fine(got):
            failures.append(f"{mode.value}: {got}")
    if failures:
        raise AssertionError("; ".join(failures))

if __name__ == "__main__":
    main()
"""


def test_a_script_of_classes_with_a_failure_in_its_second_iteration_becomes_a_few_lines() -> None:
    ran = []

    def interesting(version: ScriptText, purpose: str) -> bool:
        values: list[int] = []

        def fine(value: int) -> bool:
            values.append(value)
            return values[-1] != 4 * values[0]

        ran.append(version)
        try:
            exec(version.text, {"__name__": "__main__", "fine": fine})
        except AssertionError:
            return len(values) > 1 and values[-1] == 4 * values[0] and "Gate.factor" in version.text
        except Exception:
            return False
        return False

    small = ScriptReducer(ScriptText(plain(PLUGINS)), {}, EventLog(None)).run(interesting)
    assert small.text == plain(
        "class Gate:\n    factor = 1\n"
        "assert fine(Gate().factor)\nGate.factor = 4\nassert fine(Gate().factor)"
    )
    assert len(ran) < 170


def test_an_edit_that_failed_is_tried_again_when_nothing_else_is_left() -> None:
    ran: list[str] = []

    def interesting(version: ScriptText, purpose: str) -> bool:
        ran.append(version.text)
        kept = version.text.startswith("keep(") and "y" in version.text
        return kept and ("c(y" in version.text or "b" not in version.text)

    start = ScriptText("keep(c(y, 3), k=b)")
    small = ScriptReducer(start, {}, EventLog(None)).run(interesting)
    assert small.text == "keep(y)"
    assert ran.index("keep(y, k=b)") < ran.index("keep(c(y))") < ran.index("keep(y)")


def test_edits_that_enlarge_a_script_together_are_tried_one_by_one() -> None:
    ran: list[str] = []

    def interesting(version: ScriptText, purpose: str) -> bool:
        ran.append(version.text)
        closed: list[tuple[int, ...]] = []
        try:
            exec(version.text, {"f": pow, "x": 2, "close": lambda *a: closed.append(a)})
        except Exception:
            return False
        return closed == [(4, 5)]

    start = ScriptText("g, w = (f(x, x), f(x, x) + 1)\nclose(g, w)")
    small = ScriptReducer(start, {}, EventLog(None)).run(interesting)
    assert small.text == "close(f(x, x), f(x, x) + 1)"
    assert "g = f(x, x)\nclose(f(x, x), f(x, x) + 1)" not in ran
