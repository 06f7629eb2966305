"""Follows one call of a compiled graph, and compares what each step writes.

A step is compared with a reference that is computed from the values that the step itself read. An
error of an earlier step therefore does not count, and the first step with an error of its own is
found. A buffer that holds no node's value, such as a partial sum, is passed over: the reference of
its readers starts at what its writer read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tcdebug.minifier.cases.case import flatten
from tcdebug.minifier.values.findings import WrongStep
from tcdebug.minifier.values.judgement import digest
from tcdebug.minifier.values.observation import ObservedPlace, Step
from tcdebug.minifier.values.observed_graph import Access, ObservedGraph
from tcdebug.minifier.values.reference import is_view, updates_memory
from tcdebug.minifier.values.wrapper_code import Effect, Statement


@dataclass(eq=False)
class Content:
    """What a variable of the wrapper holds."""

    value: Any
    node: str = ""
    """The FX node whose value it is; empty if it is none's."""
    buffer: str = ""
    judged: bool = False
    whole: bool = True
    """False for memory that is allocated, and that steps may write in parts."""
    reused: bool = False
    """Whether its variable is deleted, and other memory has its place: steps may write in parts."""
    hash: str = ""
    steps: list[Step] = field(default_factory=list)
    """The steps that wrote it."""
    known: dict[str, Any] = field(default_factory=dict)
    """What these steps read, until the value is judged."""


NOTHING = Content(None)


@dataclass
class _Running:
    step: Step
    access: Access
    certain: bool
    """Whether reads and writes are known. Otherwise any operand may have been written."""
    known: dict[str, Any]
    suspects: list[Step]


