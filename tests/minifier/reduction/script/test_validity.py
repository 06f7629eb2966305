"""What a version of a script lacks or must not do is seen in its text, without a run."""

from __future__ import annotations

import ast
import importlib

import pytest

from tcdebug.minifier.reduction.script.rewriting import undefined
from tcdebug.minifier.reduction.script.validity.attributes import lost_attributes
from tcdebug.minifier.reduction.script.validity.comparability import (
    stays_comparable,
    stays_reseeded,
    stays_seeded,
)
from tcdebug.minifier.reduction.script.validity.destruction import destructive_calls
from tcdebug.minifier.reduction.script.validity.endless import endless_loops
from tcdebug.minifier.reduction.script.validity.submodules import with_needed_imports


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f():\n    return missing\nf()", {"missing"}),
        ("import os\nprint(os, [x for x in range(3)], __file__)", set()),
        ("def f():\n    global made\n    made = 1\nf()\nprint(made)", set()),
        ("from math import *\nprint(sin)", set()),
        ("return 1", {"<syntax error>"}),
    ],
)
def test_names_that_nothing_defines_are_found_without_a_run(text: str, names: set[str]) -> None:
    assert undefined(text) == names


@pytest.mark.parametrize(
    ("text", "original", "lost"),
    [
        ("print(a.n, a.m)", "a.n = 1\nprint(a.n, a.m)", {"n"}),
        ("print(a.f())", "class A:\n    def f(self):\n        pass\nprint(a.f())", {"f"}),
        ("print(a.n)", "class A:\n    n: int = 1\nprint(a.n)", {"n"}),
        ("a = Namespace(n=1)\nprint(a.n)", "a.n = 1\nprint(a.n)", set()),
        ("p.add('--a-b')\nsetattr(x, 'c', 1)\nprint(x.a_b, x.c)", "x.a_b = x.c = 1", set()),
        ("print(x.shape, x.forward)", "x.shape = 1\nclass A:\n    forward = 1", set()),
        ("import torch\ntorch.nn.Linear", "import torch\nfrom torch import nn\nnn.Linear", set()),
    ],
)
def test_attributes_that_nothing_sets_any_more_are_found_without_a_run(
    text: str, original: str, lost: set[str]
) -> None:
    assert lost_attributes(text, original) == lost


@pytest.mark.parametrize(
    ("text", "endless"),
    [
        ("while True:\n    x = 1", 1),
        ("while n < m:\n    x = n", 1),
        ("def f():\n    while not n:\n        print(n)", 1),
        ("while n < m:\n    n += 1", 0),
        ("while n < m:\n    for n in range(m):\n        pass", 0),
        ("while n < len(x):\n    x.pop()", 0),  # a call may change its result
        ("while x.n < 3:\n    step(x)", 0),
        ("while True:\n    if f():\n        break", 0),
        ("def f():\n    while True:\n        return 1", 0),
        ("def f():\n    while True:\n        yield 1", 0),
        ("try:\n    while True:\n        next(x)\nexcept StopIteration:\n    pass", 0),
        ("while True:\n    try:\n        next(x)\n    finally:\n        pass", 0),
        ("while False:\n    pass", 0),
    ],
)
def test_loops_that_cannot_end_are_found_without_a_run(text: str, endless: int) -> None:
    assert len(endless_loops(text)) == endless


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import shutil, os\nos.remove('x')", ["os.remove", "shutil"]),
        ("from os import unlink", ["os.unlink"]),
        ("from pathlib import Path\nPath('x').unlink()", ["Path('x').unlink"]),
        ("items = [1]\nitems.remove(1)\ntorch.save(items, 'x')", []),
    ],
)
def test_calls_that_remove_files_or_start_programs_are_found(text: str, found: list[str]) -> None:
    assert destructive_calls(ast.parse(text)) == found


