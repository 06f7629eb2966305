"""A case as a script of its own: one file that needs only torch, and tcdebug where that failed.

The script judges by itself, in a process of its own, and says by its exit status whether it still
fails the same way. It is announced only after it was run: see `verify.verify`.
"""

from __future__ import annotations

import platform
import re
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from tcdebug.minifier.ambient import Ambient
from tcdebug.minifier.case import Case, Input, overlaps
from tcdebug.minifier.outcome import Kind, Outcome
from tcdebug.minifier.replay import SEED
from tcdebug.minifier.source import module_source, readable_names
from tcdebug.minifier.stored import save_tensors
from tcdebug.minifier.verify import SECONDS

INLINE = 64
"""Tensors of up to this many elements are written into the script when they have to be kept."""

NO_LITERAL = re.compile(r"-?\binf\b|\bnan\b")


@dataclass(frozen=True)
class Repro:
    """What a repro script says besides the case."""

    outcome: Outcome
    call: dict[str, Any]
    """The arguments of torch.compile."""
    culprits: tuple[str, ...] = ()
    """Units; with them off it passes."""
    ambient: Ambient = field(default_factory=Ambient)
    setup: str = ""
    """Python that brings about what the failure needs besides the graph."""
    seconds: float = SECONDS
    """After how long it is a hang."""


def expected(outcome: Outcome) -> dict[str, Any]:
    """What the script compares its own finding with."""
    match outcome.kind:
        case Kind.WRONG:
            return {"kind": "wrong", "what": outcome.signature}
        case Kind.EXCEPTION:
            return {"kind": "exception", "class": outcome.message.partition(":")[0]}
        case Kind.CRASH:
            return {"kind": "crash"}
    return {"kind": outcome.kind.value}


def write(case: Case, repro: Repro, path: Path) -> str:
    """Write the script, and data beside it where the failure needs stored data.

    Returns what the inputs are: seeded, inlined or stored.
    """
    case = readable_names(case)
    path.parent.mkdir(parents=True, exist_ok=True)
    how = _how(case)
    stored = {i.name: i.value for i in case.inputs if how[i.name] == "stored"}
    source = module_source(case.module)
    constants = source.constants
    if stored or constants:
        save_tensors({**stored, **constants}, path.with_suffix(".safetensors"))
    template = string.Template((resources.files(__package__) / "repro.py.tmpl").read_text())
    text = template.substitute(
        title=_title(repro),
        facts="\n".join(_facts(case, repro)),
        name=path.name,
        usage=_usage(repro),
        expected=repr(expected(repro.outcome)),
        call=repr(repro.call),
        seconds=repro.seconds,
        environment=_NO_CACHES if repro.call["backend"] == "inductor" else "",
        setup=repro.setup,
        graph="\n".join([*source.imports, "", "", source.text]),
        inputs=_inputs_text(case, how, bool(stored or constants)),
        seed=SEED,
        prepare=_indented("set_up()\n" * bool(repro.setup) + repro.ambient.text()),
        dynamic=_dynamic_text(case),
    )
    path.write_text(text)
    return "stored" if stored else "inlined" if "inlined" in how.values() else "seeded"


_NO_CACHES = """
# inductor's caches do not know what a script has patched
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
"""


def _title(repro: Repro) -> str:
    outcome = repro.outcome
    words = {
        Kind.WRONG: "A wrong result",
        Kind.EXCEPTION: "An exception",
        Kind.CRASH: "A crash",
        Kind.HANG: "A hang",
        Kind.KILLED: "Too much memory",
    }
    return f"{words.get(outcome.kind, 'A failure')} of torch.compile: {outcome.signature}"


def _facts(case: Case, repro: Repro) -> list[str]:
    lines = [
        f"failure   {repro.outcome.kind.value}, {repro.outcome.direction}: "
        + " ".join(repro.outcome.message.split())[:200],
        f"backend   {repro.call}",
        f"graph     {case.size} nodes, {len(case.inputs)} inputs",
        f"versions  torch {torch.__version__}, python {platform.python_version()}, "
        f"{platform.machine()}",
    ]
    if repro.culprits:
        lines.insert(1, f"culprit   {', '.join(repro.culprits)}")
    return [line.replace("\\", "/").replace('"""', "'''") for line in lines]


