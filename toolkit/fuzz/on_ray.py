"""Runs a campaign on several machines: Ray runs a supervisor on each node.

This process keeps the findings, and polls the nodes for new ones. If a node is lost, another node
repeats its programs with the same seeds, so that no unreported finding is lost.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import Fallback
from tcdebug.fuzz.campaign import BadJob, WorkerFailed
from tcdebug.fuzz.findings import FILE, Findings
from tcdebug.fuzz.job import APART, ROUND, FuzzJob
from tcdebug.fuzz.supervisor import CampaignNode, Errand, News, of_node, pack, unpack
from tcdebug.fuzz.tally import CampaignTally
from tcdebug.reading.run_dir import Tail

POLL = 0.3
STARTED = 300.0
"""Time limit for a node to start, in seconds. It imports torch, and others may use it."""
LOST = 30.0
"""A node that does not answer for this many seconds is lost."""


@dataclass
class Share:
    """The work of one node."""

    node: str
    job: FuzzJob
    supervisor: Any
    """The handle of Ray's actor."""
    began: float = field(default_factory=time.monotonic)
    judged: Counter[int] = field(default_factory=Counter)
    """Number of programs by worker."""

    def left(self, jobs: int) -> FuzzJob | None:
        """Return the work that another node must do instead; None if there is nothing left."""
        job, done = self.job, self.judged.total()
        seconds, examples = job.seconds, job.examples
        seconds = None if seconds is None else seconds - (time.monotonic() - self.began)
        examples = None if examples is None else examples - done
        if (seconds is not None and seconds < 1) or (examples is not None and examples < 1):
            return None
        fewest = min(self.judged.values()) if len(self.judged) == jobs else 0
        seed = job.seed + max(0, fewest // ROUND - 1)  # rounds that were reported completely
        return msgspec.structs.replace(job, seed=seed, seconds=seconds, examples=examples)


@dataclass
class RayCampaign:
    """The supervisors of one command, and the local run folder."""

    folder: Path
    log: EventLog
    tally: CampaignTally
    said: Callable[[CampaignTally], None]
    """Called after events were counted."""
    _owner: dict[str, str] = field(default_factory=dict)
    """The node that first reported a finding."""
    _lost: set[str] = field(default_factory=set)

    def run(self, job: FuzzJob, jobs: int) -> None:
        """Run this many workers on each node, to their end. Raises WorkerFailed, BadJob."""
        with redirect_stdout(sys.stderr):  # Ray prints its messages about nodes
            self._run(connected(), job, jobs)

    def _run(self, ray: Any, job: FuzzJob, jobs: int) -> None:
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        shares: list[Share] = []
        tail = Tail(self.folder)
        try:
            shares += [self._start(ray, n, part, jobs) for n, part in parts(job, nodes, jobs)]
            while shares:
                time.sleep(POLL)
                for share in list(shares):
                    shares.remove(share)
                    shares += self._followed(ray, share, shares, jobs)
                self.tally.feed(tail.new())
                self.said(self.tally)
        finally:
            for share in shares:
                ray.kill(share.supervisor)
            ray.shutdown()

    def _followed(self, ray: Any, share: Share, others: list[Share], jobs: int) -> list[Share]:
        """Return the share as it continues: here, on another node, or not at all."""
        try:
            encoded = ray.get(share.supervisor.news.remote(), timeout=LOST)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as gone:
            return self._moved(ray, share, f"{type(gone).__name__}: {gone}", jobs)
        news = msgspec.msgpack.decode(encoded, type=News)
        self._take(share, news, others)
        if news.ended is None:
            return [share]
        ray.get(share.supervisor.close.remote(), timeout=LOST)
        if news.unfit:
            raise BadJob(news.ended)
        if news.ended:
            raise WorkerFailed(f"on node {share.node[:8]}: {news.ended}")
        return []

    def _take(self, share: Share, news: News, others: list[Share]) -> None:
        """Keep the news of a node, and tell the others about its findings."""
        findings = Path(share.job.findings)
        node = share.node
        fresh = [p for p in news.parcels if self._owner.setdefault(p.slug, node) == node]
        for parcel in fresh:
            unpack(parcel, findings)
        if fresh:
            for other in others:
                other.supervisor.learn.remote(msgspec.msgpack.encode(fresh))
        share.judged.update(e["pid"] for e in news.events if e["event"] == "fuzz.case")
        with (self.folder / f"events-{share.node[:8]}.jsonl").open("ab") as file:
            file.write(of_node(news.events, news.folder, findings))

    def _moved(self, ray: Any, share: Share, why: str, jobs: int) -> list[Share]:
        """Move the share of a lost node to another one."""
        self._lost.add(share.node)
        what = f"node {share.node[:8]} is lost: another node repeats its programs"
        self.log.emit(Fallback(what, why[:2000]))
        left = share.left(jobs)
        if left is None:
            return []
        alive = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] not in self._lost]
        if not alive:
            raise WorkerFailed(f"all nodes are lost, the last one because of {why}")
        return [self._start(ray, alive[len(self._lost) % len(alive)], left, jobs)]

    def _start(self, ray: Any, node: str, job: FuzzJob, jobs: int) -> Share:
        strategies = import_module("ray.util.scheduling_strategies")
        known = Findings(Path(job.findings)).folder.glob(f"*/{FILE}")
        parcels = tuple(pack(path.parent) for path in sorted(known))
        self._owner.update((p.slug, self._owner.get(p.slug, "here")) for p in parcels)
        setup = Path(job.setup).read_bytes() if job.setup else b""
        errand = msgspec.msgpack.encode(Errand(job, jobs, parcels, setup))
        here = strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        remote = ray.remote(CampaignNode).options(num_cpus=0, scheduling_strategy=here)
        share = Share(node, job, remote.remote(errand))
        try:
            ray.get(share.supervisor.ready.remote(), timeout=STARTED)
        except ray.exceptions.GetTimeoutError:
            raise WorkerFailed(f"node {node[:8]} did not start within {STARTED:.0f} s") from None
        return share


def parts(job: FuzzJob, nodes: list[str], jobs: int) -> Iterator[tuple[str, FuzzJob]]:
    """Yield the share of each node: different seeds, and its part of the programs."""
    for k, node in enumerate(nodes):
        examples = job.examples
        if examples is not None:
            examples = examples // len(nodes) + (k < examples % len(nodes))
        if examples != 0:
            seed = job.seed + APART * jobs * k
            yield node, msgspec.structs.replace(job, seed=seed, examples=examples)


def connected() -> Any:
    """Ray, connected to the cluster at RAY_ADDRESS, or started on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_module("ray")  # an optional package
    if not ray.is_initialized():
        local = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
        ray.init(log_to_driver=False, logging_level="error", **local)
    return ray
