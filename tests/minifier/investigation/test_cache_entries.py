"""Cache entries that are wrong for the compile that used them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import CacheUsed, CompileMetrics, StageEnd, StageText
from tcdebug.minifier.investigation.cache_entries import (
    INFERENCE,
    JOINT,
    TEXTS,
    first_difference,
    wrong_entries,
)

AUTOGRAD = "layer.cache.aotautograd"
GRAPH = "inductor_post_grad_graph"


def compile_traced(
    folder: Path, compiled: str, verdict: str, graph: str = "", key: str = "k1"
) -> None:
    """Write the events of a compile as a traced run does."""
    log = EventLog(folder).bind(compile_id=compiled)
    log.emit(StageEnd(1, 1, False, 0.1), stage="dynamo")
    if graph:
        log.emit(StageText(log.save(f"ir/{compiled.replace('/', '_')}.py", graph)), stage=GRAPH)
    log.emit(CacheUsed(verdict, key, 0.0), stage="aot_autograd")
    log.emit(
        CompileMetrics("f", False, 1, 1, 0, 0.1, {}, ""),
        user_loc={"filename": "/home/model.py", "line": 7, "name": "f"},
    )


def compile_traced_before(folder: Path, compiled: str, verdict: str, graph: str) -> None:
    """Write the events of a compile in an earlier process."""
    apart = folder.with_name(f"{folder.name}-earlier")
    apart.mkdir()
    compile_traced(apart, compiled, verdict, graph)
    shutil.copytree(apart / "ir", folder / "ir")
    (events,) = apart.glob("events-*.jsonl")
    shutil.copy(events, folder / "events-1.jsonl")


def runs(tmp_path: Path) -> tuple[Path, Path]:
    folders = tmp_path / "cache" / "1", tmp_path / "cache" / "2"
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def test_an_entry_is_named_whose_graph_is_another_without_the_cache(tmp_path: Path) -> None:
    used, unused = runs(tmp_path)
    compile_traced(used, "0/0", "miss", "mul = x * 2  # first\n")
    compile_traced(used, "0/1", "hit", 'mul: "f32[2]" = x * 2\nreturn mul\n')
    compile_traced(unused, "0/0", "bypass", "mul = x * 2\n")
    compile_traced(unused, "0/1", "bypass", "mul = x * 3\nreturn mul\n")
    (note,) = wrong_entries(used, unused, AUTOGRAD)
    assert note.startswith(
        "compile 0/1 of f (model.py:7) uses the entry k1, which compile 0/0 saved, but is "
        "different with layer.cache.aotautograd off: `mul = x * 2` instead of `mul = x * 3` in "
        "cache/1/ir/0_1"
    )


def test_a_compile_with_the_id_of_an_earlier_one_is_another(tmp_path: Path) -> None:
    used, unused = runs(tmp_path)
    for folder, verdicts in ((used, ("miss", "hit")), (unused, ("bypass", "bypass"))):
        compile_traced(folder, "0/0", verdicts[0], "mul = x * 2\n")
        graph = "mul = x * 2\n" if folder == used else "mul = x * 3\n"
        compile_traced(folder, "0/0", verdicts[1], graph)
    (note,) = wrong_entries(used, unused, AUTOGRAD)
    assert "k1, which an earlier compile 0/0 saved, but is different" in note


def test_an_entry_without_a_backward_is_told_from_one_with_it(tmp_path: Path) -> None:
    inference, joint = {INFERENCE: tmp_path / "a"}, {JOINT: tmp_path / "b"}
    assert first_difference(inference, joint) == "it needs a backward graph, and the entry has none"
    assert first_difference(joint, inference).startswith("it needs no gradients")


def test_an_entry_that_is_right_is_not_named(tmp_path: Path) -> None:
    used, unused = runs(tmp_path)
    compile_traced(used, "0/0", "miss", "mul = x * 2\n")
    compile_traced(used, "0/1", "hit", 'mul: "f32[2]" = x * 2  # from an entry\n')
    compile_traced(unused, "0/0", "bypass", "mul = x * 5\n")
    compile_traced(unused, "0/1", "bypass", "mul = x * 2\n")
    assert wrong_entries(used, unused, AUTOGRAD) == []
    assert wrong_entries(used, unused, "layer.cache.profile") == []


def test_an_entry_of_an_earlier_process_has_the_graph_that_this_process_saved(
    tmp_path: Path,
) -> None:
    used, unused = runs(tmp_path)
    compile_traced_before(used, "0/0", "miss", "mul = x * 2\n")
    compile_traced(used, "0/0", "hit")
    compile_traced_before(unused, "0/0", "bypass", "mul = x * 2\n")
    compile_traced(unused, "0/0", "bypass", "mul = x * 3\n")
    (note,) = wrong_entries(used, unused, AUTOGRAD)
    assert "k1, which compile 0/0 of process 1 saved, but" in note
    assert "`mul = x * 2` instead of `mul = x * 3`" in note


def test_signatures_over_several_lines_are_compared_as_one(tmp_path: Path) -> None:
    start, middle = 'def forward(\n    self,\n    a: "f32[2]",  # Plain\n', "    b,\n"
    texts = [tmp_path / name for name in ("one.py", "two.py")]
    for path, given in zip(texts, (start + middle, start), strict=True):
        path.write_text(f"{given}):\n    c = a * 2\n")
    stages = [{TEXTS[0]: path} for path in texts]
    assert first_difference(*stages).startswith(
        "`def forward(self, a, b):` instead of `def forward(self, a):` in "
    )
