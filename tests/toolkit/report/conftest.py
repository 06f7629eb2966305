"""A run with two stages, a kernel, a break and a search, and its page."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tcdebug.compiler.events import run_folder
from tcdebug.reading.run_dir import Run, find

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

HOSTILE = "</script><script>document.title='taken over'</script>"
GRAPH = {"compile_id": "0/0", "direction": "forward"}
LOWERED = """
input_buffer('x', float32, size=[64, 8], stride=[8, 1])

@pointwise('double', float32, size=[64, 8], stride=[8, 1], axes={'i0': 64}, origin=('a', 'aten.mul.Tensor', '/me/model.py', 3, 'f'))
def double(i0, i1):
    t0 = load(float32, 'x', i0, i1)
    return add(t0, t0)

@reduction('total', float32, size=[64], stride=[1], axes={'i0': 64}, over={'r0': 8}, kind='sum', origin=('s', 'aten.sum.default'))
def total(i0, r0):
    return load(float32, 'double', i0, r0)

extern('flat', torch.ops.aten.view.default, args=[ref('total'), [64]], out=buffer('flat', float32, size=[64], stride=[1]), alias_of='total', origin=('v', 'aten.view.default'))

extern('sorted', torch.ops.aten.sort.default, args=[ref('flat')], out=buffer('sorted', float32, size=[64], stride=[1]), origin=('z', 'aten.sort.default'))

output(ref('sorted'), ref('total'))
"""  # noqa: E501 # as it is written
INLINED = LOWERED.replace(LOWERED[LOWERED.index("@pointwise") : LOWERED.index("@reduction")], "")
INLINED = INLINED.replace("return load(float32, 'double'", "return load(float32, 'x'")
BEFORE = "\n".join([f"same_{k} = {k}" for k in range(30)] + ["y = x * 1", "return y"])
AFTER = BEFORE.replace("x * 1", "x")


def events() -> list[dict[str, Any]]:
    """The events of the run."""
    from written import line, stage  # noqa: PLC0415 # the path is set above

    ran = {"allowed": True, "changed": True, "nodes_before": 4, "nodes_after": 3, "seconds": 0.1}
    unchanged = {**ran, "changed": False, "artifact": ""}
    kernel = {
        "name": "cpp_mul_0", "language": "c++", "computes": ["mul"], "moved": 4096,
        "source": "kernel.cpp", "origins": [["mul", "mul", "aten.mul.Tensor", "/me/model.py:3"]],
    }  # fmt: skip
    candidate = {
        "purpose": "truncate", "toggles": [], "outcome": "wrong", "signature": "", "cached": False,
        "seconds": 1.0, "cpu_seconds": 1.0,
    }  # fmt: skip
    lowered = stage("lower", 2.0, 0.5, **GRAPH)
    lowered["data"]["artifact"] = "lowered.py"
    return [
        line("run.start", 0, {"command": "run", "argv": ["run", HOSTILE], "cwd": "/"}),
        line("stage.start", 1, {"nodes": 4, "artifact": "before.py"}, stage="passes", **GRAPH),
        line("pass", 1.2, {**ran, "artifact": "after.py"}, unit="passes.algebraic", **GRAPH),
        line("pass", 1.3, unchanged, unit="passes.dead_code", **GRAPH),
        stage("passes", 1.5, 0.5, **GRAPH),
        lowered,
        line("kernel", 2.1, kernel, **GRAPH),
        line(
            "graph.break", 3, {"reason": f"Unsupported {HOSTILE}"},
            user_loc={"filename": "/me/model.py", "line": 5, "name": "f"},
        ),
        line("candidate", 4, {**candidate, "number": 1, "nodes": 9}),
        line("candidate", 5, {**candidate, "number": 2, "nodes": 3, "outcome": "ok"}),
        line("run.end", 6, {"exit_status": 0, "seconds": 6.0}),
    ]  # fmt: skip


@pytest.fixture
def searched(tmp_path: Path) -> Run:
    """The run with all of these events."""
    return _written(tmp_path / "searched", events())


@pytest.fixture
def compiled(tmp_path: Path) -> Run:
    """The same run without the search."""
    return _written(tmp_path / "compiled", [e for e in events() if e["event"] != "candidate"])


@pytest.fixture
def ranks(tmp_path: Path) -> Run:
    """Two ranks that compile one graph differently. Its loops are fused."""
    from written import line, stage  # noqa: PLC0415 # the path is set above

    lines = []
    for rank, text in ((0, "inlined.py"), (1, "other.py")):
        mine = {**GRAPH, "rank": rank, "pid": 10 + rank}
        for place, (name, path) in enumerate((("lower", "lowered.py"), ("inline", text))):
            lines.append(stage(name, 2.0 + place, 0.5, **mine))
            lines[-1]["data"]["artifact"] = path
        kernel = {
            "name": "cpp_total_0", "language": "c++", "computes": ["total"], "moved": 2304,
            "source": "kernel.cpp", "origins": [["total", "s", "aten.sum.default", ""]],
        }  # fmt: skip
        lines.append(line("kernel", 4, kernel, **mine))
    run = _written(tmp_path / "ranks", lines)
    (run.path / "lowered.py").write_text(LOWERED)
    (run.path / "inlined.py").write_text(INLINED)
    (run.path / "other.py").write_text(INLINED.replace("'sum'", "'prod'"))
    return run


def _written(folder: Path, lines: list[dict[str, Any]]) -> Run:
    folder.mkdir()
    run_folder.write_info(folder, "run")
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (folder / "before.py").write_text(BEFORE)
    (folder / "after.py").write_text(AFTER)
    (folder / "lowered.py").write_text(f"pointwise('y')  # {HOSTILE}")
    (folder / "kernel.cpp").write_text(
        '// prelude\nextern "C" int other(int a) { return a; }\n'
        '// mul: aten.mul.Tensor\nextern "C" int cpp_mul_0(float* x) { return 0; }\n// next\n'
    )
    return find(str(folder))
