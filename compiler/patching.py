"""Replaces attributes of torch for the length of a block. Every patch of torch goes through here.

A file declares its patches as a tuple `PATCHES`, and `tcdebug doctor --patches` lists all of them.
A patch that does not fit the torch at hand is left out, which is an event.

A patch holds for the whole process: every thread sees it. Threads may make and undo patches at the
same time, also of one attribute.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback

SUPPORTED = ("2.11", "2.12", "2.13", "2.14", "2.15")
"""The versions of torch that tcdebug supports."""

Make = Callable[[Any], Any]
"""Called with what an attribute is, gives what takes its place."""

_changing = threading.RLock()


@dataclass(frozen=True)
class Patch:
    """An attribute of torch that is replaced for some time."""

    owner: str
    """A module, or "module:Class"."""
    attribute: str
    purpose: str
    """What is lost without this patch."""
    takes: tuple[str, ...] = ()
    """The names of parameters that the replacement relies on."""
    of_instances: bool = False
    """Whether it is an attribute of each instance, which the class only annotates."""
    seen: tuple[str, ...] = SUPPORTED
    """The supported versions of torch that have the attribute; in others it is not missed."""

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}.{self.attribute}"


def owner_of(patch: Patch) -> Any:
    """The module or class that has the attribute. Raises ImportError or AttributeError."""
    module, _, name = patch.owner.partition(":")
    found = importlib.import_module(module)
    return functools.reduce(getattr, name.split("."), found) if name else found


def misfit(patch: Patch) -> str:
    """Why a patch does not fit the torch at hand; empty where it fits. Changes nothing."""
    try:
        owner = owner_of(patch)
    except Exception as problem:  # whatever the import of a module of torch raises
        return str(problem)
    if patch.of_instances:
        fits = patch.attribute in getattr(owner, "__annotations__", {})
        return "" if fits else f"{patch.owner} has no {patch.attribute}"
    try:
        original = _plain(inspect.getattr_static(owner, patch.attribute))
    except AttributeError:
        return f"{patch.owner} has no {patch.attribute}"
    return _other_parameters(original, patch.takes)


def _other_parameters(function: Any, wanted: tuple[str, ...]) -> str:
    """What is wrong with the parameters of a function of torch's."""
    if not str(getattr(function, "__module__", "")).startswith("torch"):
        return ""  # a script has replaced it
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ""  # a function in C does not say what it takes
    missing = [name for name in wanted if name not in found]
    return f"it takes ({', '.join(found)}), not {', '.join(missing)}" if missing else ""


@dataclass(eq=False)
class Installed:
    """A patch in force.

    The attribute may be replaced again before this is undone, by a script or by another patch.
    That stays, then, and so does the replacement below it; but it does nothing any more.
    """

    owner: Any
    name: str
    replacement: Any
    previous: Any
    """What the attribute was: a function with this patch's mark, where it was patched already."""
    own: bool
    """Whether the owner had the attribute itself; a class may have inherited it."""
    active: bool = field(default=True)
    standing: Any = None
    """What the attribute is now."""

    def undo(self) -> None:
        """Put the attribute back; a second call does nothing."""
        with _changing:
            if not self.active:
                return
            self.active = False
            if _static(self.owner, self.name) is not self.standing:
                return  # replaced again: that goes through this one, which passes on
            previous, own = self.previous, self.own
            while (below := _installed(previous)) is not None and not below.active:
                previous, own = below.previous, below.own  # undone before, out of order
            if own:
                setattr(self.owner, self.name, previous)
            else:
                delattr(self.owner, self.name)


def install(patch: Patch, make: Make, log: EventLog, on: Any = None) -> Installed | None:
    """Replace an attribute until `undo` of the result; None, and an event, if it does not fit.

    `make` is given the attribute, of a static or class method its function, and returns what takes
    its place. `on` is the instance, for patches of instances.
    """
    if patch.seen != SUPPORTED and _version() in set(SUPPORTED).difference(patch.seen):
        return None  # known to be without it
    if problem := misfit(patch):
        log.emit(Fallback(f"{patch} is not patched", f"{problem}; without it: {patch.purpose}"))
        return None
    owner = on if patch.of_instances else owner_of(patch)
    with _changing:
        previous = _static(owner, patch.attribute)
        own = not isinstance(owner, type) or patch.attribute in vars(owner)
        original = _plain(previous)
        made = Installed(owner, patch.attribute, make(original), previous, own)
        made.standing = _standing(made, original)
        setattr(owner, patch.attribute, made.standing)
    return made


@contextlib.contextmanager
def patched(patch: Patch, make: Make, log: EventLog, on: Any = None) -> Iterator[None]:
    """As `install`, for the length of a block."""
    made = install(patch, make, log, on)
    try:
        yield
    finally:
        if made is not None:
            made.undo()


def _version() -> str:
    """The version of torch without its patch level."""
    return ".".join(version("torch").split(".")[:2])


def _standing(made: Installed, original: Any) -> Any:
    """What takes the place of an attribute: a function that stops to do anything when undone."""
    if not inspect.isroutine(original):
        return made.replacement

    @functools.wraps(original)
    def standing(*args: Any, **kwargs: Any) -> Any:
        return (made.replacement if made.active else original)(*args, **kwargs)

    standing.tcdebug_installed = made  # type: ignore[attr-defined] # read by `_installed` alone
    kind = type(made.previous)
    return kind(standing) if kind in (staticmethod, classmethod) else standing


def _installed(attribute: Any) -> Installed | None:
    """The patch that put an attribute where it is."""
    found = getattr(_plain(attribute), "__dict__", {}).get("tcdebug_installed")
    return found if isinstance(found, Installed) and found.standing is attribute else None


def _static(owner: Any, name: str) -> Any:
    """An attribute as its owner holds it, without binding methods."""
    return inspect.getattr_static(owner, name)


def _plain(attribute: Any) -> Any:
    """The function of a static or class method; anything else as it is."""
    return attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute
