"""The statistics of a campaign, counted from its events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tcdebug.fuzz.verdict import Status
from tcdebug.output.structures import CampaignSummary
from tcdebug.reading.run_dir import Record


@dataclass
class CampaignTally:
    """The outcomes of the programs so far."""

    statuses: Counter[str] = field(default_factory=Counter)
    ops: Counter[str] = field(default_factory=Counter)
    pairs: set[str] = field(default_factory=set)
    fused: set[str] = field(default_factory=set)
    second_calls: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    not_reproduced: list[dict[str, Any]] = field(default_factory=list)
    """Failures that did not occur again in a fresh process."""
    listed: Counter[str] = field(default_factory=Counter)
    """The listed findings whose causes were met."""
    failing: dict[str, str] = field(default_factory=dict)
    """Signatures of the findings that fail again, by name."""
    judging: float = 0.0
    """Total seconds in which workers judged programs."""
    seconds: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    def feed(self, records: Iterable[Record]) -> None:
        """Count events."""
        for record in records:
            data = record["data"]
            if record["event"] == "fuzz.case":
                self._case(data)
            elif record["event"] == "fuzz.finding":
                self.findings.append(data)
            elif record["event"] == "fuzz.not_reproduced":
                self.not_reproduced.append(data)
            elif record["event"] == "fuzz.listed":
                self.listed[data["cause"]] += 1
            elif record["event"] == "fuzz.again" and data["status"] == "failed":
                self.failing[data["finding"]] = data["signature"]
            elif record["event"] == "run.end":
                self.seconds = data["seconds"]

    def _case(self, data: dict[str, Any]) -> None:
        self.statuses[data["status"]] += 1
        self.ops.update(set(data["ops"]))
        self.pairs.update(data["pairs"])
        self.fused.update(data["fused"])
        self.second_calls += data["dynamic"]
        self.judging += data["seconds"]

    @property
    def examples(self) -> int:
        """Number of generated programs."""
        return self.statuses.total()

    @property
    def valid(self) -> float:
        """The fraction of programs that run in eager and that Dynamo captures."""
        return 1.0 - self.statuses["invalid"] / self.examples if self.examples else 1.0

    @property
    def rate(self) -> float:
        """Programs per second of judging."""
        return self.examples / self.judging if self.judging else 0.0

    @property
    def summary(self) -> CampaignSummary:
        """The statistics by name."""
        return CampaignSummary(
            examples=self.examples,
            **{status.value: self.statuses[status] for status in Status},
            valid=round(self.valid, 4),
            programs_per_second=round(self.rate, 2),
            second_calls=self.second_calls,
            operations=len(self.ops),
            pairs=len(self.pairs),
            fused_pairs=len(self.fused),
            findings=len(self.findings),
            not_reproduced=len(self.not_reproduced),
            listed=self.listed.total(),
            seconds=round(self.seconds or time.monotonic() - self._began, 1),
        )
