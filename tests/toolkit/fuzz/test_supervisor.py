"""A node's part of a campaign, without Ray: its task and its news."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tcdebug.fuzz.findings import Findings
from tcdebug.fuzz.job import APART, FuzzJob
from tcdebug.fuzz.on_ray import Share, parts
from tcdebug.fuzz.supervisor import CampaignNode, Errand, News, Parcel, of_node, pack, unpack

JOB = FuzzJob("", "/findings", seed=7, examples=5, bisect=False)
PLANTED = b"""
from tcdebug.compiler.lower.tables import LOWERINGS
from tcdebug.compiler.registry import REGISTRY

def broken(site, *args, **kwargs):
    raise ValueError("planted")

for op in LOWERINGS:
    REGISTRY.lowerings[op] = broken
"""


def followed(supervisor: CampaignNode, folder: Path) -> tuple[list[str], str]:
    """The statuses of all programs, and why the campaign ended. Findings are kept in a folder."""
    statuses: list[str] = []
    while True:
        news = msgspec.msgpack.decode(supervisor.news(), type=News)
        statuses += [e["data"]["status"] for e in news.events if e["event"] == "fuzz.case"]
        for parcel in news.parcels:
            unpack(parcel, folder)
        if news.ended is not None:
            return statuses, news.ended
        time.sleep(0.1)


@pytest.mark.usefixtures("warm")
def test_findings_travel_as_bytes(tmp_path: Path) -> None:
    setup = "/nowhere/planted.py"
    job = msgspec.structs.replace(JOB, seed=0, examples=8, setup=setup, stop_after=1)
    supervisor = CampaignNode(msgspec.msgpack.encode(Errand(job, 1, (), PLANTED)))
    statuses, ended = followed(supervisor, tmp_path)
    supervisor.close()
    assert ended == ""
    assert statuses[-1] == "failed"
    assert [f.ops for f in Findings(tmp_path)] == [("add",)]
    (folder,) = tmp_path.iterdir()
    assert {p.name for p in folder.iterdir()} == {"finding.json", "program.py"}


@pytest.mark.usefixtures("warm")
def test_known_failures_are_not_sent_again_and_jobs_that_no_node_can_do_are_not_started(
    tmp_path: Path,
) -> None:
    (tmp_path / "known-1").mkdir()
    (tmp_path / "known-1" / "finding.json").write_text("{}")
    job = msgspec.structs.replace(JOB, backend="nonsense")
    errand = Errand(job, 1, (pack(tmp_path / "known-1"),))
    supervisor = CampaignNode(msgspec.msgpack.encode(errand))
    while (news := msgspec.msgpack.decode(supervisor.news(), type=News)).ended is None:
        time.sleep(0.1)
    assert news.unfit
    assert news.ended.startswith("torch.compile has no backend 'nonsense'; there are aot_eager, ")
    assert news.parcels == []
    supervisor.learn(msgspec.msgpack.encode([Parcel("other-2", {"finding.json": b"{}"})]))
    news = msgspec.msgpack.decode(supervisor.news(), type=News)
    assert news.parcels == []
    assert Path(news.folder, "other-2", "finding.json").read_bytes() == b"{}"
    supervisor.close()
    assert not Path(news.folder).exists()


def test_each_node_has_its_own_seeds_and_its_share_of_the_programs() -> None:
    assert [(n, p.seed, p.examples) for n, p in parts(JOB, ["a", "b", "c"], 4)] == [
        ("a", 7, 2), ("b", 7 + 4 * APART, 2), ("c", 7 + 8 * APART, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("judged", "examples", "seed"),
    [
        ({}, 200, 7),
        ({11: 70}, 130, 7),  # the other worker is in its first round
        ({11: 70, 12: 80}, 50, 8),  # two rounds each, one of which may not be reported completely
        ({11: 100, 12: 100}, None, 0),
    ],
)
def test_another_node_repeats_programs_that_a_lost_node_may_not_have_reported(
    judged: dict[int, int], examples: int | None, seed: int
) -> None:
    share = Share("a", msgspec.structs.replace(JOB, examples=200), None, judged=Counter(judged))
    left = share.left(2)
    assert (left and left.examples) == examples
    assert left is None or left.seed == seed


def test_paths_of_a_node_become_those_of_who_asked() -> None:
    line = of_node([{"data": {"path": "/node/findings/a-1"}}], "/node/findings", Path("/mine"))
    assert line == b'{"data":{"path":"/mine/a-1"}}\n'
