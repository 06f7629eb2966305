"""The ways in which a Python program is compiled. Their text is also in its scripts."""

from __future__ import annotations

import re
from dataclasses import dataclass

COMPILE = "torch.compile"
"""The name of the usual way."""
GRAPH_BREAK = "torch._dynamo.graph_break()"
GRAPH_BREAKS = "graph breaks"
"""The way that inserts graph breaks at random places."""
AOT_INDUCTOR = "AOTInductor"
INDUCTOR = "inductor"
DYNAMO = "torch._dynamo.config"
OF_INDUCTOR = "torch._inductor.config"
AOT_AUTOGRAD = "torch._functorch.config"
BUDGET = "memory budget"
EAGER_DRAWS = "fallback_random"
"""The setting of inductor with which its random numbers are those of eager."""
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TCDEBUG_CACHE_DIR")
"""The variables that name the folders of caches."""
NUMBER = re.compile(r"\b(\d+)\.(\d+)\b")
"""The numbers that are changed to make the program whose caches another process finds."""


@dataclass(frozen=True)
class CompilingWay:
    """A way to compile a program.

    `definition` defines `compiled(program, **options)`, which returns the compiled program.
    `options` are those of torch.compile.
    """

    definition: str
    wrapper: str = ""
    """Defines `wrapped(program)`. It changes no result, and eager runs it too."""
    settings: tuple[tuple[str, str, object], ...] = ()
    """Modules of settings, names in them, and values."""
    exports: bool = False
    """Whether only the result of the first call is compared, if the call changes nothing else."""
    inference: bool = False
    """Whether the compiled program has no backward."""
    functional: bool = False
    """Whether the compiled program contains no writes to tensors."""
    relation: bool = False
    """Whether strides are not compared, since the wrapper joins results."""
    exact: bool = False
    """Whether compiled must give the bits of the program without the wrapper, if eager does."""
    stateless: bool = False
    """Whether only features without state are drawn, since few others fit."""
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
_MODULE = """
def compiled(program, **options):
    class Compiled(torch.nn.Module):
        def forward(self, x, y, n):
            return program(x, y, n)

    made = Compiled()
    made.compile(**options)
    return made
"""
_EXPORTED = """
class NotExported(Exception):
    pass


def is_internal(error):
    cause = error.__cause__
    if type(cause) is KeyError and cause.args == error.args:
        error = cause  # torch.fx raises it again as a RuntimeError
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    mistakes = (AssertionError, AttributeError, IndexError, KeyError, NameError)
    of_torch = last.tb_frame.f_code.co_filename.startswith(torch.__path__[0])
    return isinstance(error, mistakes) and of_torch or "Internal" in type(error).__name__


def compiled(program, backend, dynamic=None):
    class Exported(torch.nn.Module):
        def forward(self, x, y, n):
            return program(x, y, n)

    def call(x, y, n):
        any_size = torch.export.Dim.AUTO
        shapes = [{k: any_size for k in range(t.dim())} for t in (x, y)]
        try:
            made = torch.export.export(
                Exported(), (x, y, n), dynamic_shapes=(*shapes, None) if dynamic else None,
                strict=STRICT,
            )
        except Exception as error:
            if is_internal(error):
                raise
            raise NotExported(str(error)) from error
        return then(made, backend)(x, y, n)

    return call
"""
"""Reports exceptions that only a mistake inside torch raises, and no other refusal of export."""
_NOT_STRICT = """
STRICT = False
"""
_STRICT = """
STRICT = True
"""
_AS_IT_IS = """
def then(made, backend):
    return made.module()
"""
_DECOMPOSED = """
def then(made, backend):
    return made.run_decompositions().module()
"""
_UNFLATTENED = """
def then(made, backend):
    return torch.export.unflatten(made)
"""
_COMPILED_AGAIN = """
def then(made, backend):
    return torch.compile(made.module(), backend=backend)
"""
_LOADED = """
def then(made, backend):
    import io

    saved = io.BytesIO()
    torch.export.save(made, saved)
    saved.seek(0)
    return torch.export.load(saved).module()
"""
_PACKAGED = """
def then(made, backend):
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.pt2")
        return torch._inductor.aoti_load_package(
            torch._inductor.aoti_compile_and_package(made, package_path=path)
        )
"""
_RELATED = """
def compiled(program, **options):
    return wrapped(torch.compile(program, **options))
"""
_SPLIT = """
def wrapped(program):
    def split(x, y, n):
        parts = [program(part, y, n) for part in (x[:1], x[1:])]
        return [torch.cat(pair) for pair in zip(*parts)]

    return split
"""
_PERMUTED = """
def wrapped(program):
    return lambda x, y, n: [result.flip(0) for result in program(x.flip(0), y, n)]
"""
_PADDED = """
def wrapped(program):
    return lambda x, y, n: [result[: len(x)] for result in program(torch.cat([x, x, x]), y, n)]
"""
_SCALED = """
def wrapped(program):
    scale = 2.0**20  # a power of two changes no digit
    return lambda x, y, n: [result / scale for result in program(x * scale, y * scale, n)]
"""
_TWO_THREADS = """
def wrapped(program):
    import concurrent.futures
    import threading

    def twice(x, y, n):
        both, grad = threading.Barrier(2), torch.is_grad_enabled()

        def call(*inputs):
            torch.set_grad_enabled(grad)
            both.wait(60)
            return program(*inputs)

        copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in (x, y)]
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            calls = [threads.submit(call, *inputs, n) for inputs in ((x, y), copies)]
            result, other = (call.result() for call in calls)
        for one, two in zip(result, other):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4, equal_nan=True)
        return result

    return twice
"""
WAYS = {
    COMPILE: CompilingWay(_USUAL),
    "fullgraph": CompilingWay(_FULL_GRAPH),
    "compiled autograd": CompilingWay(_USUAL, settings=((DYNAMO, "compiled_autograd", True),)),
    "checkpointed": CompilingWay(_WRAPPED, wrapper=_CHECKPOINTED),
    "nested_compile_region": CompilingWay(_WRAPPED, wrapper=_NESTED_REGION),
    "compiled module": CompilingWay(_MODULE),
    BUDGET: CompilingWay(_USUAL, settings=((AOT_AUTOGRAD, "activation_memory_budget", 0.25),)),
    "torch.export": CompilingWay(_EXPORTED + _NOT_STRICT + _AS_IT_IS, exports=True),
    "torch.export, strict": CompilingWay(_EXPORTED + _STRICT + _AS_IT_IS, exports=True),
    "torch.export, unflattened": CompilingWay(_EXPORTED + _NOT_STRICT + _UNFLATTENED, exports=True),
    "torch.export, compiled": CompilingWay(_EXPORTED + _NOT_STRICT + _COMPILED_AGAIN, exports=True),
    "torch.export, decomposed": CompilingWay(
        _EXPORTED + _NOT_STRICT + _DECOMPOSED, exports=True, functional=True
    ),
    "torch.export, saved and loaded": CompilingWay(_EXPORTED + _NOT_STRICT + _LOADED, exports=True),
    "batch split": CompilingWay(_RELATED, wrapper=_SPLIT, relation=True, stateless=True),
    "batch permuted": CompilingWay(_RELATED, wrapper=_PERMUTED, relation=True, stateless=True),
    "batch padded": CompilingWay(_RELATED, wrapper=_PADDED, relation=True, stateless=True),
    "scaled": CompilingWay(_RELATED, wrapper=_SCALED, relation=True, stateless=True, exact=True),
    GRAPH_BREAKS: CompilingWay(_USUAL),
    "two threads": CompilingWay(_RELATED, wrapper=_TWO_THREADS, stateless=True),
    "numbers of tensors": CompilingWay(
        _USUAL,
        settings=(
            (DYNAMO, "capture_scalar_outputs", True),
            (DYNAMO, "capture_dynamic_output_shape_ops", True),
        ),
    ),
    AOT_INDUCTOR: CompilingWay(_EXPORTED + _NOT_STRICT + _PACKAGED, exports=True, inference=True),
    "second process": CompilingWay(_USUAL, processes=True),
}
OF_SOME_BACKENDS = ("second process", AOT_INDUCTOR, BUDGET)
"""The ways that are drawn with some backends only."""
DRAWN = (
    *(COMPILE,) * 12,
    *(GRAPH_BREAKS,) * 2,
    *(name for name in WAYS if name not in OF_SOME_BACKENDS),
)
"""The ways as often as they are drawn with any backend."""
OF_BACKEND = {
    INDUCTOR: (*DRAWN, BUDGET, *("second process", AOT_INDUCTOR) * 4),
    "aot_eager_decomp_partition": (*DRAWN, BUDGET),
    "tcdebug": (*DRAWN, BUDGET, *("second process",) * 4),
}
"""The same with a backend for which there are more ways."""
