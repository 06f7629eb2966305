"""The documentation is true: generated pages, links, commands, examples, events."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import click
import jsonschema
import pytest
import torch

from tcdebug.cli.main import cli, fuzz
from tcdebug.compiler.configuration.options import Options
from tcdebug.compiler.events.schema import EVENTS
from tcdebug.compiler.units import units

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]
EXAMPLES = sorted((DOCS / "examples").glob("a_*.py"))
GENERATED_WITH = "2.13.0"
"""The version of torch whose tables the committed docs/units.md lists."""

LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def generator() -> ModuleType:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- generated --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The texts that the code generates today, by file name."""
    files: dict[str, str] = generator().files()
    return files


@pytest.mark.parametrize(
    "name", ["events.md", "events.schema.json", "output.schema.json", "units.md", "errors.md"]
)
def test_the_committed_page_is_what_the_code_generates(
    name: str, generated: Mapping[str, str]
) -> None:
    if name == "units.md" and torch.__version__.partition("+")[0] != GENERATED_WITH:
        pytest.skip(f"units.md lists the decompositions of torch {GENERATED_WITH}")
    assert (DOCS / name).read_text() == generated[name], "run python docs/generate.py"


def test_every_unit_is_in_the_page_of_units() -> None:
    if torch.__version__.partition("+")[0] != GENERATED_WITH:
        pytest.skip(f"units.md lists the decompositions of torch {GENERATED_WITH}")
    text = (DOCS / "units.md").read_text()
    assert [u.name for u in units() if f"`{u.name}`" not in text] == []


def test_every_option_of_the_compiler_is_in_its_page() -> None:
    page = (ROOT / "docs" / "compiler.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(TCDEBUG_\w+)` \|", page, re.MULTILINE)
    names = ["off" if f.name == "toggles" else f.name for f in fields(Options)]
    assert sorted(name for name, _ in rows) == sorted(names)
    source = ROOT / "compiler" / "configuration" / "options.py"
    read = set(re.findall(r"TCDEBUG_\w+", source.read_text()))
    assert {variable for _, variable in rows} >= read - {"TCDEBUG_"}


def test_every_event_class_is_in_the_page_and_has_a_kind_of_its_own() -> None:
    text = (DOCS / "events.md").read_text()
    assert [e.kind for e in EVENTS if f"\n### {e.kind}\n" not in text] == []
    assert len({e.kind for e in EVENTS}) == len(EVENTS)


# -- links and commands -----------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(FENCE.sub("", text))
    }


def relative_links(page: Path) -> Iterator[tuple[str, str]]:
    """(path, anchor) of every link of a page that stays in the repository."""
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for path, anchor in relative_links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{page.name} links to {path}#{anchor}"


FILE = re.compile(r"`((?:[\w.]+/)+[\w.]+\.(?:py|tmpl|hpp|md))`")
"""A file that a page names by its path, or by the end of its path."""
METHOD = re.compile(r"`([A-Z]\w+)\.(_?[a-z]\w+)`")
"""A method or an attribute that a page names."""


def test_the_files_and_methods_that_pages_name_exist() -> None:
    sources = [
        p for f in ("compiler", "minifier", "toolkit", "tests") for p in (ROOT / f).rglob("*")
    ]
    paths = [p.relative_to(ROOT).as_posix() for p in (*sources, *DOCS.rglob("*"))]
    texts = [p.read_text() for p in sources if p.suffix == ".py"]
    classes = {name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE)}
    names = {name for text in texts for name in re.findall(r"^    (?:def )?(\w+)[(:]", text, re.M)}
    for page in PAGES:
        for file in FILE.findall(page.read_text()):
            assert any(f"/{path}".endswith(f"/{file}") for path in paths), (page.name, file)
        for owner, name in METHOD.findall(page.read_text()):
            assert owner not in classes or name in names, (page.name, owner, name)


def fenced_commands(page: Path) -> Iterator[str]:
    """The lines in fenced blocks that call tcdebug, without prompt and environment."""
    for _, block in FENCE.findall(page.read_text()):
        for line in block.splitlines():
            command = re.sub(r"^\s*\$?\s*((\w+=\S*|python -m)\s+)*", "", line)
            if command.startswith("tcdebug "):
                yield command


