"""A missing module is named only if the script cannot provide it."""

from __future__ import annotations

import ast
import py_compile
import subprocess
import sys
import sysconfig
import zipapp
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tcdebug.cli.program import as_script
from tcdebug.supervision.eager_failures import script_problem
from tcdebug.supervision.missing_modules import MissingModule, missing_module

EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")


def missing(script: Path) -> MissingModule | None:
    """The missing module of a script."""
    return missing_module(script, ast.parse(script.read_bytes()))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that imports a module, which nothing provides."""
    path = tmp_path / "script.py"
    path.write_text("import not_there\n")
    assert missing(path) == MissingModule("not_there", 1)
    return path


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import not_there\n", 1),
        ('"""Text."""\nfrom __future__ import annotations\nfrom not_there.deep import x\n', 3),
        ("import os.path, json\nimport numpy as np\nimport not_there\n", 3),
        ("from torch import nn\nimport torch.nn.functional as F, not_there\n", 2),
    ],
)
def test_a_module_that_no_import_provides_is_missing(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "script.py").write_text(text)
    assert missing(tmp_path / "script.py") == MissingModule("not_there", line)


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import not_there\nexcept ImportError:\n    pass\n",
        "import sys\nsys.path.append('lib')\nimport not_there\n",
        "import sys; sys.modules['not_there'] = sys; import not_there\n",
        "if True:\n    import not_there\n",
        "def f():\n    import not_there\n",
        "raise SystemExit\nimport not_there\n",
        "from . import not_there\n",
        "import paths\nimport not_there\n",
        "import pytest\nimport not_there\n",
        "import torch.utils.data.datapipes.gen_pyi\nimport not_there\n",
        "import __main__\nimport not_there\n",
        "import msvcrt\n",
        "from __future__ import annotations\nimport torch._C, os.path, paths\n",
        "",
    ],
)
def test_after_a_statement_or_module_that_may_provide_others_none_is_called_missing(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "paths.py").write_text("")
    (tmp_path / "script.py").write_text(text)
    assert missing(tmp_path / "script.py") is None


def healthy(script: Path) -> bool:
    """Whether Python runs a script without an error."""
    return subprocess.run([sys.executable, str(script)], check=False).returncode == 0


@pytest.mark.parametrize("name", ["not_there.py", "not_there/__init__.py", "not_there/part.txt"])
def test_a_module_beside_the_script_is_not_missing(script: Path, name: str) -> None:
    (script.parent / name).parent.mkdir(exist_ok=True)
    (script.parent / name).touch()
    assert missing(script) is None
    assert healthy(script)


def test_a_compiled_module_beside_the_script_is_not_missing(script: Path) -> None:
    (script.parent / f"not_there{EXTENSION}").touch()
    assert missing(script) is None


def test_a_module_beside_a_linked_script_is_not_missing(script: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.py"
    link.symlink_to(script)
    (script.parent / "not_there.py").touch()
    assert missing(link) is None
    assert healthy(link)


def test_a_module_on_the_search_path_is_not_missing(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library" / "not_there").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    assert missing(script) is None
    assert healthy(script)


def test_a_module_that_hides_one_of_the_standard_library_may_provide_others(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library").mkdir()
    hiding = "import sys, types; sys.modules['not_there'] = types.ModuleType('not_there')"
    (tmp_path / "library" / "sndhdr_of_mine.py").write_text(hiding)
    (tmp_path / "library" / "this.py").write_text(hiding)
    monkeypatch.syspath_prepend(tmp_path / "library")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    for name in ("sndhdr_of_mine", "this"):
        script.write_text(f"import {name}\nimport not_there\n")
        assert missing(script) is None
        assert healthy(script)


class Finder(MetaPathFinder):
    """An import hook, such as that of an editable installation."""

    def __init__(self, spec: ModuleSpec | None) -> None:
        self.spec = spec

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != "not_there":
            return None
        if self.spec is None:
            raise ImportError
        return self.spec


@pytest.mark.parametrize("spec", [ModuleSpec("not_there", None), None])
def test_a_module_that_an_import_hook_knows_or_refuses_is_not_called_missing(
    script: Path, monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None
) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder(spec)])
    assert missing(script) is None


@pytest.mark.parametrize("module", [ModuleType("not_there"), None])
def test_a_module_without_a_specification_is_not_called_missing(
    script: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "not_there", module)  # type: ignore[arg-type] # None is valid
    assert missing(script) is None


def test_a_backend_that_torch_loads_may_provide_modules(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write_text("import torch\nimport not_there\n")
    assert missing(script) == MissingModule("not_there", 2)
    info = tmp_path / "library" / "accelerator-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: accelerator\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nmine = accelerator:load\n")
    monkeypatch.syspath_prepend(tmp_path / "library")
    assert missing(script) is None


def test_python_options_that_a_script_does_not_get_leave_the_question_open(script: Path) -> None:
    asked = (
        "import ast, sys, pathlib;"
        "from tcdebug.supervision.missing_modules import missing_module;"
        "path = pathlib.Path(sys.argv[1]);"
        "print(missing_module(path, ast.parse(path.read_text())))"
    )
    for option, said in (("-I", "None"), ("-s", "None"), ("-B", "MissingModule(name='not_there'")):
        command = [sys.executable, option, "-c", asked, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.startswith(said)


@pytest.mark.parametrize(
    "words", [["-m", "not_there"], ["-c", "import not_there"], ["pytest", "not_there.py"]]
)
def test_a_program_that_is_not_a_script_imports_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    (tmp_path / "not_there.py").touch()
    monkeypatch.chdir(tmp_path)
    script, *_ = as_script(words)
    assert script_problem(script) is None


def test_programs_that_python_runs_without_their_source_are_not_refused(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("print()\n")
    zipapp.create_archive(tmp_path / "package", tmp_path / "program.pyz")
    compiled = tmp_path / "script.pyc"
    py_compile.compile(str(tmp_path / "package" / "__main__.py"), str(compiled))
    for program in (tmp_path / "program.pyz", compiled):
        assert script_problem(str(program)) is None
        assert healthy(program)


def test_deeply_nested_code_and_parser_warnings_are_accepted(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "script.py").write_text(f"x = {'-' * 5000}1\n")
    assert script_problem(str(tmp_path / "script.py")) is None
    (tmp_path / "script.py").write_text("x = 1 is 1\ny = '\\d'\n")
    assert script_problem(str(tmp_path / "script.py")) is None
    assert not recwarn.list
