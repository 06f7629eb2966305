"""The argument SCRIPT of a command, and what to do if it is not a script."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


class ScriptFile(click.Path):
    """An existing file. If a name is something else, the error shows what to give instead."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises click.BadParameter."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as problem:
            message, hint = problem.message.removesuffix("."), script_hint(str(value))
            what = f"{message}: {hint}" if hint else problem.message
            raise click.BadParameter(what, ctx, param) from None


def script_hint(name: str) -> str:
    """Return what a name that is not a script stands for, and what to give instead."""
    path = Path(name)
    if not name:
        return "give a script"
    if run := _run_hint(name):
        return run
    if path.is_dir():
        module = ".".join(path.parts)
        runs_as_module = (path / "__main__.py").is_file() and not path.is_absolute()
        scripts = sorted(str(file) for file in path.glob("*.py") if file.name[0] != "_")
        such_as = f", such as {scripts[0]}" if scripts else ""
        as_module = f", or run it with -m {module}" if runs_as_module else ""
        return f"name a script in it{such_as}{as_module}"
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    if path.exists():
        return f"check its permissions: ls -l {name}"
    files = [file.name for file in path.parent.iterdir() if file.is_file()]
    near = difflib.get_close_matches(path.name, files, 2, 0.7)
    if near:
        return f"did you mean {' or '.join(repr(str(path.parent / name)) for name in near)}?"
    return f"the folder is {path.parent.resolve()}"


def _run_hint(name: str) -> str:
    """Return what to say of a name of a run; empty if there is no such run."""
    from tcdebug.reading.run_dir import NoRun, find  # noqa: PLC0415 - start-up time

    try:
        run = find(name).path
    except NoRun:
        return ""
    if name != "latest" and run.name != Path(name).resolve().name:
        return ""  # only the beginning of its name
    repros = [*run.glob("repro.py"), *sorted(run.glob("graphs/*/repro.py"))]
    return f"it is a run, {f'whose repro is {repros[0]}' if repros else 'and has no repro'}"


def option_after_script(options: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the first long option of a command among the words that are passed to the script."""
    given = (word.partition("=")[0] for word in words)
    return next((word for word in given if word.startswith("--") and word in options), None)
