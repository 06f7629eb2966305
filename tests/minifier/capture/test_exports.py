"""What runs in place of exported programs and of AOTInductor's packages."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import package

from tcdebug.compiler.events.log import EventLog
from tcdebug.compiler.gate.toggles import Toggles
from tcdebug.minifier.capture.exports import (
    export_is_identity,
    in_eager,
    jit_settings,
    packages_replaced,
)
from tcdebug.minifier.capture.layers_off import layers_off
from tcdebug.minifier.capture.recorder import Recorder
from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.targets.backends import Backend

SILENT = EventLog(None)
ONES = torch.ones(2, 3)


class Counting(torch.nn.Module):
    """Adds the number of its calls, which an export turns into a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.weight = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The input and the number of the call."""
        self.calls += 1
        return x + self.weight + self.calls


def packaged(**options: Any) -> Any:
    program = torch.export.export(Counting(), (ONES,))
    return torch._inductor.aoti_compile_and_package(program, **options)


def twice(call: Any) -> list[float]:
    return [call(ONES)[0, 0].item() for _ in range(2)]


def test_in_eager_an_exported_program_is_the_module_itself() -> None:
    with export_is_identity(SILENT):
        program = torch.export.export(Counting(), (ONES,))
    assert isinstance(program, torch.export.ExportedProgram)
    assert twice(program.module()) == [2.0, 3.0]
    assert program.run_decompositions() is program
    assert program.example_inputs == ((ONES,), {})
    assert twice(torch.export.export(Counting(), (ONES,)).module()) == [2.0, 2.0]


@pytest.mark.parametrize("export", [torch.export.export, torch.export.draft_export])
def test_in_eager_a_program_that_is_saved_and_loaded_is_the_module_itself(
    tmp_path: Path, export: Any
) -> None:
    file, buffer = tmp_path / "program.pt2", io.BytesIO()
    with export_is_identity(EventLog(tmp_path)):
        program = getattr(torch.export, export.__name__)(Counting(), (ONES,))
        for place in (file, buffer):
            torch.export.save(program, place)
        loaded = [torch.export.load(place).module() for place in (str(file), buffer)]
        assert torch.export.unflatten(torch.export.load(file)) is loaded[0]
        assert [twice(call) for call in loaded] == [[2.0, 3.0], [4.0, 5.0]]
        assert file.exists()
    assert not file.exists()  # a later run would take it for a program
    torch.export.save(torch.export.export(Counting(), (ONES,)), file)
    with export_is_identity(EventLog(tmp_path)):
        assert twice(torch.export.load(file).module()) == [2.0, 2.0]
    events = "".join(path.read_text() for path in tmp_path.glob("events*.jsonl"))
    assert events.count('"tracer":"torch.export.load"') == 1


def copies(file: Path) -> list[Any]:
    """Copies of a file: its bytes, another file, and an open file."""
    shutil.copy(file, copied := file.with_name("copied.pt2"))
    return [io.BytesIO(file.read_bytes()), copied, copied.open("rb")]


@pytest.mark.parametrize("before", [None, b"", b"an earlier program"])
def test_a_copy_of_a_program_that_is_saved_in_eager_is_the_module_itself(
    tmp_path: Path, before: bytes | None
) -> None:
    file, texts = tmp_path / "program.pt2", {"labels": ""}
    if before is not None:
        file.write_bytes(before)
    with export_is_identity(SILENT):
        program = torch.export.export(Counting(), (ONES,))
        torch.export.save(program, file, extra_files={"labels": "a b"})
        found = [torch.export.load(copy, extra_files=texts) for copy in copies(file)]
        assert found == [program] * 3
        assert texts == {"labels": "a b"}
        assert zipfile.is_zipfile(file) or before
        file.with_name("copied.pt2").replace(file)
        assert torch.export.load(file) is program
    assert [*tmp_path.iterdir()] == ([file] if before else [])


def test_a_program_in_a_buffer_is_the_module_itself_wherever_its_bytes_are() -> None:
    buffer = io.BytesIO()
    with export_is_identity(SILENT):
        program = torch.export.export(Counting(), (ONES,))
        torch.export.save(program, buffer)
        content = buffer.read()
        assert torch.export.load(io.BytesIO(content)) is program
        buffer.truncate(0)
        with pytest.raises(Exception, match=r".+"):
            torch.export.load(buffer)  # nothing is in it
    with export_is_identity(SILENT), pytest.raises(Exception, match=r".+"):
        torch.export.load(io.BytesIO(content))  # another process saved it


def test_the_stand_in_of_a_program_runs_in_place_of_each_copy_of_its_package() -> None:
    with packages_replaced(in_eager, SILENT):
        file = Path(packaged())
        for copy in (str(file), *copies(file)):
            assert twice(torch._inductor.aoti_load_package(copy)) == [2.0, 2.0]
    assert not file.with_name("copied.pt2").exists()


def test_the_stand_in_of_a_program_runs_in_place_of_its_package(tmp_path: Path) -> None:
    named, buffer = str(tmp_path / "named.pt2"), io.BytesIO()
    with packages_replaced(in_eager, SILENT):
        files = [packaged(), packaged(package_path=named), packaged(package_path=buffer)]
        loaded = [torch._inductor.aoti_load_package(file) for file in files]
        assert files[1:] == [named, buffer]
        assert os.path.exists(named)
    assert not os.path.exists(named)  # a later run would take it for a package
    assert [twice(call) for call in loaded] == [[2.0, 2.0]] * 3
    assert not loaded[0](ONES).requires_grad  # as of a package


@pytest.mark.parametrize("layer", ["layer.dynamo", "layer.autograd"])
def test_the_stand_in_of_a_package_takes_new_weights(layer: str) -> None:
    with layers_off(Toggles.parse([layer]), SILENT):
        loaded = torch._inductor.aoti_load_package(packaged())
        assert loaded.get_constant_fqns() == ["weight"]
        assert loaded.get_metadata() == {}
        loaded.load_constants({"weight": torch.full((3,), 8.0)}, check_full_update=True)
        assert loaded(ONES)[0, 0] == 10.0
        with pytest.raises(RuntimeError, match="not all given"):
            loaded.load_constants({}, check_full_update=True)


def test_the_stand_in_of_a_library_runs_in_its_place() -> None:
    module = torch.export.export(Counting(), (ONES,)).module()
    with packages_replaced(in_eager, SILENT):
        path = torch._inductor.aot_compile(module, (ONES,))
        assert str(path).endswith(".so")
        assert twice(torch._export.aot_load(str(path), "cpu")) == [2.0, 2.0]


def test_the_stand_ins_of_several_programs_run_in_place_of_one_package(tmp_path: Path) -> None:
    path, parts = str(tmp_path / "two.pt2"), {"aot_inductor.package": True}
    with packages_replaced(in_eager, SILENT):
        files: dict[str, Any] = {}
        for name in ("first", "second"):
            module = torch.export.export(Counting(), (ONES,)).module()
            files[name] = torch._inductor.aot_compile(module, (ONES,), options=parts)
        assert package.package_aoti(path, files) == path
        call = package.load_package(path, model_name="second")
        assert twice(call) == [2.0, 2.0]
        package.package_aoti(path, files["first"])
        assert twice(torch._inductor.aoti_load_package(path)) == [2.0, 2.0]
        with pytest.raises(Exception, match=r".+"):  # no such model
            package.load_package(path, "third")


def test_a_program_without_a_stand_in_is_packaged_and_loaded_by_torch() -> None:
    program: Any = torch.nn.Linear(2, 2)
    with (
        packages_replaced(lambda program, settings: None, SILENT),
        pytest.raises(ValueError, match="Only ExportedProgram is supported"),
    ):
        torch._inductor.aoti_compile_and_package(program)
    with packages_replaced(in_eager, SILENT):
        packaged()
        with pytest.raises(Exception, match="zip archive"):
            torch._inductor.aoti_load_package("none.pt2")


def test_a_file_that_stands_for_a_package_is_there_as_long_as_the_package_is_replaced() -> None:
    with packages_replaced(in_eager, SILENT):
        package = Path(packaged())
        library = Path(
            torch._inductor.aot_compile(torch.fx.symbolic_trace(torch.nn.ReLU()), (ONES,))
        )
        assert (package.suffix, library.suffix) == (".pt2", ".so")
        assert package.exists()
        assert library.exists()
    assert not package.exists()
    assert not library.exists()


def test_loading_a_package_of_an_earlier_run_is_an_event(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.pt2"
    earlier.write_bytes(b"a package")
    with packages_replaced(in_eager, EventLog(tmp_path)), earlier.open("rb") as file:
        for load in (
            torch._inductor.aoti_load_package,
            lambda path: torch._export.aot_load(path, "cpu"),
            lambda path: torch.compiler.load_compiled_function(file),
        ):
            with pytest.raises(Exception, match=r".+"):
                load(str(earlier))
        packaged(package_path=str(earlier))
        assert twice(torch._inductor.aoti_load_package(str(earlier))) == [2.0, 2.0]
    assert earlier.read_bytes() == b"a package"
    (events,) = tmp_path.glob("events*.jsonl")
    assert events.read_text().count(f'"path":"{earlier}"') == 3


def test_settings_of_the_package_itself_are_not_given_to_torch_compile() -> None:
    settings = {"max_autotune": True, "aot_inductor.package": True}
    assert jit_settings(settings) == {"max_autotune": True}


@pytest.mark.parametrize(
    ("layer", "values", "exported"),
    [
        ("layer.dynamo", [2.0, 3.0], '"packaged":false'),
        ("layer.export", [2.0, 3.0], '"packaged":false'),
        ("layer.autograd", [2.0, 2.0], '"packaged":true'),
        ("layer.decompositions", [2.0, 2.0], '"packaged":true'),
    ],
)
def test_layers_are_off_in_a_package_too(
    layer: str, values: list[float], exported: str, tmp_path: Path
) -> None:
    with layers_off(Toggles.parse([layer]), EventLog(tmp_path)):
        assert twice(torch._inductor.aoti_load_package(packaged())) == values
    (events,) = tmp_path.glob("events*.jsonl")
    assert exported in events.read_text()


def test_a_program_is_judged_just_in_time_and_ahead_of_time() -> None:
    judged: list[tuple[str, int, int, list[str]]] = []

    def judge(case: Case, backend: Backend, ordinal: int, call: int) -> None:
        judged.append((backend.name, ordinal, call, sorted(backend.options)))
        assert not torch.is_grad_enabled()

    recorder = Recorder(judge, "")
    settings = {"max_autotune": True, "aot_inductor.package": True}
    with packages_replaced(recorder.judge_program, SILENT):
        loaded = torch._inductor.aoti_load_package(packaged(inductor_configs=settings))
        expected = [
            ("inductor", 0, 0, ["max_autotune"]),
            ("aotinductor", 1, 0, ["aot_inductor.package", "max_autotune"]),
        ]
        assert judged == expected
        loaded(ONES)
        assert judged == expected  # it was judged with this layout
    recorder.active = False
    assert recorder.judge_program(None, {}) is None  # a candidate packages its own program


class Adding(torch.nn.Module):
    """Adds each call to a buffer, which AOTInductor updates in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of each row and the number of rows and of calls."""
        self.calls += 1
        return x.sum(1) + x.shape[0] + self.calls


def test_a_program_with_symbolic_sizes_is_judged_with_the_sizes_of_each_call() -> None:
    judged: list[tuple[str, int, int, list[tuple[int, ...]], int]] = []

    def judge(case: Case, backend: Backend, ordinal: int, call: int) -> None:
        dynamic = [spec.dynamic for spec in case.inputs if spec.dynamic]
        rows = max(len(v) for v in case.values() if isinstance(v, torch.Tensor) and v.dim())
        judged.append((backend.name, ordinal, call, dynamic, rows))

    rows = {"x": {0: torch.export.Dim("rows")}}
    program = torch.export.export(Adding(), (torch.ones(5, 3),), dynamic_shapes=rows)
    recorder = Recorder(judge, "")
    with packages_replaced(recorder.judge_program, SILENT):
        path = torch._inductor.aoti_compile_and_package(program)
        loaded = torch._inductor.aoti_load_package(path)
        assert [float(loaded(torch.ones(7, 3))[0]) for _ in range(2)] == [11.0, 12.0]
    assert judged == [
        ("inductor", 0, 0, [(0,)], 5),
        ("aotinductor", 1, 0, [(0,)], 5),
        ("inductor", 0, 1, [(0,)], 7),
        ("aotinductor", 1, 1, [(0,)], 7),
    ]
