"""Recognises failures whose cause is that of a finding in docs/findings/python.

A cause shows itself in many features and in several ways. A failure has a listed cause if its small
program contains the construct and passes without it, or if its message is that of the cause. A
construct that cannot be taken away must be that of the only feature that the failure needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tcdebug.fuzz.findings import is_vague
from tcdebug.strategies.python.python_program import CodeLine, PythonProgram
from tcdebug.strategies.python.ways import COMPILE

BETWEEN = "between forward and backward"
"""A construct: statements there."""
STALE = "stale graph"
WRONG = r"\| (stale graph: )?(wrong|other bits)"


@dataclass(frozen=True)
class ListedCause:
    """The cause of the finding `name`.

    `construct` is a pattern or BETWEEN. If `changes`, statements between calls that match
    are the construct. `instead` is the text that takes its place; None if it cannot be taken away.
    `said` is a pattern of the signature and message of its failures.
    """

    name: str
    construct: str
    instead: str | None = None
    said: str = WRONG
    changes: bool = False

    def without(self, program: PythonProgram) -> PythonProgram:
        """Return the program without the construct; the same if it has none."""
        steps = program.steps
        if self.construct == BETWEEN:
            steps = tuple(msgspec.structs.replace(step, between=()) for step in steps)
            return msgspec.structs.replace(program, steps=steps)
        if self.changes:
            steps = tuple(
                msgspec.structs.replace(
                    step, lines=tuple(t for t in step.lines if not re.search(self.construct, t))
                )
                for step in steps
            )
            return msgspec.structs.replace(program, steps=steps)
        steps = tuple(
            msgspec.structs.replace(step, lines=tuple(map(self._replaced, step.lines)))
            for step in steps
        )
        return msgspec.structs.replace(
            program, definitions=self._mapped(program.definitions), body=self._mapped(program.body),
            steps=steps,
        )  # fmt: skip

    def explains(
        self, program: PythonProgram, signature: str, message: str,
        passes: Callable[[PythonProgram], bool],
    ) -> bool:  # fmt: skip
        """Return whether a failure has this cause. `passes` judges a program again."""
        if not re.search(self.said, f"{signature}\n{message}", re.DOTALL):
            return False
        if self.instead is not None:
            without = self.without(program)
            return without != program and passes(without)
        if not is_vague(signature):
            return re.search(self.construct, program.source()) is not None
        alone = len(program.causes) == 1 and program.way == COMPILE
        function = "\n".join(line.rendered() for line in program.body)
        return alone and re.search(self.construct, function) is not None

    def _replaced(self, text: str) -> str:
        return re.sub(self.construct, self.instead or "", text)

    def _mapped(self, lines: tuple[CodeLine, ...]) -> tuple[CodeLine, ...]:
        return tuple(
            CodeLine(self._replaced(line.text), self._mapped(line.body), line.feature)
            for line in lines
        )


LISTED = (
    ListedCause("deque_full", r", maxlen=\d+", ""),
    ListedCause("round_number", r"\bround\((\w+), -1\)", r"(\1 - \1)"),
    ListedCause("negative_zero", r"-0\.0", "0.0"),
    ListedCause("lazy_module", r"\.Lazy(\w+)\((\d+)\)", r".\1(\2, \2)"),
    ListedCause("hook_closure", BETWEEN, "", said="wrong gradient"),
    ListedCause(
        "replaced_method", r"^[A-Z]\w*\.\w+ = (lambda\b|object\.__)", "", STALE, changes=True
    ),
    ListedCause(
        "builtin_shadowed", r"^(max|min|len|sum|abs|round|sorted) = ", "", STALE, changes=True
    ),
    ListedCause("dict_order", r"^(\w+)\[(.+)\] = \1\.pop\(\2\)$", "", STALE, changes=True),
    ListedCause("class_bases", r"\.__bases__ = ", "", STALE, changes=True),
    ListedCause("abstract_class", r"^[A-Z]\w*\.register\([A-Z]\w*\)", "", STALE, changes=True),
    ListedCause("descriptor", r"\bLIMITED\.limit\b"),
    ListedCause("instance_dict", r"\.__dict__\b|\bvars\(", said=STALE),
    ListedCause("function_name", r"\.__name__\b"),
    ListedCause("docstring", r"\.__doc__\b"),
    ListedCause("chain_map", r"\bLEVELS_CHAIN\b", said=STALE),
    ListedCause("inherited_attribute", r"(?m)^\s*[A-Z][a-z]\w*\.\w+ [-+*]= "),
    ListedCause("intermediate_grad", r"\.grad is (not )?None"),
    ListedCause("globals_written", r"\bglobals\(\)\["),
    ListedCause("locals_unbound", r"\blocals\(\)"),
    ListedCause("call_counter", r"\braised\.calls\b"),
    ListedCause("compiled_attribute", r"\bmarked\.seen\b"),
    ListedCause("bound_method", r"(?<!def )\bchosen\(\)", "'a'", "recompile"),
    ListedCause(
        "view_in_no_grad", r"torch\.no_grad\(\)", "torch.enable_grad()", "grad_fn is set"
    ),
    ListedCause(
        "export_checkpoints", r"\bcheckpoint\(torch\.sin, ",
        "(lambda f, v, use_reentrant: f(v))(torch.sin, ", "instead of .*requires_grad",
    ),
    ListedCause("random_dtype", r"\brandom\.", said="float64.* instead of .*float32"),
    ListedCause(
        "region_float", "",
        said="Freevar has no source: .*=item\\b|'item' of Node 'invoke_subgraph.* does not belong",
    ),
    ListedCause(
        "functionalize", r"func\.functionalize\(",
        said="Expected FakeTensor|must not already be a functional tensor",
    ),
    ListedCause(
        "data_version", r"\.data\b",
        said="modified by an inplace operation|a view of a leaf Variable that requires grad",
    ),
    ListedCause("chunk_write", r"\.(unbind|chunk|split)\(", said=r"^change \| lost exception"),
    ListedCause("array_in_inference_mode", "", said="Guard failed on the same frame.*from_numpy"),
    ListedCause("dynamic_buffer", "", said=r"Cannot call numel\(\) on tensor with symbolic sizes"),
    ListedCause(
        "device_mode_number", "", said="AttributeError: 'NoneType' object has no attribute 'item'"
    ),
    ListedCause("backward_state", "", said="BackwardState requires CompiledAutograd"),
    ListedCause("region_buffer", "", said=r"An intermediate tensor 'i\w+' created inside"),
    ListedCause("export_checkpoint", "", said="KeyError: '?_checkpoint_context_fn"),
    ListedCause(
        "export_jacfwd", r"func\.(jacfwd|hessian)\(", said="object has no attribute 'constant'"
    ),
    ListedCause("long_handler", "", said="exception table entry start instruction has no offset"),
    ListedCause("hook_removed", "", said="idx must not be None for hook removal"),
    ListedCause("setattr_dotted", "", said="AttrSource member must not contain"),
    ListedCause("maximum_bool", "", said=r"The argument '\w+' is not comparable"),
)  # fmt: skip
"""The causes that are known. Those with a construct that can be taken away come first."""


def listed_cause(
    program: PythonProgram, signature: str, message: str, passes: Callable[[PythonProgram], bool]
) -> str:
    """Return the name of the listed finding that has the cause of a failure; empty if none has."""
    for cause in LISTED:
        if cause.explains(program, signature, message, passes):
            return cause.name
    return ""
