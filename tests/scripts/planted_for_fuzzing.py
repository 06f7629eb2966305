"""The setup file of a campaign: plants the bug PLANTED="UNIT KIND".

An exception of the compiler occurs before any kernel is built. With PLANTED="UNIT exception", torch
runs the graphs that compile, so that thousands of programs take minutes.
"""

import importlib.util
import os
from pathlib import Path

from tcdebug.compiler import pipeline, seams

spec = importlib.util.spec_from_file_location(
    "planted", Path(__file__).resolve().parents[1] / "planted.py"
)
planted = importlib.util.module_from_spec(spec)
spec.loader.exec_module(planted)
unit, kind = os.environ["PLANTED"].split()
planted.PLANTS[unit](kind)


def compile_without_kernels(module, direction, this, original=pipeline.compile_aten):
    """Run the whole compiler except the C++ compiler."""
    original(module, direction, this)
    return seams.boxed(lambda arguments: module(*arguments))


if kind == "exception":
    pipeline.load = lambda *arguments: lambda values: values
    pipeline.compile_aten = compile_without_kernels