class ObservedCall:
    """One call of a compiled graph."""

    def __init__(
        self, graph: ObservedGraph, place: ObservedPlace, arguments: Mapping[str, Any]
    ) -> None:
        self.graph = graph
        self.place = place
        self.contents: dict[str, Content] = {}
        self.initial: dict[str, Any] = {}
        self.renamed: dict[str, str] = {}
        """Variable -> the variable that had its memory before."""
        self.writers: list[tuple[Step, int]] = []
        """The steps so far, with the memory that each has written."""
        self.nodes_of: dict[Step, set[str]] = {}
        """The FX nodes whose values each step has written."""
        self.number = 0
        self.running: _Running | None = None
        self.updates = updated = graph.reference.updated_inputs()
        for name, value in arguments.items():
            tensor = isinstance(value, torch.Tensor)
            if name not in updated:
                self.initial[name] = value
            fixed = digest(value) if tensor else ""
            self.contents[name] = Content(value, name, name, judged=True, hash=fixed)

    # -- hooks ------------------------------------------------------------------------------

    def before(self, number: int, variables: Mapping[str, Any]) -> None:
        """Record what the next step reads."""
        statement = self.graph.statements[number]
        self.number += 1
        step, access, certain = self._step(statement)
        reads, writes = access.reads, access.writes
        known: dict[str, Any] = {}
        suspects: list[Step] = []
        for name in reads:
            content = self.contents.get(name)
            if content is None:
                continue
            if not content.whole and (not content.steps or self._writes_into(content, writes)):
                known.update(content.known)  # this step itself completes the memory that it reads
                suspects += content.steps
                continue
            self._check_unchanged(content, step)
            if content.node and not content.judged:
                self._judge(content)
            if content.node:
                copied = not certain or self._writes_into(content, writes)
                known[content.node] = _copy(content.value) if copied else content.value
            else:
                known.update(content.known)
                suspects += content.steps
        for name in writes:
            if name in self.updates and name in self.contents:
                known.setdefault(name, _copy(self.contents[name].value))
        self.running = _Running(step, access, certain, known, suspects)

    def after(self, number: int, variables: Mapping[str, Any]) -> None:
        """Compare what a step has written, or keep track of new names of memory."""
        statement = self.graph.statements[number]
        if statement.effect is Effect.ALLOCATES:
            for name in statement.targets:
                node = self.graph.nodes.get(name, "")
                self.contents[name] = Content(variables.get(name), node, name, whole=False)
        elif statement.effect is Effect.ALIASES:
            self._alias(statement, variables)
        elif statement.effect is Effect.DELETES:
            for name in statement.targets:
                content = self.contents.pop(name, None)
                if content is not None and content.buffer == name:
                    content.reused = True
        elif self.running is not None:
            running, self.running = self.running, None
            self.graph.observation.steps += 1
            self._written(running, variables)

    def leave(self) -> None:
        """Compare what no step has read."""
        for content in dict.fromkeys(self.contents.values()):
            if content.node and content.steps and not content.judged:
                self._judge(content)

    def check_results(self, results: Any) -> None:
        """Check that the results of the call are the values of the output nodes, or views of them.

        Other results, of which no variable is known to hold the value, are counted.
        """
        graph = self.graph
        outputs = flatten(graph.reference.module.graph.output_node().args[0])
        held: dict[str, list[Content]] = {}
        for content in dict.fromkeys(self.contents.values()):
            if content.node and content.hash and digest(content.value) == content.hash:
                held.setdefault(content.node, []).append(content)
        known = {**self.initial, **{node: some[-1].value for node, some in held.items()}}
        step = Step(0, "the results of the graph", "wrapper", "")
        for node, value in zip(outputs, flatten(list(results)), strict=False):
            if not isinstance(value, torch.Tensor) or not isinstance(node, fx.Node):
                continue
            if node.op == "placeholder" or node.name in self.updates.values():
                continue
            if any(content.hash == digest(value) for content in held.get(node.name, ())):
                continue
            given = {name: v for name, v in known.items() if name != node.name}
            region = graph.reference.region([node.name], given)
            if self.updates.keys() & {n.name for r in region for n in r.all_input_nodes}:
                continue  # a view of an input, which the graph updates later
            if node.name in held:
                given[node.name] = known[node.name]
            elif not all(map(is_view, region)):
                graph.observation.unjudged["results that no variable holds"] += 1
                continue
            graph.observation.compare(
                self.place, step, graph.reference, given, (node.name, node.name, value)
            )

    # -- steps ------------------------------------------------------------------------------

    def _step(self, statement: Statement) -> tuple[Step, Access, bool]:
        step = self.graph.step(self.number, statement)
        access = self.graph.kernels.access(statement)
        if access is not None:
            return step, access, True
        written = (*statement.out, *statement.targets)
        reads = tuple(n for n in statement.names if n not in written)
        return step, Access(reads, written), _is_functional(statement)

    def _writes_into(self, content: Content, names: Iterable[str]) -> bool:
        """Return whether a step that writes these variables writes into this memory."""
        written = (c for n in names if (c := self.contents.get(n)) is not None)
        return any(c is content or _views(c.value, content.value) for c in written)

    def _alias(self, statement: Statement, variables: Mapping[str, Any]) -> None:
        """Give memory a second name, or take one result of several."""
        given = (name for names in statement.arguments for name in names)
        source = next((n for n in given if n in self.contents), "")
        old = self.contents.get(source)
        for name in statement.targets:
            value = variables.get(name)
            if old is None or not isinstance(value, torch.Tensor):
                continue
            if isinstance(old.value, torch.Tensor):
                self.contents[name] = old
                self.renamed[name] = source
                continue
            node = self.graph.nodes.get(name, "")
            made = Content(value, node, name, steps=list(old.steps), known=dict(old.known))
            self.contents[name] = made
            if node:
                self._judge(made)

    def _written(self, running: _Running, variables: Mapping[str, Any]) -> None:
        shared = [c for n in running.access.reads if (c := self.contents.get(n)) is not None]
        written: list[Content] = []
        for name in running.access.writes:
            value = variables.get(name, None)
            if value is None and name in self.contents:
                value = self.contents[name].value
            node = self._node_of(name, running.access)
            if (old := self.contents.get(name)) is not None and old.buffer == name and old.hash:
                node = self.updates.get(name, "")  # written again: the memory is updated in place
            made = Content(value, node, name, steps=[*running.suspects, running.step])
            self.nodes_of.setdefault(running.step, set()).add(node)
            if isinstance(value, torch.Tensor):
                self.writers.append((running.step, value.untyped_storage().data_ptr()))
                self._written_in_parts(value, made, running)
                base = next((c for c in shared if _views(value, c.value)), None)
                if base is not None and running.step.kind == "operator":  # a view
                    made.judged, made.steps = bool(base.node and base.judged), base.steps
            else:
                made.node = ""
            self._updated_through(name, made, running)
            self.contents[name] = made
            written.append(made)
        if not running.certain:
            self._changed(running, shared)
        for made in written:
            made.known = running.known
            if made.node and not made.judged:
                self._judge(made)
            elif made.node:
                made.hash = digest(made.value)
            if not made.judged:
                made.known = {k: _copy(v) for k, v in running.known.items()}

    def _node_of(self, name: str, access: Access) -> str:
        """Return the node whose value a step leaves in a variable; empty if it is not known."""
        if name not in access.former:
            return self.graph.nodes.get(name, "")
        former, old = self.renamed.get(name, ""), self.contents.get(name, NOTHING)
        fresh = former == old.buffer and not old.steps
        return self.graph.nodes.get(former, "") if fresh else ""

    def _written_in_parts(self, value: torch.Tensor, made: Content, running: _Running) -> None:
        """Record that a step wrote a part of memory that was allocated as a whole."""
        for content in dict.fromkeys(self.contents.values()):
            in_parts = content.reused or not content.whole
            if not in_parts or not isinstance(content.value, torch.Tensor):
                continue
            if content.buffer != made.buffer and _views(value, content.value):
                # no step is known to complete it
                content.node, content.judged, content.hash = "", False, ""
                content.steps.append(running.step)
                content.known.update({k: _copy(v) for k, v in running.known.items()})

    def _updated_through(self, name: str, made: Content, running: _Running) -> None:
        """Record that a step updates an input under another name."""
        target = self.graph.reference.nodes.get(name)
        if target is None or not updates_memory(target):
            return
        for content in dict.fromkeys(self.contents.values()):
            if content.buffer in self.updates and _views(made.value, content.value):
                content.hash, content.steps = digest(content.value), [running.step]

    def _changed(self, running: _Running, operands: Iterable[Content]) -> None:
        """Forget what operands held that an operator has written."""
        for content in dict.fromkeys(operands):
            if not content.whole:
                content.node = ""
                content.steps.append(running.step)
                content.known.update({k: _copy(v) for k, v in running.known.items()})
            if content.hash and digest(content.value) != content.hash:
                content.node, content.judged, content.hash = "", False, ""
                content.steps = [running.step]
                content.known = {k: _copy(v) for k, v in running.known.items()}

    def _judge(self, content: Content) -> None:
        graph = self.graph
        known = {**self.initial, **content.known}
        done = graph.observation.compare(
            self.place,
            content.steps[-1],
            graph.reference,
            known,
            (content.buffer, content.node, content.value),
            tuple(content.steps[:-1]),
            self._updated(),
            self._before(content.steps[:-1], known),
        )
        content.judged = True
        content.hash = digest(content.value)
        if not done and not self._fits(content):
            content.node, content.judged, content.hash = "", False, ""
        else:
            content.known = {}

    def _before(self, steps: Iterable[Step], known: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the known values without those that these steps have written.

        None if they have written none of them. Such a step may have computed its other results,
        which no node describes, from values that it had not rounded yet.
        """
        written = {node for step in steps for node in self.nodes_of.get(step, ())}
        if not written & known.keys():
            return None
        return {node: value for node, value in known.items() if node not in written}

    def _updated(self) -> frozenset[str]:
        """Return the inputs that the steps before the current one have updated."""
        running = self.number
        return frozenset(
            name
            for name in self.updates
            if any(s.number < running for s in self.contents.get(name, NOTHING).steps)
        )

    def _fits(self, content: Content) -> bool:
        """Return whether a value has the type and shape of its node."""
        node = self.graph.reference.nodes.get(content.node)
        fake = None if node is None else node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or fake.dtype != content.value.dtype:
            return False
        if fake.dim() != content.value.dim():
            return False
        pairs = zip(fake.shape, content.value.shape, strict=True)
        return all(not isinstance(a, int) or a == b for a, b in pairs)

    def _check_unchanged(self, content: Content, reader: Step) -> None:
        """Find memory that was overwritten between its writer and its reader."""
        if not content.hash or digest(content.value) == content.hash:
            return
        value = content.value
        since = content.steps[-1].number if content.steps else 0
        memory = value.untyped_storage().data_ptr()
        after = [s for s, place in self.writers if place == memory and s.number > since]
        by = after[-1] if after else reader
        reason = f"{content.buffer} ({content.node}) changed before {reader.name} read it"
        observation = self.graph.observation
        place = self.place
        found = WrongStep(
            "overwritten", by.name, place.graph, place.direction, place.call, by.number,
            reason, None, by.source, by.path,
        )  # fmt: skip
        observation.find(found)


def _is_functional(statement: Statement) -> bool:
    """Return whether a call of an operator is known to write only its results."""
    if statement.callee.startswith("extern_kernels."):
        return bool(statement.out)
    name = statement.callee.removeprefix("torch.ops.").removeprefix("o_").replace("_default", "")
    return name.startswith("aten") and not any(
        part.endswith("_") for part in name.removesuffix(".default").split(".")
    )


def _views(one: Any, other: Any) -> bool:
    """Return whether two tensors share memory."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if one.layout != torch.strided or other.layout != torch.strided:
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() != 0


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
