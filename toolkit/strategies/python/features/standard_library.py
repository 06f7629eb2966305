"""Containers and functions of the standard library: read, written, and changed between calls."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

CHAIN = """
import collections
CHOSEN_LEVELS = {}
LEVELS_CHAIN = collections.ChainMap(CHOSEN_LEVELS, {"level": 1.5, "depth": 2.0})
"""
CHAIN_CHANGES = (
    "CHOSEN_LEVELS['level'] = 7.5", "LEVELS_CHAIN['depth'] = 3.0", "CHOSEN_LEVELS.clear()",
    "LEVELS_CHAIN.maps.reverse()", "LEVELS_CHAIN.maps[1]['level'] = 4.0",
    "LEVELS_CHAIN = LEVELS_CHAIN.new_child({'level': 6.0})",
)  # fmt: skip
WRAPPED_DICT = """
import collections
USER = collections.UserDict(level=1.0)
"""
WRAPPED_LIST = """
import collections
USERS = collections.UserList([1.0, 2.0])
"""
PROXY = """
import types
PROXIED = {"level": 1.0}
PROXY = types.MappingProxyType(PROXIED)
"""
RECORD = """
import types
RECORD = types.SimpleNamespace(level=1.0)
"""
SINGLE = """
import functools
@functools.singledispatch
def dispatched(value):
    return 1.0
@dispatched.register
def _of_int(value: int):
    return 2.0
"""
REFERENCE = """
import weakref
class Target:
    level = 1.0
TARGET = Target()
REFERENCE = weakref.ref(TARGET)
"""
HEAP = """
import heapq
HEAP = [1.0, 4.0, 2.0]
"""
THREAD = """
import threading
LOCAL = threading.local()
LOCAL.level = 1.0
"""
COPY = """
import copy
PARTS = {"list": [1.0], "tensor": torch.ones(3)}
"""
VIEWS = """
VIEWED = {"a": 1.0, "b": 2.0}
KEYS = VIEWED.keys()
VALUES = VIEWED.values()
"""
VIEWS_CHANGES = (
    "VIEWED['c'] = 3.0",
    "VIEWED['a'] = 4.0",
    "del VIEWED['b']",
    "VIEWED.clear()",
    "VIEWED['a'] = VIEWED.pop('a')",
)
STACKED = """
import contextlib
CLOSED = []
"""
BYTES = "BYTES = bytearray(b'ab')"
FROZEN = "FROZEN = frozenset((1, 7))"
WINDOW = """
import collections
WINDOW = collections.deque([1.0, 2.0, 3.0], maxlen=3)
"""
WINDOW_CHANGES = ("WINDOW.append(9.0)", "WINDOW.clear()", "WINDOW = collections.deque([5.0])")
ARRAY = "import array\nNUMBERS = array.array('d', [1.0, 2.0])"
SCORED = "SCORES = [3.0, 1.0, 2.0]\nRANKS = {1.0: 5.0, 2.0: 0.5, 3.0: 1.0}"
SCORED_CHANGES = ("RANKS[2.0] = 9.0", "RANKS[3.0] = 0.1", "SCORES.reverse()", "SCORES.remove(1.0)")
OUTSIDE = """
import itertools
NAMED = {"a": 2.0, "b": 3.0}
@torch.compiler.disable
def chosen():
    return "a"
