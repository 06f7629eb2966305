"""The JSON Schemas of what commands print with `--json`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import msgspec

from tcdebug.compiler.errors.codes import Code
from tcdebug.compiler.units import Unit
from tcdebug.fuzz.findings import State
from tcdebug.minifier.investigation.report import Report
from tcdebug.minifier.values.findings import ValuesReport
from tcdebug.output.structures import (
    CacheState,
    CampaignResult,
    CampaignSummary,
    Check,
    CheckedPatch,
    ListedRun,
)
from tcdebug.profiling.profile import Profile
from tcdebug.reading.comparison import Comparison
from tcdebug.reading.explanation import Explanation
from tcdebug.reading.ranks import RankComparison
from tcdebug.reading.summary import Summary
from tcdebug.since.history import VersionHistory

OUTPUTS: Mapping[str, Any] = {
    "bisect": Report,
    "minify": Report,
    "explain": Explanation,
    "explain CODE": Code,
    "since": VersionHistory,
    "values": ValuesReport,
    "run": Profile,
    "units": list[Unit],
    "cache": CacheState,
    "doctor": list[Check],
    "doctor --patches": list[CheckedPatch],
    "diff": Comparison,
    "logs ls": list[ListedRun],
    "logs ranks": RankComparison,
    "logs summary": Summary,
    "fuzz run": CampaignResult,
    "fuzz replay": dict[str, str],
    "fuzz triage": dict[str, State],
    "fuzz stats": CampaignSummary,
}
"""The type of the document that a command prints.

`logs`, `logs show` and `logs query` print events, one per line.
"""


def output_schema() -> dict[str, Any]:
    """Return the JSON Schema of each command's document, by the words of the command."""
    schemas, definitions = msgspec.json.schema_components(OUTPUTS.values())
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
        if "properties" in definition:
            definition["additionalProperties"] = False
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What tcdebug prints with --json, by command",
        "properties": dict(zip(OUTPUTS, schemas, strict=True)),
        "$defs": definitions,
    }
