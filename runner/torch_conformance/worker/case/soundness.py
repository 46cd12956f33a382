"""Tries facts: each in a fork of a process that called the compiled function before the change."""

import functools
import json
import os
import re
import select
import shutil
import signal
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.utils import counters
from torch.utils import _pytree as pytree

from torch_conformance.vocabulary.expectations.additional_calls import CannotRepeat, differing_bits
from torch_conformance.vocabulary.steps.call import (
    differentiable,
    differentiation,
    gradient_leaves,
    gradients_of,
)
from torch_conformance.worker.case import copies, facts
from torch_conformance.worker.process.channel import exception_text
from torch_conformance.worker.torch_compat import compiling, device_modules, torch_state
from torch_conformance.worker.torch_compat.numerics import tensor_leaves

_SECONDS = 200
"""How long facts are tried; the number of those that are left is reported."""

_MOST_SECONDS = 60
"""How long one fork may take."""

_NEAR = 2.0**-10
"""What rounding may change, in units of the greatest number of a tensor: what differs by less is
compared with a compile from an empty cache bit by bit."""

_CACHES = {
    "config": {
        "fx_graph_cache": True,
        "fx_graph_remote_cache": False,
        "force_disable_caches": False,
    },
    "functorch_config": {"enable_autograd_cache": True},
}


class _Missed(Exception):
    """A call needs a compile that no cache has."""


def _in_fork(work: Callable[[], Any], seconds: float = _MOST_SECONDS) -> dict[str, Any]:
    """Return the result of a function that is called in a fork; the reason if it raises, dies or
    hangs.
    """
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.close(reading)
            try:
                result = work()
            except BaseException as error:  # code of the case may raise anything
                result = {"why": exception_text(error)[:300]}
            with os.fdopen(writing, "wb") as stream:
                stream.write(json.dumps(result).encode())
        finally:
            os._exit(0)
    os.close(writing)
    read, end, late = b"", time.monotonic() + seconds, {}
    with os.fdopen(reading, "rb", buffering=0) as stream:
        while select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
            if not (part := stream.read(1 << 16)):
                break
            read += part
        else:
            os.kill(child, signal.SIGKILL)
            late = {"why": f"it did not end within {seconds:.0f} s"}
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if late or not read:
        return late or {"why": f"its process ended with {code}", "died": True}
    answer: dict[str, Any] = json.loads(read)
    return answer


