"""What a case leaves in its worker: it is brought back, or it is said; in this process, with real torch."""

import builtins
import contextlib
import gc
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import import_torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch = import_torch()

from runner.worker.case import compilation, source_module  # noqa: E402 - they import torch
from runner.worker.process import warming  # noqa: E402
from runner.worker.process.registered import Counters, Places  # noqa: E402
from runner.worker.process.reset import Baseline  # noqa: E402
from runner.worker.process.settings import SETTINGS, Settings  # noqa: E402
from runner.worker.torch_compat import counting, imports, kernel_calls, lookup, option_state  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _frozen_heap() -> Iterator[None]:
    """Leave out what is alive from every look through the heap, as a zygote does before it forks; a test process has far more of it."""
    imports.import_inductor()
    warming.freeze()
    yield
    gc.unfreeze()
    warming._frozen.clear()


@pytest.fixture
def baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Baseline]:
    """Return what this process is now; afterwards it is in its folder again."""
    imports.import_inductor()
    folder = Path.cwd()
    gc.unfreeze()  # tests/conftest.py froze what was there, and the caches of a worker must be found
    with warnings.catch_warnings():
        made = Baseline()
        os.chdir(tmp_path)
        yield made
    os.chdir(folder)


def after(baseline: Baseline, change: Callable[[], object]) -> str:
    """Let a case change something; return what is said of it."""
    with baseline.kept() as (_, odd):
        change()
    return odd.text


def every(names: Sequence[str], step: int) -> list[Any]:
    """Return the names; the nightly tests take all but each ``step``-th, because noting a process takes most of a second of a core."""
    slow = pytest.mark.nightly(reason="another name of the same list is tested by every run of the tests")
    return [pytest.param(name, marks=() if number % step == 0 else slow) for number, name in enumerate(names)]


def test_a_case_that_changes_nothing_leaves_nothing_odd(baseline: Baseline) -> None:
    for _ in range(2):
        assert after(baseline, lambda: None) == ""


def test_a_selected_kernel_leaves_nothing_odd(baseline: Baseline) -> None:
    """Its class was replaced when the first candidate of it was selected, which ended each shared worker after a matmul on a GPU."""
    from torch._inductor import select_algorithm

    from runner.worker.torch_compat import choice_census

    def select() -> None:
        for kind in (select_algorithm.ExternKernelCaller, select_algorithm.TritonTemplateCaller):
            choice_census._watch_node(choice_census._state[0], kind)

    assert after(baseline, select) == ""


def patterns_of_freezing() -> list[dict[str, int]]:
    """Return how many patterns of each key the passes of freezing have."""
    from torch._inductor.fx_passes import freezing_patterns

    passes = [*freezing_patterns.pass_patterns, freezing_patterns.binary_folding_pass]
    return [{str(key): len(entries) for key, entries in one.patterns.items() if entries} for one in passes]


def test_each_case_with_freezing_registers_its_own_patterns(baseline: Baseline) -> None:
    """The first one ended its shared worker: 104 of 224 workers of a run on two GPUs had one case for this reason."""
    from torch._inductor.fx_passes import freezing_patterns

    before, seen = patterns_of_freezing(), []

    def freeze(*, prepack: bool) -> None:
        torch._inductor.config.cpp.weight_prepack = prepack
        freezing_patterns.lazy_init()
        seen.append(patterns_of_freezing())

    for prepack in (True, False, True):
        assert after(baseline, lambda prepack=prepack: freeze(prepack=prepack)) == ""
        assert patterns_of_freezing() == before
    assert seen[0] != before
    assert seen[1] != before
    assert seen[0] != seen[1]
    assert seen[2] == seen[0]


def test_what_is_recorded_of_the_compiles_of_a_case_leaves_nothing_odd(baseline: Baseline) -> None:
    def record() -> None:
        compilation.watch({"kernels", "guards", "recompiles", "graph_breaks", "graph", "dynamo"})
        compilation.install()
        kernel_calls._loaded.wrappers["/nowhere/wrapper.py"] = kernel_calls.Wrapper()
        compilation.take().graph_breaks.append({"frame": "fn", "reason": "a break"})

    assert after(baseline, record) == ""


