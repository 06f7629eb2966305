"""The settings that a script makes in its environment before torch reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tcdebug.minifier.cases.script_text import variables_set_first

FREEZING = {"TORCHINDUCTOR_FREEZING": "1"}
SET = 'os.environ["TORCHINDUCTOR_FREEZING"] = "1"\n'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"import os\n{SET}import torch\n", FREEZING),
        (f"import numpy as np, os\nimport torch\n{SET}f = torch.compile(len)\n", FREEZING),
        ('import os, torch\nos.environ["OMP_NUM_THREADS"] = "1"\n', {}),
        ('from os import environ\nenviron["OMP_NUM_THREADS"] = "1"\n', {"OMP_NUM_THREADS": "1"}),
        ('import os\nos.environ.update({"TORCHINDUCTOR_FREEZING": "1"})\n', FREEZING),
        ('import os\nos.environ.update(TORCHINDUCTOR_FREEZING="1", HOME="/")\n', FREEZING),
        ('import os\nos.environ.setdefault("TORCHINDUCTOR_FREEZING", "1")\n', FREEZING),
        ('import os\nos.environ.setdefault("OMP_NUM_THREADS", "1")\n', {}),
        (f"import os, torch\nimport torch._inductor.config\n{SET}", {}),
        (f"import os, torch\ntorch.compile(len)([])\n{SET}", {}),
        (f"import os, transformers\n{SET}", {}),
        (f"import os\nfrom . import model\n{SET}", {}),
        (f"import os\nif os.path.exists('x'):\n    {SET}", {}),
        ("import os\nos.environ['TORCHINDUCTOR_FREEZING'] = str(1)\n", {}),
        ("import os\nos.environ['TORCHINDUCTOR_CACHE_DIR'] = '/tmp/x'\n", {}),
        ("def f(:\n", {}),
    ],
)
def test_only_what_torch_reads_later_is_a_setting_of_the_script(
    text: str, found: dict[str, str]
) -> None:
    assert variables_set_first(text, {"OMP_NUM_THREADS": "4"}) == found


def test_a_script_that_is_run_has_the_settings_that_it_makes_before_torch(tmp_path: Path) -> None:
    script = tmp_path / "frozen.py"
    script.write_text(f"import os\n{SET}import torch._inductor.config as c\nprint(c.freezing)\n")
    command = [sys.executable, "-m", "tcdebug", "run", "--quiet", script.name]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCHINDUCTOR_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[:1] == ["True"], done.stderr
