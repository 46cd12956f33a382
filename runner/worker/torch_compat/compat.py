"""Everything that differs between torch 2.11, 2.12 and 2.13, or that reaches into torch where no public door is. One module.

What is named here was read in the sources of the three versions; a later torch that moves a name fails loudly in
``install_hooks``, not silently in a proof that never sees anything.
"""

import contextlib
import copy
import functools
import importlib
import inspect
import logging
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runner.core import devices, protocol
from runner.worker.toolchain import vector_isa


def resolve(path: str) -> Any:
    """Return the object at a dotted path, importing as little as needed; raise ImportError or AttributeError."""
    parts = path.replace(":", ".").split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not ".".join(parts[:end]).startswith(error.name):
                raise
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ImportError(f"no module for '{path}'")


def torch_root() -> str:
    """Return the folder of the torch that this process has imported."""
    import torch

    return os.path.dirname(os.path.abspath(str(torch.__file__)))


def refuse_other_torch(inspected: str | None) -> None:
    """Raise ``ImportError`` where this process has another torch than the one that the plan was made for: a case's ``env`` may do that."""
    if inspected is not None and os.path.realpath(torch_root()) != os.path.realpath(inspected):
        raise ImportError(f"this worker imported torch from {torch_root()}, but the case was planned for the torch in {inspected}")


def set_torch_state(state: Mapping[str, Any]) -> None:
    """Apply the ``torch:`` section of a spec."""
    import torch

    for name, value in state.items():
        match name:
            case "float32_matmul_precision":
                torch.set_float32_matmul_precision(value)
            case "allow_tf32":
                torch.backends.cuda.matmul.allow_tf32 = value
                torch.backends.cudnn.allow_tf32 = value
            case "allow_fp16_reduced_precision_reduction":
                torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = value
                torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = value
            case "deterministic":
                torch.use_deterministic_algorithms(value)
            case "default_dtype":
                torch.set_default_dtype(getattr(torch, value))
            case "seed":
                pass  # taken by the session, which seeds every generator
            case _:
                raise ValueError(f"no such torch state: {name}")


@contextlib.contextmanager
def _without_asking_drivers() -> Iterator[None]:
    """Let device nodes answer whether a GPU is there.

    torch asks while inductor is imported (2.11 and 2.12) and when it looks for vector instructions; NVML answers and leaves a thread
    behind, after which no fork is safe.
    """
    from runner.worker.torch_compat.devices import modules

    with contextlib.ExitStack() as stack:
        for accelerator, module in modules():
            stack.callback(setattr, module, "is_available", module.is_available)
            module.is_available = functools.partial(_may_be_there, accelerator)
        yield


def _may_be_there(accelerator: devices.Accelerator) -> bool:
    return _is_built_for(accelerator) and any(os.path.exists(node) for node in accelerator.nodes)


def _is_built_for(accelerator: devices.Accelerator) -> bool:
    import torch

    return any(getattr(torch.version, build.version, None) is not None for build in accelerator.builds)


def is_built_for_gpus() -> bool:
    """Whether this torch can ask a GPU's driver at all."""
    return any(map(_is_built_for, devices.ACCELERATORS.values()))


def arch_of(properties: Any) -> str:
    """Return the architecture of a GPU as conditions name it."""
    import torch

    return str(properties.gcnArchName) if torch.version.hip else f"sm_{properties.major}{properties.minor}"


def import_inductor() -> None:
    """Import what a compile needs, and let tqdm, which torch uses while it registers patterns, start no thread."""
    with _without_asking_drivers():
        import torch._dynamo
        import torch._inductor.compile_fx  # noqa: F401 - imported for its effect: a fork inherits it
    with contextlib.suppress(ImportError):
        # its monitor is a thread
        importlib.import_module("tqdm").tqdm.monitor_interval = 0