def test_every_setting_can_be_read_in_this_torch() -> None:
    settings = Settings()
    assert settings.unreadable == {}
    assert list(settings.bring_back()) == []


OTHER_CHANGE = pytest.mark.nightly(reason="another change that is restored, and one that is said, are tested by every run of the tests")
OTHER_TABLE = pytest.mark.nightly(reason="an entry in one table of torch, and an operator, are tested by every run of the tests")
OTHER_FAILURE = pytest.mark.nightly(reason="a reset that fails is tested by every run of the tests")


# -- what is brought back -------------------------------------------------------------------------------------------


def option(module: str, name: str) -> Callable[[], Any]:
    return lambda: option_state.option_values()[module, name]


def set_logs() -> None:
    torch._logging.set_logs(inductor=logging.DEBUG, dynamo=logging.INFO, output_code=True, graph_breaks=True)


def logged() -> Any:
    names = ("torch._inductor", "torch._dynamo", "torch._inductor.graph", "torch._inductor.graph.__output_code", "torch")
    found = [(logging.getLogger(name).getEffectiveLevel(), logging.getLogger(name).propagate) for name in names]
    state = torch._logging._internal.log_state
    return found, len(logging.getLogger("torch").handlers), dict(state.log_qname_to_level), set(state.artifact_names)


def computed_in() -> Any:
    made = torch.rand(2)
    return made.dtype, made.device


def precision() -> Any:
    with contextlib.suppress(RuntimeError):
        return torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision
    return "unreadable"


class Lines(logging.Handler):
    """A handler of a case's own."""


