"""Findings: programs that fail, one folder a failure, with what was found out about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

import msgspec

from tcdebug.strategies.program import Program

FILE = "finding.json"
PROGRAM = "program.py"
REPRO = "repro.py"


class State(StrEnum):
    """Where a finding stands: not looked at, known about, or seen to pass again."""

    NEW = "new"
    KNOWN = "known"
    FIXED = "fixed"


class Finding(msgspec.Struct, frozen=True):
    """A failure, and the smallest program that is known to fail so.

    `signature` is that of the failure, `ops` what the program is made of. `program` is what
    `program.py` was written from, `repro` the repro script of the minifier, where there is one.
    """

    signature: str
    kind: str
    backend: str
    message: str
    program: Program
    torch: str
    state: State = State.NEW
    ops: tuple[str, ...] = ()
    culprits: tuple[str, ...] = ()
    seed: int = 0
    examples: int = 0
    """Programs that were judged before it was met."""
    repro: str | None = None
    note: str = ""

    @property
    def slug(self) -> str:
        """The name of its folder."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", f"{self.signature} {' '.join(self.ops)}").strip("-")
        digest = blake2b(f"{self.backend}\0{self.identity}".encode(), digest_size=3).hexdigest()
        return f"{words[:60].rstrip('-').lower()}-{digest}"

    @property
    def identity(self) -> str:
        """Equal identities, one bug: a wrong value says little, so the operations do."""
        return f"{self.signature} {' '.join(self.ops)}" if self.vague else self.signature

    @property
    def vague(self) -> bool:
        """Whether the signature alone does not say which bug it is."""
        return is_vague(self.signature)


def is_vague(signature: str) -> bool:
    """Whether a signature has no place in the compiler."""
    return signature.count(" | ") < 2


def covering(
    findings: Iterable[Finding], backend: str, signature: str, ops: Sequence[str]
) -> Finding | None:
    """The finding that a failure is taken for: all of its operations are in the program."""
    for finding in findings:
        same = finding.signature == signature and finding.backend == backend
        if same and (not finding.vague or set(finding.ops) <= set(ops)):
            return finding
    return None


@dataclass(frozen=True)
class Findings:
    """A folder of findings. Several processes may add to it: the first to name a failure has it."""

    folder: Path

    def __iter__(self) -> Iterator[Finding]:
        for path in sorted(self.folder.glob(f"*/{FILE}")):
            yield msgspec.json.decode(path.read_bytes(), type=Finding)

    def path(self, finding: Finding) -> Path:
        """The folder of a finding."""
        return self.folder / finding.slug

    def add(self, finding: Finding) -> bool:
        """Keep a finding; False where there is one of the same bug."""
        try:
            self.path(finding).mkdir(parents=True)
        except FileExistsError:
            return False
        self.write(finding)
        return True

    def write(self, finding: Finding) -> None:
        """What is known of a finding, whole or not at all."""
        path = self.path(finding) / FILE
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(finding)))
        fresh.replace(path)

    def named(self, name: str) -> list[Finding]:
        """The findings whose slug begins so."""
        return [f for f in self if f.slug.startswith(name)]
