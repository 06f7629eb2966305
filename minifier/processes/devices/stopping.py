"""Whether the process of a script can stop before CUDA, and the script continue in its child."""

from __future__ import annotations

import threading

import torch

from tcdebug.minifier.processes.devices.sleeping import driver_is_initialised


def unfit_to_stop() -> str:
    """Return why a script cannot continue in a child of this process; empty if it can.

    CUDA must not be initialised here, so creating a tensor on a default device raises.
    """
    others = set(threading.enumerate()) - {threading.main_thread()}
    if any(not type(thread).__module__.startswith("tqdm") for thread in others):
        return "the script had started threads before it initialised CUDA"
    try:
        torch.empty(0)
    except (RuntimeError, AssertionError):
        return "a mode of the script puts tensors on a device"
    if driver_is_initialised():
        return "CUDA's driver was initialised before, such as by a tensor in pinned memory"
    return ""
