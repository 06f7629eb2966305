"""The events and files that a compile writes, and that it writes nothing else."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import structlog
import torch
from judge import compiled
from programs import f32

from tcdebug.compiler.configuration.options import BadOption
from tcdebug.compiler.events import run_folder
from tcdebug.compiler.events.log import ENVELOPE, EventLog, event_fields
from tcdebug.compiler.events.run_folder import read_info
from tcdebug.compiler.events.schema import EVENTS, Fallback, KernelWritten, PassRan, StageStart
from tcdebug.compiler.events.search_events import GraphFailure

KINDS = {event.kind: event for event in EVENTS}


def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    rows = torch.softmax((x @ w).tanh() * 1, -1)
    return torch.cdist(rows, rows).sum()


def run(folder: Path, function: Any = network, **options: Any) -> list[dict[str, Any]]:
    """The events of one compile with gradients."""
    chosen = {"log": True, "run_dir": folder, **options}
    f = compiled(function, options=chosen)
    f(f32(4, 5).requires_grad_(), f32(5, 6)).backward()
    return read(folder)


def read(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("events*.jsonl")
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def of(kind: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e for e in events if e["event"] == kind]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """One compile that several tests inspect."""
    folder = tmp_path_factory.mktemp("run")
    torch._dynamo.reset()
    return folder, run(folder)


Logged = tuple[Path, list[dict[str, Any]]]


def test_every_event_has_the_fields_of_its_dataclass(logged: Logged) -> None:
    _, events = logged
    for event in events:
        kind = KINDS[event["event"]]
        rebuilt = msgspec.convert(event["data"], kind, strict=True)
        assert {f.name for f in fields(rebuilt)} == set(event["data"])
        assert event["level"] == kind.level


def test_every_event_matches_the_published_schema(logged: Logged) -> None:
    _, events = logged
    for event in events:
        kind = KINDS[event["event"]]
        schema = msgspec.json.schema(kind)
        jsonschema.validate(event["data"], schema)
        assert set(event_fields(kind)["properties"]) == set(event["data"])


def test_the_envelope_holds_only_what_is_documented(logged: Logged) -> None:
    _, events = logged
    assert {key for event in events for key in event} <= set(ENVELOPE)
    for event in events:
        assert {"ts", "t_ns", "seq", "event", "level", "run_id", "pid", "data"} <= set(event)
        if event["event"] != "run.start":
            assert event["compile_id"] == "0/0"
            assert event["graph_id"].startswith("g-")


def test_sequence_numbers_count_events_and_times_increase(logged: Logged) -> None:
    _, events = logged
    assert [e["seq"] for e in events] == list(
        range(events[0]["seq"], events[0]["seq"] + len(events))
    )
    times = [e["t_ns"] for e in events]
    assert times == sorted(times)


def test_every_kind_has_a_docstring_and_a_unique_name() -> None:
    assert len(KINDS) == len(EVENTS)
    for event in EVENTS:
        assert event.__doc__
        assert event.level in ("debug", "info", "warning", "error")
        assert all(f.default is MISSING or f.default == "" for f in fields(event))


def test_stages_start_and_end_in_the_order_of_the_pipeline(logged: Logged) -> None:
    _, events = logged
    for direction in ("forward", "backward"):
        ended = [e["stage"] for e in of("stage.end", events) if e.get("direction") == direction]
        assert ended == ["passes", "lower", "inline", "schedule", "codegen", "runtime"]
    started = Counter(e["stage"] for e in of("stage.start", events))
    assert started == Counter(e["stage"] for e in of("stage.end", events))


def test_there_is_one_compile_start_and_an_end_for_each_direction(logged: Logged) -> None:
    _, events = logged
    (start,) = of("compile.start", events)
    assert start["data"]["inputs"] == 2
    assert sum(start["data"]["operators"].values()) == 6
    ends = of("compile.end", events)
    assert sorted(e["direction"] for e in ends) == ["backward", "forward"]


def test_externs_and_kernels_are_counted(logged: Logged) -> None:
    _, events = logged
    forward = [e for e in events if e.get("direction") == "forward"]
    (end,) = of("compile.end", forward)
    assert end["data"]["externs"] == {"aten.mm.default": 1, "aten._cdist_forward.default": 1}
    assert end["data"]["kernels"] == len(of("kernel", forward))
    externs = {(e["data"]["op"], e["data"]["reason"]) for e in of("extern", forward)}
    ops = ("aten.mm.default", "aten._cdist_forward.default")
    assert externs == {(op, "no lowering") for op in ops}


def test_a_lowering_that_is_off_is_an_extern_with_that_reason(tmp_path: Path) -> None:
    events = run(tmp_path, off=["lower.aten.tanh.default"])
    reasons = {(e["data"]["op"], e["data"]["reason"]) for e in of("extern", events)}
    assert ("aten.tanh.default", "switched off") in reasons
    refused = {e["unit"] for e in of("decision", events) if not e["data"]["allowed"]}
    assert refused == {"lower.aten.tanh.default"}


def test_kernels_that_are_built_have_the_seconds_of_their_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDEBUG_CACHE_DIR", str(tmp_path / "cache"))
    events = run(tmp_path / "first")
    built = of("kernels_built", events)
    names = sorted(name for e in built for name in e["data"]["kernels"])
    assert names == sorted(e["data"]["code"] or e["data"]["name"] for e in of("kernel", events))
    assert all(e["data"]["seconds"] > 0 for e in built)
    assert of("kernels_built", run(tmp_path / "second")) == []


def test_every_pass_says_whether_it_ran(logged: Logged) -> None:
    _, events = logged
    ran = Counter(e["unit"] for e in of("pass", events))
    assert ran["passes.algebraic"] == 2
    assert ran["pregrad.dropout_removal"] == 1
    assert all(e["data"]["allowed"] for e in of("pass", events))


def test_artifacts_exist_and_are_written_only_after_a_change(logged: Logged) -> None:
    folder, events = logged
    named = [e["data"]["artifact"] for e in events if e["data"].get("artifact")]
    named += [e["data"]["source"] for e in of("kernel", events)]
    on_disk = {
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and p.suffix != ".jsonl"
    }
    assert {*named, "run.json"} == on_disk
    for event in (*of("stage.end", events), *of("pass", events)):
        if not event["data"]["changed"]:
            assert not event["data"].get("artifact")
    kept = [(folder / name).read_text() for name in named if name.startswith("ir/")]
    assert all(kept)


def test_without_artifacts_there_are_only_events(tmp_path: Path) -> None:
    run(tmp_path, artifacts=False)
    names = sorted(p.name for p in tmp_path.rglob("*"))
    assert names == [f"events-{os.getpid()}.jsonl", "run.json"]


def test_equal_texts_are_saved_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    first, again, other = (log.save("ir/a.py", text) for text in ("x", "x", "y"))
    assert first == again != other
    assert sorted(p.read_text() for p in (tmp_path / "ir").iterdir()) == ["x", "y"]


def test_a_log_without_a_folder_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = EventLog(None)
    log.emit(StageStart(3))
    assert log.save("ir/a.py", "x") == ""
    compiled(lambda x: x + 1)(torch.ones(2))
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_last_line_loses_only_that_line(logged: Logged, tmp_path: Path) -> None:
    folder, events = logged
    (path,) = folder.glob("events*.jsonl")
    whole = path.read_bytes()
    torn = tmp_path / "events.jsonl"
    torn.write_bytes(whole[:-20])
    lines = torn.read_bytes().split(b"\n")
    assert [json.loads(line) for line in lines[:-1]] == events[:-1]
    with pytest.raises(json.JSONDecodeError):
        json.loads(lines[-1])


def source_of(library: Path) -> str:
    """The source from which a cached shared object was built."""
    return library.with_suffix(".cpp").read_text()


def test_the_cache_event_says_hit_miss_and_corrupt(tmp_path: Path) -> None:
    def verdict(cache: Path, number: int) -> str:
        torch._dynamo.reset()
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        options = {"log": True, "run_dir": folder, "cache_dir": cache}
        compiled(lambda x: x.sin() * 3, options=options)(torch.ones(3))
        (event,) = of("cache", read(folder))
        return str(event["data"]["verdict"])

    first, second = tmp_path / "first", tmp_path / "second"
    assert verdict(first, 1) == "miss"
    assert verdict(first, 2) == "hit"
    # in another process, because this one keeps the good object loaded under its path
    (path,) = (p for p in first.rglob("*.so") if "Python.h" not in source_of(p))
    broken = second / path.relative_to(first)
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"broken")
    assert verdict(second, 3) == "corrupt"


def test_a_failing_compile_logs_stage_exception_and_message(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="could not compile"):
        run(tmp_path, compiler="no-such-compiler")
    (failed,) = of("compile.fail", read(tmp_path))
    assert failed["level"] == "error"
    assert failed["data"]["failed_stage"] == "runtime"
    assert failed["data"]["exception"] == "NoCompiler"
    assert "no-such-compiler" in failed["data"]["message"]


def test_the_configuration_of_logging_and_structlog_is_not_changed(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []

    def processor(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
        heard.append(event)
        raise structlog.DropEvent

    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("tcdebug").handlers[:])
    structlog.configure(processors=[processor])
    try:
        events = run(tmp_path)
        configured = structlog.get_config()["processors"]
        structlog.get_logger().info("mine")
    finally:
        structlog.reset_defaults()
    assert (root.level, list(root.handlers), logging.getLogger("tcdebug").handlers[:]) == before
    assert configured == [processor]
    assert [e["event"] for e in heard] == ["mine"]
    assert of("compile.end", events)


def test_bound_context_is_on_every_event_and_empty_values_are_left_out(tmp_path: Path) -> None:
    log = EventLog(tmp_path).bind(stage="lower", unit="")
    log.emit(Fallback("x", "because"), site="0a1b")
    (event,) = read(tmp_path)
    assert (event["stage"], event["site"]) == ("lower", "0a1b")
    assert "unit" not in event
    assert event["data"] == {"what": "x", "reason": "because"}


def test_a_run_folder_has_its_info_and_latest_points_to_it(tmp_path: Path) -> None:
    folder = run_folder.create("my script!", tmp_path / ".tcdebug")
    info = read_info(folder)
    assert info is not None
    assert info.run_id == folder.name
    assert folder.name.endswith("-my-script-")
    assert (tmp_path / ".tcdebug" / "latest").resolve() == folder.resolve()
    assert (tmp_path / ".tcdebug" / ".gitignore").read_text() == "*\n"


@pytest.fixture
def three_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three healthy runs whose processes have ended."""
    monkeypatch.setenv("TCDEBUG_KEEP_RUNS", "3")
    monkeypatch.setattr(run_folder, "is_alive", lambda pid: False)


