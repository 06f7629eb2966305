"""Handwritten events."""

from __future__ import annotations

from typing import Any


def line(kind: str, seconds: float, data: dict[str, Any], **envelope: Any) -> dict[str, Any]:
    """An event that is written this many seconds after the start."""
    return {
        "ts": "2026-01-01T00:00:00.000000Z", "t_ns": round(seconds * 1e9), "seq": 0,
        "event": kind, "level": "info", "run_id": "r", "pid": 7, "data": data, **envelope,
    }  # fmt: skip


def stage(name: str, end: float, seconds: float, **envelope: Any) -> dict[str, Any]:
    """The end of a stage."""
    data = {"nodes_before": 3, "nodes_after": 2, "changed": True, "seconds": seconds}
    return line("stage.end", end, {**data, "artifact": ""}, stage=name, **envelope)
