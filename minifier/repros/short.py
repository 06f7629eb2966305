"""Writes a repro in its short form: the graph, its inputs, and one comparison with eager.

The short form is plain torch without a judge. It is kept only if it has failed in a fresh process
as the repro does. A failure that needs the script, stored data, or a time limit has no short form.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import torch

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.exception_identity import normalised
from tcdebug.minifier.cases.layer_names import AOTINDUCTOR_BACKEND
from tcdebug.minifier.cases.outcome import Kind, Outcome, RaisedAt
from tcdebug.minifier.cases.source import module_source, readable_names
from tcdebug.minifier.cases.user_frames import last_exception
from tcdebug.minifier.judging.compare import TOLERANCE
from tcdebug.minifier.processes.interpreters import Interpreters
from tcdebug.minifier.repros.inputs_text import InputsText
from tcdebug.minifier.repros.repro import Repro
from tcdebug.minifier.repros.verify import Verified, verify_plain
from tcdebug.minifier.targets.entries import ENTRIES

SECONDS = 120.0
"""The time limit of a short form, in seconds. One that takes longer is not kept."""
MOST_MESSAGE = 80
"""The limit on the failure's message in the first line, in characters."""
KINDS = (Kind.WRONG, Kind.EXCEPTION, Kind.CRASH)
COARSEST = (torch.float16, torch.bfloat16, torch.float32)
"""The dtypes whose tolerance is that of the referee. Others use those of assert_close."""

SCRIPTS = "sys.modules['__main__']"
"""What a text contains that needs a class of the script."""

FORWARD = """{inputs}

eager = f(*inputs())
compiled = torch.compile(f{arguments})(*inputs())
"""
AHEAD_OF_TIME = """{inputs}

eager = f(*inputs())
program = torch.export.export(f, tuple(inputs()))
package = torch._inductor.aoti_compile_and_package(program{arguments})
compiled = torch._inductor.aoti_load_package(package)(*inputs())
"""
DRAWN = """
for e, c in zip(eager, compiled, strict=True):
    assert (e.dtype, e.shape) == (c.dtype, c.shape), (e.dtype, e.shape, c.dtype, c.shape)
"""
"""The comparison of results that depend on random numbers."""
BACKWARD = """{inputs}

def gradients(f):
    values = inputs()
    outputs = [o for o in f(*values) if torch.is_tensor(o) and o.requires_grad]
    leaves = [v for v in values if torch.is_tensor(v) and v.requires_grad]
    return torch.autograd.grad(sum(o.sum() for o in outputs), leaves, materialize_grads=True)


eager = gradients(f)
compiled = gradients(torch.compile(f{arguments}))
"""


def write_short(
    case: Case, content: Repro, path: Path, interpreters: Interpreters | None = None
) -> Path | None:
    """Write the first short form that fails as the repro does, and return its path.

    One of `interpreters` runs it, if there is one.
    """
    for text in short_forms(case, content):
        path.write_text(text)
        if fails_alike(verify_plain(path, SECONDS, interpreters), content.outcome):
            return path
    path.unlink(missing_ok=True)
    return None


def short_forms(case: Case, content: Repro) -> Iterator[str]:
    """Yield the texts to try: forward, then with gradients if an input requires them."""
    if content.outcome.kind is Kind.WRONG and content.outcome.drew and not content.own_draws:
        return  # the values that are compared depend on random numbers
    if content.outcome.kind not in KINDS or content.setup or content.variables or content.off:
        return
    case = readable_names(case)
    given = InputsText.of(case, store=False, inference=content.ambient.inference)
    source = module_source(case.module)
    if SCRIPTS in given.text(has_data=False):
        return
    if given.stored or source.constants or content.call["backend"] in (None, *ENTRIES):
        return
    packaged = content.call["backend"] == AOTINDUCTOR_BACKEND
    if packaged and any(i.dynamic for i in case.inputs):
        return
    makes = given.text(has_data=False).rstrip() + "\n"
    needed = [*source.imports, *given.rebuilt.imports]
    imports = [line for line in needed if line.startswith(("import ", "from "))]
    state = content.ambient.text()
    message = " ".join(content.outcome.message.split())[:MOST_MESSAGE]
    about = f"# {content.outcome.kind.value} in {content.outcome.direction}: {message}\n"
    head = about + "\n".join(dict.fromkeys(["import torch", *imports])) + "\n\n"
    function = "" if packaged else _function(source.text)  # a program is exported from a module
    graph = function or f"{source.text.rstrip()}\n\n\nf = Graph()\n"
    body = head + (f"{state}\n\n" if state else "") + f"\n{graph}\n\n"
    compared = _comparison(content, case)
    if packaged:
        settings = content.call.get("options")
        arguments = f", inductor_configs={settings!r}" if settings else ""
        yield body + AHEAD_OF_TIME.format(inputs=makes, arguments=arguments) + compared
        return
    arguments = call_text(content.call)
    wants_gradients = any(i.requires_grad for i in _tensors(case))
    forms = [BACKWARD] if content.outcome.direction == "backward" else [FORWARD]
    if wants_gradients and forms == [FORWARD]:
        forms.append(BACKWARD)
    if ".data = " in source.text:  # torch.autograd.grad finds no gradients then
        forms = [form for form in forms if form is not BACKWARD]
    for form in forms:
        yield body + form.format(inputs=makes, arguments=arguments) + compared


def call_text(call: dict[str, object]) -> str:
    """Return the arguments of torch.compile after the function, without defaults."""
    given = {k: v for k, v in call.items() if (k, v) != ("backend", "inductor")}
    return "".join(f", {name}={value!r}" for name, value in given.items())


def fails_alike(result: Verified, outcome: Outcome) -> bool:
    """Return whether a short form ended in the same failure as the outcome."""
    last = last_exception(result.output)
    match outcome.kind:
        case Kind.WRONG:
            return result.status == 1 and last.startswith("AssertionError: ")
        case Kind.CRASH:
            return result.status < 0
        case Kind.EXCEPTION:
            raised = RaisedAt.of(outcome)
            said = re.search(rf"^(?:[\w.]+\.)?{raised.class_name}: ?(?s:(.*))", result.output, re.M)
            return result.status == 1 and said is not None and normalised(said[1]) == raised.what
    return False


def _tensors(case: Case) -> Iterator[torch.Tensor]:
    return (i.value for i in case.inputs if isinstance(i.value, torch.Tensor))


def _function(source: str) -> str:
    """Return the graph as a function `f`; empty if it needs its module."""
    head, found, body = source.partition("    def forward(self, ")
    if not found:
        head, found, body = source.partition("    def forward(self")
    arguments, _, lines = body.partition("\n")
    alone = head.strip() == "class Graph(torch.nn.Module):" and "self" not in body
    if not alone or re.search(r"^ {0,4}\S", lines, re.M):
        return ""
    return f"def f({arguments}\n{textwrap.indent(textwrap.dedent(lines).rstrip(), '    ')}\n"


def _comparison(content: Repro, case: Case) -> str:
    """Return the last lines; empty if the compile or the run itself fails."""
    outcome = content.outcome
    if outcome.kind is not Kind.WRONG:
        return ""
    if content.own_draws:
        return DRAWN
    dtypes = [t.dtype for t in _tensors(case)]
    found = [TOLERANCE[dtype] for dtype in COARSEST if dtype in dtypes]
    tolerance = f", rtol={found[0][0]}, atol={found[0][1]}" if found else ""
    strides = ", check_stride=True" if outcome.signature.endswith("wrong strides") else ""
    return f"torch.testing.assert_close(compiled, eager, equal_nan=True{tolerance}{strides})\n"
