"""Reductions of scripts: each alone, and all of them against a predicate on what a run does."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.cases.script_text import ScriptText
from tcdebug.minifier.reduction.script.dropping.statements import KeepNeeded, UnwrapBlocks
from tcdebug.minifier.reduction.script.functions import (
    DropParameters,
    MethodsToFunctions,
)
from tcdebug.minifier.reduction.script.inlining import InlineFunctions, InlineMethods
from tcdebug.minifier.reduction.script.objects.held_values import ObjectsToValues
from tcdebug.minifier.reduction.script.observing import instrumented
from tcdebug.minifier.reduction.script.script_reducer import ScriptReducer
from tcdebug.minifier.reduction.script.tables import DropEntries, LookUpEntries
from tcdebug.minifier.reduction.script.validity.endless import endless_loops
from tcdebug.minifier.reduction.script.values import DropArguments, InlineNames, ObservedLiterals


def script(text: str) -> ScriptText:
    """A script with this text, in the form that the reductions see."""
    return ScriptText(ast.unparse(ast.parse(text)))


MODEL = """
import math
class Model:
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.unused = math.pi
    def forward(self, x):
        y = x + 1
        return x * self.width
    def other(self):
        return 3
size = 4
model = Model(size)
log = []
log.append(size)
result = model.forward(2)
"""


def test_only_what_a_statement_needs_by_name_or_attribute_stays() -> None:
    reduction = KeepNeeded()
    given = script(MODEL)
    all_but_the_last = reduction.edits(given)[:-1]
    kept = reduction.apply(given, all_but_the_last)
    assert kept is not None
    assert kept.text == ast.unparse(
        ast.parse(
            """
class Model:
    def __init__(self, width):
        super().__init__()
        self.width = width
    def forward(self, x):
        return x * self.width
size = 4
model = Model(size)
result = model.forward(2)
"""
        )
    )


def test_a_version_that_reads_an_attribute_which_it_no_longer_sets_is_not_run() -> None:
    text = "class A:\n    def __init__(self):\n        self.n = 1\na = A()\nprint(a.n.real)"
    ran = []

    def interesting(version: ScriptText, purpose: str) -> bool:
        ran.append(version.text)
        return version.text == script(text).text

    ScriptReducer(script(text), {}, EventLog(None)).run(interesting)
    assert ran and not [t for t in ran if "a.n" in t and "self.n" not in t]


def test_the_body_of_a_function_replaces_its_only_call() -> None:
    given = script("def main(n, k=2):\n    y = n * k\n    return y\nz = main(3)")
    inlined = InlineFunctions().apply(given, ["0"])
    assert inlined is not None
    values: dict[str, int] = {}
    exec(inlined.text, values)
    assert values["z"] == 6 and "def" not in inlined.text


@pytest.mark.parametrize(
    ("text", "inlined"),
    [
        ("def f(x, y):\n    return x + y\nprint(f(1, [2]))", "print(1 + [2])"),
        ("def g(x):\n    yield from h(x)\nnext(g(5))", "next(h(5))"),
        ("def f(x):\n    return x + x\nprint(f([1]))", "x = [1]\nprint(x + x)"),
        ("def f(x):\n    return x + x\nprint(f(1), f(y))", "print(1 + 1, y + y)"),
        ("def f(x):\n    return x + x\nprint(f(1), f)", ""),
        ("def f(x=1):\n    return x\nprint(f(2))", "x = 2\nprint(x)"),
        ("def f():\n    y = 1\n    yield y\nprint(*f())", "y = 1\nprint(*iter([y]))"),
        ("def f():\n    y = 1\n    yield y\nx = next(f())", "y = 1\nx = next(iter([y]))"),
        (
            "def f():\n    y = 1\n    print(y)\nfor z in [f()]:\n    pass",
            "y = 1\nprint(y)\nfor z in [None]:\n    pass",
        ),
        ("def f():\n    yield 1\n    return 2\nprint(f())", ""),
        ("def f(x):\n    return x\nwhile f(1):\n    pass", "while 1:\n    pass"),
        ("def f(x):\n    return x + x\nwhile f([1]):\n    pass", ""),
    ],
)
def test_a_function_replaces_its_only_call(text: str, inlined: str) -> None:
    given = script(text)
    edits = InlineFunctions().edits(given)
    done = InlineFunctions().apply(given, edits[-1:]) if edits else None
    assert (done.text if done else "") == inlined


@pytest.mark.parametrize(
    ("text", "inlined"),
    [
        ("y = next(x)", ["next(x)"]),
        ("y = x\ny = y * 2\nprint(y, y)", ["y = x * 2\nprint(y, y)"]),
        ("y = x\nz = y * 2\nprint(y, z, z)", []),
        ("y = x\ny = y * y\nprint(y, y)", []),
        ("if x:\n    y = x\n    y = y + 1\nprint(y, y)", ["if x:\n    y = x + 1\nprint(y, y)"]),
        ("y = 1\nprint(y)", ["print(1)"]),
        (
            "def f():\n    y = 1\n    return y\ny = f(y=2)",
            ["def f():\n    return 1\ny = f(y=2)", "def f():\n    y = 1\n    return y\nf(y=2)"],
        ),
        ("y = [1]\nif x in y:\n    f()", ["if x in [1]:\n    f()"]),
        ("y = f()\nwhile x in y:\n    g()", []),
        ("y = 1\ndef f():\n    global y\n    y = 2\nprint(y)", []),
    ],
)
def test_names_that_are_not_needed_go(text: str, inlined: list[str]) -> None:
    given = script(text)
    done = [InlineNames().apply(given, [edit]) for edit in InlineNames().edits(given)]
    assert [d.text for d in done if d] == inlined


COUNTER = """
class Counter:
    def __init__(self):
        self.seen = []
    def add(self, value, twice=False):
        self.seen.append(value)
        return len(self.seen)
