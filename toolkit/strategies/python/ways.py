"""The ways in which a Python program is compiled, as text that its scripts contain too."""

from __future__ import annotations

import re
from dataclasses import dataclass

COMPILE = "torch.compile"
"""The name of the usual way."""
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TCDEBUG_CACHE_DIR")
"""The variables that name the folders of caches."""
NUMBER = re.compile(r"\b(\d+)\.(\d+)\b")
"""A number that differs in the program whose caches a process finds."""


@dataclass(frozen=True)
class CompilingWay:
    """A way to compile a program.

    `definition` defines `compiled(program, **options)`, which returns the compiled program.
    `options` are those of torch.compile.
    """

    definition: str
    wrapper: str = ""
    """Defines `wrapped(program)`, which changes no result and which eager runs too."""
    settings: tuple[str, ...] = ()
    """Names in torch._dynamo.config that are True."""
    exports: bool = False
    """Whether only the result of the first call is compared, if the call changes nothing else."""
    processes: bool = False
    """Whether the program runs in several processes that share their caches."""


_USUAL = """
def compiled(program, **options):
    return torch.compile(program, **options)
"""
_FULL_GRAPH = """
def compiled(program, **options):
    return torch.compile(program, fullgraph=True, **options)
"""
_WRAPPED = """
def compiled(program, **options):
    return torch.compile(wrapped(program), **options)
"""
_CHECKPOINTED = """
def wrapped(program):
    from torch.utils.checkpoint import checkpoint
    return lambda *inputs: checkpoint(program, *inputs, use_reentrant=False)
"""
_NESTED_REGION = """
def wrapped(program):
    region = torch.compiler.nested_compile_region(program)
    return lambda *inputs: region(*inputs)
"""
_EXPORTED = """
class NotExported(Exception):
    pass


def compiled(program, backend, dynamic=None):
    class Exported(torch.nn.Module):
        def forward(self, x, y, n):
            return program(x, y, n)

    def call(x, y, n):
        any_size = torch.export.Dim.AUTO
        shapes = [{k: any_size for k in range(t.dim())} for t in (x, y)]
        try:
            made = torch.export.export(
                Exported(), (x, y, n), dynamic_shapes=(*shapes, None) if dynamic else None
            )
        except Exception as error:
            raise NotExported(str(error)) from error
        return then(made).module()(x, y, n)

    return call
"""
_NOTHING = """
def then(made):
    return made
"""
_DECOMPOSED = """
def then(made):
    return made.run_decompositions()
"""
_LOADED = """
def then(made):
    import io

    saved = io.BytesIO()
    torch.export.save(made, saved)
    saved.seek(0)
    return torch.export.load(saved)
"""
WAYS = {
    COMPILE: CompilingWay(_USUAL),
    "fullgraph": CompilingWay(_FULL_GRAPH),
    "compiled autograd": CompilingWay(_USUAL, settings=("compiled_autograd",)),
    "checkpointed": CompilingWay(_WRAPPED, wrapper=_CHECKPOINTED),
    "nested_compile_region": CompilingWay(_WRAPPED, wrapper=_NESTED_REGION),
    "torch.export": CompilingWay(_EXPORTED + _NOTHING, exports=True),
    "torch.export, decomposed": CompilingWay(_EXPORTED + _DECOMPOSED, exports=True),
    "torch.export, saved and loaded": CompilingWay(_EXPORTED + _LOADED, exports=True),
    "second process": CompilingWay(_USUAL, processes=True),
}
DRAWN = (*(COMPILE,) * 12, *(name for name, way in WAYS.items() if not way.processes))
"""The ways as often as they are drawn with any backend."""
OF_BACKEND = {
    "inductor": (*DRAWN, "second process"),
    "tcdebug": (*DRAWN, "second process"),
}
"""The same with a backend that has caches."""
