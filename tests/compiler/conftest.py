"""Setup for all tests of the compiler: `support` on the path, no event logs."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


def pytest_configure() -> None:
    os.environ["TCDEBUG_LOG"] = "0"


def pytest_collectstart() -> None:
    """Seeds what a file draws at import, so that it is the same alone and among other files."""
    import torch  # noqa: PLC0415 # not before a file is collected

    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Resets Dynamo, so that no test sees frames that another one compiled or skipped."""
    import torch  # noqa: PLC0415 # collection stays fast

    torch.default_generator.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
