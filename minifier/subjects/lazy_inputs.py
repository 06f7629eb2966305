"""Inputs whose memory does not hold what they read as, such as `x.conj().imag`."""

from __future__ import annotations

from dataclasses import replace

import torch

from tcdebug.minifier.cases.case import Case, CaseInput


def resolved(case: Case) -> tuple[Case, list[str]]:
    """Return a case with inputs that are in memory as they read, and what each of those was.

    Tensors may be conjugated or negated only when they are read. `is_conj` and `is_neg` tell.
    """
    plain: dict[str, CaseInput] = {}
    found = []
    for given in case.inputs:
        value = given.value
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            continue
        if lazy := ["is_conj"] * value.is_conj() + ["is_neg"] * value.is_neg():
            now = value.detach().resolve_conj().resolve_neg().requires_grad_(value.requires_grad)
            plain[given.name] = replace(given, value=now, recipe=None)
            found.append(f"{given.name} ({', '.join(lazy)})")
    return case.with_inputs(plain), found
