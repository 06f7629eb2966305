"""Extends the environment so that Python processes started by a script load tcdebug too.

They inherit a variable, and a folder at the front of PYTHONPATH with a `sitecustomize` module. That
module runs when Python starts. It calls `sessions.subprocess_entry.attach`, and loads the
sitecustomize that the process would otherwise have had. Forked processes need none of this.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

VARIABLE = "TCDEBUG_CHILDREN"
"""What subprocesses do, and the file of the job: `search:/path/job.json`."""

SITE = '''"""Lets tcdebug see the graphs of this process, and loads any other sitecustomize."""

import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
this = sys.modules.pop("sitecustomize")
sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
try:
    import sitecustomize
except ImportError as error:
    if error.name != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", this)
    try:
        from tcdebug.minifier.sessions.subprocess_entry import attach
    except ImportError:  # another Python without tcdebug: the session reports it as unwatched
        pass
    else:
        attach()
'''


@contextlib.contextmanager
def hook_installed(what: str, folder: Path) -> Iterator[None]:
    """Let Python processes that are started in this block do `what`; see `subprocess_session`."""
    site = folder / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(SITE)
    path = os.environ.get("PYTHONPATH")
    given = {VARIABLE: what, "PYTHONPATH": os.pathsep.join([str(site), *([path] if path else [])])}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def environment_without_hook() -> dict[str, str]:
    """Return the environment of this process for a process that does not belong to the script."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if VARIABLE in os.environ:
        _, *others = environment.pop("PYTHONPATH").split(os.pathsep)
        if others:
            environment["PYTHONPATH"] = os.pathsep.join(others)
    return environment


class AfterImport(MetaPathFinder):
    """An import hook that calls a function after a module is first imported."""

    def __init__(self, wanted: dict[str, Callable[[], None]]) -> None:
        self.wanted = wanted

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec from the other finders, with its loader wrapped."""
        if name not in self.wanted:
            return None
        done = self.wanted.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, done)
        return spec


class _Loader(Loader):
    """Loads as another loader does, and leaves no trace in the module."""

    def __init__(self, inner: Loader, done: Callable[[], None]) -> None:
        self.inner = inner
        self.done = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Do as the other loader does."""
        return self.inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Do as the other loader does, then call the function."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.inner
        self.inner.exec_module(module)
        self.done()