_OF_COMPILES = (
    *(f"torch._dynamo.{name}" for name in ("backends.inductor", "backends.cudagraphs", "dce_extra_outputs", "repro.after_dynamo")),
    *(
        f"torch._inductor.{name}"
        for name in ("bounds", "choices", "compiler_bisector", "hooks", "kernel_template_choice", "runtime.caching")
    ),
    *(f"torch._inductor.{name}" for name in ("extern_node_serializer", "runtime.triton_heuristics", "runtime.static_triton_launcher")),
    *(f"torch._inductor.codegen.{name}" for name in ("triton", "triton_combo_kernel", "cuda_combined_scheduling", "cpp_wrapper_gpu")),
    *(f"torch._inductor.codegen.{name}" for name in ("cuda.device_op_overrides", "segmented_tree", "memory_planning", "halide", "mps")),
    *(f"torch._inductor.codegen.{name}" for name in ("pallas", "wrapper_fxir", "cutlass.scheduling", "rocm.rocm_cpp_scheduling")),
    *(f"torch._inductor.fx_passes.{name}" for name in ("efficient_conv_bn_eval", "freezing_patterns", "fuse_attention", "misc_patterns")),
    *(f"torch._inductor.fx_passes.{name}" for name in ("mkldnn_fusion", "pad_mm", "quantization")),
    *("torch._functorch._aot_autograd.subclass_codegen", "torch._subclasses.schema_check_mode", "torch.fx.experimental.validator"),
    *("torch._export.db.logging", "torch.export._trace", "torch.export._unlift", "torch.utils.cpp_extension"),
    *("triton.compiler.code_generator", "triton.compiler.compiler", "triton.runtime.driver", "triton.language.extra.libdevice"),
    *("sympy.physics.units.systems", "sympy.combinatorics", "sympy.tensor.tensor"),
)
"""Modules that the first compile for a GPU of a process imports, in torch 2.11 to 2.13; one that is not there is not missed."""


def import_for_gpus() -> None:
    """Import what a compile for a GPU needs, and let Triton hash its own sources; asks no device."""
    for name in _OF_COMPILES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):
        patterns: Any = importlib.import_module("torch._inductor.fx_passes.serialized_patterns")
        for found in pkgutil.iter_modules(patterns.__path__):
            importlib.import_module(f"{patterns.__name__}.{found.name}")
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("torch._inductor.runtime.triton_compat").triton_key()


@contextlib.contextmanager
def without_devices() -> Iterator[None]:
    """Let torch find no GPU, and ask no driver, while something is compiled for the CPU.

    A driver that was asked cannot be passed on to a fork. These are the doors through which a compile for the CPU asks, as tracing
    torch 2.11 to 2.13 with a driver that counts its calls has shown.
    """
    import torch.accelerator

    from runner.worker.torch_compat.devices import modules

    def refuse() -> Any:
        raise RuntimeError("no device is looked for here")

    answers: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        *((module, "is_available", lambda: False) for _, module in modules()),
        *((module, "device_count", lambda: 0) for _, module in modules()),
        *((module, "current_device", refuse) for _, module in modules()),
        (torch.xpu, "is_available", lambda: False),
        (torch.accelerator, "is_available", lambda *_: False),
        (torch.accelerator, "device_count", lambda: 0),
        (torch.accelerator, "current_accelerator", lambda *_, **__: None),
        (torch._C, "_cuda_getDeviceCount", lambda: 0),
        # a fake tensor's guard of a device; without devices there is nothing to guard
        (torch._C, "_ensureCUDADeviceGuardSet", lambda: None),
    )
    with contextlib.ExitStack() as stack:
        for owner, name, answer in answers:
            if hasattr(owner, name):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, answer)
        yield