def names(base: Path) -> list[str]:
    return sorted(p.name for p in base.iterdir() if p.is_dir() and not p.is_symlink())


@pytest.mark.usefixtures("three_kept")
def test_the_oldest_healthy_runs_are_removed_and_named_by_the_new_one(tmp_path: Path) -> None:
    made = [run_folder.create(f"run{n}", tmp_path) for n in range(6)]
    assert names(tmp_path) == [folder.name for folder in made[3:]]
    infos = [read_info(folder) for folder in made[3:]]
    assert [info and info.removed for info in infos] == [[f.name] for f in made[:3]]


def _failure(folder: Path) -> None:
    EventLog(folder).emit(GraphFailure("wrong", "forward | wrong value", "forward", ""))


def _file(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()

    return write


FINDINGS: dict[str, Callable[[Path], None]] = {
    "a failure": _failure,
    "a repro": _file("repro.py"),
    "the repro of a graph": _file("graphs/0-17/repro.py"),
    "a repro of a healthy graph": _file("graph_0.py"),
    "another failure": _file("other/1/repro.py"),
    "killed on the way": run_folder.begin,
    "ended with a report": lambda folder: run_folder.finish(folder, healthy=False),
}


@pytest.mark.usefixtures("three_kept")
@pytest.mark.parametrize("how", FINDINGS)
def test_a_run_that_found_something_is_never_pruned(how: str, tmp_path: Path) -> None:
    found = run_folder.create("bisect", tmp_path)
    FINDINGS[how](found)
    for _ in range(5):
        run_folder.create("explain", tmp_path)
    assert len(names(tmp_path)) == 4
    assert found.is_dir()


def test_a_bad_number_of_runs_to_keep_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDEBUG_KEEP_RUNS", "many")
    with pytest.raises(BadOption, match="TCDEBUG_KEEP_RUNS must be a number of runs, not 'many'"):
        run_folder.create("a", tmp_path)


def test_a_full_disk_is_reported_once_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "events-x.jsonl").symlink_to("/dev/full")
    from tcdebug.compiler.events.writer import _LineFile  # noqa: PLC0415 # what is under test

    file = _LineFile(tmp_path / "events-x.jsonl")
    file.write(b"{}\n", sync=False)
    file.write(b"{}\n", sync=False)
    assert capsys.readouterr().err.count("the event log stops here") == 1


def test_fields_of_kernels_and_passes_are_those_that_readers_use() -> None:
    assert [f.name for f in fields(KernelWritten)] == [
        "name", "language", "computes", "moved", "source", "origins", "code",
    ]  # fmt: skip
    assert [f.name for f in fields(PassRan)][:4] == [
        "allowed", "changed", "nodes_before", "nodes_after",
    ]  # fmt: skip