class Model:
    def forward(self, x):
        return self.counter.add(x) + 1
"""


def test_a_method_replaces_its_only_call_with_its_object_in_place_of_self() -> None:
    given = script(COUNTER)
    (edit,) = InlineMethods().edits(given)
    inlined = InlineMethods().apply(given, [edit])
    assert inlined is not None
    assert inlined.text == (
        "class Counter:\n\n    def __init__(self):\n        self.seen = []\n\n"
        "class Model:\n\n    def forward(self, x):\n        twice = False\n        value = x\n"
        "        self.counter.seen.append(value)\n        return len(self.counter.seen) + 1"
    )


@pytest.mark.parametrize(
    "change",
    [
        ("self.counter.add(x)", "self.counters().add(x)"),  # the object would be made twice
        ("+ 1", "+ self.other.add(x)"),
        ("    def add", "    @staticmethod\n    def add"),
        ("class Model:", "class Model:\n    def add(self):\n        pass"),
    ],
)
def test_a_method_that_is_called_otherwise_stays(change: tuple[str, str]) -> None:
    assert InlineMethods().edits(script(COUNTER.replace(*change))) == []


@pytest.mark.parametrize(
    ("text", "simplified"),
    [
        (
            "class Box:\n    def __init__(self, v):\n        super().__init__()\n"
            "        self.v = [v]\nbox = Box(3)\nprint(box.v, Box(4).v)",
            "box = [3]\nprint(box, [4])",
        ),
        (
            "class Outer(M):\n    def __init__(self):\n        self.inner = Inner()\n"
            "    def forward(self, x, y):\n        return self.inner(x, y)\n"
            "model = Outer()\nmodel(1, 2)\nmodel.inner.weight",
            "model = Inner()\nmodel(1, 2)\nmodel.weight",
        ),
    ],
)
def test_an_object_that_only_holds_a_value_becomes_that_value(text: str, simplified: str) -> None:
    (edit,) = ObjectsToValues().edits(script(text))
    done = ObjectsToValues().apply(script(text), [edit])
    assert done is not None and done.text == simplified


HOLDER = "class A:\n    def __init__(self, v):\n        self.v = v\na = A([1])\nprint(a.v)"


@pytest.mark.parametrize(
    "change",
    [
        ("a = A([1])", "a = A([1])\na.v = 2"),  # set elsewhere
        ("a = A([1])", "class B(A):\n    pass\na = A([1])"),
        ("self.v = v", "self.v = v + v"),  # an argument would be evaluated twice
        ("A([1])", "A(*[1])"),
        ("self.v = v", "self.v = v\n        self.w = v"),
        ("a = A([1])", "    def forward(self, x):\n        return self.v(x, x)\na = A([1])"),
    ],
)
def test_an_object_that_is_more_than_one_value_stays(change: tuple[str, str]) -> None:
    assert ObjectsToValues().edits(script(HOLDER.replace(*change))) == []


def test_parameters_of_methods_that_calls_of_objects_run_go_together() -> None:
    given = script(
        "import torch\nclass Inner:\n    def forward(self, x, level):\n        return x\n"
        "class Outer:\n    def forward(self, x, level):\n        return self.inner(x, level)\n"
        "model = torch.compile(Outer(), [])\nmodel(1, 2)"
    )
    found = [DropParameters().apply(given, [edit]) for edit in DropParameters().edits(given)]
    assert (
        "import torch\n\nclass Inner:\n\n    def forward(self, x):\n        return x\n\n"
        "class Outer:\n\n    def forward(self, x):\n        return self.inner(x)\n"
        "model = torch.compile(Outer(), [])\nmodel(1)"
    ) in [d.text for d in found if d]


def test_a_function_with_an_early_return_is_not_inlined() -> None:
    given = script("def f(x):\n    if x:\n        return 1\n    return 2\nf(0)")
    assert InlineFunctions().edits(given) == []


def test_parameters_go_together_with_their_arguments() -> None:
    given = script("class A:\n    def f(self, x, y=1):\n        return x\nprint(A().f(5, y=2))")
    without = DropParameters().apply(given, ["1"])
    assert without is not None
    assert without.text == "class A:\n\n    def f(self, x):\n        return x\nprint(A().f(5))"


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("def f(x, y):\n    pass\ncompiled(f)(1, 2)", "def f(x):\n    pass\ncompiled(f)(1)"),
        (
            "def f(x, y):\n    pass\ng = compiled(f)\ng(1, 2)\nf(3, y=4)",
            "def f(x):\n    pass\ng = compiled(f)\ng(1)\nf(3)",
        ),
        ("compiled(lambda x, y: x)(1, 2)", "compiled(lambda x: x)(1)"),
    ],
)
def test_a_parameter_goes_with_the_arguments_of_what_is_made_of_its_function(
    text: str, without: str
) -> None:
    edits = DropParameters().edits(script(text))
    done = DropParameters().apply(script(text), [edits[1]])
    assert done is not None and done.text == script(without).text


def test_a_class_with_nothing_but_its_forward_becomes_a_function() -> None:
    given = script("class M(Module):\n    def forward(self, x):\n        return x\nprint(M()(5))")
    function = MethodsToFunctions().apply(given, ["0"])
    assert function is not None
    assert function.text == "def M(x):\n    return x\nprint(M(5))"


def test_a_loop_becomes_its_first_iteration() -> None:
    first = UnwrapBlocks().apply(script("for i, x in enumerate([7, 8]):\n    print(i, x)"), ["0"])
    assert first is not None
    assert first.text == "i, x = next(iter(enumerate([7, 8])))\nprint(i, x)"


def test_tolerances_are_never_removed() -> None:
    given = script("close(a, b, rtol=0.1, atol=0.2, msg='far')")
    without = DropArguments().apply(given, ["0"])
    assert without is not None and without.text == "close(a, b, rtol=0.1, atol=0.2)"


def test_arguments_that_a_function_of_the_script_requires_stay() -> None:
    given = script(
        "class A:\n    def __init__(self, n):\n        pass\ndef f(x, y=1):\n    pass\n"
        "f(A(2), 3)\nf(4)\ng(5)"
    )
    found = [DropArguments().apply(given, [edit]) for edit in DropArguments().edits(given)]
    assert [f.text.splitlines()[-3:] for f in found if f] == [
        ["f(A(2))", "f(4)", "g(5)"],
        ["f(3)", "f(4)", "g(5)"],
        ["f(A(2), 3)", "f(4)", "g()"],
    ]


def test_an_expression_that_always_had_one_value_becomes_that_literal(tmp_path: Path) -> None:
    text = "args = type('Args', (), {'width': 64})\nfor n in (1, 2):\n    print(args.width * 2, n)"
    seen = tmp_path / "seen.json"
    noting = instrumented(text, seen)
    assert noting is not None
    exec(noting, {})
    literals = json.loads(seen.read_text())
    assert literals["args.width"] == "64" and literals["args.width * 2"] == "128"
    assert "n" not in literals
    given = script(text)
    reduction = ObservedLiterals(literals)
    small = reduction.apply(given, reduction.edits(given))
    assert small is not None and "print(128, n)" in small.text


def test_what_only_one_run_computes_is_no_literal(tmp_path: Path) -> None:
    text = "import tempfile, math\nd = tempfile.gettempdir() + '/x'\nn = math.sqrt(2)\nm = 2 * 0.5"
    observed = instrumented(f"{text}\nk = id(d) * 7\nprint(d, n, m, k)", tmp_path / "seen.json")
    assert observed is not None
    exec(observed, {})
    literals = json.loads((tmp_path / "seen.json").read_text())
    assert literals == {"2 * 0.5": "1.0", "m": "1.0", "print(d, n, m, k)": "None"}


@pytest.mark.parametrize(
    "text",
    [
        "print(x[:, 0], x[..., 1:], x[k, ::2, None])",
        "x[:, k] = x[:, 1:][:, 0]",
        "x[1:, 0] += 1\ndel y[0:1]",
        "print(f'{k:{k}} {x[0, 0]!r:>8}', *[k], **{'end': ''})",
        "print(sum(n for n in (k, 1)), (m := k), [*y], lambda v, *w, u=k: v)",
        "for a, (b, *c) in zip([k], [(1, 2, 3)]):\n    pass",
        "match k:\n    case 0 | 1 if k:\n        pass\n    case [a, *b]:\n        pass",
        "def g():\n    v = yield k\n    yield from (v, k)\n    return v\nlist(g())",
        "import contextlib\nwith contextlib.suppress(ValueError) as e, open(__file__) as f:\n    f",
        "try:\n    raise ValueError(k) from None\nexcept (ValueError, KeyError) as e:\n    e.args",
    ],
)
def test_every_kind_of_expression_can_be_observed(text: str, tmp_path: Path) -> None:
    given = "import torch\nx, y, k = torch.ones(2, 4, 3), [1, 2], 1\nprint(k)\n"
    observed = instrumented(ast.unparse(ast.parse(given + text)), tmp_path / "seen")
    assert observed is not None
    exec(observed, {"__name__": "__main__", "__file__": __file__})
    assert json.loads((tmp_path / "seen").read_text())["k"] == "1"


def test_a_version_with_another_loop_that_cannot_end_is_not_run() -> None:
    text = "def serve():\n    while True:\n        pass\nn = 0\nwhile n < 3:\n    n += 1\nprint(n)"
    ran = []

    def interesting(version: ScriptText, purpose: str) -> bool:
        ran.append(version.text)
        return "serve" in version.text and "n < 3" in version.text

    small = ScriptReducer(script(text), {}, EventLog(None)).run(interesting)
    assert "n += 1" in small.text and "print" not in small.text
    assert all(endless_loops(version) <= {"while True:\n    pass"} for version in ran)


def test_conditions_of_assertions_do_not_become_literals() -> None:
    assert ObservedLiterals({"x": "1", "x == 1": "True"}).edits(script("assert x == 1")) == []


TRAINING = """
import argparse
import math

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    return parser.parse_args([])

