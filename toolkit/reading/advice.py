"""What to change in a program so that it no longer recompiles, by the guard that failed.

Following the advice of a row removes the recompile: tests/toolkit/reading/test_advice.py does so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = r"-?[\d.]+(e[+-]?\d+)?$"

ADVICE: tuple[tuple[str, str], ...] = (
    (
        rf"(\bself\b|L\['self'\])[\w.\[\]']* == {NUMBER}",
        "keep the number in a tensor (register_buffer): dynamic=True does not apply to numbers of "
        "a Module",
    ),
    (
        rf"G\['?\w+'?\][\w.\[\]']* == {NUMBER}",
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
    (rf" == {NUMBER}", "torch.compile(..., dynamic=True), or pass the number as a tensor"),
    (
        r"size mismatch at index \d+\. expected [01],|size mismatch .* actual [01]$",
        "pad the dimension to 2 or more: a size of 0 or 1 always has a graph of its own",
    ),
    (
        r"size mismatch|\.size\(\)\[\d+\]",
        "mark_dynamic(tensor, dim) before the first call",
    ),
    (r"stride mismatch|\.stride\(\)", "call .contiguous() on the tensor before the call"),
    (r"rank mismatch", "reshape to the same number of dimensions before the call"),
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
"""(pattern of a failed guard, remedy). The first match applies."""


def advice(reasons: Sequence[str]) -> str:
    """What to do about a recompile, by the guard of the newest graph; empty if nothing is known."""
    said = re.sub(r"^\d+/\d+: ", "", reasons[0].strip()) if reasons else ""
    return next((text for pattern, text in ADVICE if re.search(pattern, said)), "")
