"""What commands print with `--json`, where it is neither a report nor an explanation."""

from __future__ import annotations

import msgspec


class Check(msgspec.Struct, frozen=True):
    """The result of one check of `tcdebug doctor`."""

    name: str
    good: bool
    detail: str
    advice: str = ""


class CheckedPatch(msgspec.Struct, frozen=True):
    """A patch of torch, and whether it fits the torch at hand."""

    owner: str
    attribute: str
    purpose: str
    seen: tuple[str, ...]
    fits: bool
    problem: str


class CachePart(msgspec.Struct, frozen=True):
    """A folder of the cache: kernels of the embedded compiler, or of inductor in candidates."""

    name: str
    files: int
    bytes: int
    newest: float
    """Seconds since the epoch; 0 if there is no file."""


class CacheState(msgspec.Struct, frozen=True):
    """The cache after the command, and what the command removed from it."""

    folder: str
    parts: list[CachePart]
    removed_files: int = 0
    removed_bytes: int = 0


class ListedRun(msgspec.Struct, frozen=True):
    """A run folder: when it started, its command, and how it ended."""

    run: str
    started: str
    command: str
    result: str


class CampaignSummary(msgspec.Struct, frozen=True):
    """The statistics of a fuzzing campaign.

    `examples` are generated programs, and `valid` the fraction of them that eager accepts and
    Dynamo captures. `known` programs fail in a way that a finding covers. For `discarded` programs,
    rounding alone explains the difference. `not_reproduced` failures did not occur again in a fresh
    process, and `listed` ones have the cause of a finding that the documentation lists. Both are no
    findings.
    """

    examples: int
    passed: int
    failed: int
    known: int
    discarded: int
    invalid: int
    valid: float
    programs_per_second: float
    second_calls: int
    operations: int
    pairs: int
    fused_pairs: int
    findings: int
    not_reproduced: int
    listed: int
    seconds: float


class CampaignResult(CampaignSummary, frozen=True, kw_only=True):
    """The result of `tcdebug fuzz run`: the new findings by name, and the seed."""

    new: list[str]
    seed: int
