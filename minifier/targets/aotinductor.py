"""AOTInductor as a backend of torch.compile: a graph is exported, packaged and loaded.

Its source is also part of the repros that use it.
"""

from __future__ import annotations

from typing import Any

import torch


def aotinductor(module: Any, inputs: Any, options: Any = None) -> Any:
    """Export a graph, compile it ahead of time and load the package. No gradients are recorded.

    `options` are settings of inductor. A graph whose symbolic sizes are all sizes of its tensors is
    one package for all sizes. Any other graph with symbolic sizes has a package for each set.
    """
    packages: dict[Any, Any] = {}
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    given = graph.find_nodes(op="placeholder")
    examples = [node.meta.get("example_value") for node in given]
    numbers = [k for k, v in enumerate(examples) if isinstance(v, torch.SymInt)]
    places = {
        str(size): (k, dim)
        for k, v in enumerate(examples) if torch.is_tensor(v)
        for dim, size in enumerate(v.shape) if isinstance(size, torch.SymInt)
    }  # fmt: skip
    dynamic = bool(places) and all(str(examples[k]) in places for k in numbers)
    if dynamic:  # the graph reads its sizes from its tensors
        first = next(node for node in graph.nodes if node.op != "placeholder")
        for k in numbers:
            tensor, dim = places[str(examples[k])]
            with graph.inserting_before(first):
                size = graph.call_method("size", (given[tensor], dim))
            given[k].replace_all_uses_with(size)
            graph.erase_node(given[k])
        module = torch.fx.GraphModule(module, graph)
    read = [k for k in range(len(given)) if not dynamic or k not in numbers]
    dims = tuple(
        {d: torch.export.Dim.AUTO for d, s in enumerate(v.shape) if isinstance(s, torch.SymInt)}
        if torch.is_tensor(v) else None
        for v in (examples[k] for k in read)
    )  # fmt: skip

    def refuse_gradients(values: Any) -> None:
        wanted = any(torch.is_tensor(v) and v.requires_grad for v in values)
        if wanted and torch.is_grad_enabled():
            raise RuntimeError("AOTInductor records no gradients: call it under torch.no_grad()")

    def package_for(values: Any) -> Any:
        key: Any = tuple((v.shape, v.stride()) if torch.is_tensor(v) else v for v in values)
        if (key := "all sizes" if dynamic else key) not in packages:
            with torch._guards.tracing(None), torch.no_grad():
                shapes = dims if dynamic else None
                program = torch.export.export(module, values, dynamic_shapes=shapes)
                settings = dict(options or {})
                path = torch._inductor.aoti_compile_and_package(program, inductor_configs=settings)
                packages[key] = torch._inductor.aoti_load_package(path)
        return packages[key]

    def call(*values: Any) -> Any:
        refuse_gradients(values)
        known = tuple(values[k] for k in read)
        return package_for(known)(*known)

    refuse_gradients(inputs)
    if dynamic or not numbers:
        package_for(tuple(inputs[k] for k in read))
    return call
