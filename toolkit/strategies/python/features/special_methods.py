"""Special methods and attributes that Python looks up on classes, and what changes them."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

PLAIN = """
class Plain:
    level = 1.0
    def act(self, value):
        return value + self.level
PLAIN = Plain()
"""
PLAIN_CHANGES = (
    "PLAIN.level = 2.0", "Plain.level = 3.0", "PLAIN.other = 1.0", "Plain.other = 4.0",
    "Plain.act = lambda self, value: value + 9", "PLAIN.act = lambda value: value * 5",
    "del PLAIN.__dict__['other']", "PLAIN.__dict__['level'] = 6.0",
    "Plain.level = property(lambda self: 7.0)", "Plain.__getattr__ = lambda self, name: 8.0",
    "PLAIN = Plain()",
)  # fmt: skip
ORDERED = """
class Ranked:
    def __init__(self, rank):
        self.rank = rank
    def __lt__(self, other):
        return self.rank < other.rank
    def __matmul__(self, value):
        return value * self.rank
    def __neg__(self):
        return Ranked(-self.rank)
    def __index__(self):
        return int(self.rank)
    def __float__(self):
        return float(self.rank)
    def __iadd__(self, other):
        self.rank += other
        return self
    def __format__(self, kind):
        return kind * int(self.rank)
RANKED = Ranked(2)
OTHER = Ranked(3)
"""
ORDERED_CHANGES = (
    "RANKED.rank = 5", "RANKED = Ranked(1)", "Ranked.__lt__ = lambda self, other: False",
    "Ranked.__index__ = lambda self: 4", "Ranked.__float__ = lambda self: 6.0",
    "Ranked.__matmul__ = lambda self, value: value", "Ranked.__neg__ = lambda self: OTHER",
)  # fmt: skip
SHADOWED = """
class Answering:
    def __getattr__(self, name):
        return 2.0
ANSWERING = Answering()
"""
SUBCLASSES = """
class Root:
    kinds = []
    def __init_subclass__(cls, **named):
        Root.kinds.append(cls.__name__)
class First(Root):
    pass
"""
NUMBERED = """
class Length(float):
    unit = 1.0
    def __mul__(self, other):
        return float(self) * self.unit
LENGTH = Length(2.0)
"""
NAMED_TUPLE = """
import typing
class Sized(typing.NamedTuple):
    level: float
    count: int = 1
    @property
    def area(self):
        return self.level * self.count
SIZED = Sized(2.0)
"""
FLAGS = """
import enum
class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
class Rank(enum.IntEnum):
    LOW = 1
    HIGH = 2
ACCESS = Access.READ
RANK = Rank.LOW
"""
FROZEN = """
import dataclasses
@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    level: float
    name: str = "a"
FROZEN = Frozen(1.0)
"""
VIRTUAL = """
import abc
class Surface(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other):
        return hasattr(other, "area") or NotImplemented
class Disc:
    pass
"""
PROTOCOL = """
import typing
@typing.runtime_checkable
class Sizable(typing.Protocol):
    def size(self): ...
class Stone:
    pass
STONE = Stone()
"""
INSTANCE_CHECK = """
class Kind(type):
    accepted = (int,)
    def __instancecheck__(cls, value):
        return isinstance(value, cls.accepted)
class Number(metaclass=Kind):
    pass
"""
DELEGATE = """
class Inner:
    level = 1.0
class Outer:
    def __init__(self):
        self.inner = Inner()
    def __getattr__(self, name):
        return getattr(self.inner, name)
OUTER = Outer()
"""
STATIC = """
class Tools:
    @staticmethod
    def scaled(value):
        return value * 2
    factor = staticmethod(lambda: 3.0)
TOOLS = Tools()
"""
METHOD = """
class Held:
    def __init__(self, level):
        self.level = level
    def act(self, value):
        return value * self.level
HELD = Held(2.0)
ACT = HELD.act
"""
SLOT_DEFAULT = """
class Compact:
    __slots__ = ("level",)
    bonus = 1.0
