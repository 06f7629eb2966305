"""A generated program: a module and its inputs as Python text, in the form of a repro script."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

import msgspec

from tcdebug.strategies.devices import CPU, INDICES, Options

NAME = re.compile(r"\ba\d+\b")
REQUIRING = ".requires_grad_()"
DEVICE = "device=device"
"""The text by which an input on a device is recognised."""
CALLS = 3
"""How often a script makes each call on a GPU. The third replays a CUDA graph."""
NARROW = re.compile(r"torch\.(float16|bfloat16|float32)\b")
Stance = Literal["default", "force_eager"]


@dataclass(frozen=True)
class Argument:
    """An input: the expressions that create it for the first and the second call."""

    name: str
    text: str
    second: str


@dataclass(frozen=True)
class ProgramStep:
    """A line of the program: `result = text`. `op` is its row in the tables."""

    result: str
    text: str
    op: str
    operands: tuple[str, ...] = ()


class Program(msgspec.Struct, frozen=True, tag="graph"):
    """The text of a program: `steps` in order, its arguments and its outputs.

    `exact` are the outputs that no rounding can change. `dynamic` programs are called a second
    time, with the sizes of `Argument.second`. `off` are units of the compiler to switch off.
    `invalid` is the reason why eager rejected a step; empty if it did not. `options` are those of
    torch.compile.
    """

    arguments: tuple[Argument, ...]
    steps: tuple[ProgramStep, ...]
    outputs: tuple[str, ...]
    exact: tuple[str, ...] = ()
    dynamic: bool = False
    off: tuple[str, ...] = ()
    invalid: str = ""
    device: str = CPU
    options: Options = ()

    @property
    def ops(self) -> tuple[str, ...]:
        """The rows of its lines, in order."""
        return tuple(step.op for step in self.steps)

    @property
    def pairs(self) -> frozenset[str]:
        """The pairs `producer>consumer` of rows for every result that a step reads."""
        made = {step.result: step.op for step in self.steps}
        return frozenset(
            f"{made[name]}>{step.op}"
            for step in self.steps
            for name in step.operands
            if name in made
        )

    @property
    def eager_stance(self) -> Stance:
        """The stance for `torch.compiler.set_stance` to run it in eager."""
        gradients = any(a.text.endswith(REQUIRING) for a in self.arguments)
        return stance_for(self.ops, gradients)

    @property
    def large(self) -> bool:
        """Whether the second call needs indices of more than 32 bits."""
        return any(str(INDICES[1]) in a.second for a in self.arguments)

    @property
    def key(self) -> str:
        """Equal programs have equal keys, in every process."""
        return blake2b(repr(self).encode(), digest_size=8).hexdigest()

    def without(self, output: str) -> Program:
        """Return the program without an output and the lines that only this output needs."""
        outputs = tuple(o for o in self.outputs if o != output)
        needed = set(outputs)
        steps: list[ProgramStep] = []
        for step in reversed(self.steps):
            if step.result in needed:
                steps.append(step)
                needed.update(step.operands)
        return msgspec.structs.replace(
            self,
            arguments=tuple(a for a in self.arguments if a.name in self._made_of(needed)),
            steps=tuple(reversed(steps)),
            outputs=outputs,
            exact=tuple(o for o in self.exact if o != output),
        )

    def smaller(self) -> Iterator[Program]:
        """Yield programs without one output, or without one line, that still have a line."""
        for output in self.outputs:
            program = self.without(output)
            if program.steps:
                yield program
        for step in self.steps[:-1]:
            for operand in step.operands:
                yield self._with_operand(step, operand)

    def _with_operand(self, removed: ProgramStep, operand: str) -> Program:
        """Return the program without a line. Others read one of its operands instead."""
        result = re.compile(rf"\b{removed.result}\b")
        steps = tuple(
            replace(
                step,
                text=result.sub(operand, step.text),
                operands=tuple(result.sub(operand, name) for name in step.operands),
            )
            for step in self.steps
            if step is not removed
        )
        outputs = tuple(o for o in self.outputs if o != removed.result) or (steps[-1].result,)
        needed = {*outputs, *(name for step in steps for name in step.operands)}
        return msgspec.structs.replace(
            self,
            arguments=tuple(a for a in self.arguments if a.name in self._made_of(needed)),
            steps=steps,
            outputs=outputs,
            exact=tuple(o for o in self.exact if o in outputs),
        )

    def _made_of(self, names: set[str]) -> set[str]:
        """Return the names, and the arguments of which they are views."""
        found = set(names)
        for argument in reversed(self.arguments):
            if argument.name in found:
                found.update(NAME.findall(argument.text))
        return found

    def source(self, *, second: bool = False, wide: bool = False) -> str:
        """Return the class `Graph` and the function `inputs` that creates its arguments.

        `second` gives the inputs of the second call. `wide` replaces narrower floats by float64.
        """
        names = ", ".join(a.name for a in self.arguments)
        signature = f"self, {names}" if names else "self"
        needed = any(DEVICE in a.text for a in self.arguments)
        lines = [f"device = {self.device!r}", "", ""] if needed else []
        lines += ["class Graph(torch.nn.Module):", f"    def forward({signature}):"]
        lines += [f"        {s.result} = {s.text}" for s in self.steps]
        lines.append(f"        return ({', '.join(self.outputs)},)")
        lines += ["", "", "def inputs():"]
        lines += [f"    {a.name} = {a.second if second else a.text}" for a in self.arguments]
        lines.append(f"    return [{names}]")
        text = "\n".join(lines) + "\n"
        return NARROW.sub("torch.float64", text) if wide else text


def stance_for(ops: Collection[str], gradients: bool) -> Stance:
    """Return the stance for `torch.compiler.set_stance` to run these rows in eager.

    In eager, control flow compiles its bodies unless the stance forbids it. The stance cannot
    forbid it for a branch with gradients.
    """
    return "default" if gradients and "cond" in ops else "force_eager"


def script(program: Program, call: Mapping[str, object], seed: int) -> str:
    """Return the program as a script that raises if compiled and eager results differ."""
    given = ", ".join(f"{name}={value!r}" for name, value in call.items())
    parts = ["import torch", "", "", program.source()]
    makers = ["inputs"]
    if program.dynamic:
        second = program.source(second=True).partition("def inputs")[2]
        parts.append(f"\ndef second_inputs{second}")
        makers.append("second_inputs")
    calls = 1 if program.device == CPU else CALLS
    parts.append(_SCRIPT.format(call=given, makers=", ".join(makers * calls), seed=seed))
    return "\n".join(parts)


_SCRIPT = '''

def called(graph, arguments):
    """Outputs and gradients."""
    torch.manual_seed({seed})
    outputs = graph(*arguments)
    roots = [o for o in outputs if o.requires_grad]
    leaves = [a for a in arguments if a.requires_grad]
    ones = [torch.ones_like(r) for r in roots]
    if roots:
        return outputs, torch.autograd.grad(roots, leaves, ones, allow_unused=True)
    return outputs, ()


if __name__ == "__main__":
    compiled = torch.compile(Graph(), {call})
    for make in ({makers},):
        arguments, expected = make(), make()
        actual, wanted = called(compiled, arguments), called(Graph(), expected)
        torch.testing.assert_close(
            (*actual, arguments), (*wanted, expected), equal_nan=True, check_stride=True
        )
'''
