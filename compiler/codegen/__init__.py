"""The codegen stage: kernels become C++ source, the schedule becomes a Python wrapper."""
