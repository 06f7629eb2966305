"""Findings: programs that fail, one folder per failure, with the results of the follow-up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

import msgspec

from tcdebug.strategies.devices import CPU
from tcdebug.strategies.kinds import AnyProgram

FILE = "finding.json"
PROGRAM = "program.py"
REPRO = "repro.py"


class State(StrEnum):
    """The state of a finding: new, known, passing again, or not seen to fail in a fresh process."""

    NEW = "new"
    KNOWN = "known"
    FIXED = "fixed"
    NOT_REPRODUCED = "not reproduced"


class Finding(msgspec.Struct, frozen=True):
    """A failure, and the smallest program known to fail in this way.

    `signature` is that of the failure; `ops` are the operations of the program. `program` is the
    source of `program.py`. `repro` is the repro script of the minifier, if there is one.
    """

    signature: str
    kind: str
    backend: str
    message: str
    program: AnyProgram
    torch: str
    state: State = State.NEW
    ops: tuple[str, ...] = ()
    culprits: tuple[str, ...] = ()
    seed: int = 0
    examples: int = 0
    """The number of programs judged before this one."""
    repro: str | None = None
    note: str = ""
    cause: str = ""
    """The name of the listed finding that has the same cause, if there is one."""

    @property
    def slug(self) -> str:
        """The name of its folder."""
        words = re.sub(r"[^A-Za-z0-9]+", "-", f"{self.signature} {' '.join(self.ops)}").strip("-")
        place = self.backend if self.device == CPU else f"{self.backend} {self.device}"
        digest = blake2b(f"{place}\0{self.identity}".encode(), digest_size=3).hexdigest()
        return f"{words[:60].rstrip('-').lower()}-{digest}"

    @property
    def device(self) -> str:
        """The device that the program runs on."""
        return self.program.device

    @property
    def identity(self) -> str:
        """Equal identities mean the same bug. A vague signature includes the operations."""
        return f"{self.signature} {' '.join(self.ops)}" if self.vague else self.signature

    @property
    def vague(self) -> bool:
        """Whether the signature alone does not identify the bug."""
        return is_vague(self.signature)


def is_vague(signature: str) -> bool:
    """Return whether a signature names no place in the compiler."""
    return signature.count(" | ") < 2


def covering(
    findings: Iterable[Finding], backend: str, signature: str, program: AnyProgram
) -> Finding | None:
    """Return the known finding of a failure: one whose operations the program contains."""
    failure = (signature, backend, program.device)
    for finding in findings:
        same = (finding.signature, finding.backend, finding.device) == failure
        if same and (not finding.vague or set(finding.ops) <= set(program.ops)):
            return finding
    return None


@dataclass(frozen=True)
class Findings:
    """A folder of findings. If several processes add the same failure, the first one succeeds."""

    folder: Path

    def __iter__(self) -> Iterator[Finding]:
        for path in sorted(self.folder.glob(f"*/{FILE}")):
            yield msgspec.json.decode(path.read_bytes(), type=Finding)

    def path(self, finding: Finding) -> Path:
        """Return the folder of a finding."""
        return self.folder / finding.slug

    def add(self, finding: Finding) -> bool:
        """Keep a finding; False if there is one of the same bug."""
        try:
            self.path(finding).mkdir(parents=True)
        except FileExistsError:
            return False
        self.write(finding)
        return True

    def write(self, finding: Finding) -> None:
        """Write a finding atomically."""
        path = self.path(finding) / FILE
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(finding)))
        fresh.replace(path)

    def named(self, name: str) -> list[Finding]:
        """Return the findings whose slug begins with the name."""
        return [f for f in self if f.slug.startswith(name)]
