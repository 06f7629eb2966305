"""Programs that are not scripts: `-m MODULE`, `-c CODE`, and commands such as pytest or torchrun.

Each becomes a file in `.tcdebug/commands/` that starts the program as Python would. Everything that
works with a script then works with it, such as a repro that needs the script's setup.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import click

from tcdebug.cli.script_argument import option_after_script
from tcdebug.compiler.events.run_folder import BASE

FOLDER = "commands"
PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")

MODULE = '''"""Runs `python -m {name}`, for tcdebug."""
import os
import runpy
import sys

sys.path[0] = os.getcwd()
runpy.run_module({name!r}, run_name="__main__", alter_sys=True)
'''

COMMAND = '''"""Runs the command `{name}`, for tcdebug."""
import os
import sys
from importlib.metadata import entry_points

sys.argv[0] = os.path.join(os.path.dirname(sys.executable), {name!r})
sys.path[0] = os.path.dirname(sys.executable)

if __name__ == "__main__":
    command, *_ = entry_points(group="console_scripts", name={name!r})
    sys.exit(command.load()())
'''

CODE = 'import os, sys; sys.path[0], sys.argv[0] = os.getcwd(), "-c"\n'


class ProgramCommand(click.Command):
    """A command that takes a script, `-m MODULE`, `-c CODE`, or the name of an installed command.

    Click sees a script in each case.
    """

    values: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The values of options that may be given without a value; the first is the default."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Replace the words that name the program by a file that starts it."""
        options, words = self._split(args)
        parsed = super().parse_args(context, [*options, *as_script(words)])
        if words and Path(words[0]).is_file() and not context.params.get("quiet"):
            self._say_what_the_script_gets(words)
        return parsed

    def _say_what_the_script_gets(self, words: Sequence[str]) -> None:
        """Print a note if an option of this command follows the script."""
        own = [name for parameter in self.params for name in parameter.opts]
        option = option_after_script(own, words[1:])
        if option is not None:
            from tcdebug.display.console import note  # noqa: PLC0415 - start-up time

            note(f"{option} is passed to {words[0]}: options of tcdebug go before the script")

    def _split(self, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the options of the command, each with its value, and the words of the program."""
        takes = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        options: list[str] = []
        left = list(args)
        while left and left[0].startswith("-") and left[0][:2] not in ("-m", "-c"):
            option = left.pop(0)
            if option == "--":
                break
            if option in self.values:
                known = self.values[option]
                value = left.pop(0) if left and left[0] in known else known[0]
                options.append(f"{option}={value}")
                continue
            options.append(option)
            if option in takes and left:
                options.append(left.pop(0))
        return options, left


def as_script(words: Sequence[str]) -> list[str]:
    """Return the words of a program, with a script as the first. Raises click.UsageError."""
    if not words:
        return []
    first, *rest = words
    if first[:2] in ("-m", "-c"):
        if len(first) > 2:
            first, rest = first[:2], [first[2:], *rest]
        if not rest:
            raise click.UsageError(f"{first} needs an argument")
        name, *rest = rest
        if first == "-m":
            _check_module(name)
        text = MODULE.format(name=name) if first == "-m" else code_text(name)
        return [str(_written(name if first == "-m" else "code", text)), *rest]
    if PYTHON.fullmatch(first) and rest:
        _check_interpreter(first)
        return as_script([word for k, word in enumerate(rest) if k or word != "-u"])
    if Path(first).exists():
        return list(words)
    if _installed(first):
        return [str(_written(first, COMMAND.format(name=first))), *rest]
    return list(words)


def _check_interpreter(name: str) -> None:
    """Reject the path of a Python of another environment, since this one runs the script."""
    own = Path(sys.executable)
    if "/" in name and Path(name).parent.resolve() != own.parent.resolve():
        raise click.UsageError(
            f"the script would run in {own}, not in {name}: install tcdebug for that one, "
            "or leave it out"
        )


def _check_module(name: str) -> None:
    """Reject a module whose outermost package does not exist. Nothing is imported."""
    outermost = name.partition(".")[0]
    try:
        found = PathFinder.find_spec(outermost, [os.getcwd()]) or find_spec(outermost)
    except ValueError:  # such as a name without a first part
        found = None
    if found is None:
        is_script = Path(name).is_file()
        other = f"without -m, {name} is a script" if is_script else "run tcdebug in its folder"
        folder = "" if is_script else f" in {os.getcwd()} or among installed packages"
        raise click.UsageError(f"no module named {(outermost or name)!r}{folder}: {other}")


def code_text(code: str) -> str:
    """Return the text of `-c CODE` as a file that imports from the working folder."""
    try:
        body = ast.parse(code).body
    except SyntaxError:
        return code  # Python will report the syntax error
    future = [s for s in body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    lines = code.splitlines(keepends=True)
    place = future[-1].end_lineno or 0 if future else 0
    head = "".join(lines[:place])
    if head and not head.endswith("\n"):
        head += "\n"
    return f"{head}{CODE}{''.join(lines[place:])}\n"


def _installed(name: str) -> list[EntryPoint]:
    return [*entry_points(group="console_scripts", name=name)]


def _written(name: str, text: str) -> Path:
    """Return the file that starts a program. The same program always has the same file."""
    plain = re.sub(r"[^\w.]", "-", name)[:40]
    digest = blake2b(text.encode(), digest_size=4).hexdigest()
    for parent in (Path(BASE), Path(tempfile.gettempdir()) / "tcdebug"):
        path = parent / FOLDER / f"{plain}-{digest}.py"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(text)
        except OSError:
            continue
        if parent == Path(BASE) and not (parent / ".gitignore").exists():
            (parent / ".gitignore").write_text("*\n")
        return path
    raise click.UsageError("neither the working folder nor the temporary folder is writable")
