"""Any backend that torch.compile accepts: ours, inductor, a registered name, a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tcdebug.compiler.gate import Toggles

EMBEDDED = "tcdebug"


@dataclass(frozen=True)
class Backend:
    """A backend with the mode and options that a script compiles with."""

    backend: Any
    name: str
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    run_dir: str = ""

    @property
    def togglable(self) -> bool:
        """Only the embedded compiler asks a gate."""
        return self.name == EMBEDDED

    def compile(
        self, module: torch.nn.Module, toggles: Toggles, notify: Callable[[str], None]
    ) -> Callable[..., Any]:
        """The module compiled by this backend under toggles."""
        options = dict(self.options)
        if self.togglable:
            given = options.get("off", ())
            already = given if isinstance(given, Toggles) else Toggles.parse(given)
            options["off"] = toggles.without(off=already.off, sites=already.sites)
            options["run_dir"] = self.run_dir or None
            options["artifacts"] = False
        inner = self._resolved(options)

        def announced(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            notify("compile")
            compiled = inner(graph, inputs)

            def call(*args: Any) -> Any:
                notify("forward")
                return compiled(*args)

            return call

        return torch.compile(module, backend=announced)

    def _resolved(self, options: Mapping[str, Any]) -> Callable[..., Any]:
        """The backend as torch.compile would call it, mode and options applied."""
        if self.name == "inductor":
            return _inductor(self.mode, options)
        if not isinstance(self.backend, str):
            found: Callable[..., Any] = self.backend
        else:
            found = torch._dynamo.lookup_backend(self.backend)
        extra: dict[str, Any] = {}
        if self.mode not in (None, "default"):
            extra["mode"] = self.mode
        if options:
            extra["options"] = dict(options)
        return (lambda graph, inputs: found(graph, inputs, **extra)) if extra else found

    @property
    def named(self) -> bool:
        """Whether a name says which backend it is; otherwise it is an object of the script's."""
        return self.name == "inductor" or isinstance(self.backend, str)

    def call(self) -> dict[str, Any]:
        """backend, and mode and options where there are any; backend None for a script's object."""
        if not self.named:
            return {"backend": None}
        call: dict[str, Any] = {"backend": self.name}
        if self.name == "inductor":
            call["options"] = _inductor_options(self.mode, self.options)
            return call
        if self.mode not in (None, "default"):
            call["mode"] = self.mode
        if self.options:
            call["options"] = dict(self.options)
        return call


def _inductor(mode: str | None, options: Mapping[str, Any]) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx  # noqa: PLC0415 - start-up time

    # no caches: their keys do not know what a script has patched
    patches = {"force_disable_caches": True, **_inductor_options(mode, options)}
    return lambda graph, inputs: compile_fx(graph, inputs, config_patches=patches)


def _inductor_options(mode: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Mode and options as one; with eager's random numbers, or all that is drawn looks wrong."""
    made = dict(options)
    if mode not in (None, "default"):
        made = {**torch._inductor.list_mode_options(mode), **made}
    return {"fallback_random": True, **made}
