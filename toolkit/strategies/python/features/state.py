"""State outside of the function: globals, closures, containers and default arguments."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

CLOSURE = """
def make_scaled(factor):
    calls = 0
    def scaled(value):
        nonlocal calls
        calls += 1
        return value * factor + calls
    def rebind(new):
        nonlocal factor
        factor = new
    return scaled, rebind
scaled, rebind = make_scaled(2.0)
"""
DEFAULTS = """
def shifted(value, by=1.0, *, times=2.0):
    return value * times + by
"""
MUTABLE_DEFAULT = """
def remembered(value, seen=[]):
    seen.append(len(seen))
    return value * len(seen)
"""
PARTIAL = """
import functools
def affine(value, factor, offset):
    return value * factor + offset
partial = functools.partial(affine, factor=2.0, offset=1.0)
"""
KEYWORDS = """
TABLE = {'a': 1.0, 'bb': 2.0}
def keyed(value, **named):
    for key in named:
        value = value * 2 + len(key) * named[key]
    return value
"""
TOOL = """
class Tool:
    act = staticmethod(torch.sin)
TOOL = Tool()
"""
ITEMS = (
    "ITEMS.append(4.0)", "ITEMS[0] = 5.0", "ITEMS.reverse()", "ITEMS = [7.0]", "ITEMS.pop()",
    "ITEMS = (3.0, 2.0)",
)  # fmt: skip
TABLE = (
    "TABLE['a'] = 5.0",
    "TABLE['a'] = TABLE.pop('a')",
    "TABLE['last'] = TABLE.pop('a')",
    "TABLE['d'] = 4.0",
    "TABLE.pop('b', None)",
    "TABLE = {'b': 2.0, 'a': 1.0}",
    "TABLE = dict(reversed(TABLE.items()))",
)
ORDERED = """
import collections
ORDERED = collections.OrderedDict(a=1.0, b=2.0, c=3.0)
"""
STATE = (
    written("global number", "{a} * SCALE", "SCALE = 2.0",
            "SCALE = 3.0", "SCALE = 2", "SCALE = -0.0", "SCALE = torch.ones(3)", "SCALE = True"),
    statements("count in a global", "global COUNT\nCOUNT += 1\n{t} = {a} * COUNT", "COUNT = 0",
               "COUNT = 0", "COUNT = 2.5"),
    statements("global tensor in place", "TOTAL.add_({a}.sum())\n{t} = TOTAL * 1",
               "TOTAL = torch.zeros(3)", "TOTAL = torch.zeros(3)", "TOTAL = torch.ones(2, 3)"),
    statements("global tensor rebound", "global LAST\n{t} = {a} + LAST\nLAST = {a}.detach()",
               "LAST = torch.zeros(3)", "LAST = torch.zeros(1)"),
    statements("loop over a list", "{t} = {a} * 1\nfor item in ITEMS:\n    {t} = {t} * item + 1",
               "ITEMS = [1.0, 2.0]", *ITEMS),
    statements("append to a list", "KEPT.append({a})\n{t} = sum(KEPT)", "KEPT = []",
               "KEPT.clear()", "KEPT = [torch.ones(3)]"),
    statements("list methods", "ITEMS.insert(1, {c})\nITEMS.sort()\n{t} = {a} * ITEMS[0]",
               "ITEMS = [1.0, 2.0]", *ITEMS),
    statements("list slice", "ITEMS[:1] = [{c}, 6.0]\ndel ITEMS[-1]\n{t} = {a} + len(ITEMS)",
               "ITEMS = [1.0, 2.0]", *ITEMS),
    statements("loop over a dict", "{t} = {a} * 1\nfor key, item in TABLE.items():\n"
               "    {t} = {t} * item + len(key)", "TABLE = {'a': 1.0, 'b': 2.0}", *TABLE),
    statements("write to a dict", "TABLE['a'] = TABLE.pop('a', 1.0) + 1\n{t} = {a} * TABLE['a']",
               "TABLE = {'a': 1.0, 'b': 2.0}", *TABLE),
    statements("dict methods", "TABLE.update(z={c})\n{t} = {a} * TABLE.setdefault('b', 2.0)\n"
               "TABLE.popitem()", "TABLE = {'a': 1.0, 'b': 2.0}", *TABLE),
    statements("first key of a dict", "{t} = {a} * TABLE[next(iter(TABLE))] + len(min(TABLE))",
               "TABLE = {'a': 1.0, 'b': 2.0}", *TABLE),
    statements("values of a dict", "{t} = {a} * list(TABLE.values())[0] + len(TABLE)",
               "TABLE = {'a': 1.0, 'b': 2.0}", *TABLE),
    statements("key in a dict", "{t} = {a} * (2.0 if 'd' in TABLE else 3.0)",
               "TABLE = {'a': 1.0, 'b': 2.0}", *TABLE),
    written("keys as text", "{a} * len('-'.join(TABLE)) + (list(TABLE)[0] == 'a')",
            "TABLE = {'a': 1.0, 'b': 2.0}", *TABLE),
    written("keywords of a dict", "keyed({a}, **TABLE)", KEYWORDS, *TABLE),
    statements("ordered dict", "ORDERED.move_to_end(next(iter(ORDERED)))\n"
               "{t} = {a} * next(iter(ORDERED.values()))", ORDERED,
               "ORDERED.move_to_end('c', last=False)", "ORDERED['d'] = 1.0"),
    statements("default dict", "GROUPS[n].append({a})\n{t} = GROUPS[n][0] + len(GROUPS)",
               "import collections\nGROUPS = collections.defaultdict(list)", "GROUPS.clear()"),
    statements("counter", "SEEN[n] += 1\n{t} = {a} * SEEN[n]",
               "import collections\nSEEN = collections.Counter()", "SEEN.clear()", "SEEN[1] = 5"),
    statements("deque", "RECENT.append({c})\nRECENT.rotate(1)\n{t} = {a} * RECENT[0]",
               "import collections\nRECENT = collections.deque([1.0, 2.0], maxlen=3)",
               "RECENT.clear()", "RECENT.append(9.0)", "RECENT.appendleft(8.0)"),
    statements("set", "{t} = {a} * len(CHOSEN)\nCHOSEN.add(n)", "CHOSEN = {1, 7}",
               "CHOSEN.discard(7)", "CHOSEN.add(5)"),
    written("closure", "scaled({a})", CLOSURE, "rebind(3.0)", "rebind(2)", "rebind(torch.ones(3))"),
    written("flag in a global", "{a} * 2 if FLAG else {a} + {c}", "FLAG = True", "FLAG = False",
            "FLAG = None", "FLAG = 1", "FLAG = []"),
    written("missing value", "{a} if OPTIONAL is None else {a} * OPTIONAL", "OPTIONAL = None",
            "OPTIONAL = 2.0", "OPTIONAL = torch.ones(3)", "OPTIONAL = None"),
    written("function in a global", "ACTIVATION({a})", "ACTIVATION = torch.relu",
            "ACTIVATION = torch.sin", "ACTIVATION = torch.nn.functional.relu",
            "ACTIVATION = torch.nn.Tanh()", "def ACTIVATION(value): return value + 7"),
    written("default arguments", "shifted({a})", DEFAULTS, "shifted = lambda value: value * 7",
            "shifted.__defaults__ = (5.0,)",
            "shifted.__kwdefaults__['times'] = 4.0", "shifted.__kwdefaults__ = {'times': 6.0}"),
    written("mutable default argument", "remembered({a})", MUTABLE_DEFAULT,
            "remembered.__defaults__[0].clear()", "remembered.__defaults__ = ([1],)"),
    written("partial", "partial({a})", PARTIAL, "partial.keywords['factor'] = 3.0",
            "partial = functools.partial(affine, factor=5.0, offset=0.0)"),
    written("function replaced", "stepped({a})", "def stepped(value):\n    return value + 1",
            "def stepped(value): return value + 2", "stepped = torch.relu",
            "stepped.__code__ = (lambda v: v + 3).__code__"),
    written("global name of a function", "FUNCTIONS[0]({a})", "FUNCTIONS = [torch.relu, torch.sin]",
            "FUNCTIONS.reverse()", "FUNCTIONS[0] = torch.cos"),
    written("function in a dict", "ACTS['act']({a})", "ACTS = {'act': torch.sin}",
            "ACTS['act'] = torch.cos", "ACTS['act'] = torch.nn.functional.gelu",
            "ACTS['act'] = lambda value: value + 3"),
    written("function of a class", "TOOL.act({a})", TOOL, "Tool.act = staticmethod(torch.cos)",
            "TOOL.act = torch.cos", "TOOL.act = lambda value: value + 3"),
    written("function as default argument", "applied({a})",
            "def applied(value, act=torch.sin):\n    return act(value)",
            "applied.__defaults__ = (torch.cos,)"),
    written("partial of an operator", "SCALING({a})",
            "import functools\nSCALING = functools.partial(torch.mul, other=2.0)",
            "SCALING = functools.partial(torch.add, other=2.0)", "SCALING.keywords['other'] = 3.0"),
    written("builtin in a global", "{a} * PICK(1, 2)", "PICK = max", "PICK = min", "PICK = pow"),
    written("function of math in a global", "{a} * ROUNDING(2.5)",
            "import math\nROUNDING = math.floor", "ROUNDING = math.ceil", "ROUNDING = round"),
    written("string", "{a} * (2.0 if f'{{MODE}}-{{n}}'.startswith('a') else 3.0)",
            "MODE = 'add'", "MODE = 'mul'"),
    written("shadowed builtin", "{a} * max(1, 2)", "LIMIT = 1", "max = min"),
    written("tuple", "{a} * PAIR[0] + PAIR[-1]", "PAIR = (1.0, 2.0)", "PAIR = (2.0, 1, 3.0)"),
    written("nested containers", "{a} * NESTED['list'][0]['k']",
            "NESTED = {'list': [{'k': 1.0}], 'other': ()}", "NESTED['list'][0]['k'] = 2.0",
            "NESTED['list'].insert(0, {'k': 3.0})"),
    written("context variable", "{a} * LEVEL.get()",
            "import contextvars\nLEVEL = contextvars.ContextVar('level', default=1.0)",
            "LEVEL.set(2.0)"),
    statements("argument in a container", "{t} = ARGUMENTS['x'] + {a}\nARGUMENTS['x'] = x",
               "ARGUMENTS = {'x': torch.zeros(3)}", "ARGUMENTS['x'] = y"),
)  # fmt: skip
