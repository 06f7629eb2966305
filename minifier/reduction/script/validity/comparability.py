"""Settings that keep compiled results comparable with eager."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import lru_cache

from tcdebug.minifier.reduction.script.rewriting import last_name

SETTINGS = frozenset(
    {
        "allow_tf32", "emulate_precision_casts", "fallback_random", "manual_seed",
        "set_default_dtype", "set_float32_matmul_precision", "use_deterministic_algorithms",
    }
)  # fmt: skip
"""Names of settings of random numbers and of precision."""
DROPOUT = "dropout"
DRAWS_AGAIN = re.compile(r"dropout|bernoulli|multinomial|rand\w*_like|normal", re.IGNORECASE)
"""Occurs in names of what a model draws in each call."""
SEED = "manual_seed"
DRAWS = re.compile(
    r"rand|normal|bernoulli|multinomial|dropout|Linear|Conv|Embedding|GRU|LSTM|RNN", re.IGNORECASE
)
"""Occurs in names of what draws random numbers, such as layers when they are created."""


def stays_seeded(text: str, original: str) -> bool:
    """Return whether a script that draws random numbers seeds them if the original does.

    Otherwise one that compares two runs fails, or passes in eager, by chance.
    """
    names = _names(text)
    return SEED in names or SEED not in _names(original) or not any(map(DRAWS.search, names))


def stays_comparable(text: str, original: str) -> bool:
    """Return whether a script still makes the settings that the original makes.

    A seed may go if nothing draws numbers. Dropout that is switched off by `eval()` must stay off,
    because a backend may draw other random numbers than eager.
    """
    kept, made = _names(text), _names(original)
    drops = any(DROPOUT in name.lower() for name in kept)
    needed = (made & SETTINGS) | (made & {"eval"} if drops else set())
    if not any(map(DRAWS.search, kept)):
        needed -= {SEED}
    return needed <= kept


def stays_reseeded(text: str, original: str) -> bool:
    """Return whether a script that draws in each call sets a seed again if the original does.

    An original that does so runs eager and compiled code with the same numbers. With other numbers,
    a small version passes in eager only by chance.
    """
    if not any(map(DRAWS_AGAIN.search, _names(text))):
        return True
    return _settings_of_a_seed(original) < 2 or _settings_of_a_seed(text) >= 2


def _settings_of_a_seed(text: str) -> int:
    """Return how often a script sets the seed that it sets most often.

    A call in a function or a loop counts twice, since it may be made again.
    """
    tree = ast.parse(text)
    repeated = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, (ast.FunctionDef, ast.Lambda, ast.For, ast.While))
        for node in ast.walk(block)
    }
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) == SEED:
            found[ast.dump(ast.Tuple(node.args))] += 2 if id(node) in repeated else 1
    return max(found.values(), default=0)


@lru_cache(maxsize=4096)
def _names(text: str) -> frozenset[str]:
    """Return the names and attributes in a script, and the names of its keyword arguments."""
    nodes = list(ast.walk(ast.parse(text)))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    keywords = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    words = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return frozenset(attributes | names | keywords | words)