class Layer:
    def __init__(self, width, scale):
        self.width = width
        self.scale = scale

    def __call__(self, x):
        return [v * self.scale for v in x]

def batches(steps, width):
    for step in range(steps):
        yield [float(step)] * width

def main():
    args = parse()
    layer = Layer(args.width, 0.5)
    total = 0.0
    for step, batch in enumerate(batches(args.steps, args.width)):
        loss = sum(layer(batch))
        total += loss
        if step % 5 == 0:
            print("loss", loss)
    record(math.floor(total), layer.width)

if __name__ == "__main__":
    main()
"""


def test_a_script_shrinks_to_what_the_predicate_needs() -> None:
    runs = []

    def recorded(text: str) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        names = {"__name__": "__main__", "record": lambda *a: found.append(a), "print": len}
        try:
            exec(text, names)
        except Exception:
            return []
        return found

    def interesting(version: ScriptText, purpose: str) -> bool:
        runs.append(purpose)
        return any(len(values) == 2 and values[1] == 64 for values in recorded(version.text))

    start = script(TRAINING)
    reducer = ScriptReducer(start, {"args.width": "64", "args.steps": "10"}, EventLog(None))
    small = reducer.run(interesting)
    assert small.text == "record(0.0, 64)"
    assert len(runs) < 120
    assert reducer.accepted[0] == start


def test_entries_of_a_table_of_functions_go_independently_of_one_another() -> None:
    given = script("def f(): pass\ndef g(): pass\nT = {'f': f, 'g': (g, 1), 'n': 2}\nL = [f, 3, g]")
    edits = DropEntries().edits(given)
    assert len(edits) == 5, "two of T, g inside its entry, and two of L"
    some = DropEntries().apply(given, [edits[0], edits[3]])
    assert some is not None
    assert some.text.splitlines()[-2:] == ["T = {'g': (g, 1), 'n': 2}", "L = [3, g]"]


@pytest.mark.parametrize(
    ("text", "looked_up"),
    [
        ("T = {'f': f, 'g': g}\nT['g'](1)", ["T = {'f': f, 'g': g}\ng(1)"]),
        ("T = {'f': f}\nT = {}\nT['f'](1)", []),
        ("x = next(iter([7, 8]))", ["x = 7"]),
        ("x = next(iter(iter((7, 8))))", ["x = 7"]),
        ("k, f = next(iter({'a': g}.items()))", ["k, f = ('a', g)"]),
        ("i, f = next(enumerate((g, h)))", ["i, f = (0, g)"]),
        ("k, f = ('a', g)\nf(k, k)", ["f = g\nf(k, k)", "k = 'a'\ng(k, k)"]),
        ("f = {**T}['a']", []),
    ],
)
def test_a_look_up_in_a_table_becomes_its_entry(text: str, looked_up: list[str]) -> None:
    given = script(text)
    done = [LookUpEntries().apply(given, [edit]) for edit in LookUpEntries().edits(given)]
    assert [d.text for d in done if d] == looked_up


FUNCTIONS = "\n".join(f"def f{k}(x):\n    return x * {k}" for k in range(4))
TABLES = {
    "dict": "for n, f in {'a': f0, 'b': f1, 'c': bad, 'd': f2}.items():\n    print(n, f(3))",
    "list": "T = [f0, f1, bad]\nfor k, f in enumerate(T):\n    print(k, f(k))",
    "tuples": "T = {'a': (f0, 1), 'c': (bad, 2)}\nfor n in T:\n    f, x = T[n]\n    f(x)",
    "lambdas": "T = {'a': lambda x: f0(x), 'c': lambda x: bad(x)}\nfor n in T:\n    T[n](1)",
    "attributes": """