BROUGHT_BACK: dict[str, tuple[Callable[[], object], Callable[[], Any]]] = {
    "an option of inductor": (
        lambda: setattr(torch._inductor.config, "max_autotune", True),
        option("torch._inductor.config", "max_autotune"),
    ),
    "a nested option": (lambda: setattr(torch._inductor.config.cpp, "simdlen", 1), option("torch._inductor.config", "cpp.simdlen")),
    "a map among the options": (
        lambda: torch._inductor.config.post_grad_fusion_options.update(mine={}),
        option("torch._inductor.config", "post_grad_fusion_options"),
    ),
    "an option of dynamo": (
        lambda: setattr(torch._dynamo.config, "suppress_errors", True),
        option("torch._dynamo.config", "suppress_errors"),
    ),
    "an option of no section": (
        lambda: setattr(torch.compiler.config, "cache_key_tag", "mine"),
        option("torch.compiler.config", "cache_key_tag"),
    ),
    "a new variable": (lambda: os.environ.update(STATE_TEST="1"), lambda: os.environ.get("STATE_TEST")),
    "a variable that went": (lambda: os.environ.pop("PATH"), lambda: os.environ.get("PATH")),
    "the working folder, but for the root": (lambda: os.chdir("/tmp"), lambda: os.getcwd() == "/tmp"),
    "sys.path": (lambda: sys.path.append("/nowhere"), lambda: list(sys.path)),
    "a finder": (lambda: sys.meta_path.insert(0, types.SimpleNamespace(find_spec=lambda *_: None)), lambda: len(sys.meta_path)),
    "stdout": (lambda: setattr(sys, "stdout", None), lambda: sys.stdout),
    "a warnings filter": (lambda: warnings.filterwarnings("error", "nothing like it"), lambda: list(warnings.filters)),
    "what shows warnings": (lambda: setattr(warnings, "showwarning", print), lambda: warnings.showwarning),
    "the recursion limit": (lambda: sys.setrecursionlimit(3210), sys.getrecursionlimit),
    "garbage collection": (gc.disable, gc.isenabled),
    "a signal's handler": (lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN), lambda: signal.getsignal(signal.SIGALRM)),
    "the umask": (lambda: os.umask(0o027), lambda: subprocess.check_output(["sh", "-c", "umask"], timeout=240)),
    "torch's logs": (set_logs, logged),
    "a logger's level": (lambda: logging.getLogger("torch").setLevel(5), lambda: logging.getLogger("torch").level),
    "a handler of the root": (lambda: logging.root.addHandler(Lines()), lambda: len(logging.root.handlers)),
    "logging that is off": (lambda: logging.disable(50), lambda: logging.root.manager.disable),
    "grad mode": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), computed_in),
    "default device": (lambda: torch.set_default_device("meta"), computed_in),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.is_autocast_enabled("cpu")),
    "autocast's dtype": (lambda: torch.set_autocast_dtype("cpu", torch.float16), lambda: torch.get_autocast_dtype("cpu")),
    "anomaly detection": (lambda: torch.set_anomaly_enabled(True), torch.is_anomaly_enabled),
    "threads": (lambda: torch.set_num_threads(3), torch.get_num_threads),
    "deterministic algorithms": (lambda: torch.use_deterministic_algorithms(True), torch.are_deterministic_algorithms_enabled),
    "TF32": (lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True), precision),
    "matmul precision": (lambda: torch.set_float32_matmul_precision("high"), precision),
    "precision by the new door": (lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"), precision),
    "precision of all": (lambda: setattr(torch.backends, "fp32_precision", "tf32"), lambda: torch.backends.fp32_precision),
    "cuDNN's benchmarks": (lambda: setattr(torch.backends.cudnn, "benchmark", True), lambda: torch.backends.cudnn.benchmark),
    "plain attention": (lambda: torch.backends.cuda.enable_math_sdp(False), torch.backends.cuda.math_sdp_enabled),
    "how tensors are printed": (lambda: torch.set_printoptions(precision=1), lambda: str(torch.tensor(1.23456))),
    "dynamo's stance": (lambda: torch.compiler.set_stance("force_eager"), lambda: torch._dynamo.eval_frame._stance.stance),
    "counters": (
        lambda: torch._dynamo.utils.counters["inductor"].update(fxgraph_cache_hit=7),
        lambda: dict(torch._dynamo.utils.counters["inductor"]),
    ),
    "metrics": (
        lambda: setattr(torch._inductor.metrics, "generated_kernel_count", 7),
        lambda: torch._inductor.metrics.generated_kernel_count,
    ),
    "the modules of specs": (
        lambda: source_module.SpecModule("state", {}),
        lambda: [one for one in sys.modules if "conformance_spec" in one],
    ),
}


@pytest.mark.parametrize("name", every(tuple(BROUGHT_BACK), 20))
def test_it_is_brought_back(name: str, baseline: Baseline) -> None:
    change, probe = BROUGHT_BACK[name]
    counting.clear_counters()
    counting.clear_metrics()
    before = probe()
    for _ in range(2):  # what it is brought back to is not what the case could reach
        with baseline.kept() as (_, odd):
            change()
            assert probe() != before
        assert probe() == before
        assert odd.text == ""


def test_what_is_set_with_a_patch_stays_until_the_end_of_the_case(baseline: Baseline) -> None:
    with baseline.kept() as (undo, odd):
        undo.enter_context(option_state.patched_options({"config": {"freezing": True}, "dynamo_config": {"cache_size_limit": 3}}))
        assert torch._inductor.config.freezing
    assert not torch._inductor.config.freezing
    assert odd.text == ""


