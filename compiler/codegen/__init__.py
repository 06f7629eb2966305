"""The codegen stage: kernels become C++ or Triton, the schedule becomes a Python wrapper."""

UNITS = {
    "codegen.collapse": "make one loop of loops that run on without a gap",
    "codegen.column": "reduce over a strided axis with vector lanes along a contiguous one",
    "codegen.split": "reduce to a single value in pieces that threads share",
    "codegen.tile": "read in blocks what lies across the innermost loop in memory",
    "codegen.vectorize": "let the innermost loop use vector instructions",
    "codegen.parallelize": "share the outer loops among threads",
    "codegen.scratch": "keep a row of dear values for a later sweep",
    "codegen.template": "write a product of matrices and the work around it as one kernel",
    "codegen.share": "run the code of an earlier kernel where only names differ",
    "codegen.persistent": "hold whole rows in the registers of a GPU's program",
}
"""How a kernel may be written: each is asked once for every kernel that it would change."""