COMPACT = Compact()
"""
SPECIAL_METHODS = (
    written("vars", "{a} * len(vars(PLAIN))", PLAIN, *PLAIN_CHANGES),
    written("__dict__", "{a} * PLAIN.__dict__.get('other', 2.0)", PLAIN, *PLAIN_CHANGES),
    written("key in __dict__", "{a} * (2 if 'other' in PLAIN.__dict__ else 3)", PLAIN,
            *PLAIN_CHANGES),
    written("dir", "{a} * len(dir(PLAIN))", PLAIN, *PLAIN_CHANGES),
    written("attribute of an instance or a class", "{a} * PLAIN.level", PLAIN, *PLAIN_CHANGES),
    written("method of an instance or a class", "PLAIN.act({a})", PLAIN, *PLAIN_CHANGES),
    written("class of an object", "{a} * PLAIN.__class__.level", PLAIN, *PLAIN_CHANGES),
    written("unbound method", "Plain.act(PLAIN, {a})", PLAIN, *PLAIN_CHANGES),
    written("attributes of a class", "{a} * (2 if 'other' in Plain.__dict__ else 3)", PLAIN,
            *PLAIN_CHANGES),
    written("callable", "{a} * (2 if callable(PLAIN) else 3)", PLAIN, *PLAIN_CHANGES,
            "Plain.__call__ = lambda self: 1"),
    statements("object as context", "{t} = {a} * 1\nif hasattr(PLAIN, '__enter__'):\n"
               "    with PLAIN:\n        {t} = {t} + 1", PLAIN, *PLAIN_CHANGES,
               "Plain.__enter__ = Plain.__exit__ = lambda self, *error: None"),
    written("__lt__", "{a} * (2 if RANKED < OTHER else 3)", ORDERED, *ORDERED_CHANGES),
    written("sorted objects", "{a} * sorted([OTHER, RANKED])[0].rank", ORDERED, *ORDERED_CHANGES),
    written("__matmul__", "RANKED @ {a}", ORDERED, *ORDERED_CHANGES),
    written("__neg__", "{a} * (-RANKED).rank", ORDERED, *ORDERED_CHANGES),
    written("__index__", "{a} * [1.0, 2.0, 3.0, 4.0, 5.0, 6.0][RANKED]", ORDERED,
            *ORDERED_CHANGES),
    written("__float__", "{a} * float(RANKED)", ORDERED, *ORDERED_CHANGES),
    statements("__iadd__", "global RANKED\nRANKED += 1\n{t} = {a} * RANKED.rank", ORDERED,
               *ORDERED_CHANGES),
    written("__format__", "{a} * len(f'{{RANKED:ab}}')", ORDERED, *ORDERED_CHANGES),
    written("shadowed __getattr__", "{a} * ANSWERING.scale", SHADOWED, "ANSWERING.scale = 9.0",
            "Answering.scale = 5.0", "Answering.__getattr__ = lambda self, name: 4.0"),
    statements("__init_subclass__", "class Second(Root):\n    pass\n"
               "{t} = {a} * len(Root.kinds)", SUBCLASSES, "Root.kinds.clear()"),
    written("subclass of float", "{a} * (LENGTH * 3) + LENGTH", NUMBERED, "Length.unit = 5.0",
            "LENGTH = Length(4.0)", "LENGTH.unit = 6.0"),
    written("class of named tuples", "{a} * SIZED.area + len(SIZED)", NAMED_TUPLE,
            "SIZED = Sized(3.0, 2)", "Sized.area = property(lambda self: 8.0)"),
    written("flag", "{a} * (2 if Access.WRITE in ACCESS else 3)", FLAGS,
            "ACCESS |= Access.WRITE", "ACCESS = Access(0)"),
    written("enum as number", "{a} * RANK + (RANK < Rank.HIGH)", FLAGS, "RANK = Rank.HIGH",
            "RANK = 1"),
    written("frozen dataclass", "{a} * FROZEN.level + (FROZEN < Frozen(2.0)) + len({{FROZEN}})",
            FROZEN, "FROZEN = Frozen(3.0, 'b')", "object.__setattr__(FROZEN, 'level', 4.0)"),
    written("__subclasshook__", "{a} * (2 if isinstance(Disc(), Surface) else 3)", VIRTUAL,
            "Disc.area = 1.0"),
    written("protocol", "{a} * (2 if isinstance(STONE, Sizable) else 3)", PROTOCOL,
            "Stone.size = lambda self: 1", "STONE.size = lambda: 1"),
    written("__instancecheck__", "{a} * (2 if isinstance(n, Number) else 3)", INSTANCE_CHECK,
            "Kind.accepted = (float,)", "Number.accepted = (str,)"),
    written("issubclass", "{a} * (2 if issubclass(Disc, Surface) else 3)", VIRTUAL,
            "Disc.area = 1.0"),
    written("delegated attribute", "{a} * OUTER.level", DELEGATE, "OUTER.inner.level = 2.0",
            "Inner.level = 3.0", "OUTER.level = 4.0", "Outer.level = 5.0",
            "OUTER.inner = Inner()"),
    written("static method", "TOOLS.scaled({a}) * Tools.factor()", STATIC,
            "Tools.scaled = staticmethod(lambda value: value * 7)",
            "TOOLS.scaled = lambda value: value * 8", "Tools.factor = staticmethod(lambda: 4.0)"),
    written("stored method", "ACT({a})", METHOD, "HELD.level = 3.0", "ACT = Held(5.0).act",
            "Held.act = lambda self, value: value", "HELD = Held(9.0)"),
    written("slot or class attribute", "{a} * COMPACT.bonus * getattr(COMPACT, 'level', 2.0)",
            SLOT_DEFAULT, "COMPACT.level = 3.0", "Compact.bonus = 4.0", "del COMPACT.level"),
)  # fmt: skip
