"""Makes the generated code callable: builds the kernels, now or in the background."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tcdebug.compiler.codegen.wrapper.wrapper import WrapperSource
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.devices import DEVICES
from tcdebug.compiler.devices.protocol import KernelSource
from tcdebug.compiler.events.schema import Fallback
from tcdebug.compiler.runtime.background import Background, Compiled
from tcdebug.compiler.runtime.launch import load_wrapper
from tcdebug.compiler.runtime.profiler_ranges import kernel_ranges
from tcdebug.compiler.stages.stage import Stages


def load(
    stages: Stages,
    sources: Mapping[str, KernelSource],
    wrapper: WrapperSource,
    eager: Callable[..., Sequence[Any]],
    options: Options,
) -> Compiled:
    """Build the kernels of each type of device and make the wrapper callable.

    With the option `background`, the result runs `eager` until the kernels are built.
    """

    def finish() -> Compiled:
        names: dict[str, Any] = {}
        for device, source in sources.items():
            launches = [made for made in wrapper.launches if made.device == device]
            names |= DEVICES[device].build(source, launches, stages, options)
        if options.profile:
            names |= kernel_ranges(names, wrapper.launches)
        return load_wrapper(wrapper, names, stages.name)

    def failed(error: Exception) -> None:
        stages.log.emit(Fallback("eager in place of kernels", str(error)[:4000]))

    built = all(DEVICES[device].is_built(s, options) for device, s in sources.items())
    if options.background and not built:
        return Background(eager, finish, failed if options.on_error == "fallback" else None)
    return finish()
