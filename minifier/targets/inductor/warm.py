"""What a first compile by inductor sets up, done once rather than in every forked candidate."""

from __future__ import annotations

from torch._inductor import config
from torch._inductor.cpu_vec_isa import pick_vec_isa
from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad


def warm_up() -> None:
    """Register inductor's patterns and find the vector instructions; compiles no graph."""
    with config.patch(compile_threads=1):
        for module in (pre_grad, joint_graph, post_grad):
            module.lazy_init()
        pick_vec_isa()
