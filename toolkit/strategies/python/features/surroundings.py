"""What a function reads from its process: flags of torch, variables, modules, and itself."""

from __future__ import annotations

from tcdebug.strategies.python.feature import Feature, statements, written
from tcdebug.strategies.python.scene import ProgramScene

LOGGER = """
import logging
LOGGER = logging.getLogger("drawn")
LOGGER.setLevel(logging.WARNING)
"""
LEVELLED = """
import inspect
def levelled(value, level=2.0):
    "drawn"
    return value * level
levelled.rate = 1.5
"""
LEVELLED_CHANGES = (
    "levelled.rate = 3.0", "levelled.__defaults__ = (5.0,)", "levelled.__name__ = 'other_name'",
    "levelled.__doc__ = None", "def levelled(value): return value + 1", "levelled.extra = 1",
)  # fmt: skip
ARRAY = """
import numpy
ARRAY = numpy.array([1.0, 2.0, 3.0], dtype=numpy.float32)
NUMBER = numpy.float64(2.0)
"""
ARRAY_CHANGES = (
    "ARRAY[1] = 9.0", "ARRAY = ARRAY.astype(numpy.float64)", "ARRAY = numpy.ones(3)",
    "ARRAY = numpy.ones((1, 3), dtype=numpy.int64)", "NUMBER = numpy.float64(3.0)",
    "NUMBER = numpy.float32(4.0)", "NUMBER = 2",
)  # fmt: skip
LEVEL_NOW = "LEVEL_NOW = 2.0"
LEVEL_CHANGES = ("LEVEL_NOW = 3.0", "EXTRA_NAME = 1")
SWITCHES = {
    "matmul precision": (
        "torch.get_float32_matmul_precision() == 'medium'",
        "torch.set_float32_matmul_precision('medium')",
    ),
    "anomaly detection": ("torch.is_anomaly_enabled()", "torch.autograd.set_detect_anomaly(True)"),
    "oneDNN": ("torch.backends.mkldnn.enabled", "torch.backends.mkldnn.enabled = False"),
    "cuDNN": ("torch.backends.cudnn.benchmark", "torch.backends.cudnn.benchmark = True"),
    "flash attention": (
        "torch.backends.cuda.flash_sdp_enabled()", "torch.backends.cuda.enable_flash_sdp(False)",
    ),
    "warn always": ("torch.is_warn_always_enabled()", "torch.set_warn_always(True)"),
    "warn only": (
        "torch.is_deterministic_algorithms_warn_only_enabled()",
        "torch.use_deterministic_algorithms(False, warn_only=True)",
    ),
    "dtype of autocast": (
        "torch.get_autocast_dtype('cpu') is torch.float16",
        "torch.set_autocast_dtype('cpu', torch.float16)",
    ),
    "cache of autocast": (
        "torch.is_autocast_cache_enabled()", "torch.set_autocast_cache_enabled(False)",
    ),
    "default device": ("torch.get_default_device().type == 'meta'",
                       "torch.set_default_device('meta')"),
}  # fmt: skip
"""Conditions that read a flag of torch, and statements that change it."""


def _switch(scene: ProgramScene) -> None:
    name = scene.choose(tuple(SWITCHES))
    condition, change = SWITCHES[name]
    scene.changes[change] = None
    scene.assign(f"{scene.tensor()} * (2 if {condition} else 3)")