"""
NAMED_CHANGES = ("NAMED['a'] = 4.0", "del NAMED['a']")
STANDARD_LIBRARY = (
    written("chain map", "{a} * LEVELS_CHAIN['level']", CHAIN, *CHAIN_CHANGES),
    written("length of a chain map", "{a} * len(LEVELS_CHAIN)", CHAIN, *CHAIN_CHANGES),
    written("get of a chain map", "{a} * LEVELS_CHAIN.get('depth', 3.0)", CHAIN, *CHAIN_CHANGES),
    statements("write to a chain map", "LEVELS_CHAIN['level'] = {c}\n"
               "{t} = {a} * CHOSEN_LEVELS['level']", CHAIN, *CHAIN_CHANGES),
    written("user dict", "{a} * USER['level'] * len(USER)", WRAPPED_DICT, "USER['level'] = 2.0",
            "USER.data['other'] = 1.0", "USER.data = {'level': 5.0}"),
    statements("user list", "USERS.append({c})\n{t} = {a} * USERS[0] + len(USERS)", WRAPPED_LIST,
               "USERS.data[0] = 5.0", "USERS.data.append(3.0)", "USERS.clear()"),
    written("mapping proxy", "{a} * PROXY['level'] + len(PROXY)", PROXY, "PROXIED['level'] = 2.0",
            "PROXIED['other'] = 3.0"),
    written("loop over a mapping proxy", "{a} * sum(PROXY.values())", PROXY,
            "PROXIED['level'] = 2.0", "PROXIED['other'] = 3.0"),
    written("namespace", "{a} * RECORD.level + len(vars(RECORD))", RECORD, "RECORD.level = 2.0",
            "RECORD.other = 1.0", "del RECORD.level\nRECORD.level = 3.0"),
    statements("write to a namespace", "RECORD.seen = n\n{t} = {a} * len(RECORD.__dict__)", RECORD,
               "RECORD.other = 1.0", "RECORD.__dict__.clear()"),
    written("equal namespaces", "{a} * (2 if RECORD == types.SimpleNamespace(level=1.0) else 3)",
            RECORD, "RECORD.other = 1.0", "RECORD.level = 2.0"),
    written("singledispatch", "{a} * dispatched(n)", SINGLE,
            "dispatched.register(int, lambda v: 5.0)", "dispatched.register(bool, lambda v: 6.0)"),
    written("weak reference", "{a} * (REFERENCE().level if REFERENCE() is not None else 3.0)",
            REFERENCE, "TARGET = None", "TARGET.level = 2.0", "Target.level = 4.0"),
    statements("heap", "heapq.heappush(HEAP, {c})\n{t} = {a} * heapq.heappop(HEAP)", HEAP,
               "HEAP.insert(0, 0.5)", "HEAP.clear()"),
    statements("thread local", "LOCAL.level += 1\n{t} = {a} * LOCAL.level", THREAD,
               "LOCAL.level = 5.0"),
    statements("copy", "copied = copy.copy(PARTS)\ncopied['list'].append({c})\n"
               "{t} = {a} * len(PARTS['list'])", COPY, "PARTS['list'].clear()"),
    statements("deepcopy", "copied = copy.deepcopy(PARTS)\ncopied['tensor'].add_({c})\n"
               "{t} = {a} + copied['tensor'] + PARTS['tensor']", COPY, "PARTS['tensor'].fill_(4)"),
    written("stored keys", "{a} * len(KEYS)", VIEWS, *VIEWS_CHANGES),
    written("loop over stored keys", "{a} * sum(len(key) + ord(key) for key in KEYS)", VIEWS,
            *VIEWS_CHANGES),
    written("key in stored keys", "{a} * (2 if 'c' in KEYS else 3)", VIEWS, *VIEWS_CHANGES),
    written("stored values", "{a} * sum(VALUES)", VIEWS, *VIEWS_CHANGES),
    statements("exit stack", "with contextlib.ExitStack() as stack:\n"
               "    stack.callback(CLOSED.append, n)\n    {t} = {a} * len(CLOSED)\n"
               "{t} = {t} + len(CLOSED)", STACKED, "CLOSED.clear()"),
    statements("suppress", "{t} = {a} * 1\nwith contextlib.suppress(KeyError):\n"
               "    {t} = {t} + 1\n    {t} = {t} * {{1: 2.0}}[n]", STACKED),
    statements("redirected output", "import io\ntext = io.StringIO()\n"
               "with contextlib.redirect_stdout(text):\n    print(n)\n"
               "{t} = {a} * len(text.getvalue())", STACKED),
    written("bytearray", "{a} * BYTES[0] + len(BYTES)", BYTES, "BYTES[0] = 98", "BYTES.append(1)"),
    written("frozenset", "{a} * (2 if n in FROZEN else 3) + len(FROZEN | {{n}})", FROZEN,
            "FROZEN = frozenset((2,))"),
    written("full deque", "{a} * WINDOW[0] + len(WINDOW)", WINDOW, *WINDOW_CHANGES),
    statements("append to a full deque", "WINDOW.append({c})\n{t} = {a} * WINDOW[0]", WINDOW,
               *WINDOW_CHANGES),
    statements("rotate a full deque", "WINDOW.append({c})\nWINDOW.rotate(1)\n"
               "{t} = {a} * WINDOW[-1]", WINDOW, *WINDOW_CHANGES),
    statements("extend a full deque", "WINDOW.extendleft([{c}, 4.0])\n{t} = {a} * WINDOW[0]",
               WINDOW, *WINDOW_CHANGES),
    written("itemgetter", "{a} * operator.itemgetter('a', 'b')(VIEWED_PAIR)[0]",
            "import operator\nVIEWED_PAIR = {'a': 1.0, 'b': 2.0}", "VIEWED_PAIR['a'] = 3.0"),
    written("attrgetter", "{a} * GET_LEVEL(GOT)", "import operator\nimport types\n"
            "GOT = types.SimpleNamespace(inner=types.SimpleNamespace(level=1.0))\n"
            "GET_LEVEL = operator.attrgetter('inner.level')", "GOT.inner.level = 2.0",
            "GOT.inner = types.SimpleNamespace(level=3.0)"),
    written("math", "{a} * math.sqrt(abs(n)) + math.floor(n / 2) + math.gcd(6, int(n))",
            "import math"),
    written("sign of a number", "{a} * math.copysign(2.0, n)", "import math"),
    written("divmod and round", "{a} * divmod(n, 2)[1] + round(n * 1.5) + n ** 2"),
    written("bits of a number", "{a} * int(n).bit_length() + (int(n) << 1)"),
    written("format", "{a} * len('{{:>4}}'.format(n)) + len(f'{{n!r:6}}')"),
    written("pairwise and product", "{a} * sum(p * q for p, q in itertools.pairwise((1, 2, n))) "
            "+ len(list(itertools.product((1, 2), repeat=2)))", "import itertools"),
    written("groupby", "{a} * len([k for k, _ in itertools.groupby((1, 1, n))])",
            "import itertools"),
    written("random", "{a} * random.Random(3).random()", "import random"),
    written("array of numbers", "{a} * NUMBERS[0] + len(NUMBERS)", ARRAY, "NUMBERS[0] = 5.0",
            "NUMBERS.append(1.0)"),
    written("sum of an array", "{a} * sum(NUMBERS)", ARRAY, "NUMBERS[0] = 5.0",
            "NUMBERS.append(1.0)"),
    written("max with a key", "{a} * max(SCORES, key=lambda score: RANKS[score])", SCORED,
            *SCORED_CHANGES),
    written("sorted with a key", "{a} * sorted(SCORES, key=RANKS.get)[0]", SCORED, *SCORED_CHANGES),
    written("min of a dict with a key", "{a} * min(RANKS, key=RANKS.__getitem__)", SCORED,
            *SCORED_CHANGES),
    statements("sort in place with a key", "SCORES.sort(key=RANKS.get, reverse=True)\n"
               "{t} = {a} * SCORES[0]", SCORED, *SCORED_CHANGES),
    written("products and roots", "{a} * math.prod(x.shape) + math.fsum([0.1] * 10) "
            "+ math.isqrt(10)", "import math"),
    written("exponent of a size", "{a} * math.frexp(float(x.shape[0]))[1] + math.ldexp(1.0, 2)",
            "import math"),
    written("get across a break", "{a} * NAMED.get(chosen(), 5.0)", OUTSIDE, *NAMED_CHANGES),
    written("join across a break", "{a} * len('-'.join([chosen(), 'bc']))", OUTSIDE),
    written("fromkeys across a break", "{a} * len(dict.fromkeys(chosen()))", OUTSIDE),
    written("method across a break", "{a} * chosen().upper().count('A')", OUTSIDE),
    written("index across a break", "{a} * list(NAMED).index(chosen())", OUTSIDE, *NAMED_CHANGES),
)  # fmt: skip
