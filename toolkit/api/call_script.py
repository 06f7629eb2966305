"""Writes one call of a function as a script that other processes can run."""

from __future__ import annotations

import os
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import cloudpickle
import torch

from tcdebug.api.saving import NotSaved
from tcdebug.compiler.events.run_folder import BASE

FOLDER = "calls"


def written_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    compile_options: Mapping[str, Any],
) -> Path:
    """Write a script that makes the call in eager and compiled, and fails if the results differ.

    `compile_options` are the keyword arguments of `torch.compile`. The function, and whatever it
    refers to, is pickled beside the script: functions of `__main__` by value, those of a module by
    name. The random state of torch and Python is the current one. Raises NotSaved.
    """
    plain = getattr(function, "_torchdynamo_orig_callable", function)
    numbers = random.getstate(), torch.get_rng_state(), torch.initial_seed()
    try:
        data = cloudpickle.dumps((plain, args, dict(kwargs), dict(compile_options), *numbers))
        pickle.loads(data)
    except Exception as error:
        raise NotSaved(
            f"the call cannot be made in another process, because pickling it raised "
            f"{type(error).__name__}: {error}. Write it as a script and use tcdebug bisect SCRIPT"
        ) from error
    digest = blake2b(data, digest_size=6).hexdigest()
    folder = (Path(BASE) / FOLDER).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stored, script = folder / f"call-{digest}.pkl", folder / f"call-{digest}.py"
    template = Template((resources.files(__package__) / "call.py.tmpl").read_text())
    name = getattr(plain, "__qualname__", type(plain).__qualname__)
    paths = [os.getcwd(), *(path for path in sys.path if path)]
    stored.write_bytes(data)
    script.write_text(template.substitute(name=name, path=repr(paths), stored=repr(str(stored))))
    return script
