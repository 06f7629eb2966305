"""How a bug is filed: signature, labels and search terms."""

from __future__ import annotations

import pytest

from tcdebug.minifier.cases.layer_names import CACHES, GUARDS, ORDER
from tcdebug.minifier.investigation.report import Culprit, Report, ReportedFailure, ReportedFault
from tcdebug.output.triage import Filing, component, filing

WRONG = ReportedFailure("wrong", "wrong | output 0", message="3 of 3 out of tolerance")
RAISED = ReportedFailure(
    "exception",
    "compile | AttributeError | lowering.py:sin | 'int' object has no attribute #",
    message="torch._inductor.exc.InductorError: LoweringException: AttributeError: 'int' object "
    "has no attribute 'get_size' of /home/someone/model.py",
)


def filed(failure: ReportedFailure, unit: str = "", layer: str = "", **facts: object) -> Filing:
    """How a fault with this culprit is filed."""
    culprits = [Culprit(unit, "sin", "0123456789", 0)] if unit else []
    fault = ReportedFault(failure, culprits, misregistered=facts.get("misregistered", []))  # type: ignore[arg-type] # a list
    backend = str(facts.get("backend", "inductor"))
    return filing(Report("confirmed", layer=layer), fault, backend, on_gpu=bool(facts.get("gpu")))


@pytest.mark.parametrize(
    ("found", "labels"),
    [
        (
            filed(RAISED, "lower.aten.sin.default"),
            ("oncall: pt2", "module: inductor", "oncall: cpu inductor"),
        ),
        (
            filed(WRONG, "lower.aten.sin.default", gpu=True),
            ("oncall: pt2", "module: inductor", "module: correctness (silent)"),
        ),
        (
            filed(WRONG, layer="layer.dynamo.guards"),
            ("oncall: pt2", "module: dynamo", "module: guards", "module: correctness (silent)"),
        ),
        (filed(RAISED, "autograd.trace"), ("oncall: pt2", "module: pt2-dispatcher")),
        (filed(RAISED, layer="layer.export"), ("oncall: pt2", "oncall: export")),
        (filed(RAISED, "cudagraphs", gpu=True),
         ("oncall: pt2", "module: cuda graphs", "module: inductor")),
        (filed(RAISED, "layer.backend", backend="mine"), ()),
        (filed(RAISED, "lower.aten.sin.default", backend="tcdebug"), ()),
        (filed(RAISED, misregistered=["mylib::op: its fake kernel is wrong"]), ()),
    ],
    ids=lambda value: "",
)  # fmt: skip
def test_labels_are_those_of_the_component(found: Filing, labels: tuple[str, ...]) -> None:
    assert found.labels == labels


@pytest.mark.parametrize("layer", [*ORDER[:-1], *GUARDS, *CACHES])
def test_every_layer_but_the_backend_has_labels(layer: str) -> None:
    assert component(layer) or layer == "layer.backend"


def test_search_terms_are_the_operator_the_exception_and_words_of_its_message() -> None:
    found = filed(RAISED, "lower.aten.sin.default")
    assert found.terms == "torch.compile sin AttributeError int object has attribute get_size"
    assert found.search == (
        "https://github.com/pytorch/pytorch/issues?q=is%3Aissue+torch.compile+sin+AttributeError+"
        "int+object+has+attribute+get_size"
    )


def test_search_terms_of_code_generation_name_the_operator_whose_code_is_wrong() -> None:
    culprit = Culprit("codegen.vectorize", "tanh", "0123456789", 0)
    fault = ReportedFault(WRONG, [culprit], requires=["lower.aten.tanh.default"])
    found = filing(Report("confirmed"), fault, "inductor", on_gpu=False)
    assert found.terms == "torch.compile tanh incorrect result"


def test_a_signature_has_the_culprit_and_the_failure() -> None:
    assert filed(WRONG, "passes.cse").signature == "passes.cse | wrong | output 0"
