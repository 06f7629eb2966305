"""What to change in a program so that it no longer recompiles, by the guard that failed.

Following the advice of a row removes the recompile: tests/toolkit/reading/test_advice.py does so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = r"-?[\d.]+(e[+-]?\d+)?$"
OF_VALUES = r"(size|stride|rank) mismatch|\.(size|stride)\(\)| == "
"""Guards on sizes and numbers."""

ADVICE: tuple[tuple[str, str], ...] = (
    (
        rf"(\bself\b|L\['self'\])[\w.\[\]']*( == {NUMBER}|: .*\(scalar change\)$)",
        "keep the number in a tensor (register_buffer): dynamic=True does not apply to numbers of "
        "a Module",
    ),
    (
        rf"G\['?\w+'?\][\w.\[\]']*( == {NUMBER}|: .*\(scalar change\)$)",
        "pass the global number as an argument, with torch.compile(..., dynamic=True)",
    ),
    (
        r"list\(dict\.keys|dict_version|DICT_KEYS|dict\.keys",
        "pass a dict with the same keys in the same order, or its values as a list",
    ),
    (
        rf"\blen\([^)]*\) == {NUMBER}",
        "pass one tensor (torch.stack) with dynamic=True, or a list of the same length",
    ),
    (
        r" == (True|False|None|'|\")|\bis (not )?(None|True|False)\b",
        "choose between two compiled functions outside: a string or flag has one graph per value",
    ),
    (
        rf" == {NUMBER}|\(scalar change\)$",
        "torch.compile(..., dynamic=True), or pass the number as a tensor",
    ),
    (
        r"size mismatch at index \d+\. expected [01],|size mismatch .* actual [01]$|"
        r"(: [01] -> \d+|-> [01]) \(size change\)$",
        "pad the dimension to 2 or more: a size of 0 or 1 always has a graph of its own",
    ),
    (
        r"size mismatch|\.size\(\)\[\d+\]|\(size change\)$",
        "mark_dynamic(tensor, dim) before the first call",
    ),
    (r"stride mismatch|\.stride\(\)", "call .contiguous() on the tensor before the call"),
    (
        r"rank mismatch|\(dimensionality change\)$",
        "reshape to the same number of dimensions before the call",
    ),
    (
        r"requires_grad mismatch",
        "pass tensors that agree in requires_grad: .detach() where no gradient is needed",
    ),
    (r"dtype mismatch", "convert to one dtype before the call"),
    (r"GLOBAL_STATE|grad_mode", "make all calls under the same grad mode, autocast and threads"),
    (
        r"___check_obj_id|ID_MATCH|__code__",
        "pass the same object in every call: define a function or lambda once",
    ),
)
"""(pattern of a failed guard or of a change, remedy). The first match applies."""


def advice(reasons: Sequence[str], changed: Sequence[str] = ()) -> list[str]:
    """Return all remedies of a recompile, because each is for a different cause.

    `reasons` are the failed guards, that of the newest graph first. Dynamo stops at the first guard
    that fails. `changed` are the sizes and numbers that Dynamo found changed. A change that made
    the guard fail needs no remedy of its own.
    """
    guard = _failed_guard(reasons)
    remedies = [_remedy(guard), *(_remedy(c) for c in _others(guard, changed))]
    return list(dict.fromkeys(text for text in remedies if text))


def cause(reasons: Sequence[str], changed: Sequence[str]) -> str:
    """Return what differed from the earlier calls, in one line.

    A change says more than a guard on the same value, since it has the value before and after.
    """
    guard = _failed_guard(reasons)
    if not changed:
        return "; ".join(reasons)
    said = [guard] if len(_others(guard, changed)) == len(changed) else []
    return "; ".join(text for text in (*said, *changed) if text)


def _failed_guard(reasons: Sequence[str]) -> str:
    """Return the guard of the newest graph that failed; empty if there is none."""
    return re.sub(r"^\d+/\d+: ", "", reasons[0].strip()) if reasons else ""


def _others(guard: str, changed: Sequence[str]) -> list[str]:
    """Return the changes that a failed guard is not about."""
    return [change for change in changed if not _is_about(guard, change)]


def _is_about(guard: str, change: str) -> bool:
    """Return whether a guard failed because of a change, such as `L['self'].seen: 0 -> 1 (...)`."""
    names = re.findall(r"\w+", change.partition(": ")[0])
    if not names or not re.search(OF_VALUES, guard):
        return False
    return re.search(rf"\b{names[-1]}\b", guard) is not None


def _remedy(said: str) -> str:
    return next((text for pattern, text in ADVICE if re.search(pattern, said)), "")
