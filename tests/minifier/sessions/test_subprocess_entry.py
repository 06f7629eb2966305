"""A process that tcdebug did not start is prepared before it first compiles or exports."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tcdebug.minifier.sessions.subprocess_entry import FIRST_CALLS, at_first_compile

ONES = (torch.ones(2),)
EXPORT = torch.export.export


class Doubling(torch.nn.Module):
    """Twice its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice the input."""
        return x * 2


def compiles() -> None:
    torch.compile(Doubling(), backend="eager")(*ONES)


def exports() -> None:
    torch.export.export(Doubling(), ONES)


def loads() -> None:
    with pytest.raises(Exception, match=r".+"):
        torch._inductor.aoti_load_package("/no/such.pt2")


def enters_inductor() -> None:
    with pytest.raises(Exception, match=r".+"):
        torch._inductor.compile(None, None)


@pytest.mark.parametrize("begins", [compiles, exports, loads, enters_inductor])
def test_the_first_call_that_compiles_exports_or_loads_is_announced_once(
    begins: Callable[[], None],
) -> None:
    announced: list[bool] = []
    at_first_compile(lambda: announced.append(torch.export.export is EXPORT))
    begins()
    assert announced == [True]  # all functions are torch's again when it is announced
    exports()
    compiles()
    assert announced == [True]


def test_every_function_whose_first_call_is_announced_exists() -> None:
    for functions in FIRST_CALLS.values():
        for owner, name in functions:
            module, _, cls = owner.partition(":")
            found = __import__(module, fromlist=["_"])
            assert hasattr(getattr(found, cls) if cls else found, name), (owner, name)


def test_a_save_around_the_first_export_is_the_one_that_the_announcement_installs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved: list[str] = []

    def install() -> None:
        monkeypatch.setattr(torch.export, "save", lambda program, path: saved.append(path))

    at_first_compile(install)
    torch.export.save(torch.export.export(Doubling(), ONES), "program.pt2")
    assert saved == ["program.pt2"]
    torch.export.save(torch.export.export(Doubling(), ONES), "again.pt2")
    assert saved == ["program.pt2", "again.pt2"]
