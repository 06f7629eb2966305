"""The known causes of failures of Python programs, listed and in the tracker; see `cause`."""

from __future__ import annotations

from collections.abc import Callable

from tcdebug.fuzz.python.cause import BETWEEN, STALE, WRONG, ListedCause
from tcdebug.strategies.python.python_program import PythonProgram

FAKE = "FakeTensor .* instead of .*Tensor|Expected FakeTensor, got"
"""What is said if a result of an exported program is a tensor without data. Before torch 2.13, the
export itself mixes tensors with and without data."""
RECORDED = "requires_grad instead of .*Tensor"
"""What is said if a result has a gradient, and eager's has none."""
UNRECORDED = "instead of .*Tensor.*requires_grad"
"""What is said if a result has no gradient, and eager's has one."""
NO_INFERENCE = "is_inference is False"
SAVED = "saved and loaded"
WITHOUT_VJP = (
    "(lambda f, *values, **options: (lambda result: (result[0], None, result[1])"
    " if type(result) is tuple else (result, lambda g: (g,)))(f(*values)))("
)
"""A call that returns what `vjp` does, without differentiating."""

LISTED = (
    ListedCause("deque_full", r", maxlen=\d+", ""),
    ListedCause("round_number", r"\bround\((\w+), -1\)", r"(\1 - \1)"),
    ListedCause("negative_zero", r"-0\.0", "0.0"),
    ListedCause("lazy_module", r"\.Lazy(\w+)\((\d+)\)", r".\1(\2, \2)"),
    ListedCause("hook_closure", BETWEEN, "", said="wrong gradient"),
    ListedCause(
        "replaced_method", r"^[A-Z]\w*\.\w+ = (lambda\b|object\.__)", "", STALE, changes=True
    ),
    ListedCause(
        "builtin_shadowed", r"^(max|min|len|sum|abs|round|sorted) = ", "", STALE, changes=True
    ),
    ListedCause("dict_order", r"^(\w+)\[(.+)\] = \1\.pop\(\2\)$", "", STALE, changes=True),
    ListedCause("dict_order", r"\b(\w+)\.popitem\(\)", r"\1.pop(list(\1)[-1])", STALE),
    ListedCause("global_argument", r"^(ARGUMENTS\['x'\] = \w+)$", r"\1.clone()"),
    ListedCause("class_bases", r"\.__bases__ = ", "", STALE, changes=True),
    ListedCause("abstract_class", r"^[A-Z]\w*\.register\([A-Z]\w*\)", "", STALE, changes=True),
    ListedCause(
        "getattr_shadowed", r"^[A-Z]\w*\.[a-z]\w* = ", "", STALE, changes=True,
        needs=r"def __getattr__\(",
    ),
    ListedCause(
        "function_hasattr", r"^[a-z]\w*\.[a-z]\w* = ", "", STALE, changes=True,
        needs=r"\b(getattr|hasattr)\(",
    ),
    ListedCause("class_getitem", r"\b(Typed)\[(\w+)\]", r"(\1.rate * (\2))", STALE),
    ListedCause(
        "locals_resumed", r"\blen\(locals\(\)\)", "1", needs=r"graph_break\(\)|\.item\(\)|print\("
    ),
    ListedCause("locals_unbound", r"\blen\(locals\(\)\)", "1"),
    ListedCause(
        "list_iterator", r"torch\._dynamo\.graph_break\(\)", "pass", needs=r"= iter\((?!\[)"
    ),
    ListedCause("version_branch", r"\b\w+\._version\b", "0"),
    ListedCause("function_mode", r"\bAddingOne\(\)", "torch.enable_grad()"),
    ListedCause("generator_throw", r"\.throw\(\w+\('\w*'\)\)", ".send(None)"),
    ListedCause("generator_left", r"^break$", "pass", "side effect", needs=r"\byield\b"),
    ListedCause("stored_generator", r"\bnext\([A-Z]+\)", "1.0", needs=r"\byield\b"),
    ListedCause(
        "vmap_function", r"\btorch\.vmap\(", "(lambda f: f)(", "wrong gradient",
        needs="generate_vmap_rule",
    ),
    ListedCause("maximum_number", r"\b(max|min)\(\w+, (\d+\.\d+)\)", r"\2", r"float\d+.* instead"),
    ListedCause(
        "function_identity", r"^return value$", "return value.clone()", "is the same as",
        needs=r"autograd\.Function",
    ),
    ListedCause("optimizer_inference", r"\bOPTIMIZER\.step\(\)", "pass", NO_INFERENCE),
    ListedCause("inference_result", r"torch\.inference_mode\(\)", "torch.no_grad()", NO_INFERENCE),
    ListedCause("export_conjugate", r"\.conj\(\)", ".conj().resolve_conj()", way=SAVED),
    ListedCause("export_string", r"^(text\d+) = .*", r"\1 = 1", "deserializing", way=SAVED),
    ListedCause("export_detach", r"\.detach\(\)", ".clone()", RECORDED, way="decomposed"),
    ListedCause(
        "export_no_grad", r"torch\.no_grad\(\)", "torch.enable_grad()", RECORDED, way="decomposed"
    ),
    ListedCause(
        "export_gradient", r"torch\.func\.(grad|vjp|jacrev)\(",
        "(lambda f, *values, **options: f)(", f"{FAKE}|assert_functional_graph",
        way="export|AOTInductor",
    ),
    ListedCause(
        "export_gradient", r"torch\.func\.vjp\(", WITHOUT_VJP, FAKE, way="export|AOTInductor"
    ),
    ListedCause("export_number", r"\bnumpy\.float\d+\(([\d.]+)\)", r"\1", FAKE, way="strict"),
    ListedCause("descriptor", r"\bLIMITED\.limit\b"),
    ListedCause("instance_dict", r"\.__dict__\b|\bvars\(", said=STALE),
    ListedCause("function_name", r"\.__name__\b"),
    ListedCause("docstring", r"\.__doc__\b"),
    ListedCause("chain_map", r"\bLEVELS_CHAIN\b", said=STALE),
    ListedCause("inherited_attribute", r"(?m)^\s*[A-Z][a-z]\w*\.\w+ [-+*]= "),
    ListedCause("intermediate_grad", r"\.grad is (not )?None"),
    ListedCause("globals_written", r"\bglobals\(\)\["),
    ListedCause("call_counter", r"\braised\.calls\b"),
    ListedCause("compiled_attribute", r"^marked\.seen = .*", "pass"),
    ListedCause("compiled_attribute", r"\bmarked\.seen\b"),
    ListedCause("same_view", r"\.detach\(\)", ".clone()", "instead of the same as"),
    ListedCause("bound_method", r"(?<!def )\bchosen\(\)", "'a'", "recompile"),
    ListedCause(
        "view_in_no_grad", r"torch\.no_grad\(\)", "torch.enable_grad()", "grad_fn is set"
    ),
    ListedCause(
        "view_in_no_grad", r"(?<== )(\w+)\[\.\.\.\]$", r"\1", UNRECORDED, needs=r"no_grad\(\)"
    ),
    ListedCause(
        "export_checkpoints", r"\bcheckpoint\(torch\.sin, ",
        "(lambda f, v, use_reentrant: f(v))(torch.sin, ", "instead of .*requires_grad",
    ),
    ListedCause("random_dtype", r"\brandom\.Random\(\w*\)\.random\(\)", "0.25"),
    ListedCause("random_dtype", r"\brandom\.", said="float64.* instead of .*float32"),
    ListedCause(
        "region_float", "",
        said="Freevar has no source: .*=item\\b|'item' of Node 'invoke_subgraph.* does not belong",
    ),
    ListedCause(
        "region_float", r"\bREGION_RATES\[0\]", "2.0", "lift_tracked_freevar_to_input",
        needs="nested_compile_region",
    ),
    ListedCause(
        "functionalize", r"func\.functionalize\(",
        said="Expected FakeTensor|must not already be a functional tensor",
    ),
    ListedCause(
        "data_version", r"\.data\b",
        said="modified by an inplace operation|a view of a leaf Variable that requires grad",
    ),
    ListedCause("chunk_write", r"\.(unbind|chunk|split)\(", said=r"^change \| lost exception"),
    ListedCause("array_in_inference_mode", "", said="Guard failed on the same frame.*from_numpy"),
    ListedCause("dynamic_buffer", "", said=r"Cannot call numel\(\) on tensor with symbolic sizes"),
    ListedCause(
        "device_mode_number", "", said="AttributeError: 'NoneType' object has no attribute 'item'"
    ),
    ListedCause("backward_state", "", said="BackwardState requires CompiledAutograd"),
    ListedCause("region_buffer", "", said=r"An intermediate tensor 'i\w+' created inside"),
    ListedCause("export_checkpoint", "", said="KeyError: '?_checkpoint_context_fn"),
    ListedCause(
        "export_jacfwd", r"func\.(jacfwd|hessian)\(", said="object has no attribute 'constant'"
    ),
    ListedCause(
        "export_gradient", r"torch\.func\.(grad|vjp|jacrev)\(",
        said="SymIntArrayRef expected to contain only concrete", way="export",
    ),
    ListedCause(
        "export_gradient", r"torch\.func\.(grad|vjp|jacrev)\(",
        said="Cannot access data pointer of Tensor that doesn't have storage.*lifted_tensor",
        way="export",
    ),
    ListedCause("nan_key", "", said="NameError: name 'nan' is not defined"),
    ListedCause("scan_item", r"\bscan\(", said="^forward . DataDependentOutputException"),
    ListedCause("long_handler", "", said="exception table entry start instruction has no offset"),
    ListedCause("hook_removed", "", said="idx must not be None for hook removal"),
    ListedCause("setattr_dotted", "", said="AttrSource member must not contain"),
    ListedCause("maximum_bool", "", said=r"The argument '\w+' is not comparable"),
    ListedCause("export_abs", "", said="op <built-in function abs> is not in _SYM_OPS"),
    ListedCause("export_autocast", "", said="wrap_with_autocast is missing val field"),
    ListedCause("export_jvp", r"torch\.func\.", said=r"\bescaped\?", way="export"),
    ListedCause("complex_type", "", said=r":method_type \| StopIteration"),
    ListedCause("data_dtype", r"\.data = ", said=r":assert_eq \| torch\.\w+ != torch\.\w+"),
    ListedCause("data_attribute", r"^(\w+)\.data = ", r"\1 = ", r"has \.fake_device"),
    ListedCause("dynamic_alias", "", said="size_bytes_is_heap_allocated_"),
    ListedCause(
        "grad_mode_number", r"set_grad_enabled\(", said=r":as_python_constant \| .*SymNodeVariable"
    ),
    ListedCause("negative_power", "", said=r"built-in function pow>\(\*\(s\d+, -\d"),
    ListedCause("region_array", "", said="failed to resolve source '___from_numpy"),
    ListedCause("region_modules", "", said=r":stamp_out_subgraph \| KeyError"),
    ListedCause(
        "region_transform", r"torch\.func\.", said=":_collect_fake_inputs .*Expected FakeTensor",
        way="nested_compile_region",
    ),
)  # fmt: skip
"""The causes that are known. Those with a construct that can be taken away come first."""

