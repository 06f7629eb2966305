"""Generators, comprehensions, iterators that outlive a call, unpacking and nested functions."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written
from tcdebug.strategies.python.ways import GRAPH_BREAK

GENERATOR = """
def doubled(values):
    for value in values:
        yield value * 2
"""
SENT = """
def summing():
    total = 0.0
    while True:
        value = yield total
        if value is None:
            return
        total = total + value
"""
CLEANED = """
LOG = []
def cleaned(value):
    try:
        yield value
        yield value * 2
    finally:
        LOG.append("cleaned")
"""
DELEGATING = """
def parts(value):
    yield value
    return value * 5
def delegating(value):
    result = yield from parts(value)
    yield result
"""
STORED = """
def counting():
    step = 0.0
    while True:
        step += 1
        yield step
COUNTING = counting()
"""
NUMBERING = """
import itertools
class Numbering:
    numbers = itertools.count(1)
NUMBERING = Numbering()
"""
NOTES = "NOTES = []"
GROWING = "GROWING = [1.0]"
ITERATION = (
    statements("list comprehension", "{t} = [{a} * k for k in range(3) if k != n][-1]"),
    statements("dict comprehension", "{t} = {{k: {a} * k for k in (1, 2)}}[2]"),
    statements("set comprehension", "{t} = {a} * len({{k % 2 for k in range(n + 2)}})"),
    statements("sum of a generator", "{t} = sum({a} * k for k in range(1, 3))"),
    statements("functions of a loop", "acts = [lambda v, k=k: v * k + n for k in range(3)]\n"
               "{t} = acts[1]({a}) + acts[2]({b})"),
    statements("late binding", "acts = [lambda v: v * k for k in range(3)]\n{t} = acts[0]({a})"),
    statements("map and filter", "{t} = sum(map(torch.relu, filter(torch.is_tensor, [{a}, n])))"),
    statements("zip and enumerate", "{t} = sum(p * k * q for k, (p, q) in "
               "enumerate(zip([{a}, {b}], [2, 3])))"),
    statements("reversed and sorted", "{t} = [{a}, {b}][sorted([1, 0], key=lambda k: -k)[0]] "
               "+ list(reversed((1, n)))[0]"),
    statements("star unpacking", "first, *rest = ({a}, {b}, n)\n"
               "{t} = first * len(rest) + rest[-1]"),
    statements("star arguments", "def summed(*values, **named):\n"
               "    return sum(values) + len(named)\n{t} = summed(*[{a}, {b}], k=n)"),
    statements("nonlocal", "count = 0\ndef counted():\n    nonlocal count\n    count += n\n"
               "counted()\ncounted()\n{t} = {a} * count"),
    statements("recursion", "def power(v, k):\n    return v if k <= 0 else power(v, k - 1) * 2\n"
               "{t} = power({a}, 2)"),
    statements("decorator", "def twice(act):\n    return lambda v: act(act(v))\n@twice\n"
               "def added(v):\n    return v + {c}\n{t} = added({a})"),
    statements("generator", "{t} = sum(doubled([{a}, {b}]))", GENERATOR),
    statements("generator left early", "for {t} in cleaned({a}):\n    break\nLOG.append('after')",
               CLEANED, "LOG.clear()"),
    statements("yield from", "{t} = list(delegating({a}))[-1]", DELEGATING),
    statements("send", "adding = summing()\nnext(adding)\nadding.send({a})\n"
               "{t} = adding.send({b})\nadding.close()", SENT),
    statements("stored generator", "{t} = {a} * next(COUNTING)", STORED, "next(COUNTING)",
               "COUNTING = counting()"),
    statements("stored iterator", "{t} = {a} * next(ITERATOR)", "ITERATOR = iter(range(1, 99))",
               "next(ITERATOR)", "ITERATOR = iter((4.0,) * 9)"),
    statements("itertools.count", "{t} = {a} * next(STEPS)",
               "import itertools\nSTEPS = itertools.count(1)", "next(STEPS)"),
    statements("counter with a step", "{t} = {a} * next(TICKS)",
               "import itertools\nTICKS = itertools.count(0.5, 0.25)", "next(TICKS)",
               "TICKS = itertools.count(3)"),
    statements("counter of a class", "{t} = {a} * next(NUMBERING.numbers)", NUMBERING,
               "next(Numbering.numbers)", "NUMBERING.numbers = itertools.count(7)"),
    statements("zip with a counter", "{t} = sum(v * k for v, k in zip(({a}, {b}), COUNTER))",
               "import itertools\nCOUNTER = itertools.count(2)", "next(COUNTER)"),
    statements("stored enumerate", "{t} = {a} * next(PLACES)[0]",
               "PLACES = enumerate('abcdefgh', 1)", "next(PLACES)"),
    statements("stored zip", "{t} = {a} * next(PAIRS)[1]",
               "PAIRS = zip('abcdefgh', range(1, 9))", "next(PAIRS)"),
    statements("stored iterator of a dict", "{t} = {a} * len(next(KEYS))",
               "KEYS = iter({'a': 1, 'bb': 2, 'ccc': 3, 'dddd': 4})", "next(KEYS)"),
    statements("itertools.repeat", "{t} = {a} * next(REPEATED)",
               "import itertools\nREPEATED = itertools.repeat(2.0, 9)",
               "REPEATED = itertools.repeat(3.0)"),
    statements("itertools.cycle", "{t} = {a} * next(CYCLE)",
               "import itertools\nCYCLE = itertools.cycle([1.0, 2.0, 3.0])", "next(CYCLE)"),
    statements("itertools", "{t} = sum(itertools.chain([{a}], itertools.islice([{b}, n], 1)))",
               "import itertools"),
    statements("accumulate", "{t} = list(itertools.accumulate([{a}, {b}], lambda p, q: p * q))[-1]",
               "import itertools"),
    statements("reduce", "{t} = functools.reduce(lambda p, q: p + q, [{a}, {b}, n])",
               "import functools"),
    statements("next with default", "{t} = next((v for v in ({a}, {b}) if v.dim() == n), {a} * 2)"),
    statements("any and all", "{t} = {a} * (any(k > n for k in (1, 2)) "
               "+ all(k < 9 for k in x.shape))"),
    statements("min and max", "{t} = {a} * max(n, *x.shape) + min(n, 2)"),
    statements("slice of a list", "{t} = sum([{a}, {b}, {a}][::-1][:2])"),
    written("walrus", "(m := n + 1) * {a} + m"),
    written("lru_cache", "{a} * cached_level(n)", "import functools\nLEVELS = {1: 2.0}\n"
            "@functools.lru_cache\ndef cached_level(k):\n    return LEVELS.get(k, 3.0)"),
    statements("list that grows in a loop", "for item in GROWING:\n    if len(GROWING) < 6:\n"
               "        GROWING.append(item + 1)\n{t} = {a} * sum(GROWING)", GROWING,
               "GROWING[:] = [2.0]", "del GROWING[1:]"),
    statements("list that shrinks in a loop", "items = [1.0, 2.0, 3.0, 4.0]\nfor item in items:\n"
               "    items.remove(item)\n{t} = {a} * sum(items)"),
    statements("list that grows in reverse", "items = [1.0, 2.0, 3.0]\n"
               "for item in reversed(items):\n    items.append(item)\n{t} = {a} * len(items)"),
    statements("list that grows in a generator", "items = [1.0, 2.0]\ndef grown():\n"
               "    for item in items:\n        if len(items) < 5:\n"
               "            items.append(item * 2)\n        yield item\n{t} = {a} * sum(grown())"),
    statements("dict that grows in a loop", "table = {{'a': 1.0}}\ntry:\n    for key in table:\n"
               "        table[key + 'b'] = 2.0\nexcept RuntimeError:\n    table['c'] = 3.0\n"
               "{t} = {a} * len(table)"),
    statements("insert before an iterator", "items = [1.0, 2.0, 3.0]\nlater = iter(items)\n"
               "first = next(later)\nitems.insert(0, 9.0)\n{t} = {a} * (first + next(later))"),
    statements("iterator across a break", "items = [1.0, 2.0, 3.0]\nlater = iter(items)\n"
               f"next(later)\n{GRAPH_BREAK}\nitems.insert(0, 9.0)\n"
               "{t} = {a} * next(later)"),
    statements("append after an iterator", "items = [1.0, 2.0]\nlater = iter(items)\n"
               "list(later)\nitems.append(4.0)\n{t} = {a} * len(list(later))"),
    statements("zip of an iterator", "source = iter([1.0, 2.0, 3.0])\n"
               "pairs = list(zip(source, [5.0]))\n{t} = {a} * next(source) + len(pairs)"),
    statements("strict zip", "{t} = {a} * 1\ntry:\n    list(zip((1, 2), (n,), strict=True))\n"
               "except ValueError:\n    {t} = {t} + 5"),
    statements("any that writes", "seen = []\n"
               "found = any(seen.append(k) or k > 0 for k in range(4))\n"
               "{t} = {a} * len(seen) + found"),
    statements("map that writes", "later = map(lambda item: NOTES.append(item) or item, "
               "[1.0, 2.0])\n{t} = {a} * len(NOTES)\n{t} = {t} + sum(later)", NOTES,
               "NOTES.clear()"),
    statements("filter that writes", "later = filter(lambda item: NOTES.append(item) or item > 1, "
               "[1.0, 2.0])\nfirst = next(later)\n{t} = {a} * (first + len(NOTES))", NOTES,
               "NOTES.clear()"),
)  # fmt: skip
