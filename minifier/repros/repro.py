"""A case as a script of its own: one file that needs only torch, and tcdebug where that failed.

The script judges by itself, in a process of its own, and says by its exit status whether it still
fails the same way. It is announced only after it was run: see `verify.verify`.
"""

from __future__ import annotations

import difflib
import platform
import re
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from tcdebug.minifier.cases import environment
from tcdebug.minifier.cases.ambient import Ambient
from tcdebug.minifier.cases.case import Case, Input, overlaps
from tcdebug.minifier.cases.criteria import SLOWER_THAN
from tcdebug.minifier.cases.outcome import Kind, Outcome
from tcdebug.minifier.cases.source import module_source, readable_names
from tcdebug.minifier.cases.stored import save_tensors
from tcdebug.minifier.judging.replay import SEED
from tcdebug.minifier.repros.repro_judging import judging_texts
from tcdebug.minifier.repros.verify import SECONDS
from tcdebug.minifier.targets.ladder import BELOW

MOST_CHANGES = 12
"""Lines that are shown of the difference to a passing graph."""
INLINE = 64
"""Tensors of up to this many elements are written into the script when they have to be kept."""

ENDED = " | ended"
"""How the signature ends of what the process ended in, nobody knows how."""

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
    slower_than: float = SLOWER_THAN
    """How many times the time of eager is slow."""
    off: tuple[str, ...] = ()
    """Toggles that are in force whenever the script runs."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the failure needs."""
    passing: Case | None = None
    """The nearest case that passes: what is different in it is shown."""
    runs: int = 1
    """How many have to pass before it is said not to fail: more than one where it is flaky."""


def expected(outcome: Outcome) -> dict[str, Any]:
    """What the script compares its own finding with: equal, or among those of a list."""
    match outcome.kind:
        case Kind.BAD:
            return {}  # a command of the user's judges
        case Kind.CRASH if outcome.signature.endswith(ENDED):
            return {"kind": ["crash", "hang"]}
        case Kind.WRONG:
            return {"kind": "wrong", "what": outcome.signature}
        case Kind.EXCEPTION:
            return {"kind": "exception", "class": outcome.message.partition(":")[0]}
    return {"kind": outcome.kind.value}


def write(case: Case, repro: Repro, path: Path, *, store: bool = False) -> str:
    """Write the script, and data beside it where the failure needs stored data.

    With `store`, all tensors are stored. Returns what the inputs are: seeded, inlined or stored.
    """
    case = readable_names(case)
    path.parent.mkdir(parents=True, exist_ok=True)
    how = _how(case, store)
    stored = {i.name: i.value for i in case.inputs if how[i.name] == "stored"}
    source = module_source(case.module)
    constants = source.constants
    if stored or constants:
        save_tensors({**stored, **constants}, path.with_suffix(".safetensors"))
    template = string.Template((resources.files(__package__) / "repro.py.tmpl").read_text())
    text = template.substitute(
        title=_title(repro),
        facts="\n".join(_facts(case, repro)),
        run=_RUN_HEALTHY if repro.outcome.kind is Kind.OK else _RUN_FAILING,
        name=path.name,
        usage=_usage(repro),
        expected=repr(expected(repro.outcome)),
        call=repr(repro.call),
        off=repr(list(repro.off)),
        **judging_texts(case, repro.outcome, repro.slower_than),
        layers=repr(BELOW),
        seconds=repro.seconds,
        runs=repro.runs,
        environment=(_NO_CACHES if repro.call["backend"] == "inductor" else "")
        + environment.text(repro.variables),
        setup=repro.setup,
        graph="\n".join([*source.imports, "", "", source.text]),
        inputs=_inputs_text(case, how, bool(stored or constants)),
        seed=SEED,
        prepare=_indented("set_up()\n" * bool(repro.setup) + repro.ambient.text()),
        dynamic=_dynamic_text(case),
    )
    path.write_text(text)
    return "stored" if stored else "inlined" if "inlined" in how.values() else "seeded"


_RUN_FAILING = """It exits with 1 while it fails like this, with 0 when it does not fail, and
with 125 when it cannot tell (eager fails, or it fails in another way)."""

_RUN_HEALTHY = """It exits with 0 while it passes, with 1 when it fails, and with 125
when it cannot tell (eager fails)."""

_NO_CACHES = """
# caches of graphs do not know what a script has patched
os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"
"""


def _title(repro: Repro) -> str:
    outcome = repro.outcome
    if outcome.kind is Kind.OK:
        return "A graph that torch.compile gets right"
    words = {
        Kind.WRONG: "A wrong result",
        Kind.EXCEPTION: "An exception",
        Kind.CRASH: "A crash",
        Kind.HANG: "A hang",
        Kind.KILLED: "Too much memory",
        Kind.SLOW: "A slow graph",
        Kind.RECOMPILE: "A recompile without need",
    }
    return f"{words.get(outcome.kind, 'A failure')} of torch.compile: {outcome.signature}"


