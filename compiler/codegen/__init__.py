"""The codegen stage: writes kernels in C++ or Triton, and the schedule as a Python wrapper."""

UNITS = {
    "codegen.collapse": "collapse nested loops over contiguous memory into one loop",
    "codegen.cut_axes": "cut a loop in two where memory is read by a quotient and a remainder",
    "codegen.loop_order": "run the loops of a reduction from large strides to small ones",
    "codegen.half_values": "keep bfloat16 and float16 values as floats, rounded only where needed",
    "codegen.column": "reduce over a strided axis with vector lanes along a contiguous one",
    "codegen.column_values": "compute what depends on the column alone once, and not in each row",
    "codegen.rows": "reduce several rows at once where columns are too few for vector lanes",
    "codegen.blocks": "reduce a row in blocks of points that have a partial result each",
    "codegen.split": "split a reduction to a single value among threads",
    "codegen.tile": "transpose blocks of strided memory; on a GPU, use tiles of two dimensions",
    "codegen.index_sets": "split a loop where its conditions change",
    "codegen.branchless": "compute both sides of a choice in vectors if one calls a function",
    "codegen.unroll": "write the points of a short axis one after the other",
    "codegen.pairs": "load and store neighbouring bfloat16 numbers two at a time",
    "codegen.float16_rows": "convert neighbouring float16 numbers in vectors, outside of a loop",
    "codegen.reversed_rows": "reverse neighbours that are visited backwards, outside of a loop",
    "codegen.vectorize": "use vector instructions in the innermost loop",
    "codegen.narrow": "use vectors of 256 bits in loops that wait for memory",
    "codegen.parallelize": "distribute the outer loops among threads",
    "codegen.scratch": "keep a row of expensive values for a later sweep",
    "codegen.template": "write a matrix product and the work around it as one kernel",
    "codegen.share": "reuse the code of an earlier kernel that differs only in names",
    "codegen.persistent": "hold whole rows in the registers of a GPU program",
}
"""Unit -> what it does. The gate is asked once for every kernel that the unit would change."""
