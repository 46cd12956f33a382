"""Faults of the caches: what is a key, what is checked on a hit, what is counted, what is
cleared.
"""

from tools.faults.planting import Unplantable, bite, edit, replace

CODECACHE = "torch._inductor.codecache"
LOOKUP = f"{CODECACHE}:FxGraphCache._lookup_graph"


def key_without_constants() -> None:
    edit(
        f"{CODECACHE}:FxGraphCachePickler._reduce_tensor",
        "values = t.tolist()",
        "values = bite([])",
    )


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
    def partial(init):
        def details(self, *args, **kwargs):
            init(self, *args, **kwargs)
            if part not in vars(self):
                raise Unplantable(f"FxGraphHashDetails has no {part}")
            setattr(self, part, bite())

        return details

    replace(f"{CODECACHE}:FxGraphHashDetails.__init__", partial)


def code_files_named_without_their_content() -> None:
    replace(f"{CODECACHE}:code_hash", lambda hash_of: lambda code, extra="": hash_of(bite(""), ""))


def key_that_never_repeats() -> None:
    def unrepeatable(hash_of):
        import uuid

        def with_salt(*args, **kwargs):
            key, lines = hash_of(*args, **kwargs)
            return bite(f"f{uuid.uuid4().hex}{key[33:]}"), lines

        return with_salt

    replace(f"{CODECACHE}:compiled_fx_graph_hash", unrepeatable)


def guards_dropped_on_a_hit() -> None:
    edit(LOOKUP, "if config.unsafe_skip_cache_dynamic_shape_guards:", "if bite(True):")


def guards_not_saved() -> None:
    edit(
        f"{CODECACHE}:FxGraphCache._save_graph",
        "compiled_graph.guards_expr = shape_env.produce_guards_expression(",
        "compiled_graph.guards_expr = bite(None) and shape_env.produce_guards_expression(",
    )


def lookup_that_finds_nothing() -> None:
    replace(LOOKUP, lambda _: lambda *args, **kwargs: bite((None, {})))


def guarded_entries_never_served() -> None:
    edit(
        f"{CODECACHE}:GuardedCache.find_guarded_entry",
        "hit = bool(evaluate_guards(candidate.guards_expr, hints))",
        "hit = bite(False)",
    )


def only_the_first_entry_is_tried() -> None:
    edit(
        f"{CODECACHE}:GuardedCache.find_guarded_entry",
        'result_status = "guard_miss"\n',
        'result_status = "guard_miss"\n            bite()\n            break\n',
    )


def nothing_is_saved() -> None:
    replace(
        f"{CODECACHE}:FxGraphCache._write_to_local_cache", lambda _: lambda key, content: bite()
    )


def hit_without_kernel_count() -> None:
    replace(
        "torch._inductor.metrics:CachedMetricsHelper.apply_deltas", lambda _: lambda delta: bite()
    )


def hit_counted_as_miss() -> None:
    edit(
        f"{CODECACHE}:FxGraphCache.load_with_key",
        '["fxgraph_cache_hit"] += 1',
        '[bite("fxgraph_cache_miss")] += 1',
    )


def miss_not_counted() -> None:
    edit(
        f"{CODECACHE}:FxGraphCache.load_with_key",
        '["fxgraph_cache_miss"] += 1',
        '["fxgraph_cache_miss"] += bite(0)',
    )


def hit_that_writes_no_file() -> None:
    edit(
        "torch._inductor.output_code:CompiledFxGraph.write_to_disk",
        "if not os.path.exists(artifact_path):",
        "if bite(False):",
    )


def clear_that_clears_nothing() -> None:
    replace(f"{CODECACHE}:FxGraphCache.clear", lambda _: lambda: bite())


def aot_autograd_clear_that_clears_nothing() -> None:
    replace(
        "torch._functorch._aot_autograd.autograd_cache:AOTAutogradCache.clear",
        lambda _: lambda: bite(),
    )


def code_cache_that_keeps_its_modules() -> None:
    replace(f"{CODECACHE}:PyCodeCache.cache_clear", lambda _: lambda cls, purge=False: bite())


def fresh_cache_in_the_old_folder() -> None:
    edit(
        "torch._inductor.utils:fresh_cache",
        '_set_env("TORCHINDUCTOR_CACHE_DIR", inductor_cache_dir)',
        '_set_env("TORCHINDUCTOR_CACHE_DIR", bite(os.environ["TORCHINDUCTOR_CACHE_DIR"]))',
    )