IN_TRACKER = (
    ListedCause(
        "pytorch#193279", r"torch\.func\.grad\(", "(lambda f: f)(", needs=r"def setup_context\("
    ),
    ListedCause("pytorch#149037", r"\bstop\.value\b", said="unsupported operand .*'NoneType'"),
    ListedCause(
        "pytorch#149037", r"= yield from (\w.*)$", r"= list(\1)[-1]",
        rf"{WRONG}|Cannot construct `ConstantVariable` for value", needs=r"\breturn\b",
    ),
    ListedCause(
        "pytorch#193932", r"\.as_subclass\(", said="Multiple dispatch failed .*NotImplemented"
    ),
    ListedCause("pytorch#174063", "", said="Current active mode .* not registered"),
    ListedCause(
        "pytorch#162246", "",
        said="no rule registered for HigherOrderOperator .*checkpoint._CachingTorchDispatchMode",
    ),
    ListedCause(
        "pytorch#197039", r"^(CONTAINED\.many\[0\])\.mul_\((.*)\)$", "pass", "wrong gradient",
        needs=r"no_grad\(\)",
    ),
)  # fmt: skip
"""Causes that are not listed because an issue or a pull request of PyTorch is about them."""

KNOWN = (*LISTED, *IN_TRACKER)


def listed_cause(
    program: PythonProgram, signature: str, message: str, passes: Callable[[PythonProgram], bool]
) -> str:
    """Return the name of the known cause of a failure; empty if it has none."""
    for cause in KNOWN:
        if cause.explains(program, signature, message, passes):
            return cause.name
    return ""
