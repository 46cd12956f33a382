"""Faults of the caches: what is a key, what is checked on a hit, what is counted, what is
cleared.
"""

from functools import partial

from tools.faults.fault import (
    ARGUMENT_KEY,
    CONFIG_KEY,
    CONSTANT_KEY,
    KERNELS,
    NEW_SIZES,
    NVCC,
    OPTIONS_KEY,
    OTHER_CONSTANTS,
    SECOND_BFLOAT16_DYNAMIC,
    VIEW,
    Fault,
)
from tools.planting import Unplantable, answers, bite, edits, replace

CODECACHE = "torch._inductor.codecache"
LOOKUP = f"{CODECACHE}:FxGraphCache._lookup_graph"


def key_without_dtype() -> None:
    import torch

    def without_dtype(extract):
        import dataclasses

        return lambda tensor: bite(dataclasses.replace(extract(tensor), dtype=torch.float32))

    replace(f"{CODECACHE}:extract_tensor_metadata_for_cache_key", without_dtype)


def key_without_sizes() -> None:
    def without_sizes(extract):
        import dataclasses

        return lambda tensor: bite(dataclasses.replace(extract(tensor), shape=(), stride=()))

    replace(f"{CODECACHE}:extract_tensor_metadata_for_cache_key", without_sizes)


def key_without_graph() -> None:
    _key_without("gm")


def key_without_config() -> None:
    _key_without("inductor_config")


def _key_without(part: str) -> None:
    def without(init):
        def details(self, *args, **kwargs):
            init(self, *args, **kwargs)
            if part not in vars(self):
                raise Unplantable(f"FxGraphHashDetails has no {part}")
            setattr(self, part, bite())

        return details

    replace(f"{CODECACHE}:FxGraphHashDetails.__init__", without)


def key_that_never_repeats() -> None:
    def unrepeatable(hash_of):
        import uuid

        def with_salt(*args, **kwargs):
            key, lines = hash_of(*args, **kwargs)
            return bite(f"f{uuid.uuid4().hex}{key[33:]}"), lines

        return with_salt

    replace(f"{CODECACHE}:compiled_fx_graph_hash", unrepeatable)