def _usage(repro: Repro) -> str:
    if not repro.culprits:
        return ""
    off = " ".join(f"--off={c}" for c in repro.culprits)
    return f"\nWith the culprit switched off it passes: {off}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _how(case: Case) -> dict[str, str]:
    """How each input comes into the script: literal, seeded, inlined or stored."""
    tensors = [i.value for i in case.inputs if isinstance(i.value, torch.Tensor)]
    memory = Counter(_storage(t) for t in tensors)
    return {
        i.name: "literal" if not isinstance(i.value, torch.Tensor)
        else "seeded" if i.recipe is not None
        else "inlined" if memory[_storage(i.value)] == 1 and _is_plain(i.value)
        else "stored"
        for i in case.inputs
    }  # fmt: skip


def _storage(value: torch.Tensor) -> int:
    """What is the same for tensors that share memory."""
    if value.layout != torch.strided or not value.numel():
        return -id(value)
    return value.untyped_storage().data_ptr()


def _is_plain(value: torch.Tensor) -> bool:
    """Whether a list of numbers and strides say all about a tensor."""
    if value.layout != torch.strided or value.is_quantized or value.dtype.is_complex:
        return False
    one_byte_float = value.is_floating_point() and value.element_size() == 1
    lazy = value.is_neg() or value.storage_offset() != 0 or overlaps(value)
    return value.numel() <= INLINE and not one_byte_float and not lazy


def _inputs_text(case: Case, how: Mapping[str, str], has_data: bool) -> str:
    lines = ["    data = stored()"] if "stored" in how.values() else []
    lines += [f"    {i.name} = {input_text(i, how[i.name])}" for i in case.inputs]
    lines.append(f"    return [{', '.join(i.name for i in case.inputs)}]\n")
    text = "\n".join(lines)
    return text + _STORED if has_data else text


_STORED = '''

def stored():
    """The tensors of the safetensors file beside this script."""
    import json
    with open(os.path.splitext(os.path.abspath(__file__))[0] + ".safetensors", "rb") as file:
        raw = file.read()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    layouts = json.loads(header.pop("__metadata__")["layouts"])
    found, storages = {}, {}
    for name, (storage, dtype, size, stride, offset, lazy) in layouts.items():
        if storage not in storages:
            low, high = header[storage]["data_offsets"]
            storages[storage] = bytearray(raw[start + low:start + high] or b"\\0" * 16)
        flat = torch.frombuffer(storages[storage], dtype=torch.uint8).untyped_storage()
        found[name] = torch.empty(0, dtype=getattr(torch, dtype)).set_(flat, offset, size, stride)
        for function in lazy:
            found[name] = getattr(torch, function)(found[name])
    return found
'''


def input_text(spec: Input, how: str = "") -> str:
    """The expression that makes an input: see `_how`; by itself it is seeded or inlined."""
    value = spec.value
    if not isinstance(value, torch.Tensor):
        return _literal(value)
    match how or ("seeded" if spec.recipe is not None else "inlined"):
        case "stored":
            text = f"data[{spec.name!r}]"
        case "inlined":
            numbers = _literal(value.tolist()) if value.numel() else "[]"
            text = f"torch.tensor({numbers}, dtype={value.dtype})"
            text = _laid_out(text if value.numel() else f"{text}.view{tuple(value.shape)}", value)
        case _:
            text = _laid_out(_recipe_text(spec), value)
    return text + ".requires_grad_()" if value.requires_grad else text


def _recipe_text(spec: Input) -> str:
    recipe, value = spec.recipe, spec.value
    assert recipe is not None
    size = tuple(value.shape)
    generator = f"generator=torch.Generator().manual_seed({recipe.seed})"
    match recipe.kind:
        case "randn":
            text = f"torch.randn({size}, {generator})"
            plain = torch.float32
        case "randint":
            text = f"torch.randint({recipe.low}, {recipe.high}, {size}, {generator})"
            plain = torch.int64
        case _:
            text = f"torch.{recipe.kind}({size})"
            plain = torch.float32
    return text if value.dtype == plain else f"{text}.to({value.dtype})"


def _laid_out(text: str, value: torch.Tensor) -> str:
    """The expression, in the strides of the value where those are not the usual ones."""
    if value.is_contiguous():
        return text
    if overlaps(value):
        return text  # expanded: the recorded values were materialised
    size, stride = tuple(value.shape), tuple(value.stride())
    return f"torch.empty_strided({size}, {stride}, dtype={value.dtype}).copy_({text})"


def _literal(value: Any) -> str:
    """Numbers as Python reads them: infinity and NaN have no literals."""
    return NO_LITERAL.sub(lambda found: f"float({found.group()!r})", repr(value))


def _dynamic_text(case: Case) -> str:
    lines = [
        f"torch._dynamo.maybe_mark_dynamic(values[{k}], {dim})"
        for k, spec in enumerate(case.inputs)
        for dim in spec.dynamic
    ]
    return _indented("\n".join(lines))
