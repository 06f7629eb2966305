"""Replaces attributes of torch while a block runs. All patches of torch are made here.

A file declares its patches in a tuple `PATCHES`; `tcdebug doctor --patches` lists all of them. A
patch that does not fit the installed torch is not made, and a `fallback` event says so.

A patch applies to all threads of the process. Threads may install and undo patches concurrently,
also of the same attribute.
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
"""Takes the value of an attribute and returns its replacement."""

_changing = threading.RLock()


@dataclass(frozen=True)
class Patch:
    """An attribute of torch that is replaced for a while."""

    owner: str
    """A module, or "module:Class"."""
    attribute: str
    purpose: str
    """What is lost without this patch."""
    takes: tuple[str, ...] = ()
    """The parameters that the replacement relies on."""
    of_instances: bool = False
    """Whether each instance has the attribute; the class only annotates it."""
    seen: tuple[str, ...] = SUPPORTED
    """The supported versions of torch that have the attribute. Other supported versions need no
    patch."""

    def __str__(self) -> str:
        return f"{self.owner.replace(':', '.')}.{self.attribute}"


def owner_of(patch: Patch) -> Any:
    """Return the module or class that has the attribute. Raises ImportError or AttributeError."""
    module, _, name = patch.owner.partition(":")
    found = importlib.import_module(module)
    return functools.reduce(getattr, name.split("."), found) if name else found


def misfit(patch: Patch) -> str:
    """Return why a patch does not fit the installed torch; empty if it fits. Changes nothing."""
    try:
        owner = owner_of(patch)
    except Exception as problem:  # importing a module of torch can raise anything
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
    """How the parameters of a torch function differ from the wanted ones; empty if they do not."""
    if not str(getattr(function, "__module__", "")).startswith("torch"):
        return ""  # a script has replaced it
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return ""  # a C function without a signature
    missing = [name for name in wanted if name not in found]
    return f"it takes ({', '.join(found)}), not {', '.join(missing)}" if missing else ""


@dataclass(eq=False)
class Installed:
    """A patch in force.

    A script or another patch may replace the attribute again before `undo`. The newer replacement
    then stays, and so does this one below it, but this one only calls the original.
    """

    owner: Any
    name: str
    replacement: Any
    previous: Any
    """The earlier value of the attribute; the function of another patch if it was patched."""
    own: bool
    """Whether the owner itself had the attribute. A class may inherit it."""
    active: bool = field(default=True)
    standing: Any = None
    """The value that this patch gave to the attribute."""

    def undo(self) -> None:
        """Restore the attribute. A second call does nothing."""
        with _changing:
            if not self.active:
                return
            self.active = False
            if _static(self.owner, self.name) is not self.standing:
                return  # replaced again: the newer one calls this one, which calls the original
            previous, own = self.previous, self.own
            while (below := _installed(previous)) is not None and not below.active:
                previous, own = below.previous, below.own  # undone earlier, out of order
            if own:
                setattr(self.owner, self.name, previous)
            else:
                delattr(self.owner, self.name)


def install(patch: Patch, make: Make, log: EventLog, on: Any = None) -> Installed | None:
    """Replace an attribute until `undo` of the result.

    `make` takes the attribute and returns its replacement; for a static or class method it takes
    the function. `on` is the instance, for patches of instances. Returns None if the patch does
    not fit, with a `fallback` event, or if this version of torch needs none.
    """
    if patch.seen != SUPPORTED and _version() in set(SUPPORTED).difference(patch.seen):
        return None  # this version is known not to have it
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
    """Install a patch while the block runs. Arguments are those of `install`."""
    made = install(patch, make, log, on)
    try:
        yield
    finally:
        if made is not None:
            made.undo()


def _version() -> str:
    """Return the version of torch without its patch level."""
    return ".".join(version("torch").split(".")[:2])


def _standing(made: Installed, original: Any) -> Any:
    """Return the new value of an attribute.

    A function calls the original once the patch is undone.
    """
    if not inspect.isroutine(original):
        return made.replacement

    @functools.wraps(original)
    def standing(*args: Any, **kwargs: Any) -> Any:
        return (made.replacement if made.active else original)(*args, **kwargs)

    standing.tcdebug_installed = made  # type: ignore[attr-defined] # read by `_installed` alone
    kind = type(made.previous)
    return kind(standing) if kind in (staticmethod, classmethod) else standing


def _installed(attribute: Any) -> Installed | None:
    """Return the patch that installed an attribute, if one did."""
    found = getattr(_plain(attribute), "__dict__", {}).get("tcdebug_installed")
    return found if isinstance(found, Installed) and found.standing is attribute else None


def _static(owner: Any, name: str) -> Any:
    """Return an attribute of an owner, without binding methods."""
    return inspect.getattr_static(owner, name)


def _plain(attribute: Any) -> Any:
    """Return the function of a static or class method; any other value unchanged."""
    return attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute
