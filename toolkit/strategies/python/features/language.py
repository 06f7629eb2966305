"""Statements and builtins of Python: exceptions, deletions, generators, classes, containers."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

LOG = "LOG = []"
THROWN = """
def catching(value):
    while True:
        try:
            value = (yield value) or value * 2
        except KeyError:
            value = value + 10
"""
RETURNING = """
def returning(value, flag):
    for k in range(3):
        try:
            if flag:
                return value * k
        finally:
            LOG.append(k)
    return value
LOG = []
"""
CHECKED = """
def checked(level):
    if level > 1:
        raise KeyError("drawn", level)
    return level
"""
POST = """
import dataclasses
@dataclasses.dataclass
class Derived:
    level: float = 2.0
    parts: list = dataclasses.field(default_factory=list)
    def __post_init__(self):
        self.double = self.level * 2
"""
TOTAL = """
import functools
@functools.total_ordering
class Grade:
    def __init__(self, level):
        self.level = level
    def __eq__(self, other):
        return self.level == other.level
    def __lt__(self, other):
        return self.level < other.level
GRADES = [Grade(2.0), Grade(1.0)]
"""
NAMED = """
class Field:
    def __set_name__(self, owner, name):
        self.name = name
    def __get__(self, owner, kind):
        return len(self.name) * 1.0
class Owning:
    amount = Field()
OWNING = Owning()
"""
SIZED = """
class Wallet:
    coins = [1.0, 2.0]
    def __len__(self):
        return len(self.coins)
    def __reversed__(self):
        return iter(self.coins[::-1])
    def __delitem__(self, key):
        del self.coins[key]
    def __setitem__(self, key, value):
        self.coins[key] = value
    def __getitem__(self, key):
        return self.coins[key]
    def __round__(self, digits=0):
        return digits + 1.0
    def __abs__(self):
        return 3.0
    def __rsub__(self, other):
        return other - self.coins[0]
    def __pow__(self, other):
        return other * 2
WALLET = Wallet()
"""
SIZED_CHANGES = (
    "WALLET.coins[0] = 4.0", "Wallet.coins = [5.0, 6.0, 7.0]", "WALLET.coins = [8.0]",
    "Wallet.__abs__ = lambda self: 9.0",
)  # fmt: skip
CLASS_ITEM = """
class Typed:
    @classmethod
    def __class_getitem__(cls, key):
        return key * cls.rate
    rate = 2.0
"""
MIXED = """
class Top:
    def __init__(self, **rest):
        self.names = ["top"]
class Left(Top):
    def __init__(self, **rest):
        super().__init__(**rest)
        self.names.append("left")
class Right(Top):
    def __init__(self, level=1.0, **rest):
        super().__init__(**rest)
        self.names.append("right")
        self.level = level
class Both(Left, Right):
    pass
"""
WORDS = "WORDS = {'a': 1.0, 'b': 2.0}\nMORE = {'b': 3.0, 'c': 4.0}"
WORD_CHANGES = ("WORDS['a'] = 5.0", "MORE['d'] = 6.0", "MORE.clear()", "WORDS = {'c': 7.0}")
CHOSEN = "PICKED = {1, 2, 3}\nOTHERS = {2, 5}"
CHOSEN_CHANGES = ("PICKED.add(5)", "OTHERS.clear()", "PICKED = frozenset((2, 5))")
LONG_HANDLER = (
    "{t} = {a} * 1.0\ntry:\n    pass\nexcept ValueError:\n" + "    {t} = {t} + 1\n" * 60
    + "finally:\n    {t} = {t} * 2.0"
)  # fmt: skip
WRAPPED = """
import functools
def doubled(function):
    @functools.wraps(function)
    def inner(*values):
        inner.calls += 1
        return function(*values) * 2
    inner.calls = 0
    return inner
@doubled
def raised(value):
    return value + 1
