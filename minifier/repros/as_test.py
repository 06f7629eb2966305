"""Turns a repro script into a pytest test, or into one that runs without tcdebug."""

from __future__ import annotations

import shutil
from pathlib import Path

from tcdebug.minifier.repros.standalone import judges_graph, standalone

MAIN = '\n\nif __name__ == "__main__":\n'

TEST = """

def test_eager_and_compiled_agree():
    import subprocess
    command = [sys.executable, os.path.abspath(__file__)]  # a child process: it may crash or hang
    done = subprocess.run(command, capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert found == ["found    {'kind': 'ok'}"], done.stdout + done.stderr
"""


def is_repro(path: Path) -> bool:
    """Return whether a file is a self-judging repro script that tcdebug wrote."""
    text = path.read_text(errors="replace")
    return judges_graph(text) and MAIN in text


def write_test(script: Path, folder: Path) -> Path:
    """Write the test of a repro script and its data to a folder. Return the path of the test.

    The test contains the judge, so that it needs tcdebug only if the script's backend does.
    """
    path = folder / f"test_{script.name}"
    text = standalone(script.read_text())
    body, _, rest = text.rpartition(MAIN)
    body = body.replace(
        f"Run it: python {script.name}.", f"Run it: pytest {path.name}, or python {path.name}.", 1
    )
    path.write_text(body + "\n" + TEST + MAIN + rest)
    copy_data(script, text, path)
    return path


def write_standalone(script: Path, folder: Path) -> Path:
    """Write a repro script with its judge in it, and its data, to a folder. Return its path."""
    path = folder / f"standalone_{script.name}"
    text = standalone(script.read_text())
    path.write_text(text.replace(f"Run it: python {script.name}.", f"Run it: python {path.name}."))
    copy_data(script, text, path)
    return path


def copy_data(script: Path, text: str, path: Path) -> None:
    """Copy what a repro script with this text needs beside it, to go beside `path`."""
    data = script.with_suffix(".safetensors")
    if data.exists():
        shutil.copyfile(data, path.with_suffix(".safetensors"))
    program = script.with_name("repro_script.py")
    if program.name in text and program.exists() and program.parent != path.parent:
        shutil.copyfile(program, path.with_name(program.name))