def _facts(case: Case, repro: Repro) -> list[str]:
    failure = f"{repro.outcome.kind.value}, {repro.outcome.direction}: "
    lines = [
        f"failure   {failure}{' '.join(repro.outcome.message.split())[:200]}",
        f"backend   {repro.call}",
        f"graph     {case.size} nodes, {len(case.inputs)} inputs",
        f"versions  torch {torch.__version__}, python {platform.python_version()}, "
        f"{platform.machine()}",
    ]
    if repro.culprits:
        lines.insert(1, f"culprit   {', '.join(repro.culprits)}")
    if repro.outcome.kind is Kind.OK:
        del lines[0]
    if repro.passing is not None:
        lines += ["", "The nearest graph that passes differs in:", *_changes(case, repro.passing)]
    return [line.replace("\\", "/").replace('"""', "'''") for line in lines]


def _changes(case: Case, passing: Case) -> list[str]:
    """The lines in which the graph of a passing case differs, - as here and + as there."""
    here = module_source(case.module).text.splitlines()
    there = module_source(readable_names(passing).module).text.splitlines()
    changes = [
        f"    {line[0]} {line[1:].strip()}"
        for line in difflib.unified_diff(here, there, n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    more = len(changes) - MOST_CHANGES
    changes[MOST_CHANGES:] = [f"    and {more} lines more"] if more > 0 else []
    return changes or ["    its inputs only"]


def write_passing(case: Case, repro: Repro, path: Path) -> str:
    """Write the script of a case that passes, beside that of a failing one; as `write`."""
    content = replace(repro, outcome=Outcome(Kind.OK), culprits=(), passing=None)
    return write(case, content, path)


def _usage(repro: Repro) -> str:
    if not repro.culprits:
        return ""
    off = " ".join(f"--off={c}" for c in repro.culprits)
    return f"\nWith the culprit switched off it passes: {off}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _how(case: Case, store: bool) -> dict[str, str]:
    """How each input comes into the script: literal, seeded, inlined or stored."""
    tensors = [i.value for i in case.inputs if isinstance(i.value, torch.Tensor)]
    memory = Counter(_storage(t) for t in tensors)
    return {
        i.name: "literal" if not isinstance(i.value, torch.Tensor)
        else "stored" if store
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
            text = f"torch.tensor({numbers}, dtype={value.dtype}{_device_text(value)})"
            text = _laid_out(text if value.numel() else f"{text}.view{tuple(value.shape)}", value)
        case _:
            text = _laid_out(_recipe_text(spec), value)
    return text + ".requires_grad_()" if value.requires_grad else text


def _recipe_text(spec: Input) -> str:
    recipe, value = spec.recipe, spec.value
    assert recipe is not None
    size = tuple(value.shape)
    generator = f"generator=torch.Generator().manual_seed({recipe.seed})"
    plain = torch.float32
    match recipe.kind:
        case "randn" if value.dtype.is_complex:
            plain = torch.complex64
            text = f"torch.randn({size}, {generator}, dtype={plain})"
        case "randn":
            text = f"torch.randn({size}, {generator})"
        case "randint":
            plain = torch.int64
            text = f"torch.randint({recipe.low}, {recipe.high}, {size}, {generator})"
        case "arange":
            plain = torch.int64
            numbers = f"torch.arange({value.numel()})"
            if recipe.low != 0 or recipe.high < value.numel():
                numbers = f"({numbers} % {recipe.high - recipe.low} + {recipe.low})"
            text = numbers if value.dim() == 1 else f"{numbers}.view({size})"
        case _:
            plain = value.dtype
            dtype = "" if plain == torch.float32 else f", dtype={plain}"
            text = f"torch.{recipe.kind}({size}{dtype})"
    text = text if value.device.type == "cpu" else f"{text}.to({str(value.device)!r})"
    return text if value.dtype == plain else f"{text}.to({value.dtype})"


def _laid_out(text: str, value: torch.Tensor) -> str:
    """The expression, in the strides of the value where those are not the usual ones."""
    if value.is_contiguous():
        return text
    if overlaps(value):
        return text  # expanded: the recorded values were materialised
    size, stride = tuple(value.shape), tuple(value.stride())
    made = f"torch.empty_strided({size}, {stride}, dtype={value.dtype}{_device_text(value)})"
    return f"{made}.copy_({text})"


def _device_text(value: torch.Tensor) -> str:
    return "" if value.device.type == "cpu" else f", device={str(value.device)!r}"


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
