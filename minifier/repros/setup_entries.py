"""What the set-up of a repro replaces besides torch.compile, as Python; see `script_setup`."""

from __future__ import annotations


def replaced_besides(text: str, entered: bool) -> str:
    """Return Python for the set-up of a script with this text.

    `entered` says that the script gives graphs directly to inductor.
    """
    ahead = _COMPILES_AHEAD in text
    keeping = _KEEPING if entered or ahead else ""
    artifacts = _ENTERING if entered else _SAVING if _SAVES in text else ""
    return keeping + artifacts + (_AHEAD if ahead else "")


_KEEPING = """
    # what stands for compiled code is kept in this process; its place in the file system is marked
    saved, made, restoring = {}, [], restore

    def keep(path, call, folder=False):
        saved[os.path.realpath(path)] = call
        if not os.path.exists(path):
            made.append(path)
            os.makedirs(path) if folder else open(path, "x").close()

    def restore():
        restoring()
        while made:
            os.rmdir(path) if os.path.isdir(path := made.pop()) else os.remove(path)
"""

_ENTERING = """
    def entering(owner, name):
        import inspect
        entry = getattr(owner, name)
        graph, examples, *_ = inspect.signature(entry).parameters

        def enter(*args, **kwargs):
            if not called_by_user(sys._getframe(1)):
                return entry(*args, **kwargs)
            given = inspect.signature(entry).bind(*args, **kwargs).arguments
            module = given.pop(graph)
            values = given.pop(examples)
            call = original(stopping(lambda graph, values: entry(graph, values, **given)))(module)
            return Artifact(call, values) if name == "standalone_compile" else call
        replace(owner, name, enter)

    class Artifact:  # can be saved: a script may load what it has compiled
        def __init__(self, call, examples):
            self.call, self.examples = call, examples

        def __call__(self, *args):
            return self.call(*(args[0] if isinstance(args[0], list) else args))

        def save(self, *, path, format="binary"):
            plain = (int, torch.Tensor, torch.nn.Parameter)
            if all(type(e) in plain and not getattr(e, "is_meta", False) for e in self.examples):
                # another process may make the other calls
                self.call(*(e.clone() if torch.is_tensor(e) else e for e in self.examples))
            keep(path, self, format == "unpacked")

    def load(*, path, **options):
        return saved.get(os.path.realpath(path)) or loading(path=path, **options)

    loading = torch._inductor.CompiledArtifact.load
    replace(torch._inductor.CompiledArtifact, "load", load)
    entering(importlib.import_module("torch._inductor.compile_fx"), "compile_fx")
    entering(torch._inductor, "compile")
    entering(torch._inductor, "standalone_compile")"""

_SAVES = "standalone_compile"
"""Part of the text of a script whose backend may save artifacts, which needs caches of graphs."""
_SAVING = """
    # without caches of graphs, an artifact cannot be written: it is kept in this process
    artifacts = importlib.import_module("torch._inductor.standalone_compile")
    compiled, any_artifact = artifacts.CacheCompiledArtifact, artifacts.CompiledArtifact
    kept, writing, loading = {}, compiled.save, any_artifact.load

    def save(artifact, *, path, **options):
        if artifact._artifacts is not None:
            return writing(artifact, path=path, **options)
        kept[os.path.realpath(path)] = artifact

    def load(*, path, **options):
        return kept.get(os.path.realpath(path)) or loading(path=path, **options)

    compiled.save, any_artifact.load = save, load
"""

_COMPILES_AHEAD = ".aot_compile("
"""Part of the text of a script that compiles a function ahead of time."""
_AHEAD = """
    # a function that is compiled ahead of time is compiled when it is called
    class Function:
        def __init__(self, call, owner):
            self.call, self.owner = call, owner  # the object of a method

        def __call__(self, *args, **kwargs):
            given = args and isinstance(args[0], type(self.owner))
            first = () if self.owner is None or given else (self.owner,)
            return self.call(*first, *args, **kwargs)

        def save_compiled_function(self, path, external_data=None):
            keep(path, self)

    def compile_when_called(model, inputs, hooks, backend, dynamic=None):
        function, owner = getattr(model, "__func__", model), getattr(model, "__self__", None)
        compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
        return Function(compiled, owner)

    def loading_function(load):
        return lambda file, **options: (
            saved.get(os.path.realpath(str(getattr(file, "name", "")))) or load(file, **options)
        )

    ahead = importlib.import_module("torch._dynamo.aot_compile")
    replace(ahead, "aot_compile_fullgraph", compile_when_called)
    replace(torch.compiler, "load_compiled_function",
            loading_function(torch.compiler.load_compiled_function))
"""
