"""Resets of torch's state of compiles, in memory and on disk."""

import os
import re
import sys
from collections.abc import Callable, Mapping


def forget_compiles() -> None:
    """Clear the state of compiles that torch's own resets do not clear."""
    from torch._dynamo import utils
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._inductor.codecache import PyCodeCache
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.compiler._cache import CacheArtifactManager

    # the artifacts of ``save_cache_artifacts``
    CacheArtifactManager.clear()
    # cached results of fake implementations: two cases may register operators of the same name
    FakeTensorMode.cache_clear()
    utils._compilation_metrics.clear()
    PyCodeCache.linemaps.clear()
    for owner, name in (
        # strings that the structured log writes only once
        (sys.modules.get("torch._logging.structured"), "INTERN_TABLE"),
        (sys.modules.get("torch.utils._stats"), "simple_call_counter"),
        (BuiltinVariable, "call_function_handler_cache"),
        (getattr(sys.modules["torch._inductor.compile_fx"], "FxCompile", None), "_compile_stats"),
        (sys.modules.get("torch._inductor.template_heuristics.registry"), "_HEURISTIC_CACHE"),
        (getattr(sys.modules["torch._dynamo.eval_frame"], "DynamoTLS", None), "traced_frame_infos"),
    ):
        getattr(owner, name, {}).clear()
    for name in [name for name in sys.modules if _GENERATED.match(name)]:
        del sys.modules[name]


_GENERATED = re.compile(r"torch\._inductor\.runtime\.compile_tasks\.|c[a-z2-7]{51}\.")
"""Names of modules that inductor generated."""


def reset_dynamo() -> None:
    """Discard dynamo's compiled code."""
    import torch._dynamo

    torch._dynamo.reset()


def reset_inductor() -> None:
    """Clear inductor's caches in memory."""
    from torch._inductor.utils import clear_caches

    clear_caches()


def reset_aot_autograd() -> None:
    """Delete AOTAutograd's cache on disk."""
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache

    AOTAutogradCache.clear()


def reset_fx_graph() -> None:
    """Delete the FX graph cache on disk."""
    from torch._inductor.codecache import FxGraphCache

    FxGraphCache.clear()


def reset_code() -> None:
    """Unload the modules of generated code, and delete their files."""
    from torch._inductor.codecache import PyCodeCache

    PyCodeCache.cache_clear(purge=True)


RESETS: Mapping[str, Callable[[], None]] = {
    "dynamo": reset_dynamo,
    "inductor": reset_inductor,
    "aot_autograd": reset_aot_autograd,
    "fx_graph": reset_fx_graph,
    "code": reset_code,
}
"""The functions of the step ``reset``, by word. The session implements ``rng``."""


def delete_generated_files() -> int:
    """Delete the files of the loaded generated modules; return their number."""
    from torch._inductor.codecache import PyCodeCache

    deleted = 0
    for module in list(PyCodeCache.modules):
        file = getattr(module, "__file__", None)
        if file and os.path.exists(file):
            os.remove(file)
            deleted += 1
    return deleted
