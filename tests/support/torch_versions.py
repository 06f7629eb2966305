"""For tests whose program torch itself handles differently in older versions."""

from __future__ import annotations

import pytest
import torch
from torch.torch_version import TorchVersion

VERSION = TorchVersion(torch.__version__)


def needs_torch(version: str, why: str) -> pytest.MarkDecorator:
    """Skip a test in versions before this one, because of what torch does there."""
    return pytest.mark.skipif(version > VERSION, reason=f"before torch {version}, {why}")
