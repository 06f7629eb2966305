"""Cache entries that are wrong for the compile that used them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.events.schema import CacheUsed, CompileMetrics, StageText
from tcdebug.minifier.investigation.cache_entries import TEXTS, first_difference, wrong_entries

AUTOGRAD = "layer.cache.aotautograd"
GRAPH = "inductor_post_grad_graph"


def compile_traced(
    folder: Path, compiled: str, verdict: str, graph: str = "", key: str = "k1"
) -> None:
    """Write the events of a compile as a traced run does."""
    log = EventLog(folder).bind(compile_id=compiled)
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
