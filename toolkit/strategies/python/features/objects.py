"""Objects: attributes of instances and classes, properties, descriptors and special methods."""

from __future__ import annotations

from tcdebug.strategies.python.feature import statements, written

BOX = """
class Base:
    bonus = 1.0
    def apply(self, value):
        return value + self.bonus
class Box(Base):
    def __init__(self, scale):
        self.scale = scale
        self.count = 0
BOX = Box(2.0)
"""
BASED = """
class Doubling:
    def scaled(self, value):
        return value * 2.0
class Tripling:
    def scaled(self, value):
        return value * 3.0
class Based(Doubling):
    pass
"""
BOX_CHANGES = (
    "BOX.scale = 3.0", "Base.bonus = 4.0", "Box.bonus = 5.0", "BOX.bonus = 6.0", "BOX = Box(7.0)",
    "Base.apply = lambda self, value: value + 8", "BOX.apply = lambda value: value + 9",
    "Box.apply = lambda self, value: value * 2", "del BOX.count", "BOX.__class__ = Base",
    "BOX.scale = torch.ones(3)", "BOX = Base()", "Box.extra = 3.0", "BOX.extra = 2.0",
)  # fmt: skip
PROPERTY = """
class Dial:
    def __init__(self):
        self._level = 1.0
        self.reads = 0
    @property
    def level(self):
        self.reads += 1
        return self._level
    @level.setter
    def level(self, value):
        self._level = value * 2
DIAL = Dial()
"""
DESCRIPTOR = """
class Limit:
    def __init__(self, least):
        self.least = least
    def __get__(self, owner, kind):
        return max(owner.__dict__.get("limit", 0.0), self.least)
    def __set__(self, owner, value):
        owner.__dict__["limit"] = value
class Limited:
    limit = Limit(1.0)
LIMITED = Limited()
"""
DYNAMIC = """
class Dynamic:
    def __init__(self):
        self.table = {"level": 1.0}
    def __getattr__(self, name):
        if name != "table" and name in self.table:
            return self.table[name]
        raise AttributeError(name)
DYNAMIC = Dynamic()
"""
SETATTR = """
class Doubling:
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)
DOUBLING = Doubling()
"""
SLOTS = """
class Slotted:
    __slots__ = ("level", "last")
SLOTTED = Slotted()
SLOTTED.level = 1.0
"""
DATACLASS = """
import dataclasses
@dataclasses.dataclass
class Point:
    level: float
    parts: list = dataclasses.field(default_factory=list)
POINT = Point(1.0)
"""
NAMED = """
import collections
Pair = collections.namedtuple("Pair", "first second")
PAIRED = Pair(1.0, 2.0)
"""
ENUM = """
import enum
class Mode(enum.Enum):
    ADD = 1
    MUL = 2
MODE_NOW = Mode.ADD
"""
SPECIAL = """
class Vector:
    def __init__(self, level):
        self.level = level
    def __call__(self, value):
        return value * self.level
    def __bool__(self):
        return self.level > 1
    def __len__(self):
        return 3
    def __eq__(self, other):
        return isinstance(other, Vector) and self.level == other.level
    def __hash__(self):
        return hash(self.level)
    def __contains__(self, value):
        return value == self.level
    def __iter__(self):
        return iter([self.level, 2.0])
    def __getitem__(self, key):
        return self.level + key
    def __add__(self, other):
        return other + self.level
    def __radd__(self, other):
        return other - self.level
VECTOR = Vector(1.0)
"""
VECTOR_CHANGES = (
    "VECTOR.level = 2.0", "Vector.__bool__ = lambda self: False", "VECTOR = Vector(4.0)",
    "Vector.__call__ = lambda self, value: value * 9", "Vector.__len__ = lambda self: 5",
    "Vector.__getitem__ = lambda self, key: 6.0",
)  # fmt: skip
SUPER = """
class Parent:
    def act(self, value):
        return value + 1
class Child(Parent):
    @classmethod
    def kind(cls):
        return cls.rank
    rank = 2.0
    def act(self, value):
        return super().act(value) * 2
CHILD = Child()
"""
CACHED = """
import functools
class Lazy:
    level = 1.0
    @functools.cached_property
    def cached(self):
        return self.level * 2
LAZY = Lazy()
"""
MAPPING = """
class Doubled(dict):
    def __getitem__(self, key):
        return dict.__getitem__(self, key) * 2
    def __missing__(self, key):
        return 5.0
DOUBLED = Doubled(a=1.0)
"""
LISTED = """
class Logged(list):
    def append(self, value):
        list.append(self, value * 2)
LOGGED = Logged()
"""
META = """
class Meta(type):
    level = 1.0
    @property
    def doubled(cls):
        return cls.level * 2
class Made(metaclass=Meta):
    pass
"""
ABSTRACT = """
import abc
class Shape(abc.ABC):
    pass
class Square:
    pass
SQUARE = Square()
"""
MODULE = """
import sys
import types
settings = types.ModuleType("settings")
settings.level = 1.0
sys.modules["settings"] = settings
"""
RECORDER = """
class Recorder:
    items = []
    table = {}
    def note(self, value):
        type(self).items.append(value)
    @classmethod
    def mark(cls, value):
        cls.table[value] = len(cls.table)
class Quiet(Recorder):
    pass
RECORDER = Recorder()
"""
RECORDER_CHANGES = (
    "Recorder.items.clear()", "Recorder.items = [1]", "Quiet.items = [2, 3]",
    "Recorder.table.clear()",
)  # fmt: skip
RUNNER = """
class Slow:
    level = 1.0
    def act(self, value):
        return value * 2
class Fast:
    level = 3.0
    def act(self, value):
        return value * 5
RUNNER = Slow()
"""
RUNNER_CHANGES = ("RUNNER.__class__ = Fast", "RUNNER.level = 7.0", "RUNNER = Slow()")
NOTED = "NOTED = []"
OBJECTS = (
    written("attribute", "{a} * BOX.scale", BOX, *BOX_CHANGES),
    written("class attribute", "{a} * BOX.bonus", BOX, *BOX_CHANGES),
    written("method", "BOX.apply({a})", BOX, *BOX_CHANGES),
    written("getattr", "{a} * getattr(BOX, 'extra', {c})", BOX, *BOX_CHANGES),
    written("hasattr", "{a} * (2 if hasattr(BOX, 'count') else 3)", BOX, *BOX_CHANGES),
    written("isinstance", "{a} * (2 if isinstance(BOX, Box) else 3)", BOX, *BOX_CHANGES),
    written("type test", "{a} * (2 if type(BOX) is Box else 3)", BOX, *BOX_CHANGES),
    statements("write an attribute", "BOX.scale = BOX.scale + 1\n{t} = {a} * BOX.scale", BOX,
               *BOX_CHANGES),
    statements("tensor as attribute", "BOX.last = {a}\n{t} = BOX.last * 2", BOX, *BOX_CHANGES),
    statements("write a class attribute", "Base.bonus += 1\n{t} = {a} * BOX.bonus", BOX,
               *BOX_CHANGES),
    statements("delete an attribute", "if hasattr(BOX, 'extra'):\n    del BOX.extra\nelse:\n"
               "    BOX.extra = {c}", BOX, *BOX_CHANGES),
    statements("setattr", "setattr(BOX, f'item{{n}}', {a})\n{t} = len(vars(BOX)) * {a}", BOX,
               *BOX_CHANGES),
    statements("new object", "{t} = Box({c}).apply({a})", BOX, *BOX_CHANGES),
    statements("returned object", "box = Box({c})\nbox.value = {a}\nBOX.other = box", BOX,
               *BOX_CHANGES),
    statements("property", "DIAL.level = DIAL.level + 1\n{t} = {a} * DIAL.level", PROPERTY,
               "DIAL._level = 3.0", "Dial.level = 4.0"),
    statements("descriptor", "LIMITED.limit = LIMITED.limit + 1\n{t} = {a} * LIMITED.limit",
               DESCRIPTOR, "Limited.__dict__['limit'].least = 9.0", "LIMITED.limit = 2.0"),
    written("__getattr__", "{a} * DYNAMIC.level", DYNAMIC, "DYNAMIC.table['level'] = 2.0",
            "DYNAMIC.level = 3.0", "Dynamic.level = 4.0"),
    statements("__setattr__", "DOUBLING.level = {a}\n{t} = DOUBLING.level + 1", SETATTR,
               "Doubling.__setattr__ = object.__setattr__"),
    statements("slots", "SLOTTED.last = {a}\nSLOTTED.level += 1\n{t} = {a} * SLOTTED.level", SLOTS,
               "SLOTTED.level = 5.0", "SLOTTED.last = None"),
    statements("dataclass", "POINT.parts.append(n)\n{t} = {a} * POINT.level + len(POINT.parts)",
               DATACLASS, "POINT.level = 2.0", "POINT = Point(3.0, [1])"),
    statements("dataclass replace", "point = dataclasses.replace(POINT, level={c})\n"
               "{t} = {a} * point.level + (point == POINT)", DATACLASS, "POINT = Point(2.0)"),
    written("named tuple", "{a} * PAIRED._replace(first={c}).first + PAIRED.second", NAMED,
            "PAIRED = Pair(2.0, 3)"),
    written("enum", "{a} * MODE_NOW.value if MODE_NOW is Mode.MUL else {a}", ENUM,
            "MODE_NOW = Mode.MUL"),
    written("__call__", "VECTOR({a})", SPECIAL, *VECTOR_CHANGES),
    written("__bool__", "{a} * (2 if VECTOR else 3)", SPECIAL, *VECTOR_CHANGES),
    written("__len__", "{a} * len(VECTOR)", SPECIAL, *VECTOR_CHANGES),
    written("__eq__", "{a} * (2 if VECTOR == Vector(2.0) else 3)", SPECIAL, *VECTOR_CHANGES),
    written("__contains__", "{a} * (2 if {c} in VECTOR else 3)", SPECIAL, *VECTOR_CHANGES),
    written("__iter__", "{a} * sum(item for item in VECTOR)", SPECIAL, *VECTOR_CHANGES),
    written("__getitem__", "{a} * VECTOR[n]", SPECIAL, *VECTOR_CHANGES),
    written("__add__", "VECTOR + {a}", SPECIAL, *VECTOR_CHANGES),
    written("__hash__", "{a} * {{VECTOR: 2.0}}.get(Vector(2.0), 3.0)", SPECIAL, *VECTOR_CHANGES),
    written("super", "CHILD.act({a})", SUPER, "Parent.act = lambda self, value: value + 5",
            "Child.act = Parent.act"),
    written("classmethod", "{a} * Child.kind()", SUPER, "Child.rank = 4.0", "Parent.rank = 5.0"),
    written("cached property", "{a} * LAZY.cached", CACHED, "Lazy.level = 2.0",
            "LAZY.__dict__.pop('cached', None)", "LAZY.cached = 7.0"),
    statements("dict subclass", "DOUBLED['b'] = {c}\n{t} = {a} * DOUBLED['a'] + DOUBLED['z']",
               MAPPING, "DOUBLED['a'] = 3.0"),
    statements("list subclass", "LOGGED.append({c})\n{t} = {a} * len(LOGGED) + LOGGED[-1]", LISTED,
               "LOGGED.clear()", "LOGGED.append(2.0)"),
    written("metaclass", "{a} * Made.doubled + Made.level", META, "Meta.level = 2.0",
            "Made.level = 3.0"),
    written("abstract class", "{a} * (2 if isinstance(SQUARE, Shape) else 3)", ABSTRACT,
            "Shape.register(Square)"),
    written("bases of a class", "Based().scaled({a})", BASED, "Based.__bases__ = (Tripling,)"),
    written("module attribute", "{a} * settings.level", MODULE, "settings.level = 2.0",
            "settings = types.SimpleNamespace(level=3.0)"),
    statements("local class", "class Local:\n    level = n\n    def act(self, value):\n"
               "        return value * self.level\n{t} = Local().act({a})"),
    statements("append to a list of a class", "Recorder.items.append(n)\n"
               "{t} = {a} * len(Recorder.items)", RECORDER, *RECORDER_CHANGES),
    statements("append through an instance", "RECORDER.items.append(n)\n"
               "{t} = {a} * len(Recorder.items)", RECORDER, *RECORDER_CHANGES),
    statements("append through a subclass", "Quiet.items.append(n)\n"
               "{t} = {a} * len(Recorder.items)", RECORDER, *RECORDER_CHANGES),
    statements("append through type(self)", "RECORDER.note(n)\n{t} = {a} * len(RECORDER.items)",
               RECORDER, *RECORDER_CHANGES),
    statements("class method that writes", "Quiet.mark(n)\n{t} = {a} * len(Recorder.table)",
               RECORDER, *RECORDER_CHANGES),
    statements("list of a class extended", "Recorder.items += [n]\n"
               "{t} = {a} * len(Quiet.items)", RECORDER, *RECORDER_CHANGES),
    written("class of an instance", "RUNNER.act({a}) * RUNNER.level", RUNNER, *RUNNER_CHANGES),
    statements("write __class__", "RUNNER.__class__ = Fast\n{t} = RUNNER.act({a}) * RUNNER.level",
               RUNNER, *RUNNER_CHANGES),
    written("isinstance of a changed class", "{a} * (2 if isinstance(RUNNER, Fast) else 3)", RUNNER,
            *RUNNER_CHANGES),
    written("name of a class", "{a} * (2 if type(RUNNER).__name__ == 'Fast' else 3)", RUNNER,
            *RUNNER_CHANGES, "Slow.__name__ = 'Fast'"),
    statements("local class that writes", "class Helper:\n    def touch(self):\n"
               "        NOTED.append(n)\nHelper().touch()\n{t} = {a} * len(NOTED)", NOTED,
               "NOTED.clear()"),
    statements("local context that writes", "class Helper:\n    def __enter__(self):\n"
               "        NOTED.append(1)\n    def __exit__(self, *error):\n"
               "        NOTED.append(2)\nwith Helper():\n    {t} = {a} * len(NOTED)\n"
               "{t} = {t} + len(NOTED)", NOTED, "NOTED.clear()"),
    statements("local property that writes", "class Helper:\n    @property\n    def level(self):\n"
               "        NOTED.append(n)\n        return len(NOTED)\n{t} = {a} * Helper().level",
               NOTED, "NOTED.clear()"),
)  # fmt: skip
