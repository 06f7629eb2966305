"""Reads inductor's generated code: its kernels, the bytes they move, and its library calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from math import prod

from tcdebug.compiler.events.event import Event
from tcdebug.compiler.events.schema import ExternCalled, KernelWritten

KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\((?:\[(.*?)\])?", re.MULTILINE)
CALL = re.compile(r"^ +([\w.]+)\((.*)\)", re.MULTILINE)
SOURCES = re.compile(r"Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
SIZED = re.compile(
    r"(?:assert_size_stride\((\w+), |(\w+) = empty_strided_\w+\()(\([\d, ]*\)), (\([\d, ]*\))"
)
FRAGMENT_NODE = re.compile(r"^#   %(\w+) : .*= call_function\[", re.MULTILINE)
"""A node in the comment above a Triton kernel that shows its part of the graph."""
RENAMED = re.compile(r"^ +(\w+) = (?:reinterpret_tensor\()?(\w+)(?:,|;)", re.MULTILINE)
LIBRARY = re.compile(r"(?:extern_kernels\.(\w+)|torch\.ops\.((?:aten|mkl\w*|onednn)\.[\w.]+))$")

CPP_PARAMETERS = re.compile(r" kernel\((.*?)\)", re.DOTALL)
TRITON_PARAMETERS = re.compile(r"'signature': \{(.*?)\}", re.DOTALL)
TRITON_PARAMETER = re.compile(r"'(\w+)': '\*(\w+)'")
QUOTES = "'''"
UPDATED = "in_out_"
"""The prefix of parameters that a kernel reads and writes."""

BYTES: Mapping[str, int] = {
    "bool": 1, "int8_t": 1, "uint8_t": 1, "at::BFloat16": 2, "bfloat16": 2, "at::Half": 2,
    "half": 2, "int16_t": 2, "float": 4, "int32_t": 4, "double": 8, "int64_t": 8,
    "i1": 1, "i8": 1, "u8": 1, "fp8e4nv": 1, "fp8e5": 1, "i16": 2, "fp16": 2, "bf16": 2,
    "i32": 4, "fp32": 4, "i64": 8, "fp64": 8,
}  # fmt: skip
"""Sizes of the types that C++ and Triton kernels take pointers to."""


def generated_events(code: str, path: str) -> Iterator[Event]:
    """Yield the kernels and library calls of a piece of code that is kept at `path`."""
    called: dict[str, tuple[str, list[str]]] = {}
    elements = _elements(code)
    for match in CALL.finditer(code):
        name = match[1].removesuffix(".run")
        nodes = _sources(code, match)
        called.setdefault(name, (match[2], nodes))
        if library := LIBRARY.match(name):
            op = f"aten.{library[1]}" if library[1] else library[2]
            yield ExternCalled(op, ", ".join(nodes), "inductor calls a library or ATen for it")
    for match in KERNEL.finditer(code):
        language = "c++" if match[2].startswith("cpp") else match[2]
        arguments, nodes = called.get(match[1], ("", []))
        moved = _moved(_pointers(code, match), arguments, elements)
        yield KernelWritten(match[1], language, nodes, moved, path)


def built_kernels(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield the variable of each kernel of a wrapper and the call that builds it, in order."""
    for line in tree.body:
        if (
            isinstance(line, ast.Assign)
            and isinstance(line.targets[0], ast.Name)
            and isinstance(line.value, ast.Call)
            and ast.unparse(line.value.func).startswith("async_compile.")
        ):
            yield line.targets[0].id, line.value


def kernel_pointers(code: str) -> dict[str, list[tuple[str, str]]]:
    """Return name and type of each pointer that a kernel takes, for each kernel of a wrapper."""
    return {match[1]: _pointers(code, match) for match in KERNEL.finditer(code)}


def nodes_of_kernels(code: str) -> dict[str, list[str]]:
    """Return the nodes of the post-grad graph that comments name for each Triton kernel."""
    found, end = {}, 0
    for match in KERNEL.finditer(code):
        found[match[1]] = FRAGMENT_NODE.findall(code, end, match.start())
        end = match.end()
    return found


def _sources(code: str, call: re.Match[str]) -> list[str]:
    """Return the nodes that the comment directly above a call names."""
    above = code.rfind("Source Nodes:", 0, call.start())
    about = SOURCES.match(code, above) if above >= 0 else None
    if about is None or CALL.search(code, about.end(), call.start()):
        return []
    return _listed(about[1])


def _elements(code: str) -> dict[str, int]:
    """Return the number of elements of each buffer in a wrapper, without symbolic sizes."""
    found: dict[str, int] = {}
    for match in SIZED.finditer(code):
        size, stride = ast.literal_eval(match[3]), ast.literal_eval(match[4])
        kept = [n for n, step in zip(size, stride, strict=True) if step]
        found[match[1] or match[2]] = prod(kept)
    for match in RENAMED.finditer(code):
        if match[2] in found:
            found.setdefault(match[1], found[match[2]])
    return found


def _pointers(code: str, kernel: re.Match[str]) -> list[tuple[str, str]]:
    """Return name and type of each pointer that a kernel takes, in order.

    Names are empty if the kernel's own declaration cannot be read.
    """
    source = code[kernel.end() :].partition(QUOTES)[2].partition(QUOTES)[0]
    if kernel[2] == "triton":
        found = TRITON_PARAMETERS.search(source)
        return TRITON_PARAMETER.findall(found[1]) if found else []
    types = [re.sub(r"const |[*' ]", "", t) for t in _listed(kernel[3] or "") if "*" in t]
    found = CPP_PARAMETERS.search(source)
    declared = [p.rpartition(" ")[2] for p in _listed(found[1]) if "*" in p] if found else []
    names = declared if len(declared) == len(types) else [""] * len(types)
    return list(zip(names, types, strict=True))


def _moved(pointers: list[tuple[str, str]], arguments: str, elements: Mapping[str, int]) -> int:
    """Return the bytes that a kernel reads and writes, by its arguments; 0 if unknown."""
    given = _listed(arguments)[: len(pointers)]
    if not pointers or any(n not in elements for n in given) or len(given) < len(pointers):
        return 0
    return sum(
        elements[given_name] * BYTES.get(kind, 0) * (2 if name.startswith(UPDATED) else 1)
        for given_name, (name, kind) in zip(given, pointers, strict=True)
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
