"""What a program may change in its process, as expressions that read it and write it back."""

from __future__ import annotations

PROCESS_FLAGS = (
    ("torch.is_grad_enabled()", "torch.set_grad_enabled(value)"),
    ("torch.is_autocast_enabled('cpu')", "torch.set_autocast_enabled('cpu', value)"),
    ("torch.get_autocast_dtype('cpu')", "torch.set_autocast_dtype('cpu', value)"),
    ("torch.is_autocast_cache_enabled()", "torch.set_autocast_cache_enabled(value)"),
    ("torch.get_default_dtype()", "torch.set_default_dtype(value)"),
    ("torch.get_float32_matmul_precision()", "torch.set_float32_matmul_precision(value)"),
    ("torch.is_anomaly_enabled()", "torch.autograd.set_detect_anomaly(value)"),
    ("torch.is_warn_always_enabled()", "torch.set_warn_always(value)"),
    (
        "(torch.are_deterministic_algorithms_enabled(),"
        " torch.is_deterministic_algorithms_warn_only_enabled())",
        "torch.use_deterministic_algorithms(value[0], warn_only=value[1])",
    ),
    ("torch.backends.cuda.flash_sdp_enabled()", "torch.backends.cuda.enable_flash_sdp(value)"),
    ("torch.backends.mkldnn.enabled", "setattr(torch.backends.mkldnn, 'enabled', value)"),
    ("torch.backends.cudnn.benchmark", "setattr(torch.backends.cudnn, 'benchmark', value)"),
    (
        "torch.utils.hooks.RemovableHandle.next_id",  # the keys of dictionaries of hooks
        "setattr(torch.utils.hooks.RemovableHandle, 'next_id', value)",
    ),
    ("random.getstate()", "random.setstate(value)"),
    ("decimal.getcontext().copy()", "decimal.setcontext(value)"),
    ("dict(os.environ)", "(os.environ.clear(), os.environ.update(value))"),
)
"""Pairs of an expression that reads a flag and one that sets it to `value`.

They use the modules `torch`, `random`, `decimal` and `os`.
"""
MODES = (
    "torch.is_grad_enabled()",
    "torch.is_autocast_enabled('cpu')",
    "torch.get_default_dtype()",
    "torch.is_inference_mode_enabled()",
    "torch.are_deterministic_algorithms_enabled()",
)
"""What each call must leave as eager leaves it."""