class Model:
    def __init__(self, scale):
        self.layer, self.scale = bad, scale
        self.head = bad
    def __call__(self, x):
        return self.head(f3(x)) * self.scale
print(Model(2)(3))""",
}


class Faults:
    """The predicate that a script calls `fault`, and the number of its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, version: ScriptText, purpose: str) -> bool:
        calls: list[int] = []
        self.runs += 1
        try:
            exec(version.text, {"fault": calls.append, "print": str, "__name__": "__main__"})
        except Exception:
            return False
        return bool(calls)

    def observed(self, version: ScriptText, path: Path) -> dict[str, str]:
        """The values that the expressions of a script have."""
        text = instrumented(version.text, path)
        assert text is not None and self(version.with_text(text), "observing")
        seen: dict[str, str] = json.loads(path.read_text())
        return seen


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_what_a_table_or_an_object_holds_goes_with_it(table: str) -> None:
    interesting = Faults()
    text = f"{FUNCTIONS}\ndef bad(x):\n    fault(x)\n    return x\n{table}"
    reducer = ScriptReducer(script(text), {}, EventLog(None))
    assert "fault" in reducer.run(interesting).text
    assert reducer.best.size <= 3
    assert interesting.runs < 160


DEFINED = "def {name}(x):\n    {body}\n    return x"
BODIES = {"one": "x += 1", "bad": "fault(x)", "two": "x *= 2"}
BY_NAME = """
T = {}
def register(*names):
    def wrap(f):
        for name in names:
            T[name] = f
        return f
    return wrap
"""
BY_ITSELF = "T = {}\ndef register(f):\n    T[f.__name__] = f\n    return f\n"
IN_ORDER = """
T = []
def register(phase):
    def add(f):
        T.append((phase, f))
        return f
    return add
"""
BY_A_CLASS = """
class Registry:
    def __init__(self):
        self.table = {}
    def register(self, name):
        def wrap(f):
            self.table[name] = f
            return f
        return wrap
    def get(self, name):
        if name not in self.table:
            raise KeyError(name)
        return self.table[name]
R = Registry()
"""
REGISTRIES = {
    "by name": (BY_NAME, "@register({name!r}, 'x')", "for n in ('one', 'bad'):\n    T.get(n)(1)"),
    "by itself": (BY_ITSELF, "@register", "def run(name):\n    return T[name](1)\nrun('bad')"),
    "in order": (IN_ORDER, "@register('b')", "for p, f in T:\n    if p == 'b':\n        f(1)"),
    "by a class": (BY_A_CLASS, "@R.register({name!r})", "R.get('bad')(1)"),
}