FAULTS = (
    Fault(
        "key-without-constants",
        edits(
            f"{CODECACHE}:FxGraphCachePickler._reduce_tensor",
            "values = t.tolist()",
            "values = bite([])",
        ),
        "The key of a graph leaves out the values of its constants",
        (OTHER_CONSTANTS, CONSTANT_KEY),
        OPTIONS_KEY,
    ),
    Fault(
        "key-without-graph",
        key_without_graph,
        "The key of a graph leaves out the graph",
        ("codecache/integer-branch-guard-miss[backend=cpu]",),
        "codecache/fx-cache-hit[backend=cpu,dtype=float32,dynamic=false]",
    ),
    Fault(
        "key-without-config",
        key_without_config,
        "The key of a graph leaves out inductor's configuration",
        (CONFIG_KEY,),
        VIEW,
    ),
    Fault(
        "key-without-sizes",
        key_without_sizes,
        "The key of a graph leaves out the sizes of its arguments",
        (ARGUMENT_KEY,),
        CONFIG_KEY,
    ),
    Fault(
        "key-without-dtype",
        key_without_dtype,
        "The key of a graph leaves out the dtypes of its arguments",
        (ARGUMENT_KEY,),
        OPTIONS_KEY,
    ),
    Fault(
        "key-that-never-repeats",
        key_that_never_repeats,
        "The same graph has another key each time",
        ("codecache/symint-non-input-guard-hit[backend=cpu]",),
        OTHER_CONSTANTS,
    ),
    Fault(
        "code-files-named-without-their-content",
        partial(
            replace,
            f"{CODECACHE}:code_hash",
            lambda hash_of: lambda code, extra="": hash_of(bite(""), ""),
        ),
        "Every file of generated code has one name",
        ("codecache/integer-branch-guard-miss[backend=cpu]",),
        NVCC,
    ),
    Fault(
        "guards-dropped-on-a-hit",
        edits(LOOKUP, "if config.unsafe_skip_cache_dynamic_shape_guards:", "if bite(True):"),
        "An entry is served without a look at its guards",
        (NEW_SIZES,),
        VIEW,
    ),
    Fault(
        "guards-not-saved",
        edits(
            f"{CODECACHE}:FxGraphCache._save_graph",
            "compiled_graph.guards_expr = shape_env.produce_guards_expression(",
            "compiled_graph.guards_expr = bite(None) and shape_env.produce_guards_expression(",
        ),
        "An entry is saved without its guards",
        (NEW_SIZES,),
        NVCC,
    ),
    Fault(
        "guarded-entries-never-served",
        edits(
            f"{CODECACHE}:GuardedCache.find_guarded_entry",
            "hit = bool(evaluate_guards(candidate.guards_expr, hints))",
            "hit = bite(False)",
        ),
        "An entry with guards is never served",
        ("codecache/symint-non-input-guard-hit[backend=cpu]",),
        "codecache/fx-cache-hit[backend=cpu,dtype=float32,dynamic=false]",
    ),
    Fault(
        "only-the-first-entry-is-tried",
        edits(
            f"{CODECACHE}:GuardedCache.find_guarded_entry",
            'result_status = "guard_miss"\n',
            'result_status = "guard_miss"\n            bite()\n            break\n',
        ),
        "Of several entries under one key only the first is tried",
        (NEW_SIZES,),
        OPTIONS_KEY,
    ),
    Fault(
        "lookup-that-finds-nothing",
        partial(replace, LOOKUP, lambda _: lambda *args, **kwargs: bite((None, {}))),
        "No graph is ever found in the cache",
        (KERNELS,),
        CONSTANT_KEY,
    ),
    Fault(
        "nothing-is-saved",
        answers(f"{CODECACHE}:FxGraphCache._write_to_local_cache"),
        "No graph is written into the cache",
        (SECOND_BFLOAT16_DYNAMIC,),
        NVCC,
    ),
    Fault(
        "hit-without-kernel-count",
        answers("torch._inductor.metrics:CachedMetricsHelper.apply_deltas"),
        "A hit does not raise the count of kernels",
        (KERNELS,),
        SECOND_BFLOAT16_DYNAMIC,
    ),
    Fault(
        "hit-counted-as-miss",
        edits(
            f"{CODECACHE}:FxGraphCache.load_with_key",
            '["fxgraph_cache_hit"] += 1',
            '[bite("fxgraph_cache_miss")] += 1',
        ),
        "A hit is counted as a miss",
        (SECOND_BFLOAT16_DYNAMIC,),
        OTHER_CONSTANTS,
    ),
    Fault(
        "miss-not-counted",
        edits(
            f"{CODECACHE}:FxGraphCache.load_with_key",
            '["fxgraph_cache_miss"] += 1',
            '["fxgraph_cache_miss"] += bite(0)',
        ),
        "A miss is not counted",
        (OTHER_CONSTANTS,),
        NVCC,
    ),
    Fault(
        "hit-that-writes-no-file",
        edits(
            "torch._inductor.output_code:CompiledFxGraph.write_to_disk",
            "if not os.path.exists(artifact_path):",
            "if bite(False):",
        ),
        "A hit does not write the code file that is gone",
        (SECOND_BFLOAT16_DYNAMIC,),
        "codecache/symint-non-input-guard-hit[backend=cpu]",
    ),
    Fault(
        "clear-that-clears-nothing",
        answers(f"{CODECACHE}:FxGraphCache.clear"),
        "Clearing the FX graph cache leaves its files",
        ("codecache/fx-cache-clear[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        "aot-autograd-clear-that-clears-nothing",
        answers("torch._functorch._aot_autograd.autograd_cache:AOTAutogradCache.clear"),
        "Clearing the AOTAutograd cache leaves its files",
        ("codecache/fx-cache-clear[backend=cpu]",),
        NVCC,
    ),
    Fault(
        "code-cache-that-keeps-its-modules",
        answers(f"{CODECACHE}:PyCodeCache.cache_clear"),
        "Clearing the cache of code leaves its modules loaded",
        ("codecache/fresh-cache-empty[backend=cpu]",),
        CONSTANT_KEY,
    ),
    Fault(
        "fresh-cache-in-the-old-folder",
        edits(
            "torch._inductor.utils:fresh_cache",
            '_set_env("TORCHINDUCTOR_CACHE_DIR", inductor_cache_dir)',
            '_set_env("TORCHINDUCTOR_CACHE_DIR", bite(os.environ["TORCHINDUCTOR_CACHE_DIR"]))',
        ),
        "fresh_cache goes on in the folder that was in use",
        ("codecache/fresh-cache-empty[backend=cpu]",),
        ARGUMENT_KEY,
    ),
)