def _in_this_process(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return work()


@dataclass(frozen=True)
class _Answer:
    """The results, gradients and arguments of a call, or the exception that it raised."""

    value: Any = None
    raised: BaseException | None = None

    def distance(self, other: "_Answer") -> int:
        """Return 0 for the same bits, 1 for what rounding may change, 2 for another answer."""
        if self.raised or other.raised:
            return 2 * (type(self.raised) is not type(other.raised))
        if not differing_bits(self.value, other.value):
            return 0
        if _form(self.value) != _form(other.value):
            return 2
        leaves = zip(pytree.tree_leaves(self.value), pytree.tree_leaves(other.value), strict=True)
        return 1 if all(_is_near(*pair) for pair in leaves) else 2

    def against(self, eager: "_Answer") -> str:
        """Return the first difference from eager's answer, in words."""
        if self.raised or eager.raised or _form(self.value) != _form(eager.value):
            return f"eager {eager.words()}, compiled {self.words()}"
        pairs = list(
            zip(pytree.tree_leaves(self.value), pytree.tree_leaves(eager.value), strict=True)
        )
        for value, right in sorted(pairs, key=lambda pair: _is_near(*pair)):
            if differing_bits(value, right):
                if not isinstance(value, torch.Tensor):
                    return f"eager {right!r:.80}, compiled {value!r:.80}"
                flat, reference = value.flatten(), right.flatten()
                differs = (flat - reference).abs() + (flat.isnan() ^ reference.isnan()).to(
                    flat.dtype
                )
                at = (
                    int(differs.nan_to_num(torch.inf).argmax())
                    if flat.is_floating_point()
                    else (int((flat != reference).nonzero()[0]))
                )
                return f"eager {reference[at].item():.6g}, compiled {flat[at].item():.6g}"
        return "no difference"

    def words(self) -> str:
        """Return a short description."""
        if self.raised:
            return f"raises {type(self.raised).__name__}"
        return f"{_form(self.value)}"[:120]


def _form(value: object) -> list[object]:
    """Return shape and dtype of each tensor of a value, and the class of each other leaf."""
    return [
        [list(leaf.shape), str(leaf.dtype)]
        if isinstance(leaf, torch.Tensor)
        else type(leaf).__name__
        for leaf in pytree.tree_leaves(value)
    ]


def _is_near(value: object, right: object) -> bool:
    """Whether two leaves are equal up to rounding in the coarsest dtype of the computation."""
    if not isinstance(value, torch.Tensor) or not isinstance(right, torch.Tensor):
        return bool(value == right)
    if not value.is_floating_point():
        return bool(torch.equal(value, right))
    dtypes, device = [value.dtype], value.device.type
    if torch.is_autocast_enabled(device):  # gradients of float32 have the rounding of its dtype
        dtypes.append(torch.get_autocast_dtype(device))
    return is_within(value, right, max(_NEAR, *(8 * torch.finfo(dtype).eps for dtype in dtypes)))


def is_within(value: torch.Tensor, right: torch.Tensor, bound: float) -> bool:
    """Whether |value - right| <= bound * (max |right| + |right|) for each element of two tensors of
    the same shape; NaN equals NaN, and infinities do not count in the maximum.
    """
    most = float(right.abs().nan_to_num(0.0, 0.0, 0.0).max()) if right.numel() else 0.0
    return bool(torch.allclose(value.double(), right.double(), bound, bound * most, equal_nan=True))


@dataclass(frozen=True)
class Trials:
    """The trials of the facts of one call."""

    call: Any
    """The call, ``RepeatableCall``, whose module imports this one."""

    def _answer(self, function: compiling.Function, arguments: list[Any]) -> _Answer:
        """Call a function and its backward; return its results, gradients and arguments, or its
        exception.
        """
        call = self.call
        call.generators.restore()
        try:
            with call.enter():
                result = function(*arguments)
            gradients: list[Any] = []
            if torch.is_grad_enabled() and differentiable(result):
                differentiate = call.differentiate or differentiation(
                    None, None, dict[str, object]().__getitem__
                )
                called = [call.called[0], *arguments]
                for leaf in gradient_leaves(called):  # an earlier call left its own
                    leaf.grad = None
                gradients = gradients_of(result, called, differentiate)
            required = [tensor.requires_grad for tensor in tensor_leaves(result)]
            return _Answer(copies.frozen([result, gradients, tensor_leaves(arguments), required]))
        except Exception as error:  # code of the case may raise anything
            return _Answer(raised=error)

    def _eager(self, arguments: list[Any]) -> _Answer:
        """Call eager, and restore the state that the call changed."""
        state = self.call.state.recapture()
        with compiling.reference_stance():
            answer = self._answer(self.call.called[0], arguments)
        state.restore()
        return answer

    def _target(self, backend: str) -> compiling.Function:
        """Return the function compiled again: by a backend, or by that of the case."""
        torch._dynamo.reset()
        torch_state.RESETS["inductor"]()
        counters.clear()
        if not backend:
            return self.call.target
        options = {k: v for k, v in self.call.options.items() if k in ("dynamic", "fullgraph")}
        return torch.compile(self.call.called[0], backend=backend, **options)

    def _changed(self, fact: facts.Fact | None) -> list[Any]:
        arguments: list[Any] = self.call.arguments()
        if fact is not None and fact.is_of_arguments:
            fact.change(arguments)
        return arguments

    def _after(
        self, fact: facts.Fact | None, target: compiling.Function, before: _Answer
    ) -> dict[str, Any]:
        """Change a fact, if any, call eager and the compiled function, and compare them."""
        frames = counters["frames"]["total"]
        if fact is not None and not fact.is_of_arguments:
            fact.change(self.call.called)
        right = before if fact is None else self._eager(self._changed(fact))
        answer = self._answer(target, self._changed(fact))
        return {
            "recompiled": counters["frames"]["total"] > frames,
            "is_other": right.distance(before) > 0,
            "refused": bool(right.raised),
            "raised": bool(answer.raised),
            "distance": answer.distance(right),
            "difference": answer.against(right),
        }

    def warm(self, chosen: Sequence[facts.Fact], backend: str, end: float) -> dict[str, Any]:
        """Call the function; then change each fact in a fork, and call the function again."""
        with tempfile.TemporaryDirectory() as folder, torch_state.cache_folder(folder):
            target = self._target(backend)
            self.call.state.restore()
            before = self._eager(self.call.arguments())
            state = self.call.state.recapture()
            first = self._answer(target, self.call.arguments())
            if before.raised or first.distance(before) == 2:
                return {"why": f"before the change: {first.against(before)}"}
            state.restore()
            entries = _debug_get_cache_entry_list(_code(self.call.called[0]))
            guards = [guard for entry in entries for guard in compiling.guards_of(entry)]
            rows: dict[str, Any] = {}
            for fact in chosen:
                if time.monotonic() < end:
                    row = _in_fork(functools.partial(self._after, fact, target, before))
                    name = rf"(?:\['|\.){fact.key}\b"
                    matching = [guard[:120] for guard in guards if re.search(name, guard)]
                    rows[fact.name] = {**row, "guards": matching[:2] if fact.key else []}
            return rows

    def fresh(self, fact: facts.Fact | None, folder: str, backend: str) -> dict[str, Any]:
        """Change a fact, if any, and call the function for the first time, with this folder of
        caches.
        """
        with torch_state.cache_folder(folder):
            target = self._target(backend)
            self.call.state.restore()
            before = self._eager(self.call.arguments())
            return self._after(fact, target, before)

    def between_calls(self, chosen: Sequence[facts.Fact], end: float) -> dict[str, Any]:
        """Return the outcome for each fact that changes between two calls."""

        def warmed(to_try: Sequence[facts.Fact], backend: str) -> dict[str, Any]:
            work = functools.partial(self.warm, to_try, backend, end)
            return _in_fork(work, end + _MOST_SECONDS - time.monotonic())

        rows = warmed(chosen, "aot_eager")
        if "why" in rows:
            raise CannotRepeat(rows["why"])
        unsound = []
        for fact in chosen:
            if _is_suspect(row := rows.get(fact.name, {})):
                with tempfile.TemporaryDirectory() as folder:
                    work = functools.partial(self.fresh, fact, folder, "aot_eager")
                    row["fresh"] = _in_fork(work)
                unsound += [fact] if _is_unsound(row) else []
        for name, row in (warmed(unsound, "") if unsound else {}).items():
            if name in rows:
                rows[name]["own"] = row.get("difference", row.get("why"))
        return rows

    # -- processes ---------------------------------------------------------------------------------

    def on_disk(self, fact: facts.Fact | None, folder: str, *, compiles: bool) -> dict[str, Any]:
        """Change a fact, if any, and call the function for the first time with caches on disk."""
        missed: list[bool] = []
        with (
            torch_state.patched_options(_CACHES),
            compiling.without_lowering(None if compiles else missed, _Missed),
        ):
            row = self.fresh(fact, folder, "")
        hits = counters["aot_autograd"]["autograd_cache_hit"]
        graphs = counters["inductor"]["fxgraph_cache_hit"]
        row.update(
            hits=hits + graphs,
            cache="AOTAutograd hit" if hits else "FX graph hit" if graphs else "no hit",
            keys=_keys(folder),
            recompiled=bool(missed),
            guards=[],
        )
        return {**row, "distance": 0, "refused": True} if missed else row

    def in_new_process(
        self, chosen: Mapping[str, facts.Fact], names: Sequence[str] | None, folder: str
    ) -> dict[str, Any]:
        """Return what this process, in which nothing was compiled, finds in a folder of caches:
        without a change, after that of a name, or after each without a compile: in forks, where
        there are several.
        """
        if names is not None:
            fact = chosen[names[0]] if names else None
            return {"": self.on_disk(fact, folder, compiles=True)}
        run_work = _in_fork if len(chosen) > 1 else _in_this_process
        if run_work is _in_fork:
            _refuse_context()
        rows, end = {}, time.monotonic() + _SECONDS
        for name, fact in chosen.items():
            if time.monotonic() < end:
                with tempfile.TemporaryDirectory() as copied:
                    shutil.copytree(folder, copied, dirs_exist_ok=True)
                    work = functools.partial(self.on_disk, fact, copied, compiles=False)
                    rows[name] = run_work(work)
        return rows

    def between_processes(self) -> dict[str, Any]:
        """Return the outcome for each fact that changes between two processes with one cache."""
        elsewhere, disk = self.call.elsewhere, {}
        with tempfile.TemporaryDirectory() as folder:
            for word in ("filled", "again"):
                disk = elsewhere(names=[], cache=folder)[""]
                if disk["distance"] == 2:
                    raise CannotRepeat(f"cache {word}: {disk['difference']}")
            if not disk["hits"]:
                raise CannotRepeat("nothing was cached: an unchanged process had no hit")
            rows: dict[str, Any] = elsewhere(names=None, cache=folder)
        for name, row in rows.items():
            row["keys"] = disk["keys"]
            if _is_suspect(row):
                with tempfile.TemporaryDirectory() as empty:
                    row["fresh"] = elsewhere(names=[name], cache=empty)[""]
        return rows


def _keys(folder: str) -> list[str]:
    place = os.path.join(folder, "aotautograd")
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


def _is_suspect(row: dict[str, Any]) -> bool:
    """Whether a fact is compiled again with empty caches: its answer is another one than eager's,
    or its process died.
    """
    if row.pop("died", False):
        row.update(distance=2, difference=row.pop("why"), recompiled=False, is_other=True)
        row.update(refused=False)
    return bool(row.get("distance"))


def _is_unsound(row: Mapping[str, Any]) -> bool:
    """Whether a compile with empty caches gives a better answer than the one after the change,
    where nothing was recompiled or by more than rounding.
    """
    fresh = row["fresh"]
    least = 1 if row["recompiled"] else 0
    return (
        (row["refused"] or not fresh.get("raised"))
        and fresh.get("distance", 2) < row["distance"]
        and row["distance"] > least
    )


def _code(function: Any) -> types.CodeType:
    if isinstance(function, torch.nn.Module):
        function = function.forward
    return getattr(function, "__func__", function).__code__


def facts_of(call: Any, arguments: Mapping[str, Any]) -> Iterator[facts.Fact]:
    """Yield the facts that an expectation asks for."""
    if name := arguments["change"]:
        function = call.named(name)
        yield facts.Fact(f"change {name}", lambda _: function(), name)
        return
    tables: Mapping[str, Callable[[], Iterator[facts.Fact]]] = {
        "arguments": lambda: facts.of_arguments(call.arguments()),
        "python": lambda: facts.of_python(call.called[0], call.called[1:]),
        "torch": facts.of_torch,
    }
    for name, table in tables.items():
        if arguments["vary"] in ("all", name):
            yield from table()


def tried(call: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of the trial of each fact."""
    chosen = {fact.name: fact for fact in facts_of(call, arguments)}
    trials, disk = Trials(call), arguments["processes"]
    if "cache" in arguments:
        return {"found": trials.in_new_process(chosen, arguments["names"], arguments["cache"])}
    if not disk:
        _refuse_context()
    rows = (
        trials.between_processes()
        if disk
        else trials.between_calls(list(chosen.values()), time.monotonic() + _SECONDS)
    )
    facts_tried = [
        {
            "fact": name,
            "limit": chosen[name].limit if not disk and _applies(chosen[name].limit) else "",
            "fate": _fate(row),
            **row,
        }
        for name, row in rows.items()
    ]
    return {"facts": facts_tried, "left": len(chosen) - len(rows), "tensors": 1}


def _refuse_context() -> None:
    if why := device_modules.danger_of_fork():
        raise CannotRepeat(f"facts are tried in forks, and {why.replace('zygote', 'worker')}")


def _applies(limit: str) -> bool:
    return limit != "freezing" or compiling.is_set("freezing")


def _fate(trial: Mapping[str, Any]) -> str:
    """Return the word for the outcome of a fact."""
    if "why" in trial:
        return "not tried"
    if "fresh" in trial and _is_unsound(trial):
        return "unsound"
    if trial["distance"] == 2 and not trial["refused"]:
        fresh = trial["fresh"]
        return "not tried" if "why" in fresh or fresh["raised"] else "wrong anew"
    return (
        "sound"
        if trial["recompiled"] or (trial["is_other"] and not trial["refused"])
        else "unobserved"
    )