def inline_commands(page: Path) -> Iterator[str]:
    """The calls of tcdebug inside a line of prose, with their options."""
    text = FENCE.sub("", page.read_text())
    for command in re.findall(r"`(tcdebug [a-z]+[^`]* -[^`]*)`", text):
        yield re.sub(r"\\?\|\S*|\[[^]]*\]", "", command)  # alternatives


def printed_commands() -> Iterator[str]:
    """The calls of `tcdebug logs` with options in the texts that the toolkit prints."""
    for path in sorted((ROOT / "toolkit").rglob("*.py")):
        for text in re.findall(r"tcdebug logs [^\"`\n]*", path.read_text()):
            command = re.sub(r"\{[^{}]*\}", "X", text)
            if " -" in command:
                yield command


def unknown_flags(command: str) -> list[str]:
    """The options of a command line that the command does not have."""
    words = shlex.split(command, comments=True)[1:]
    if words[0].startswith("-"):
        return []
    subcommand = cli.commands.get(words[0])
    if subcommand is None:
        return [words[0]]
    if isinstance(subcommand, click.Group):
        known = words[1:] and words[1] in subcommand.commands
        subcommand = subcommand.commands[words.pop(1) if known else "show"]
    flags = {
        flag
        for parameter in subcommand.params
        if isinstance(parameter, click.Option)
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    flags |= {"-h", "--help"}
    own = subcommand.context_settings.get("allow_interspersed_args", True)
    unknown: list[str] = []
    for word in words[1:]:
        if not word.startswith("-"):
            if own or not word.endswith(".py"):
                continue
            break  # what follows a script belongs to it
        if not own and word in ("-m", "-c"):
            break  # what follows a module or code belongs to it
        if word.partition("=")[0] not in flags:
            unknown.append(word)
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_has_only_flags_that_exist(page: Path) -> None:
    for command in (*fenced_commands(page), *inline_commands(page)):
        assert unknown_flags(command) == [], f"{page.name}: {command}"


def test_every_printed_command_has_only_flags_that_exist() -> None:
    commands = list(printed_commands())
    assert "tcdebug logs query X --event value" in " ".join(commands)
    for command in commands:
        assert unknown_flags(command) == [], command


def test_an_unknown_flag_is_noticed_and_a_script_may_have_its_own_flags() -> None:
    assert unknown_flags("tcdebug bisect --nonsense script.py") == ["--nonsense"]
    assert unknown_flags("tcdebug nonsense") == ["nonsense"]
    assert unknown_flags("tcdebug bisect --off=fuse --no-minify script.py --epochs 3") == []
    assert unknown_flags("tcdebug bisect --off=fuse -m pkg.mod --epochs 3") == []
    assert unknown_flags("tcdebug bisect --nonsense -m pkg.mod") == ["--nonsense"]
    assert unknown_flags("tcdebug logs latest --unit fuse --json") == []
    assert unknown_flags("tcdebug logs query --unit fuse --line f.py:3") == []
    assert unknown_flags("tcdebug logs summary --unit fuse") == ["--unit"]


# -- examples ---------------------------------------------------------------------------------


def run_python(python: str, path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in its own folder."""
    return subprocess.run(
        [python, str(path)],
        cwd=folder,
        env={**os.environ, "TCDEBUG_LOG": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_prints_what_its_page_shows(
    path: Path, tmp_path: Path, warm_python: str
) -> None:
    done = run_python(warm_python, path, tmp_path)
    assert done.returncode == 0, done.stderr
    link = f"examples/{path.name}"
    page = next(p for p in DOCS.glob("*.md") if link in p.read_text() and p.name != "index.md")
    assert f"```text\n{done.stdout}```" in page.read_text()


def test_code_that_a_page_shows_from_an_example_is_in_the_example() -> None:
    for page in DOCS.glob("*.md"):
        for source, block in re.findall(
            r"<!-- from (\S+) -->\n```python\n(.*?)^```$", page.read_text(), re.M | re.S
        ):
            assert block in (page.parent / source).read_text(), f"{page.name}: {source}"


# -- events -----------------------------------------------------------------------------------

COMPILED = """
import torch

def f(x, w):
    return torch.softmax(torch.relu(x @ w) * 1.0, -1)

x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)
torch.compile(f, backend="tcdebug", options={"run_dir": "run"})(x, w).sum().backward()
"""


def test_every_event_of_a_real_compile_fits_the_published_schema(
    tmp_path: Path, warm_python: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(COMPILED)
    kept = {"TCDEBUG_CACHE_DIR": os.environ["TCDEBUG_CACHE_DIR"]}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TCDEBUG_")} | kept
    subprocess.run([warm_python, str(script)], cwd=tmp_path, env=environment, check=True)
    schema = json.loads((DOCS / "events.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    (file,) = (tmp_path / "run").glob("events*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    for record in records:
        validator.validate(record)
    assert {"compile.start", "pass", "decision", "stage.end", "kernel", "compile.end"} <= {
        record["event"] for record in records
    }
    assert {r.get("direction") for r in records} >= {"forward", "backward"}


def test_the_schema_refuses_an_unknown_kind_a_missing_field_and_a_wrong_type() -> None:
    schema = json.loads((DOCS / "events.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    right = {
        "ts": "2026-01-01T00:00:00.000000Z", "t_ns": 1, "seq": 0, "event": "stage.start",
        "level": "debug", "run_id": "r", "pid": 1, "data": {"nodes": 3, "artifact": ""},
    }  # fmt: skip
    assert validator.is_valid(right)
    for wrong in (
        {**right, "event": "stage.nonsense"},
        {**right, "data": {}},
        {**right, "data": {"nodes": "three"}},
        {**right, "level": "info"},
        {k: v for k, v in right.items() if k != "seq"},
    ):
        assert not validator.is_valid(wrong)


# -- the tour ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("warm")
def test_the_tour_shows_what_the_compiler_makes(tmp_path: Path) -> None:
    page, generate = (DOCS / "tour.md").read_text(), generator()
    assert len(generate.SHOWN.findall(page)) == 7
    made = generate.shown(page, generate.run_tour(tmp_path)).splitlines()
    assert page.splitlines() == made, "run python docs/generate.py"


def steady(text: str) -> str:
    """A transcript without what differs between runs."""
    without_estimates = re.sub(r", about \d+ s", "", text)  # fast machines show none
    return re.sub(r"\d{8}-\d{6}|\d+ s, \d+ CPU-s", "N", without_estimates)


@pytest.mark.slow
def test_the_readme_and_the_page_of_repros_show_what_the_session_prints(tmp_path: Path) -> None:
    generate = generator()
    printed, repro = generate.run_session(tmp_path)
    for page in (ROOT / "README.md", DOCS / "repro.md"):
        made = generate.with_session(page.read_text(), printed, repro)
        assert steady(page.read_text()) == steady(made), "run python docs/generate.py --session"


def test_every_page_shows_the_same_repro_of_the_session_and_one_transcript() -> None:
    generate = generator()
    shown = [text for page in PAGES for _, text, _ in generate.REPRO.findall(page.read_text())]
    assert len(shown) == 2
    assert len(set(shown)) == 1
    (transcript,) = [t for page in PAGES for _, t, _ in generate.PRINTED.findall(page.read_text())]
    assert "found and confirmed both ways" in transcript


@pytest.mark.skipif(shutil.which("mkdocs") is None, reason="pip install 'tcdebug[docs]'")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = ["mkdocs", "build", "--strict", "-q", "-f", "docs/site/mkdocs.yml", "-d"]
    done = subprocess.run([*command, str(tmp_path / "site")], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "tutorial" / "index.html").exists()


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (DOCS / "site" / "mkdocs.yml").read_text()
    named = set(re.findall(r"(\S+\.md)$", text, re.MULTILINE))
    pages = {str(p.relative_to(DOCS)) for p in (*DOCS.glob("*.md"), *DOCS.glob("findings/*.md"))}
    assert named == pages


def test_ci_runs_what_the_readme_says_runs_the_tests() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    commands = [line for line in lines if line.startswith("python3 -m")]
    assert len(commands) == 2
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == commands[1]


# -- CI ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("ci/github.yml", "github-workflows"),
        ("ci/gitlab.yml", "gitlab-ci"),
        ("CITATION.cff", "citation-file-format"),
    ],
)
def test_a_file_for_a_ci_service_matches_its_schema(name: str, schema: str) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*check, DOCS / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_the_command_of_a_file_for_continuous_integration_exists(name: str) -> None:
    (command,) = re.findall(r"tcdebug fuzz ci ((?:.|\n {10})+)", (DOCS / "ci" / name).read_text())
    words = [word.replace("$SECONDS_OF_FUZZING", "9") for word in shlex.split(command)]
    fuzz.commands["ci"].make_context("ci", words)  # raises a usage error