SURROUNDINGS = (
    Feature("flag of torch", _switch),
    written("environment variable", "{a} * float(os.environ.get('DRAWN_LEVEL', '3'))",
            "import os", "os.environ['DRAWN_LEVEL'] = '5'", "os.environ['DRAWN_LEVEL'] = '-1'"),
    written("level of a logger", "{a} * (2 if LOGGER.isEnabledFor(logging.INFO) else 3)", LOGGER,
            "LOGGER.setLevel(logging.INFO)"),
    written("globals()", "{a} * globals()['LEVEL_NOW']", LEVEL_NOW, *LEVEL_CHANGES),
    written("name in globals()", "{a} * (2 if 'EXTRA_NAME' in globals() else 3)", LEVEL_NOW,
            *LEVEL_CHANGES),
    statements("write to globals()", "globals()['LEVEL_NOW'] = {c}\n{t} = {a} * LEVEL_NOW",
               LEVEL_NOW, *LEVEL_CHANGES),
    written("locals()", "{a} * len(locals())"),
    written("attribute of a function", "{a} * levelled.rate", LEVELLED, *LEVELLED_CHANGES),
    statements("write an attribute of a function", "levelled.rate = levelled.rate + 1\n"
               "{t} = {a} * levelled.rate", LEVELLED, *LEVELLED_CHANGES),
    written("attributes of a function", "{a} * len(levelled.__dict__)", LEVELLED,
            *LEVELLED_CHANGES),
    written("attribute that a function lacks", "{a} * getattr(noted, 'rate', 2.0)",
            "def noted():\n    pass", "noted.rate = 3.0"),
    statements("mark on a compiled function", "marked.seen = {c}\n{t} = {a} * 2.0",
               "@torch.compile(backend='eager')\ndef marked(value):\n    return value + 1.0"),
    written("name of a function", "{a} * len(levelled.__name__)", LEVELLED, *LEVELLED_CHANGES),
    written("docstring", "{a} * (2 if levelled.__doc__ else 3)", LEVELLED, *LEVELLED_CHANGES),
    written("signature", "{a} * inspect.signature(levelled).parameters['level'].default",
            LEVELLED, *LEVELLED_CHANGES),
    written("defaults of a function", "{a} * levelled.__defaults__[0]", LEVELLED,
            *LEVELLED_CHANGES),
    written("random module", "{a} * random.random() + random.randint(1, 4)",
            "import random\nrandom.seed(3)", "random.seed(5)"),
    statements("seed inside", "random.seed(n)\n{t} = {a} * random.random()",
               "import random\nrandom.seed(3)", "random.seed(5)"),
    written("random numbers", "{a} + torch.rand(3)", "SEED = 1", "torch.manual_seed(7)"),
    statements("manual seed", "torch.manual_seed(3)\n{t} = {a} + torch.rand(3)"),
    statements("random numbers of a generator", "{t} = {a} + torch.rand(3, generator=GENERATOR)",
               "GENERATOR = torch.Generator()\nGENERATOR.manual_seed(3)",
               "GENERATOR.manual_seed(5)"),
    written("array", "{a} + torch.from_numpy(ARRAY)", ARRAY, *ARRAY_CHANGES),
    written("function of an array", "{a} * float(numpy.sum(ARRAY * 2))", ARRAY, *ARRAY_CHANGES),
    written("shape of an array", "{a} * ARRAY.shape[-1] + ARRAY.ndim", ARRAY, *ARRAY_CHANGES),
    written("dtype of an array", "{a} * (2 if ARRAY.dtype == numpy.float32 else 3)", ARRAY,
            *ARRAY_CHANGES),
    statements("write to an array", "ARRAY[0] = {c}\n{t} = {a} * torch.from_numpy(ARRAY)", ARRAY,
               *ARRAY_CHANGES),
    statements("update of an array", "ARRAY[:] += 1\n{t} = {a} * 2", ARRAY, *ARRAY_CHANGES),
    # Dynamo documents that it computes with a scalar as an array, which may promote a 0-d tensor
    written("scalar of an array", "{a} * torch.ones(3) * NUMBER", ARRAY, *ARRAY_CHANGES),
    written("type of a scalar", "{a} * len(type(NUMBER).__name__)", ARRAY, *ARRAY_CHANGES),
    statements("tensor through numpy", "{t} = {a} + torch.from_numpy(numpy.sin("
               "{b}.detach().float().numpy()))", ARRAY),
    statements("warning", "warnings.warn('drawn')\n{t} = {a} + 1", "import warnings"),
    statements("warning of a category", "if n != 2:\n    warnings.warn(f'drawn {{n}}', "
               "FutureWarning)\n{t} = {a} + 1", "import warnings"),
    statements("caught warnings", "with warnings.catch_warnings(record=True) as caught:\n"
               "    warnings.simplefilter('always')\n    warnings.warn('drawn')\n"
               "{t} = {a} * len(caught)", "import warnings"),
    written("path", "{a} * len((PLACE / 'c').name + PLACE.suffix)",
            "import pathlib\nPLACE = pathlib.PurePosixPath('a/b.txt')",
            "PLACE = pathlib.PurePosixPath('a/other.text')"),
    written("fraction", "{a} * float(FRACTION + 1)",
            "import fractions\nFRACTION = fractions.Fraction(3, 2)",
            "FRACTION = fractions.Fraction(5, 2)"),
    written("date", "{a} * START.day + (START.month == 1)",
            "import datetime\nSTART = datetime.date(2020, 1, 31)",
            "START = datetime.date(2020, 2, 3)"),
    written("pattern", "{a} * (2 if PATTERN.match(TEXT) else 3)",
            "import re\nPATTERN = re.compile('a+')\nTEXT = 'aab'", "TEXT = 'baa'",
            "PATTERN = re.compile('b')"),
    written("json", "{a} * len(json.dumps({{'n': str(n)}}))", "import json"),
    written("decimal", "{a} * float(decimal.Decimal(1) / 3)", "import decimal",
            "decimal.getcontext().prec = 2"),
    written("identity", "{a} * (2 if id(x) == id(y) else 3)"),
    written("hash of a number", "{a} * (hash(n) % 5)"),
    written("repr of a number", "{a} * len(repr(n))"),
    written("name of a type", "{a} * len(type(n).__name__)"),
    written("sign of zero", "{a} * math.copysign(1.0, n)", "import math"),
)  # fmt: skip
