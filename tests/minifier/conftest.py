"""Set-up of the minifier's tests: `support` on the path, one thread, a fresh Dynamo."""

import faulthandler
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


def pytest_configure() -> None:
    os.environ["TCDEBUG_LOG"] = "0"
    os.register_at_fork(after_in_child=faulthandler.disable)  # children crash on purpose


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread. An OpenMP pool would hang in children that are forked from a test."""
    import torch  # noqa: PLC0415 # collection stays fast

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def backward_after_fork() -> None:
    """Skip if this process has started threads that stop autograd from working after a fork."""
    import torch  # noqa: PLC0415 # collection stays fast

    child = os.fork()
    if child == 0:
        try:
            x = torch.ones(1, requires_grad=True)
            torch.autograd.grad(x * 2, x)
        except RuntimeError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        pytest.skip("autograd has started threads for devices")
