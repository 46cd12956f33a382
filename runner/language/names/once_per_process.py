"""Functions that torch calls once per process. The zygote has called them before any case is forked, so a spy there records nothing.

The table was recorded while torch 2.13 warmed up as in ``worker/warming.py`` and compiled a second time. It lists the functions that were
called inside of values that torch caches for the process (``functools.cache``) and not again.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from runner.core.diagnostics import Diagnostic, Severity
from runner.language.backends import Backends
from runner.language.read.anatomy import Anatomy

_INITIALISERS = "torch registers its patterns with the first compile of a process"
_COMPILER = "torch detects the C++ compiler once per process"
_VECTORS = "torch detects vector instructions once per process"
_BACKENDS = "torch registers its backends with the first compile of a process"
_LIBRARIES = "torch detects installed libraries and features before the first compile of a process"

ONCE: Mapping[str, str] = {
    r"torch\._inductor\.fx_passes\.(joint_graph|post_grad|pre_grad)\.lazy_init": _INITIALISERS,
    r"torch\._inductor\.fx_passes\.fuse_attention\.(_sfdp_init|_get_sfdp_patterns|partialize_and_update_signature)": _INITIALISERS,
    r"torch\._inductor\.fx_passes\.(misc_patterns\._misc_patterns_init|pad_mm\._pad_mm_init)": _INITIALISERS,
    r"torch\._inductor\.fx_passes\.mkldnn_fusion\.(_mkldnn_fusion_init|_unary_fusion_pattern)": _INITIALISERS,
    r"torch\._inductor\.fx_passes\.mkldnn_fusion\.(_register_\w+|\w*_fusion(_[v12]+)?)": _INITIALISERS,
    r"torch\._inductor\.fx_passes\.quantization\.(_register_\w+|get_q\w+_pattern|generate_pattern_with_\w+)": _INITIALISERS,
    r"torch\._inductor\.(fx_passes\.post_grad|pattern_matcher)\.register_lowering_pattern": _INITIALISERS,
    r"torch\._inductor\.pattern_matcher\.(gen_)?(register_replacement|pattern_and_search_gm)": _INITIALISERS,
    r"torch\._inductor\.pattern_matcher\.check_and_add_duplicate_pattern": _INITIALISERS,
    r"torch\._inductor\.cpp_builder\.(_?is_(gcc|clang|msvc_cl|intel_compiler)|cpp_compiler_search|get_compiler_version_info)": _COMPILER,
    r"torch\._inductor\.codecache\._precompile_header": _COMPILER,
    r"torch\._inductor\.cpu_vec_isa\.(valid_vec_isa_list|x86_isa_checker|_get_isa_dry_compile_fingerprint)": _VECTORS,
    r"torch\._inductor\.cpu_vec_isa\.Vec\w+\.(__bool__(impl)?|check_build|build_arch_flags|_build_probe_env|_probe_load)": _VECTORS,
    r"torch\.cpu\.get_capabilities": _VECTORS,
    r"torch\._inductor\.codegen\.common\.(init_backend_registration|register_backend_for_device)": _BACKENDS,
    r"torch\._dynamo\.backends\.registry\.(_lazy_import|_discover_entrypoint_backends)": _BACKENDS,
    r"torch\._dynamo\.eval_frame\.TorchPatcher\.patch": _BACKENDS,
    r"torch\._dynamo\.trace_rules\.get_torch_obj_rule_map": _BACKENDS,
    r"torch\.backends\.(mkldnn|opt_einsum)\.is_available": _LIBRARIES,
    r"torch\.backends\.mkldnn\.is_acl_available": _LIBRARIES,
    r"torch\.utils\._triton\.has_triton_package": _LIBRARIES,
    r"torch\._inductor\.utils\.try_import_ck_lib": _LIBRARIES,
    r"torch\.overrides\.get_default_nowrap_functions": _LIBRARIES,
}
"""Patterns for paths of functions and methods, with the reason why each is called only once."""

HINT = "write 'isolation: process': the case gets a new Python process with its own first compile"


def spy_warnings(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield a warning for each spy on a function of the table. It is not an error, because the function may be called in another way."""
    chosen = [backends.by_name[name] for name in anatomy.data["backends"] if name in backends.by_name]
    if isolation_of(anatomy) == "process" or not any(backend.compiles for backend in chosen):
        return
    for name, spy in anatomy.data.get("spies", {}).items():
        for kind in ("function", "method"):
            target = spy.get(kind)
            if isinstance(target, str) and (why := _why_once(target.replace(":", "."))):
                message = f"the spy '{name}' may record no call of {target}: {why}, and the case starts later"
                yield replace(anatomy.document.problem(("spies", name, kind), message, HINT), severity=Severity.WARNING)


def isolation_of(anatomy: Anatomy) -> str:
    """Return the isolation of a spec, from the spec itself or the nearest defaults."""
    layers = (anatomy.document, *reversed(anatomy.spec.defaults))
    return next((str(document.data["isolation"]) for document in layers if "isolation" in document.data), "case")


def _why_once(path: str) -> str:
    return next((why for pattern, why in ONCE.items() if re.fullmatch(pattern, path)), "")
