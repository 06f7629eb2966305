"""Which versions are run, and what their results show."""

from __future__ import annotations

import pytest

from tcdebug.since.history import BadVersions, history, tried, versions
from tcdebug.since.trials import Standing, Trial

VERSIONS = ["2.9", "2.10", "2.11", "2.12", "2.13", "2.14"]
STANDINGS = {
    ".": Standing.PASSES, "F": Standing.SAME, "G": Standing.SAME, "?": Standing.UNKNOWN,
}  # fmt: skip
"""F and G fail with different signatures."""


def result(pattern: str, *, every: bool = False) -> tuple[str, list[str]]:
    """Return the verdict about versions with these results, and the versions in order of runs."""
    ran: list[str] = []

    def run(version: str) -> Trial:
        ran.append(version)
        how = pattern[VERSIONS.index(version)]
        return Trial(version, STANDINGS[how], signature=how)

    found = history("repro.py", tried(run, VERSIONS, every=every))
    return found.verdict, ran


def test_versions_are_ranges_and_lists_in_their_own_order() -> None:
    assert versions("2.9..2.11") == ["2.9", "2.10", "2.11"]
    assert versions("2.12.1,2.9,2.12,2.9") == ["2.9", "2.12", "2.12.1"]
    assert versions("2.13..2.13") == ["2.13"]


@pytest.mark.parametrize("text", ["", "2", "2.11-2.12", "1.9..2.1", "2.12..2.11", "2.11,"])
def test_an_invalid_version_is_refused(text: str) -> None:
    with pytest.raises(BadVersions):
        versions(text)


def test_one_change_is_found_by_a_binary_search() -> None:
    verdict, ran = result("...FFF")
    assert verdict == "fails since 2.12 (2.11 passes)"
    assert ran == ["2.14", "2.9", "2.11", "2.12"]
    assert result("FFFF..")[0] == "fixed in 2.13 (2.12 fails)"


def test_every_version_runs_if_both_ends_are_alike() -> None:
    verdict, ran = result("..FF..")
    assert verdict == "fails since 2.11 (2.10 passes), fixed in 2.13 (2.12 fails)"
    assert len(ran) == 6
    assert result("FFFFFF")[0] == "fails in 2.9 to 2.14"
    assert result("......")[0] == "passes in 2.9 to 2.14"
    assert result(".F.FFF", every=True)[0].count("fails since") == 2


def test_a_version_without_an_answer_is_undecided() -> None:
    assert result("..??FF")[0] == "fails since 2.13 (2.10 passes, 2.11 and 2.12 unsettled)"
    assert result("??????")[0] == "no version shows whether it fails"
    assert result("?????F")[0] == "fails in 2.14"


def test_another_failure_is_neither_a_pass_nor_the_failure() -> None:
    assert result("..GGFF")[0] == "fails since 2.13 (2.10 passes, 2.11 and 2.12 unsettled)"


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        (["2.11", "2.13"], "fails since 2.13 (2.11 passes, 2.12 not tried)"),
        (["2.9", "2.13"], "fails since 2.13 (2.9 passes, 2.10, 2.11 and 2.12 not tried)"),
        (["2.12.1", "2.13.1"], "fails since 2.13.1 (2.12.1 passes)"),
        (["2.13", "2.15"], "fails in 2.13 and 2.15"),
        (["2.12", "2.13", "2.15"], "fails since 2.13 (2.12 passes)"),
        (["2.9", "2.11", "2.12"], "passes in 2.9, 2.11 and 2.12"),
        (["2.13", "2.14"], "fails in 2.13 to 2.14"),
    ],
)
def test_a_verdict_does_not_speak_of_versions_that_were_not_asked_for(
    wanted: list[str], verdict: str
) -> None:
    def run(version: str) -> Trial:
        fails = int(version.split(".")[1]) >= 13
        return Trial(version, Standing.SAME if fails else Standing.PASSES)

    assert history("repro.py", tried(run, wanted, every=False)).verdict == verdict
