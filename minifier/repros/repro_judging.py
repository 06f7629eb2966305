"""How a repro script judges exceptions, hangs, speed, recompiles, strides and shared memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tcdebug.minifier.cases.case import Case
from tcdebug.minifier.cases.criteria import LONGER_THAN, SLOWER_THAN
from tcdebug.minifier.cases.outcome import (
    GENERATED,
    PLAIN,
    WRONG_ADDRESS,
    Kind,
    Outcome,
    RaisedAt,
    is_device_error,
)
from tcdebug.minifier.judging.kernels import BUSY_SECONDS, LEAST_SECONDS, POLL, SLOWER
from tcdebug.minifier.judging.layout import ALIASING, STRIDES
from tcdebug.minifier.judging.own_draws import NONFINITE, SEEDS


@dataclass(frozen=True)
class SpeedLimits:
    """The limits beyond which a repro is slow."""

    slower_than: float = SLOWER_THAN
    """The limit as a multiple of the time of eager."""
    longer_than: float = LONGER_THAN
    """The limit on compile time, in CPU-seconds."""


def judging_texts(case: Case, outcome: Outcome, limits: SpeedLimits) -> dict[str, str]:
    """Return the template's parts for checks that are included only if they found the failure."""
    timing, timed = "", ""
    if outcome.compiles_slowly:
        timing, timed = _COMPILE_TIMING, _COMPILE_TIME.format(limits.longer_than)
    elif outcome.kind in (Kind.SLOW, Kind.RECOMPILE):
        timing, timed = _TIMING, _timed(case, limits.slower_than)
    laid_out = outcome.signature.endswith((f"wrong {STRIDES}", f"wrong {ALIASING}"))
    return {
        "patterns": repr([(pattern.pattern, other) for pattern, other in PLAIN]),
        "generated": repr(GENERATED.pattern),
        "laid_out": _LAYOUT if laid_out else "",
        "compares_layout": _COMPARES_LAYOUT if laid_out else "",
        "timing": timing,
        "timed": timed,
        "endless": _ENDLESS if outcome.endless else "",
        "began_eager": "    began_eager = time.monotonic()\n" * outcome.endless,
        "watched": _WATCHED * outcome.endless,
    }


def draws_texts(own_draws: bool) -> dict[str, str]:
    """Return the template's parts for a graph that draws its own random numbers, or for others."""
    return {
        "and_equal": "" if own_draws else " and eager == actual",
        "random": "    return None  # the values depend on random numbers\n" * own_draws,
        "finite": _FINITE * own_draws,
        "more_seeds": _MORE_SEEDS * own_draws,
    }


def expected_exception(outcome: Outcome) -> dict[str, str | list[str]]:
    """Return what identifies an exception in a repro: class, message, and frame in the compiler.

    A CUDA device error is identified by its message alone.
    """
    raised = RaisedAt.of(outcome)
    if raised.what in WRONG_ADDRESS:
        return {"what": [*WRONG_ADDRESS]}
    if is_device_error(raised.what):
        return {"what": raised.what}
    found: dict[str, str | list[str]] = {"class": raised.class_name, "what": raised.what}
    return found | ({"frame": raised.frame} if _is_in_compiler(raised.frame) else {})


def _is_in_compiler(frame: str) -> bool:
    """Return whether a frame is in a file of torch or tcdebug. Other frames differ in a repro.

    A file without a folder is a script that was started by its bare name.
    """
    file = frame.partition(":")[0]
    roots = ("torch.", "tcdebug.")
    loaded = [m for name, m in sys.modules.items() if name.startswith(roots)]
    files = (getattr(module, "__file__", None) or "" for module in loaded)
    return "/" in file and any(name.endswith(f"/{file}") for name in files)


_COMPARES_LAYOUT = """    found = layout(eager["forward"], actual["forward"])
    if found:
        return f"forward | wrong {found}"
"""

_LAYOUT = '''
def layout(eager, actual):
    """Return how strides or shared memory differ from eager, or None."""
    def strided(values):
        return [v for v in values if torch.is_tensor(v) and v.layout == torch.strided]

    def steps(value):
        sizes = zip(value.shape, value.stride(), strict=True)
        return [s for n, s in sizes if n > 1 and value.numel() > 1]

    def shared(values):
        places = [v.untyped_storage().data_ptr() for v in values]
        return [places.index(p) if p else k for k, p in enumerate(places)]

    eager, actual = strided(eager), strided(actual)
    if list(map(steps, eager)) != list(map(steps, actual)):
        return "strides"
    return "aliasing" if shared(eager) != shared(actual) else None
'''

