"""Writes one self-contained HTML file, with a policy that forbids network access."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from hashlib import sha256
from importlib import resources
from typing import Any

import jinja2
import msgspec

from tcdebug.display.comparison import PARTS
from tcdebug.display.ranks import difference_rows, ranks_text
from tcdebug.display.summary import size
from tcdebug.display.text import counted
from tcdebug.reading.run_dir import Run
from tcdebug.report.data import RunView, Texts, against, seen, view


def render(runs: Sequence[Run]) -> str:
    """Return the page of some runs. It opens on the first."""
    texts = Texts()
    shown = [part for run in runs for part in seen(run)]
    views = [view(part, texts) for part in shown]
    others = [against(shown[0], part, texts) for part in shown[1:]]
    style, script = _file("style.css"), _file("script.js")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["size"] = size
    environment.globals["counted"] = counted
    environment.globals["PARTS"] = PARTS
    environment.globals["ranks_text"] = ranks_text
    environment.globals["difference_rows"] = difference_rows
    return environment.from_string(_file("page.html.j2")).render(
        runs=views,
        others=others,
        policy=policy(style, script),
        style=style,
        script=script,
        data=packed({"texts": texts.all, "runs": [_shown(v) for v in views], "others": others}),
    )


def policy(style: str, script: str) -> str:
    """Return the content security policy: only the page's own script and style."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def packed(data: Any) -> str:
    """Return JSON, compressed by gzip and encoded as base64. A browser can decompress it."""
    return base64.b64encode(gzip.compress(msgspec.json.encode(data), 9, mtime=0)).decode()


def unpacked(text: str) -> Any:
    """Reverse `packed`."""
    return msgspec.json.decode(gzip.decompress(base64.b64decode(text)))


def _shown(run: RunView) -> dict[str, Any]:
    """Return the data that the script draws; the rest is in the HTML."""
    return {
        "name": run.name,
        "graphs": run.graphs,
        "kernels": run.kernels,
        "remarks": run.remarks,
        "spans": run.spans,
        "history": run.history,
        "lines": run.lines,
    }


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(sha256(text.encode()).digest()).decode()


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text()