@pytest.mark.parametrize(("table", "entry", "use"), REGISTRIES.values(), ids=REGISTRIES)
def test_functions_that_a_decorator_enters_in_a_table_are_named_instead(
    table: str, entry: str, use: str, tmp_path: Path
) -> None:
    functions = "\n".join(
        f"{entry}\n{DEFINED}".format(name=name, body=body) for name, body in BODIES.items()
    )
    interesting = Faults()
    given = script(f"{table}\n{functions}\n{use}")
    seen = interesting.observed(given, tmp_path / "seen.json")
    reducer = ScriptReducer(given, seen, EventLog(None))
    small = reducer.run(interesting)
    reducer.continue_with(interesting.observed(small, tmp_path / "seen.json"))
    assert reducer.run(interesting).text == "fault(1)"
    assert interesting.runs < 220


def test_a_compiled_function_is_not_taken_for_the_function_that_it_calls(tmp_path: Path) -> None:
    text = """
import functools
def f(x):
    return fault(x)
@functools.wraps(f)
def compiled(x):
    return f(x)
for call in [compiled]:
    call(f(1))
"""
    seen = Faults().observed(script(text), tmp_path / "seen.json")
    assert "call" not in seen and "[compiled]" not in seen


def test_a_function_that_is_named_keeps_the_decorators_that_the_script_imports() -> None:
    given = script("def own(f): ...\n@cache\n@own\n@own.new(1)\ndef f(): ...\nT['f']()")
    named = ObservedLiterals({"T['f']": "f"}).apply(given, ["0"])
    assert named is not None
    assert named.text.splitlines()[3:] == ["@cache", "def f():", "    ...", "f()"]
