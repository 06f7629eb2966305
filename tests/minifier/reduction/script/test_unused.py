"""Statements that nothing needs are removed together, by a look at the text alone."""

from __future__ import annotations

import ast

import pytest

from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.compiled import names_of_compiled
from tcdebug.minifier.reduction.script.dropping.unused import DropUnused


def left_of(text: str) -> str:
    """What the candidate with all edits leaves of a script."""
    script = ScriptText(ast.unparse(ast.parse(text)))
    done = DropUnused().apply(script, DropUnused().edits(script))
    assert done is not None
    return done.text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("x = 1\nprint(x)\nassert not x", "x = 1\nassert not x"),
        ("import logging\nlog = logging.getLogger()\nlog.info(1)\nraise E", "raise E"),
        ("import time\nt = time.time()\nfor x in f():\n    t += x\ng()", "g()"),
        ("p = P()\np.add('--n')\nargs = p.parse()\nn = args.n\nassert 0", "assert 0"),
        (
            "p = P()\np.add('--n')\nargs = p.parse()\nassert args.n",
            "p = P()\np.add('--n')\nargs = p.parse()\nassert args.n",
        ),
        ("seen = []\nseen.append(1)\nassert seen", "seen = []\nseen.append(1)\nassert seen"),
        ("t = {}\nt[1] = 2\nassert 0", "assert 0"),
        ("t = {}\nt[1] = 2\nassert t", "t = {}\nt[1] = 2\nassert t"),
        ("def f():\n    o = O()\n    o.step()\n    assert 0\nf()", "def f():\n    assert 0\nf()"),
        ("def f():\n    assert 0\nassert 1", "assert 1"),
        ("import torch.a\ntorch.a.b = None", "import torch.a\ntorch.a.b = None"),
        ("import torch\ntorch.manual_seed(0)", "import torch\ntorch.manual_seed(0)"),
        ("import sys\nif x:\n    sys.exit(1)", "import sys\nif x:\n    sys.exit(1)"),
        ("import np\nnp.assert_equal(1, 2)", "import np\nnp.assert_equal(1, 2)"),
        (
            "for x in g():\n    assert x\n    if x:\n        break",
            "for x in g():\n    assert x\n    if x:\n        break",
        ),
        ("for x in g():\n    if x:\n        break\nassert 0", "assert 0"),
        (
            "class A:\n    n: int = 1\n\n    def f(self):\n        pass\nassert A().n",
            "class A:\n    n: int = 1\nassert A().n",
        ),
        (
            "g = torch.compile(f)\ny = g(x)\nz = f(x)\nassert 0",
            "g = torch.compile(f)\ny = g(x)\nassert 0",
        ),
        (
            "def r(g):\n    y = g(x)\n    return y\nz = r(f if e else compile(f))\nassert 0",
            "def r(g):\n    y = g(x)\n    return y\nz = r(f if e else compile(f))\nassert 0",
        ),
        (
            "def f(g):\n    return g\n@f\ndef g(x):\n    pass\n@o\ndef h(x):\n    pass\nassert 0",
            "def f(g):\n    return g\n\n@f\ndef g(x):\n    pass\nassert 0",
        ),
        ("m.flag = 1\nassert m.flag", "m.flag = 1\nassert m.flag"),
        ("m.flag = 1\nassert m.other", "assert m.other"),
    ],
)  # fmt: skip
def test_what_no_effect_of_a_script_needs_is_dropped_at_once(text: str, left: str) -> None:
    assert left_of(text) == left


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("g = torch.compile(f)", {"g"}),
        ("self.g: C = f if e else torch.compile(f)\nh = self.g", {"g", "h"}),
        ("m.compile()\nself.n.compile()", {"m", "n"}),
        ("@torch.compile(backend=b)\ndef f(x): pass\n@compile\ndef g(x): pass", {"f", "g"}),
        ("def f():\n    return torch.compile(m)\ng = f()", {"f", "g"}),
        (
            "class T:\n    def r(self, a, b):\n        b()\nt.r(1, g)\ng = compile(f)",
            {"g", "r", "b"},
        ),
        ("re.compile\nf(compile)\ng = f", set()),
    ],
)
def test_names_of_compiled_code_are_followed(text: str, names: set[str]) -> None:
    assert names_of_compiled(ast.parse(text)) == names


def test_an_edit_that_others_need_brings_back_what_it_needs() -> None:
    script = ScriptText("import time\nt = time.time()\nu = t\nassert 0")
    edits = DropUnused().edits(script)
    assert edits == ["0", "1", "2"]
    kept = DropUnused().apply(script, ["0", "1"])
    assert kept is not None and kept.text == script.text
    assert DropUnused().edits(ScriptText("assert 0")) == []
