"""A script that gives its graph directly to inductor, with a wrong lowering: ENTRY KIND."""

import sys
from pathlib import Path

import torch
from torch._inductor import lowering
from torch._inductor.compile_fx import compile_fx
from torch.fx.experimental.proxy_tensor import make_fx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from planted import misbehave

aten = torch.ops.aten
ENTRY, KIND = sys.argv[1:]


def wrong_tanh(x):
    misbehave(KIND)
    return lowering.lowerings[aten.sin.default](x)


def step(x, y):
    a = torch.cos(x) * y
    return (torch.tanh(a) + x).sum(-1), a


def compiled(entry, graph, inputs):
    options = {"max_fusion_size": 32}
    match entry:
        case "inductor_compile":
            return torch._inductor.compile(graph, inputs, options)
        case "compile_fx":
            return compile_fx(graph, inputs, config_patches=options)
        case "compile_fx_again":  # arguments that a repro cannot state
            table = dict(torch._inductor.decomposition.select_decomp_table())
            return compile_fx(graph, inputs, decompositions=table)
        case "standalone_compile":
            artifact = torch._inductor.standalone_compile(
                graph, inputs, dynamic_shapes="from_example_inputs", options={}
            )
            artifact.save(path="artifact", format="unpacked")
            return torch._inductor.CompiledArtifact.load(path="artifact", format="unpacked")
        case "aoti_package":
            program = torch.export.export(graph, (*inputs,))
            path = torch._inductor.aoti_compile_and_package(program)
            return torch._inductor.aoti_load_package(path)
        case "aot_compile":
            program = torch.export.export(graph, (*inputs,)).module(check_guards=False)
            return torch._export.aot_load(torch._inductor.aot_compile(program, (*inputs,)), "cpu")


def main():
    lowering.register_lowering(aten.tanh.default, type_promotion_kind=None)(wrong_tanh)
    inputs = [torch.randn(4, 8), torch.randn(4, 8)]
    with torch.no_grad():
        call = compiled(ENTRY, make_fx(step)(*inputs), inputs)
        torch.testing.assert_close(call(*inputs)[0], step(*inputs)[0])


if __name__ == "__main__":
    main()
