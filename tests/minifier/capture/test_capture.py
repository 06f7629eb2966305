"""Graphs of a healthy program as scripts: what is written, and what the program notices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import backends
import pytest
import torch
from captured import captured
from subclasses import PLACEMENTS, fake_ranks, placed

from tcdebug.compiler.events.log import EventLog
from tcdebug.minifier.capture.capture import Capture, every_backend, simplest
from tcdebug.minifier.repros.as_test import is_repro, write_test
from tcdebug.minifier.repros.judge.graph_judge import GraphJudge
from tcdebug.minifier.repros.verify import verify


def written(folder: Path, program: Callable[[], Any], **options: Any) -> Capture:
    capture = Capture(folder, EventLog(None), **options)
    with every_backend(capture.wrap):
        program()
    return capture


def namespace(path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__file__": str(path), "__name__": "repro"}
    exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
    return names


def broken_in_two(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.tanh()


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_each_graph_between_breaks_is_a_script_that_passes(tmp_path: Path) -> None:
    compiled = torch.compile(broken_in_two, backend="aot_eager")
    capture = written(tmp_path, lambda: compiled(torch.randn(3, requires_grad=True)))
    assert [p.name for p in capture.paths] == ["graph_0.py", "graph_1.py"]
    names = namespace(capture.paths[1])
    assert names["EXPECTED"] == {"kind": "ok"}
    assert names["CALL"] == {"backend": "aot_eager"}
    done = verify(capture.paths[1])
    assert (done.status, done.output.splitlines()[-1]) == (0, "it does not fail")


def test_a_healthy_script_exits_with_one_for_any_failure(tmp_path: Path) -> None:
    compiled = torch.compile(torch.tanh, backend="aot_eager")
    (path,) = written(tmp_path, lambda: compiled(torch.ones(3))).paths
    names = namespace(path)
    judge = GraphJudge(*(names[k] for k in ("Graph", "inputs", "EXPECTED", "CALL")))
    for found, status in (
        ({"kind": "ok"}, 0),
        ({"kind": "crash", "phase": "compile", "signal": 6}, 1),
        ({"kind": "wrong", "what": "forward | wrong value"}, 1),
        ({"kind": "unknown", "phase": "eager"}, 125),
    ):
        assert judge.exit_status(found) == status


def test_another_backend_can_be_named(tmp_path: Path) -> None:
    compiled = torch.compile(torch.tanh, backend=backends.right)
    capture = written(tmp_path, lambda: compiled(torch.ones(3)), backend="eager")
    assert namespace(capture.paths[0])["CALL"] == {"backend": "eager"}


def test_a_backend_that_can_be_imported_is_imported(tmp_path: Path) -> None:
    compiled = torch.compile(torch.tanh, backend=backends.right)
    (path,) = written(tmp_path, lambda: compiled(torch.ones(3))).paths
    names = namespace(path)
    names["set_up"](lambda: None)
    assert names["CALL"] == {"backend": backends.right}


def test_a_backend_that_cannot_be_imported_is_reported_and_skipped(tmp_path: Path) -> None:
    def local(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return module.forward

    def program() -> None:
        assert torch.compile(torch.sin, backend=local)(torch.zeros(3)).tolist() == [0, 0, 0]
        torch.compile(torch.cos, backend="eager")(torch.zeros(3))

    capture = written(tmp_path, program)
    assert [p.name for p in capture.paths] == ["graph_1.py"]
    assert capture.problems == [
        "graph 0: the backend local cannot be imported from a module: "
        "give the name of another backend, or move this one into a module"
    ]


def test_only_the_requested_graph_is_written_and_the_program_is_left(tmp_path: Path) -> None:
    reached = []

    def program() -> None:
        torch.compile(broken_in_two, backend="eager")(torch.ones(3))
        reached.append(1)

    capture = Capture(tmp_path, EventLog(None), only=1)
    with every_backend(capture.wrap), pytest.raises(SystemExit) as info:
        program()
    assert info.value.code == 0
    assert [p.name for p in capture.paths] == ["graph_1.py"]
    assert reached == []


def test_values_are_kept_if_eager_accepts_no_others(tmp_path: Path) -> None:
    positive = captured(torch.linalg.cholesky, torch.eye(3) * 4)
    assert simplest(positive, tmp_path / "x.py") is positive
    roots = captured(torch.sqrt, torch.tensor([4.0, 9.0]))
    assert simplest(roots, tmp_path / "x.py") is roots
    sines = captured(torch.sin, torch.tensor([4.0, 9.0]))
    assert simplest(sines, tmp_path / "x.py").inputs[0].recipe is not None


def test_the_random_numbers_of_the_program_do_not_change(tmp_path: Path) -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    compiled = torch.compile(torch.tanh, backend="eager")
    x = torch.zeros(3)
    written(tmp_path, lambda: compiled(x))
    assert torch.equal(torch.rand(3), wanted)


# -- as a test ------------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_a_test_file_is_a_script_with_a_test_and_its_data_beside_it(tmp_path: Path) -> None:
    big = torch.randn(12, 12)
    compiled = torch.compile(torch.linalg.cholesky, backend="eager")
    (path,) = written(tmp_path, lambda: compiled(big @ big.t() + torch.eye(12))).paths
    (tmp_path / "tests").mkdir()
    test = write_test(path, tmp_path / "tests")
    assert [p.name for p in sorted(test.parent.iterdir())] == [
        "test_graph_0.py",
        "test_graph_0.safetensors",
    ]
    names = namespace(test)
    names["test_eager_and_compiled_agree"]()
    assert "Run it: pytest test_graph_0.py, or python test_graph_0.py." in test.read_text()


@pytest.mark.usefixtures("warm")
def test_a_test_fails_as_long_as_the_bug_exists(tmp_path: Path) -> None:
    compiled = torch.compile(torch.tanh, backend=backends.raises)
    (path,) = written(tmp_path, lambda: compiled(torch.ones(3))).paths
    path.write_text(
        path.read_text().replace("import backends", f"sys.path[:0] = {[str(SUPPORT)]}\n"
                                 "    import backends")
    )  # fmt: skip
    (tmp_path / "tests").mkdir()
    test = write_test(path, tmp_path / "tests")
    with pytest.raises(AssertionError, match="Planted"):
        namespace(test)["test_eager_and_compiled_agree"]()


SUPPORT = Path(backends.__file__).parent


def test_a_repro_is_distinguished_from_other_scripts(tmp_path: Path) -> None:
    compiled = torch.compile(torch.tanh, backend="eager")
    (path,) = written(tmp_path, lambda: compiled(torch.ones(3))).paths
    assert is_repro(path)
    assert not is_repro(Path(__file__))


@pytest.mark.usefixtures("warm")
def test_a_graph_of_distributed_tensors_gets_a_group_of_its_own(tmp_path: Path) -> None:
    with fake_ranks(4) as mesh:
        x = placed(mesh, PLACEMENTS[0])
        capture = written(tmp_path, lambda: torch.compile(torch.sin, backend="aot_eager")(x))
    (path,) = capture.paths
    assert 'init_process_group("fake", rank=0, world_size=4' in path.read_text()
    assert verify(path).status == 0