_FROM_LIBRARIES = (
    *("acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "expm1", "floor", "lgamma", "log", "log10", "log1p"),
    *("log2", "round", "sin", "sinh", "sqrt", "rsqrt", "tan", "tanh", "trunc"),
)
"""Functions of numbers that torch takes from a vector math library where there is one."""


@functools.cache
def settle_math() -> None:
    """Call each function of the vector math library once, with one thread; later calls of this process and its forks find it ready.

    MKL's first call in a process, made by two threads at once, was seen to give 1.5e-4 of error where 1e-7 is right: 6 of 3,700
    processes that did nothing but ``torch.sin``, none of 9,000 with one thread or a settled library. Nothing of it is the case's doing.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in _FROM_LIBRARIES:
        for dtype in (torch.float32, torch.float64):
            getattr(torch, name)(torch.full((64,), 0.5, dtype=dtype))
    torch.set_num_threads(before)


def set_threads(count: int) -> None:
    """Set the number of OpenMP threads of this process; its libraries were imported with one."""
    import torch

    settle_math()
    torch.set_num_threads(count)


_OPTIONS = {"config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config", "functorch_config": "torch._functorch.config"}
"""Sections of options, and the modules that hold them."""


@contextlib.contextmanager
def patched_options(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Set options for a while; an unknown name raises as torch raises."""
    with contextlib.ExitStack() as stack:
        for section, module in _OPTIONS.items():
            options = dict(sections.get(section, {}))
            if options:
                stack.enter_context(importlib.import_module(module).patch(options))
        yield


def option_values() -> dict[tuple[str, str], Any]:
    """Return a copy of every option's value, by the module that holds it and its name: also of those that no section of a spec names."""
    from torch.utils._config_module import ConfigModule

    modules = [(name, found) for name, found in list(sys.modules.items()) if issubclass(type(found), ConfigModule)]
    return {(module, name): value for module, found in modules for name, value in found.get_config_copy().items()}


def set_option(module: str, name: str, value: Any) -> None:
    """Set an option to a copy of a value."""
    setattr(sys.modules[module], name, copy.deepcopy(value))


def forget_compiles() -> None:
    """Forget what torch remembers of compiles beside what its own resets forget."""
    from torch._dynamo import utils
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._inductor.codecache import PyCodeCache
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.compiler._cache import CacheArtifactManager

    # what ``save_cache_artifacts`` would pack
    CacheArtifactManager.clear()
    # answers of operators' fake implementations, which a case may register under a name that another had
    FakeTensorMode.cache_clear()
    utils._compilation_metrics.clear()
    PyCodeCache.linemaps.clear()
    for owner, name in (
        # strings that the structured log has written, each once
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
"""Names of modules that inductor wrote."""


def reset_dynamo() -> None:
    """Forget what dynamo compiled."""
    import torch._dynamo

    torch._dynamo.reset()


def reset_inductor() -> None:
    """Forget what inductor keeps in memory."""
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
    """Forget the loaded modules of generated code, and delete their files."""
    from torch._inductor.codecache import PyCodeCache

    PyCodeCache.cache_clear(purge=True)


RESETS: Mapping[str, Callable[[], None]] = {
    "dynamo": reset_dynamo,
    "inductor": reset_inductor,
    "aot_autograd": reset_aot_autograd,
    "fx_graph": reset_fx_graph,
    "code": reset_code,
}
"""The words of ``reset``, but for ``rng``, which is the session's."""


def delete_generated_files() -> int:
    """Delete the files of generated modules that are loaded; return how many."""
    from torch._inductor.codecache import PyCodeCache

    deleted = 0
    for module in list(PyCodeCache.modules):
        file = getattr(module, "__file__", None)
        if file and os.path.exists(file):
            os.remove(file)
            deleted += 1
    return deleted


def use_cache_dir(folder: str) -> None:
    """Point inductor and Triton at an empty folder of the case's own."""
    os.makedirs(folder, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")


_PATH_OPTIONS = {
    ("config", "profile_bandwidth_output"): "TORCHINDUCTOR_PROFILE_OUTPUT",
    ("functorch_config", "memory_budget_pareto_dir"): "PARTITIONER_MEMORY_BUDGET_PARETO_DIR",
    ("dynamo_config", "dynamo_profiler"): "TORCH_COMPILE_DYNAMO_PROFILER",
}
"""Options that torch read from a variable when it was imported, and that name a file or folder."""


def follow_variables(folder: str) -> dict[str, dict[str, Any]]:
    """Let torch write logs and traces where the variables of ``own_files`` name now, and return the options that must say so too.

    Torch has read them when it was imported, which may have been in the template. Files that are open there are left to it.
    """
    root = os.path.join(folder, "torch_compile_debug")
    options: dict[str, dict[str, Any]] = {"dynamo_config": {"debug_dir_root": root}}
    for (section, name), variable in _PATH_OPTIONS.items():
        held = getattr(importlib.import_module(_OPTIONS[section]), name, None)
        if isinstance(held, str) and os.environ.get(variable):
            options.setdefault(section, {})[name] = os.environ[variable]
    _move_logs(root)
    select: Any = sys.modules.get("torch._inductor.select_algorithm")
    for name in ("get_mm_log_filename", "get_conv_log_filename", "get_flex_attention_log_filename"):
        found: Any = getattr(select, name, None)
        if hasattr(found, "cache_clear"):
            found.cache_clear()
    return options


def _move_logs(debug_root: str) -> None:
    """Give the handlers of torch's logs and of its trace the files that the variables name; they are opened when something is written."""
    loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    files = {id(one): one for logger in loggers for one in logger.handlers if isinstance(one, logging.FileHandler)}
    for handler in files.values() if os.environ.get("TORCH_LOGS_OUT") else ():
        _forget_stream(handler)
        handler.baseFilename = os.environ["TORCH_LOGS_OUT"]
    trace: Any = getattr(sys.modules["torch._logging._internal"], "LOG_TRACE_HANDLER", None)
    if getattr(trace, "root_dir", None) is not None:
        _forget_stream(trace)
        named = os.environ.get("TORCH_DTRACE") or os.environ.get("TORCH_TRACE")
        trace.root_dir = named or os.path.join(debug_root, "tlparse")


def _forget_stream(handler: Any) -> None:
    if handler.stream is not None:
        with contextlib.suppress(OSError, ValueError):
            handler.stream.close()
        handler.stream = None


@contextlib.contextmanager
def cache_folder(folder: str) -> Iterator[None]:
    """Let inductor and Triton use a folder for a while."""
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    before = {name: os.environ.get(name) for name in names}
    use_cache_dir(folder)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def counters() -> dict[str, dict[str, int]]:
    """Return every counter that is not 0, by namespace and name."""
    from torch._dynamo.utils import counters as found

    return {str(space): {str(name): int(number) for name, number in names.items()} for space, names in found.items() if names}


def clear_counters() -> None:
    """Set every counter to 0."""
    from torch._dynamo.utils import counters as found

    found.clear()
    _remote_cache_stats().clear()


def _remote_cache_stats() -> dict[str, Any]:
    from torch._inductor.remote_cache import cache_stats

    found: dict[str, Any] = cache_stats._stats
    return found


def remote_caches() -> dict[str, dict[str, int]]:
    """Return torch's statistics of its remote caches, by the name of the cache: hit, miss, put and exception."""
    return {
        name: {count: int(getattr(seen, count)) for count in ("hit", "miss", "put", "exception")}
        for name, seen in _remote_cache_stats().items()
        if name.startswith("Remote")
    }


def use_redis(url: str, tag: str) -> None:
    """Lead torch's Redis client to a server, and tag the keys of every cache that knows tags. torch asks for both when it compiles."""
    import torch.compiler.config

    os.environ["TORCHINDUCTOR_REDIS_URL"] = url
    torch.compiler.config.cache_key_tag = tag


def metrics() -> dict[str, float]:
    """Return inductor's metrics that are numbers; a list counts by its length."""
    from torch._inductor import metrics as found

    values = {name: value for name, value in vars(found).items() if not name.startswith("_")}
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    return {**numbers, **{name: len(value) for name, value in values.items() if isinstance(value, list)}}


def clear_metrics() -> None:
    """Set inductor's metrics to 0."""
    from torch._inductor import metrics as found

    found.reset()


def name_lines(file: str, names: Mapping[int, str]) -> None:
    """Tell dynamo which function each line of a file belongs to; asked itself, it reads the file as Python and may raise."""
    from torch._dynamo import funcname_cache

    funcname_cache.cache[file] = dict(names)


def virtualized(handler: str, value: Any) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which ``V.<handler>`` is a value."""
    from torch._inductor.virtualized import V

    made: contextlib.AbstractContextManager[Any] = getattr(V, f"set_{handler}_handler")(value)
    return made


def pick_vector_isa() -> str:
    """Let inductor find the machine's vector instructions, which it keeps for the process and its forks."""
    from torch._inductor import cpu_vec_isa

    with _without_asking_drivers(), vector_isa.kept(os.environ.get(protocol.KEPT)):
        return str(cpu_vec_isa.pick_vec_isa())


def picked_vector_isa() -> str | None:
    """Return the vector instructions that inductor picked; None where it has not looked for them yet, which takes long."""
    cpu_vec_isa = sys.modules.get("torch._inductor.cpu_vec_isa")
    return str(cpu_vec_isa.pick_vec_isa()) if cpu_vec_isa and cpu_vec_isa.valid_vec_isa_list.cache_info().currsize else None


# -- hooks ----------------------------------------------------------------------------------------------------------


PHASES: tuple[tuple[str, str, str], ...] = (
    ("torch._inductor.graph", "GraphLowering.run", "lower"),
    ("torch._inductor.graph", "GraphLowering.codegen", "codegen"),
    ("torch._inductor.codecache", "PyCodeCache.load_by_key_path", "kernel build"),
    ("torch._inductor.async_compile", "AsyncCompile.wait", "kernel build"),
    ("torch._inductor.codecache", "AotCodeCompiler.compile", "kernel build"),
    ("torch._inductor.select_algorithm", "AlgorithmSelectorCache.__call__", "autotune"),
    ("torch._inductor.output_code", "CompiledFxGraph.__call__", "run"),
    ("torch.export.pt2_archive._package", "AOTICompiledModel.__call__", "run"),
)
"""Module, method and the phase that a case is in while it runs."""


def wrap(module: str, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function or a method by a wrapper that calls it; a class method stays one."""
    owner: Any = importlib.import_module(module)
    *parents, attribute = name.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    raw = vars(owner).get(attribute, getattr(owner, attribute))
    if isinstance(raw, classmethod):
        setattr(owner, attribute, classmethod(around(raw.__func__)))
    elif isinstance(raw, staticmethod):
        setattr(owner, attribute, staticmethod(around(raw.__func__)))
    else:
        setattr(owner, attribute, around(raw))


def wrap_builds(around: Callable[[Callable[[str, str], Any]], Callable[[str, str], Any]]) -> str:
    """Wrap what runs a command of the C++ compiler in a folder; return why that cannot be done in this torch, empty when it was.

    Within torch's own timing of it, so that nothing that torch measures is missing.
    """
    module, name = "torch._inductor.cpp_builder", "_run_compile_cmd"
    found = getattr(importlib.import_module(module), name, None)
    if found is None or list(inspect.signature(found).parameters) != ["cmd_line", "cwd"]:
        return f"not available in this torch: it has no {module}.{name}(cmd_line, cwd)"
    wrap(module, name, around)
    return ""


def compiled(function: Callable[..., Any], options: Mapping[str, Any]) -> tuple[Callable[..., Any], Any]:
    """Return what ``torch.compile`` makes of a function, and the backend object with which dynamo will compile its frames."""
    import torch._dynamo

    backends: list[Any] = []
    original = torch._dynamo.optimize

    def optimize(*args: Any, **kwargs: Any) -> Any:
        backends.append(kwargs["backend"] if "backend" in kwargs else args[0])
        return original(*args, **kwargs)

    torch._dynamo.optimize = optimize
    try:
        made = torch.compile(function, **options)
    finally:
        torch._dynamo.optimize = original
    return made, backends[-1] if backends else None


def backend_calls() -> list[tuple[str, str]]:
    """Return the methods by which dynamo calls the backend objects that ``torch.compile`` makes."""
    import torch

    names = ("_TorchCompileInductorWrapper", "_TorchCompileAOTInductorWrapper", "_TorchCompileWrapper")
    return [("torch", f"{name}.__call__") for name in names if "__call__" in vars(getattr(torch, name, object))]


def compile_context() -> Any:
    """Return the object that torch makes for each compile, and enters again where it compiles the backward later; None outside."""
    from torch._guards import CompileContext

    return CompileContext.try_get()


def is_graph_break(error: Exception) -> bool:
    """Whether an exception that left the conversion of a frame means that dynamo cannot trace it, as after any graph break.

    Reaching the recompile limit has the same type in torch, and is no graph break: the frame was traced before.
    """
    from torch._dynamo import exc

    at_limit = getattr(error, "frame_exec_strategy", None) is not None or "recompile limit" in str(error)[:2000].lower()
    breaks = tuple(getattr(exc, name) for name in ("Unsupported", "UserError", "SkipFrame") if hasattr(exc, name))
    return isinstance(error, breaks) and not at_limit


def is_restart(error: Exception) -> bool:
    """Whether an exception makes dynamo trace a frame again: nothing is given up."""
    from torch._dynamo import exc

    return isinstance(error, getattr(exc, "RestartAnalysis", ()))


def is_erased(value: Any) -> bool:
    """Whether freezing has discarded a parameter: every use of it raises."""
    found = sys.modules.get("torch._inductor.freezing")
    return found is not None and isinstance(value, found.ErasedTensor)


def reference_stance() -> contextlib.AbstractContextManager[Any]:
    """Return the context in which functions that ``torch.compile`` made run as they were written."""
    import torch.compiler

    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


@contextlib.contextmanager
def counts_kept() -> Iterator[None]:
    """Bring counters, metrics and statistics of remote caches back to what they are now when the context ends."""
    from torch._dynamo.utils import counters as found
    from torch._inductor import metrics as numbers

    counted = {space: dict(names) for space, names in found.items()}
    measured = {name: copy.copy(value) for name, value in vars(numbers).items() if _is_metric(name, value)}
    remote = {name: copy.copy(seen) for name, seen in _remote_cache_stats().items()}
    try:
        yield
    finally:
        for space in [space for space in found if space not in counted]:
            del found[space]
        for space, names in counted.items():
            found[space].clear()
            found[space].update(names)
        for name, value in measured.items():
            setattr(numbers, name, value)
        _remote_cache_stats().clear()
        _remote_cache_stats().update(remote)


def _is_metric(name: str, value: Any) -> bool:
    return not name.startswith("_") and isinstance(value, int | float | list) and not isinstance(value, bool)


def on_output_code(save: Callable[[str], None]) -> None:
    """Call ``save`` with each piece of code that inductor writes or takes from a cache."""
    from torch._inductor.graph import GraphLowering

    GraphLowering.save_output_code = save


def on_timed_choices(save: Callable[[Mapping[tuple[str, str], float]], None]) -> None:
    """Call ``save`` with the time of each choice, in milliseconds by its name and class, whenever inductor has timed some."""
    from torch._inductor import select_algorithm

    def feedback(timings: Mapping[Any, float], *rest: Any) -> None:
        save({(str(choice.name), class_of_choice(choice)): float(time) for choice, time in timings.items()})

    select_algorithm.add_feedback_saver(feedback)


def class_of_choice(choice: Any) -> str:
    """Return the dotted path of the class of the template that made a choice, or of the choice; empty for a class that is no module's.

    The name of a choice may be any user's; that of a class is only true when its module has the class under it.
    """
    # what converts arguments and results wraps the choice
    choice = vars(choice).get("_wrapped", choice)
    maker = type(vars(choice).get("template") or choice)
    found: Any = sys.modules.get(maker.__module__)
    for part in maker.__qualname__.split("."):
        found = getattr(found, part, None)
    return f"{maker.__module__}.{maker.__qualname__}" if found is maker else ""
