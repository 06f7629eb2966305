"""The page at the end of a sweep: the distribution, and every row that loses, worst first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LOSES = 1.05
Row = Mapping[str, Any]


def page(rows: Sequence[Row], total: int) -> str:
    """The page of the results so far, of `total` programs."""
    good = [row for row in rows if row["status"] == "measured"]
    others = Counter(row["status"] for row in rows if row["status"] != "measured")
    lines = [
        f"{len(rows)} of {total} programs tried, {len(good)} measured"
        + "".join(f", {count} {status}" for status, count in sorted(others.items()))
    ]
    if not good:
        return lines[0]
    noise = sorted(row["noise"] for row in good)
    lines += [
        f"noise of a ratio (95 %): median {noise[len(noise) // 2]:.1%},"
        f" largest tenth above {noise[len(noise) * 9 // 10]:.1%}",
        "",
        f"{'tcdebug over':24} {'mean':>6} {'10 %':>6} {'50 %':>6} {'90 %':>6} {'95 %':>6}"
        f" {'worst':>7}   {'> 1.05':>7} {'> 1.25':>7}",
    ]
    lines += [
        _distribution("inductor", [row["over_inductor"] for row in good]),
        _distribution("eager", [row["over_eager"] for row in good]),
        _distribution("inductor, first call", [row["compile_over"] for row in good]),
    ]
    for name, key in (("peak memory", "memory_over"), ("beyond inputs", "beyond_inputs_over")):
        if memory := [row[key] for row in good if row.get(key)]:
            lines.append(_distribution(f"inductor, {name}", memory))
    lines += ["", "by family, over inductor:"]
    for family in dict.fromkeys(row["family"] for row in good):
        ratios = [row["over_inductor"] for row in good if row["family"] == family]
        lines.append(_distribution(f"  {family} ({len(ratios)})", ratios))
    lines += ["", *_losing(good)]
    wrong = [row for row in rows if row["status"] in ("failed", "died") or _differs(row)]
    lines += ["", f"{len(wrong)} programs differ from eager, fail or end the process:"]
    for row in wrong:
        status = "differs" if _differs(row) else row["status"]
        lines.append(f"  {status:7} {row['name']}: {row.get('why', '')[:120]}")
    return "\n".join(lines)


def _differs(row: Row) -> bool:
    """Whether the first results were not eager's.

    That of a program that changes its inputs may differ, since all versions share them.
    """
    return row["status"] == "measured" and bool(row.get("why"))


def _losing(good: Sequence[Row]) -> list[str]:
    """Rows that are slower than inductor or eager by more than 5 % and their noise."""
    losing = [row for row in good if _worst(row) > LOSES * (1 + row["noise"])]
    losing.sort(key=_worst, reverse=True)
    lines = [
        f"{len(losing)} rows lose (over 1.05 by more than their noise), worst first:",
        f"  {'inductor':>8} {'eager':>6} {'noise':>6} {'us':>9} {'compile':>7}  program",
    ]
    return lines + [
        f"  {row['over_inductor']:8.2f} {row['over_eager']:6.2f} {row['noise']:6.1%}"
        f" {row['seconds'] * 1e6:9.1f} {row['compile_seconds']:6.1f}s  {row['name']}"
        for row in losing
    ]


def _worst(row: Row) -> float:
    return max(float(row["over_inductor"]), float(row["over_eager"]))


def _distribution(name: str, values: Iterable[float]) -> str:
    given = sorted(values)
    mean = math.exp(sum(map(math.log, given)) / len(given))
    cuts = [given[min(len(given) - 1, int(len(given) * share))] for share in (0.1, 0.5, 0.9, 0.95)]
    above = [sum(v > limit for v in given) / len(given) for limit in (1.05, 1.25)]
    cells = " ".join(f"{v:6.2f}" for v in (mean, *cuts))
    return f"{name:24} {cells} {given[-1]:7.2f}   {above[0]:7.1%} {above[1]:7.1%}"