"""
LANGUAGE = (
    statements("return in finally", "{t} = returning({a}, n > 1) + len(LOG)", RETURNING,
               "LOG.clear()"),
    statements("cause of an exception", "try:\n    try:\n        checked(2)\n"
               "    except KeyError as error:\n        raise ValueError('drawn') from error\n"
               "except ValueError as caught:\n    {t} = {a} * caught.__cause__.args[1]", CHECKED),
    statements("context of an exception", "try:\n    try:\n        checked(2)\n    finally:\n"
               "        {{}}['absent']\nexcept KeyError as caught:\n"
               "    {t} = {a} * len(caught.__context__.args)", CHECKED),
    statements("exception from a function", "try:\n    {t} = {a} * checked(n)\n"
               "except KeyError as error:\n    {t} = {a} + error.args[1]\nelse:\n"
               "    {t} = {t} + 1", CHECKED, "checked = lambda level: 5.0"),
    statements("exception of a builtin", "try:\n    {t} = {a} * int('drawn')\n"
               "except ValueError as error:\n    {t} = {a} * len(error.args)"),
    statements("index error", "try:\n    {t} = {a} * [1.0, 2.0][int(n)]\nexcept IndexError:\n"
               "    {t} = {a} - 1"),
    statements("note of an exception", "error = ValueError('drawn')\nerror.add_note('more')\n"
               "{t} = {a} * len(error.__notes__)"),
    statements("except group", "try:\n    raise ExceptionGroup('drawn', [ValueError(1), "
               "KeyError(2)])\nexcept* ValueError as group:\n"
               "    {t} = {a} * len(group.exceptions)\nexcept* KeyError:\n    LOG.append(n)", LOG,
               "LOG.clear()"),
    statements("deleted variable", "gone = {a} * 2\ndel gone\ntry:\n    {t} = gone\n"
               "except UnboundLocalError:\n    {t} = {a} * {c}"),
    statements("global in a nested function", "def counted():\n    global CALLED\n"
               "    CALLED = CALLED + n\ncounted()\n{t} = {a} * CALLED", "CALLED = 1",
               "CALLED = 2.5"),
    statements("throw into a generator", "steps = catching({a})\nnext(steps)\n"
               "{t} = steps.throw(KeyError('drawn')) + steps.send(None)", THROWN),
    statements("value of a generator", "def work():\n    yield {a}\n    return {b}\n"
               "steps = work()\nnext(steps)\ntry:\n    next(steps)\n"
               "except StopIteration as stop:\n    {t} = stop.value * 2"),
    statements("generator closes over a variable", "k = 1\nparts = (v * k for v in ({a}, {b}))\n"
               "k = 5\n{t} = sum(parts)"),
    statements("post init", "point = Derived({c})\npoint.parts.append(n)\n"
               "{t} = {a} * point.double + len(dataclasses.asdict(point))", POST),
    statements("class made by type", "Made = type('Made', (), {{'level': n, "
               "'act': lambda self, v: v * self.level}})\n{t} = Made().act({a})"),
    written("total ordering", "{a} * (2 if GRADES[0] >= GRADES[1] else 3) + max(GRADES).level",
            TOTAL, "GRADES.reverse()", "GRADES[0].level = 0.5"),
    written("__set_name__", "{a} * OWNING.amount", NAMED, "Owning.__dict__['amount'].name = 'ab'"),
    written("__reversed__", "{a} * list(reversed(WALLET))[0]", SIZED, *SIZED_CHANGES),
    statements("__setitem__", "WALLET[0] = {c}\n{t} = {a} * WALLET[0]", SIZED, *SIZED_CHANGES),
    statements("__delitem__", "if len(WALLET) > 1:\n    del WALLET[0]\n{t} = {a} * len(WALLET)",
               SIZED, *SIZED_CHANGES),
    written("__abs__ and __round__", "{a} * abs(WALLET) + round(WALLET, 1)", SIZED,
            *SIZED_CHANGES),
    written("__rsub__ and __pow__", "({a} - WALLET) + WALLET ** 2", SIZED, *SIZED_CHANGES),
    written("__class_getitem__", "{a} * Typed[3]", CLASS_ITEM, "Typed.rate = 4.0"),
    statements("several bases", "both = Both(level={c})\n{t} = {a} * both.level + len(both.names)",
               MIXED, "Right.__init__ = Top.__init__\nRight.level = 3.0"),
    written("merged dicts", "{a} * sum((WORDS | MORE).values()) + len({{**MORE, **WORDS}})", WORDS,
            *WORD_CHANGES),
    statements("update operator", "global WORDS\nWORDS |= MORE\n{t} = {a} * len(WORDS)", WORDS,
               *WORD_CHANGES),
    written("dict from pairs", "{a} * dict(zip('ab', (1.0, n)))['b'] + "
            "len(dict.fromkeys('aab'))"),
    written("operations of sets", "{a} * len(PICKED & OTHERS) + len(PICKED ^ OTHERS) "
            "+ (OTHERS <= PICKED)", CHOSEN, *CHOSEN_CHANGES),
    statements("update of a set", "PICKED.update(OTHERS)\nPICKED.discard(1)\n"
               "{t} = {a} * sum(PICKED)", CHOSEN, *CHOSEN_CHANGES),
    written("popped keys", "{a} * len(list(WORDS.keys() & MORE.keys())) + "
            "max(WORDS, key=WORDS.get, default='').count('a')", WORDS, *WORD_CHANGES),
    written("methods of strings", "{a} * len('a-b'.replace('-', '+').split('+')) + "
            "'ab'.find('b') + len('{{}}'.format(n).zfill(4))"),
    written("zip_longest and starmap", "{a} * sum(itertools.starmap(lambda p, q: p * q, "
            "itertools.zip_longest((1, 2), (3,), fillvalue=n)))", "import itertools"),
    written("tee and takewhile", "{a} * sum(next(k) for k in itertools.tee((n, 2), 2)) + "
            "len(list(itertools.takewhile(lambda k: k < 2, range(5))))", "import itertools"),
    written("permutations", "{a} * len(list(itertools.permutations((1, n)))) + "
            "sum(itertools.compress((1, 2), (n, 1)))", "import itertools"),
    written("bisect", "{a} * bisect.bisect([1.0, 2.0, 3.0], 2)", "import bisect"),
    written("cmp_to_key", "{a} * sorted((3, 1, 2), key=functools.cmp_to_key("
            "lambda p, q: q - p))[0]", "import functools"),
    statements("slice object", "part = slice(None, None, 2)\n{t} = {a} * [1.0, 2.0, 3.0][part][-1]"
               " + len(range(9)[part])"),
    statements("chained comparison", "{t} = {a} * (2 if 0 < n <= 2 != len(x) else 3)"),
    statements("augmented list", "items = kept_items = [1.0]\nitems += [n]\n"
               "{t} = {a} * len(kept_items)"),
    statements("long handler", LONG_HANDLER),
    written("decorated function", "raised({a}) + raised.calls", WRAPPED, "raised.calls = 5",
            "raised = doubled(lambda value: value * 3)"),
    written("wrapped function", "raised.__wrapped__({a}) * 2", WRAPPED,
            "raised.__wrapped__ = lambda value: value * 7"),
    written("ratio of a number", "{a} * float(n or 1).as_integer_ratio()[1] if n == n else {a}"),
    written("indices of a slice", "{a} * slice(1, None, 2).indices(x.shape[0])[2]"),
)  # fmt: skip