@pytest.mark.parametrize(
    ("text", "original", "comparable"),
    [
        ("f(torch.rand(1))", "torch.manual_seed(0)\nf(torch.rand(1))", False),
        ("f(x)", "torch.manual_seed(0)\nf(torch.rand(1))", True),
        ("f(x)", "torch.set_default_dtype(d)\nf(x)", False),
        ("config.patch(fallback_random=True)", "config.fallback_random = True", True),
        ("nn.Dropout(0.5)(x)", "m = nn.Dropout(0.5).eval()\nm(x)", False),
        ("nn.Linear(1, 1)(x)", "m = nn.Dropout(0.5).eval()\nnn.Linear(1, 1)(x)", True),
        ("f(x)", "f(x, 2)", True),
    ],
)
def test_settings_that_make_results_comparable_with_eager_stay(
    text: str, original: str, comparable: bool
) -> None:
    assert stays_comparable(text, original) is comparable


@pytest.mark.parametrize(
    ("text", "original", "seeded"),
    [
        ("f(torch.randn(1))", "torch.manual_seed(0)\nf(torch.randn(1))", False),
        ("f(nn.Linear(1, 1))", "g = torch.Generator().manual_seed(0)\nf(nn.Linear(1, 1))", False),
        ("f(torch.ones(1))", "torch.manual_seed(0)\nf(torch.randn(1))", True),
        ("torch.manual_seed(0)\nf(torch.rand(1))", "torch.manual_seed(0)\nf(torch.rand(2))", True),
        ("f(torch.randn(1))", "f(torch.randn(2))", True),
    ],
)
def test_a_script_that_draws_numbers_keeps_its_seed(text: str, original: str, seeded: bool) -> None:
    assert stays_seeded(text, original) is seeded


SEED_TWICE = "torch.manual_seed(1)\na = f(x)\ntorch.manual_seed(1)\nb = g(x)\n"
SEED_ONCE = "torch.manual_seed(1)\na = f(x)\nb = g(x)\n"
IN_A_FUNCTION = "def run(f):\n    torch.manual_seed(1)\n    return f(x)\nrun(f)\nrun(g)\n"
TWO_SEEDS = "torch.manual_seed(1)\nm = f()\ntorch.manual_seed(2)\nm(x)\n"


@pytest.mark.parametrize("drawn", ["F.dropout(x)", "torch.bernoulli(p)", "torch.rand_like(x)"])
@pytest.mark.parametrize(
    ("text", "original", "reseeded"),
    [
        (SEED_ONCE, SEED_TWICE, False),
        (SEED_ONCE, IN_A_FUNCTION, False),
        (SEED_TWICE, IN_A_FUNCTION, True),
        (SEED_ONCE, TWO_SEEDS, True),
        ("for f in (f, g):\n    torch.manual_seed(1)\n    f(x)\n", SEED_TWICE, True),
    ],
)
def test_runs_that_are_compared_keep_drawing_the_same_numbers(
    text: str, original: str, reseeded: bool, drawn: str
) -> None:
    assert stays_reseeded(text + drawn, original + drawn) is reseeded


def test_an_input_that_is_drawn_once_needs_one_seed() -> None:
    assert stays_reseeded(SEED_ONCE + "torch.randn(2)", SEED_TWICE + "torch.randn(2)")


def test_a_module_that_no_import_of_the_script_loads_is_imported() -> None:
    importlib.import_module("torch.nn.attention.flex_attention")
    importlib.import_module("torch.distributed.tensor")
    text = (
        "import torch\nimport torch.distributed.tensor\n"
        "f = torch.nn.attention.flex_attention.flex_attention\n"
        "g = torch._inductor.config.debug, torch.nn.functional.relu, torch.distributed.tensor.Shard"
    )
    added = "import torch.nn.attention.flex_attention\nf = "
    assert with_needed_imports(text) == text.replace("f = ", added, 1)
    assert with_needed_imports("import torch\ntorch.nn.functional.relu") == (
        "import torch\ntorch.nn.functional.relu"
    )