def test_a_warning_that_came_once_comes_again(baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("state_that_warns")
    exec("import warnings\ndef warn():\n    warnings.warn('look out')", vars(module))
    monkeypatch.setitem(sys.modules, "state_that_warns", module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        fresh = Baseline()
        for count in (1, 2):
            with fresh.kept():
                module.warn()
                module.warn()
            assert [str(one.message) for one in caught] == ["look out"] * count


@OTHER_CHANGE
def test_what_torch_logs_once_is_logged_again(baseline: Baseline, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("state.test")
    for count in (1, 2):
        with baseline.kept():
            for _ in range(2):
                torch._logging.warning_once(logger, "only once")
        assert [record.message for record in caplog.records].count("only once") == count


def test_the_next_case_counts_from_the_beginning(baseline: Baseline) -> None:
    counters = Counters()
    aot, graphs = torch._functorch.aot_autograd.AOT_COUNTER, torch._inductor.compile_fx._graph_counter
    # of a class: names of kernels that are made from templates
    from torch._inductor.codegen.cpp_template import CppTemplate

    numbers = [next(aot), next(graphs), next(CppTemplate.index_counter)]
    counters.set_back()
    modules = (torch._functorch.aot_autograd.AOT_COUNTER, torch._inductor.compile_fx._graph_counter, CppTemplate.index_counter)
    assert [next(one) for one in modules] == numbers
    baseline._counters.set_back()


# -- what is said ---------------------------------------------------------------------------------------------------


def another(*_: Any, **__: Any) -> None:
    """Stand in the place of something of torch's."""


REPLACED = (
    "torch._inductor.compile_fx.compile_fx",
    "torch._inductor.graph.GraphLowering.run",
    "torch._inductor.graph.GraphLowering.save_output_code",
    "torch._dynamo.convert_frame.convert_frame",
    "torch._functorch.aot_autograd.aot_module_simplified",
    "torch._inductor.scheduler.Scheduler",
    "torch.cuda.is_available",
    "torch.nn.functional.relu",
    "torch.fx.graph_module.GraphModule.recompile",
    "torch.add",
    "os.path.exists",
    "subprocess.check_output",
    "time.time",
)


@pytest.mark.parametrize("path", every(REPLACED, len(REPLACED)))
def test_what_stays_replaced_is_said(path: str, baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, _, name = path.rpartition(".")
    owner: Any = os.path if parent == "os.path" else lookup.resolve(parent)
    monkeypatch.setattr(owner, name, another)
    said = [*baseline._places.replaced(), *baseline._of_python()]
    assert any(one.endswith(f".{name}") for one in said), said


# -- what makes a case contaminated -----------------------------------------------------------------------------------


def contaminated(baseline: Baseline, change: Callable[[], object]) -> str:
    """Let a case change something; return what is said to have changed of what measures it."""
    with baseline.kept() as (_, odd):
        change()
    assert bool(odd.contaminated) == ("stays replaced" in odd.text)
    return odd.contaminated


def ways(patch: pytest.MonkeyPatch) -> dict[str, tuple[Callable[[], object], str]]:
    from runner.vocabulary import steps
    from runner.vocabulary.expectations import close
    from runner.vocabulary.inputs import objects
    from runner.vocabulary.steps import spawn
    from runner.worker.case import case, hooks
    from runner.worker.process import channel

    def code_of_measure() -> None:
        patch.setattr(close.measure, "__code__", (lambda arguments, value: {"leaves": []}).__code__)

    return {
        "a function": (lambda: patch.setattr(close, "measure", another), "runner.vocabulary.expectations.close.measure"),
        "the code of a function": (code_of_measure, "runner.vocabulary.expectations.close.measure.__code__"),
        "the defaults of a function": (
            lambda: patch.setattr(channel.exception, "__defaults__", ("",)),
            "the content of runner.worker.process.channel.exception",
        ),
        "a method": (lambda: patch.setattr(hooks.Witness, "take", another), "runner.worker.case.hooks.Witness.take"),
        "an attribute of a class": (lambda: patch.setattr(hooks.Seen, "entered", 7), "runner.worker.case.hooks.Seen.entered"),
        "a new attribute of a class": (
            lambda: patch.setattr(case.Channel, "__getattr__", another, raising=False),
            "runner.worker.process.channel.Channel",
        ),
        "a constant": (lambda: patch.setattr(channel, "_MAX_MESSAGE", 0), "runner.worker.process.channel._MAX_MESSAGE"),
        "an entry of a table": (lambda: patch.setitem(steps.STEPS, "call", another), "runner.vocabulary.steps.STEPS.call"),
        "a new entry of a table": (lambda: patch.setitem(steps.STEPS, "rest", another), "runner.vocabulary.steps.STEPS.rest"),
        "a name that hides a builtin": (lambda: patch.setattr(case, "len", another, raising=False), "runner.worker.case.case.len"),
        "a builtin": (lambda: patch.setattr("builtins.abs", another), "builtins.abs"),
        "a new builtin": (lambda: patch.setattr(builtins, "helper", another, raising=False), "builtins.helper"),
        "json": (lambda: patch.setattr("json.dumps", another), "json.dumps"),
        "a name in json that hides a builtin": (
            lambda: patch.setattr(json.encoder, "isinstance", another, raising=False),
            "json.encoder.isinstance",
        ),
        "a method of pathlib": (lambda: patch.setattr("pathlib.Path.read_text", another), "pathlib.Path.read_text"),
        "the code of os.path.join": (
            lambda: patch.setattr(os.path.join, "__code__", (lambda *parts: "").__code__),
            "posixpath.join.__code__",
        ),
        "another module in its place": (
            lambda: patch.setitem(sys.modules, "runner.core.protocol", types.ModuleType("x")),
            "sys.modules[runner.core.protocol]",
        ),
        "a module that only a later case imports": (
            lambda: patch.setattr(objects, "module", another),
            "runner.vocabulary.inputs.objects.module",
        ),
        "what a kind of step does": (lambda: patch.setattr(spawn, "run", another), "runner.vocabulary.steps.spawn.run"),
        "what a kind of step does, at its class": (
            lambda: patch.setattr(spawn.Spawn, "runs", staticmethod(another)),
            "runner.vocabulary.steps.spawn.Spawn.runs",
        ),
        "the check": (
            lambda: patch.setattr(Baseline, "_bring_back", lambda self: iter(())),
            "runner.worker.process.reset.Baseline._bring_back",
        ),
        "what the check calls": (
            lambda: patch.setattr("runner.worker.process.registered._made_of", another),
            "runner.worker.process.registered._made_of",
        ),
        "the check's class": (lambda: patch.setattr(Places, "__init__", another), "runner.worker.process.registered.Places.__init__"),
    }


WAYS = list(ways(pytest.MonkeyPatch()))


@pytest.mark.parametrize("way", every(WAYS, len(WAYS)))
def test_what_measures_a_case_is_watched(way: str, baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        change, path = ways(patch)[way]
        with baseline.kept() as (_, odd):
            change()
        patch.undo()
    assert path in odd.contaminated
    assert "stays replaced" in odd.text
    assert contaminated(baseline, lambda: None) == ""


def test_a_name_of_torch_that_is_another_is_no_contamination(baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specs drive torch: what stays replaced there ends the worker, and the case is believed."""
    monkeypatch.setattr(torch.cuda, "is_available", another)
    with baseline.kept() as (_, odd):
        pass
    assert odd.contaminated == ""
    assert "torch.cuda.is_available stays replaced" in odd.text


def test_a_setting_that_is_brought_back_is_no_contamination(baseline: Baseline) -> None:
    def change() -> None:
        warnings.showwarning = another
        sys.excepthook = another

    assert contaminated(baseline, change) == ""


@OTHER_CHANGE
def test_what_is_put_back_by_the_case_is_not_said(baseline: Baseline) -> None:
    original = torch._inductor.compile_fx.compile_fx

    def change() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch._inductor.compile_fx, "compile_fx", another)
            assert torch._inductor.compile_fx.compile_fx is another

    assert after(baseline, change) == ""
    assert torch._inductor.compile_fx.compile_fx is original


@OTHER_CHANGE
def test_a_function_that_is_gone_is_said(baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._inductor.utils, "ceildiv")
    assert "torch._inductor.utils.ceildiv stays replaced" in after(baseline, lambda: None)


@OTHER_CHANGE
def test_a_lowering_that_is_another_is_said(baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.lowering import lowerings

    monkeypatch.setitem(lowerings, torch.ops.aten.mul.Tensor, another)
    assert "torch._inductor.lowering.lowerings[aten.mul.Tensor] stays replaced" in after(baseline, lambda: None)


@pytest.mark.parametrize(
    "path", ["torch._inductor.lowering.lowerings", pytest.param("torch._inductor.decomposition.decompositions", marks=OTHER_TABLE)]
)
def test_what_is_registered_for_an_operator_is_said(path: str, baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lookup.resolve(path)
    monkeypatch.setitem(table, "state::operator", another)
    assert f"{path} changed (+state::operator)" in after(baseline, lambda: None)
    monkeypatch.delitem(table, "state::operator")
    assert after(baseline, lambda: None) == ""


@OTHER_TABLE
def test_a_pattern_is_said(baseline: Baseline) -> None:
    from torch._inductor.fx_passes import post_grad
    from torch._inductor.pattern_matcher import Arg, CallFunction, register_graph_pattern

    passes = post_grad.pass_patterns[1]
    key = ("call_function", torch.ops.aten.sinh.default)
    assert key not in passes.patterns
    try:
        register_graph_pattern(CallFunction(torch.ops.aten.sinh.default, Arg()), pass_dict=passes)(another)
        assert "torch._inductor.fx_passes.post_grad.pass_patterns changed" in after(baseline, lambda: None)
    finally:
        passes.patterns.pop(key, None)
    assert after(baseline, lambda: None) == ""


def test_an_operator_is_said_until_it_is_gone(baseline: Baseline) -> None:
    library = torch.library.Library("state_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    assert "torch.library._defs changed (+state_test::twice)" in after(baseline, lambda: None)
    del library
    assert after(baseline, lambda: None) == ""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "library = torch.library.Library('state_case', 'DEF')\nlibrary.define('a(Tensor x) -> Tensor')\n"
            "library.impl('a', lambda x: x, 'CPU')",
            marks=OTHER_TABLE,
        ),
        pytest.param("torch.library.define('state_case::b', '(Tensor x) -> Tensor')", marks=OTHER_TABLE),
        "@torch.library.custom_op('state_case::c', mutates_args=())\ndef c(x: torch.Tensor) -> torch.Tensor:\n    return x.clone()",
    ],
)
def test_an_operator_of_a_spec_stays_and_is_said(text: str, baseline: Baseline) -> None:
    """The next case gets another worker, where it can be registered again."""
    module = source_module.SpecModule("state/operator", {"torch": torch})
    said = after(baseline, lambda: module.execute({"file": "spec.yaml", "line": 1, "name": "prelude", "text": text}))
    assert "torch.library._defs changed (+state_case::" in said


@OTHER_TABLE
def test_allowing_a_function_in_graphs_is_said(baseline: Baseline) -> None:
    from torch._dynamo import trace_rules

    trace_rules._allowed_callable_ids.function_ids  # noqa: B018 - filled when it is first asked
    fresh = Baseline()
    try:
        torch._dynamo.allow_in_graph(another)
        assert "trace_rules._allowed_callable_ids changed" in after(fresh, lambda: None)
    finally:
        trace_rules._allowed_callable_ids.remove(id(another))


@OTHER_TABLE
def test_a_hook_of_every_module_is_said(baseline: Baseline) -> None:
    handle = torch.nn.modules.module.register_module_forward_hook(another)
    try:
        assert "_global_forward_hooks changed" in after(baseline, lambda: None)
    finally:
        handle.remove()
    assert after(baseline, lambda: None) == ""


def test_a_thread_is_said(baseline: Baseline) -> None:
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="left-behind", daemon=True)
    assert after(baseline, thread.start) == "thread left-behind is still running"
    go_on.set()
    thread.join(timeout=60)
    assert after(baseline, lambda: None) == ""


def test_a_mode_that_is_still_entered_is_said(baseline: Baseline) -> None:
    with torch.inference_mode():
        assert after(baseline, lambda: None) == "inference mode stays True"
    from torch.overrides import TorchFunctionMode

    with TorchFunctionMode():
        assert after(baseline, lambda: None) == "function modes stays 1"


def test_what_cannot_be_cleaned_is_said_and_the_rest_is_done(baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ValueError("not today")

    def change() -> None:
        monkeypatch.setattr(torch._dynamo, "reset", refuse)
        torch.set_default_dtype(torch.float64)

    said = after(baseline, change)
    assert "compiled code of torch cannot be restored: ValueError: not today" in said
    assert "torch._dynamo.reset stays replaced" in said
    assert torch.get_default_dtype() is torch.float32


@OTHER_FAILURE
def test_an_undoing_that_fails_is_said(baseline: Baseline) -> None:
    def refuse() -> None:
        raise KeyError("gone")

    with baseline.kept() as (undo, odd):
        undo.callback(torch.set_default_dtype, torch.float32)
        undo.callback(refuse)
        torch.set_default_dtype(torch.float64)
    assert odd.text == "changes of the case cannot be restored: KeyError: 'gone'"
    assert torch.get_default_dtype() is torch.float32


@OTHER_FAILURE
def test_an_option_that_takes_no_value_any_more_is_said(baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AttributeError("closed")

    def change() -> None:
        torch._inductor.config.max_autotune = True
        monkeypatch.setattr(option_state, "set_option", refuse)

    try:
        said = after(baseline, change)
        assert "option torch._inductor.config.max_autotune cannot be restored: AttributeError: closed" in said
        assert "option torch._inductor.config.max_autotune stays changed" in said
    finally:
        torch._inductor.config.max_autotune = False


@OTHER_FAILURE
def test_a_case_that_ends_its_worker_is_not_kept(baseline: Baseline) -> None:
    with pytest.raises(SystemExit):
        after(baseline, sys.exit)


def walk() -> int:
    """Look up each name of torch's modules and of their classes once: the unit in which the cost of cleaning is measured."""
    seen = 0
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] not in ("torch", "triton") or type(module) is not types.ModuleType:
            continue
        for key, value in list(vars(module).items()):
            seen += vars(module).get(key) is value
            if issubclass(type(value), type) and value.__module__ == name:
                seen += sum(vars(value).get(one) is held for one, held in list(vars(value).items()))
    return seen


def cpu_seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def cost(work: Callable[[], object], bound: float) -> float:
    """Return the CPU time of some work in walks, measured in turn; again while it is above the bound, because load can only add to it."""
    units, taken = [], []
    for turn in range(40):
        units.append(cpu_seconds(walk))
        taken.append(cpu_seconds(work))
        if turn > 3 and min(taken) < bound * min(units):
            break
    return min(taken) / min(units)


@pytest.fixture
def frozen() -> Iterator[None]:
    """Take what is alive out of the garbage collector's sight, as a zygote does before it forks."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
def test_cleaning_after_a_case_costs_little(baseline: Baseline) -> None:
    """Each case of a shared worker pays it: 2.8 walks, some 0.12 s of CPU time."""
    assert cost(lambda: after(baseline, lambda: None), bound=5) < 5


@pytest.mark.nightly(reason="paid once a worker; what each case pays is measured by every run of the tests")
@pytest.mark.usefixtures("frozen")
def test_noting_the_first_state_costs_little(baseline: Baseline) -> None:
    """Each shared worker pays it once: 7.3 walks, some 0.3 s of CPU time."""
    assert cost(Baseline, bound=13) < 13


def test_what_the_baseline_records_is_not_read_after_each_case(baseline: Baseline) -> None:
    """It is hundreds of thousands of objects, and a collection of garbage reads every object that is not frozen."""
    known = warming.cache_sizes()
    assert len(gc.get_objects()) < 20_000
    assert set(known) >= set(map(id, warming._frozen)) > set(), "caches that are frozen are still found"


def test_the_text_of_what_is_odd_fits_into_its_message(baseline: Baseline) -> None:
    # the worker sends the first 500 characters; a message of the control socket has 64 KiB
    assert len(json.dumps({"done": ("\x00" * 500)}).encode()) < 1 << 16
    assert re.fullmatch(r"[\w .,'’-]+", "".join(SETTINGS))