_FINITE = '''
def nonfinite(eager, actual):
    """Compare runs with several seeds. A value must not be finite in eager and never compiled."""
    def finite(value):
        if not torch.is_tensor(value) or value.layout != torch.strided or value.is_quantized:
            return True
        return torch.isfinite(value).all().item()

    for phase in eager[0]:
        ours, theirs = (zip(*(run[phase] for run in runs)) for runs in (eager, actual))
        for e, a in zip(ours, theirs):
            if all(map(finite, e)) and not any(map(finite, a)):
                return f"{phase} | wrong NONFINITE"
    return ""

'''.replace("NONFINITE", NONFINITE)

_MORE_SEEDS = f"""            seeds = {SEEDS[1:]}
            more = [run(module, make(), seed) for seed in seeds]
            what = what or nonfinite([eager, *more], [actual, *(run(compiled, make(), seed)
                                                                for seed in seeds)])
"""

_WATCHED = f"""    import threading
    least = max({LEAST_SECONDS}, {SLOWER} * (time.monotonic() - began_eager))
    threading.Thread(target=watch, args=(least,), daemon=True).start()
"""

_ENDLESS = f'''
def watch(least):
    """Report a hang once a GPU has run a kernel without a break for {BUSY_SECONDS} s.

    A kernel that does not end cannot be interrupted, so this thread ends the process.
    """
    if not torch.cuda.is_initialized():
        return
    stream = torch.cuda.current_stream()
    time.sleep(least)
    rested = time.monotonic()
    while time.monotonic() - rested < {BUSY_SECONDS}:
        time.sleep({POLL})
        try:
            if stream.query():
                rested = time.monotonic()
        except RuntimeError:
            return  # the error of a kernel, which `judge` sees
    report({{"kind": "hang", "what": "a kernel does not end"}})
    os._exit(0)


'''


WARM_UP = """with torch.enable_grad():  # imports of the first compile do not count
    torch.compile(lambda x: x.sin().sum(), **CALL)(torch.ones(2, requires_grad=True)).backward()
"""

_COMPILE_TIMING = """            ended = time.process_time()
            run(compiled, make())
            running = time.process_time() - ended
            return report(compile_time(ended - began - running))
"""

_COMPILE_TIME = """LONGER_THAN = {}


def compile_time(seconds):
    \"\"\"Return whether compiling took too many CPU-seconds of this process.\"\"\"
    print(f"compiling took {{seconds:.1f}} CPU-seconds; the limit is {{LONGER_THAN}}")
    return {{"kind": "slow" if seconds > LONGER_THAN else "ok", "phase": "compile"}}

"""

_TIMING = "            return report(speed(module, compiled))\n"


def _timed(case: Case, slower_than: float) -> str:
    """Return functions that judge speed as the `perf` oracle does."""
    dynamic = [(k, dim) for k, spec in enumerate(case.inputs) for dim in spec.dynamic]
    return f"SLOWER_THAN, DYNAMIC = {slower_than}, {dynamic}\n" + _SPEED


_SPEED = '''

def timed(call):
    """Return the seconds of forward and of backward."""
    values = inputs()
    synchronize()
    start = time.perf_counter()
    outputs = flatten(call(*values))
    synchronize()
    forward = time.perf_counter() - start
    wanted = [v for v in values if torch.is_tensor(v) and v.requires_grad]
    roots = [o for o in outputs if torch.is_tensor(o) and o.requires_grad]
    if not (wanted and roots and torch.is_grad_enabled()):
        return forward, 0.0
    given = cotangents(roots)
    synchronize()
    start = time.perf_counter()
    torch.autograd.grad(roots, wanted, given, allow_unused=True)
    synchronize()
    return forward, time.perf_counter() - start


def larger():
    """Return the inputs with dynamic dimensions twice as long."""
    values = inputs()
    for k, dim in DYNAMIC:
        longer = torch.cat([values[k].detach()] * 2, dim)
        values[k] = longer.requires_grad_(values[k].requires_grad)
    return values


def speed(eager, compiled):
    """Return whether it recompiles unnecessarily or is slower than eager. The best time counts."""
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            compiled(*inputs())
            compiled(*larger())
    except RuntimeError:
        return {"kind": "recompile", "phase": "forward"}
    best, end = [(9e9, 9e9), (9e9, 9e9)], time.monotonic() + 1
    for count in range(200):
        if count >= 5 and time.monotonic() > end:
            break
        best = [tuple(map(min, b, timed(c))) for b, c in zip(best, (eager, compiled), strict=True)]
    for phase, wanted, taken in zip(("forward", "backward"), *best, strict=True):
        if taken > SLOWER_THAN * wanted + 1e-4:
            return {"kind": "slow", "phase": phase, "times": round(taken / wanted, 1)}
    return {"kind": "ok"}

'''
