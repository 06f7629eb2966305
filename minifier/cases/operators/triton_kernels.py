"""Writes a Triton kernel of a program as Python text.

The text defines the kernel, the functions of the program that it calls, and the constants that it
reads. It is what a repro contains, and what another process makes the kernel of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from typing import Any

from tcdebug.minifier.cases.operators.python_text import import_line, run_text

SETTINGS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "ir_override": None}
"""What `triton.Config` takes besides the arguments of a kernel, with its defaults."""
SPECIALIZED = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")
"""What `triton.jit` takes that has an effect on the code of a kernel."""


class UnwritableKernel(TypeError):
    """A kernel needs an object that has no text; the message says which."""


@dataclass(frozen=True)
class KernelText:
    """The text of a kernel. `name` is what a launch calls."""

    name: str
    imports: tuple[str, ...]
    definitions: tuple[tuple[str, str], ...]
    """Functions and constants with their texts, each before those that use it."""
    parameters: tuple[str, ...] = ()
    """The names of the kernel's parameters, in order."""
    choices: tuple[tuple[tuple[str, Any], ...], ...] = ()
    """The arguments that each configuration of an autotuned kernel gives."""

    def __reduce__(self) -> Any:
        return KernelText, tuple(getattr(self, each.name) for each in fields(self))

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n".join(
            [*self.imports, "", "", "\n\n".join(text for _, text in self.definitions), ""]
        )

    @cached_property
    def key(self) -> str:
        """A key over the text, stable across processes."""
        return blake2b(self.text.encode(), digest_size=8).hexdigest()

    @cached_property
    def kernel(self) -> Any:
        """The kernel, made of the text."""
        names: dict[str, Any] = {"__name__": f"kernel_{self.key}"}
        run_text(self.text, f"<triton kernel {self.name} {self.key}>", names)
        return names[self.name]


def kernel_text(kernel: Any) -> KernelText:
    """Return the text of a `triton.jit` function, or of one that `triton.autotune` wraps.

    Raises UnwritableKernel.
    """
    tuned = hasattr(kernel, "configs")
    function = kernel.fn if tuned else kernel
    writer = _KernelWriter()
    writer.add(function.__name__, function)
    name, choices = function.__name__, list[tuple[tuple[str, Any], ...]]()
    if tuned:
        name = f"{name}_tuned"
        writer.texts[name] = _tuned(name, function.__name__, kernel)
        choices = [tuple(sorted(config.kwargs.items())) for config in kernel.configs]
    imports, definitions = tuple(sorted(writer.imports)), tuple(writer.texts.items())
    return KernelText(name, imports, definitions, tuple(function.arg_names), tuple(choices))


@dataclass
class _KernelWriter:
    """Texts by the names that they define, in the order in which they can be run."""

    imports: set[str] = field(default_factory=set)
    texts: dict[str, str] = field(default_factory=dict)
    written: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        """Write what a name stands for. Raises UnwritableKernel."""
        if name in self.written:
            if self.written[name] is not value:
                raise UnwritableKernel(f"two objects that the kernel uses are called {name}")
            return
        self.written[name] = value
        if line := import_line(name, value):
            self.imports.add(line)
        elif hasattr(value, "src") and hasattr(value, "params"):
            self._add_function(name, value)
        else:
            self.texts[name] = f"{name} = {self._constant(name, value)}"

    def _add_function(self, name: str, function: Any) -> None:
        own = function.__name__
        for used, value in _used(function):
            if value is not function:
                self.add(used, value)
        self.imports.add("import triton")
        given = ((setting, getattr(function, setting, None)) for setting in SPECIALIZED)
        options = ", ".join(f"{setting}={value!r}" for setting, value in given if value)
        decorator = f"@triton.jit({options})" if options else "@triton.jit"
        self.texts[own] = f"{decorator}\n{function.src.rstrip()}\n"
        if name != own:
            self.texts[name] = f"{name} = {own}"

    def _constant(self, name: str, value: Any) -> str:
        from triton import language  # noqa: PLC0415 # only programs with kernels need it

        plain = value.value if isinstance(value, language.constexpr) else value
        if plain is None or isinstance(plain, bool | int | float | str):
            self.imports.add("import triton.language")
            return f"triton.language.constexpr({plain!r})"
        if (public := _name_in(vars(language), value)) is not None:
            self.imports.add("import triton.language")
            return f"triton.language.{public}"
        raise UnwritableKernel(f"the kernel reads {name}, a {type(value).__name__}")


def _tuned(name: str, function: str, kernel: Any) -> str:
    """Return the statement that autotunes a kernel as the program does."""
    configs = "\n".join(f"        {_config(config)}," for config in kernel.configs)
    lines = [f"{name} = triton.autotune(", "    configs=[", configs, "    ],"]
    lines.append(f"    key={list(kernel.keys)!r},")
    for option in ("reset_to_zero", "restore_value"):
        if given := list(getattr(kernel, option, None) or ()):
            lines.append(f"    {option}={given!r},")
    return "\n".join([*lines, f")({function})"])


def _config(config: Any) -> str:
    given = ((setting, getattr(config, setting, default), default)
             for setting, default in SETTINGS.items())  # fmt: skip
    settings = [f"{setting}={value!r}" for setting, value, default in given if value != default]
    return f"triton.Config({', '.join([repr(config.kwargs), *settings])})"


def _used(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names outside of a kernel that its text reads, and what they stand for."""
    python = function.fn
    definition = ast.parse(function.src).body[0]
    assert isinstance(definition, ast.FunctionDef)
    at_definition = {n.id for n in ast.walk(definition.args) if isinstance(n, ast.Name)}
    inside = {n.id for n in ast.walk(definition) if isinstance(n, ast.Name)}
    code = python.__code__
    read = at_definition | (inside & {*code.co_names, *code.co_freevars})
    cells = dict(zip(code.co_freevars, python.__closure__ or (), strict=True))
    for name in sorted(read):
        if name in cells:
            yield name, cells[name].cell_contents
        elif name in python.__globals__:
            yield name, python.__globals__[name]


def _name_in(names: Mapping[str, Any], value: Any) -> str | None:
    return next((name for name, known in names.items() if known is value), None)
