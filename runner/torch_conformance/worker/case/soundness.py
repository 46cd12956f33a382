"""Tries facts: each in a fork, which calls a compiled function before and after one change."""

import json
import os
import re
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
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
from torch_conformance.worker.torch_compat import compiling, torch_state

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
    """No cache has what the call needs."""


def _in_fork(work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a function returns in a fork, which ends after it."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.close(reading)
            try:
                found = work()
            except BaseException as error:  # code of the case may raise anything
                found = {"why": f"{type(error).__name__}: {error}"[:300]}
            with os.fdopen(writing, "wb") as stream:
                stream.write(json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writing)
    read, end = b"", time.monotonic() + _MOST_SECONDS
    with os.fdopen(reading, "rb", buffering=0) as stream:
        while select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
            if not (part := stream.read(1 << 16)):
                break
            read += part
        else:
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not read:
        return {"why": f"its process ended with {os.waitstatus_to_exitcode(status)}"}
    answer: dict[str, Any] = json.loads(read)
    return answer


@dataclass(frozen=True)
class _Answer:
    """What a call returned and left, or the exception that it raised."""

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
                flat, others = value.flatten(), right.flatten()
                differs = (flat - others).abs() + (flat.isnan() ^ others.isnan()).to(flat.dtype)
                at = (
                    int(differs.nan_to_num(torch.inf).argmax())
                    if flat.is_floating_point()
                    else (int((flat != others).nonzero()[0]))
                )
                return f"eager {others[at].item():.6g}, compiled {flat[at].item():.6g}"
        return "no difference"

    def words(self) -> str:
        """Return it in a few words."""
        if self.raised:
            return f"raises {type(self.raised).__name__}"
        return f"{_form(self.value)}"[:120]


def _form(value: Any) -> Any:
    return [
        [list(leaf.shape), str(leaf.dtype)]
        if isinstance(leaf, torch.Tensor)
        else type(leaf).__name__
        for leaf in pytree.tree_leaves(value)
    ]


def _is_near(value: Any, right: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not isinstance(right, torch.Tensor):
        return bool(value == right)
    if not value.is_floating_point():
        return bool(torch.equal(value, right))
    near = max(_NEAR, 8 * torch.finfo(value.dtype).eps)
    most = float(right.abs().nan_to_num(0.0, 0.0, 0.0).max()) if right.numel() else 0.0
    return bool(torch.allclose(value.double(), right.double(), near, near * most, equal_nan=True))


@dataclass(frozen=True)
class Trials:
    """The trials of the facts of one call."""

    again: Any
    """The call, ``RepeatableCall``."""

    def _answer(self, function: Any, arguments: list[Any]) -> _Answer:
        again = self.again
        again.generators.restore()
        try:
            with again.enter():
                result = function(*arguments)
            gradients: list[Any] = []
            if torch.is_grad_enabled() and differentiable(result):
                differentiate = again.differentiate or differentiation(None, None, None)
                called = [again.called[0], *arguments]
                for leaf in gradient_leaves(called):  # an earlier call left its own
                    leaf.grad = None
                gradients = gradients_of(result, called, differentiate)
            required = [
                leaf.requires_grad
                for leaf in pytree.tree_leaves(result)
                if isinstance(leaf, torch.Tensor)
            ]
            left = [
                leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)
            ]
            return _Answer(copies.frozen([result, gradients, left, required]))
        except Exception as error:  # code of the case may raise anything
            return _Answer(raised=error)

    def _eager(self, arguments: list[Any]) -> _Answer:
        """Call eager, and set back the state that the call changed."""
        now = self.again.state.again()
        with compiling.reference_stance():
            answer = self._answer(self.again.called[0], arguments)
        now.restore()
        return answer

    def _target(self, backend: str) -> Any:
        """Return the function compiled anew: by a backend, or by that of the case."""
        torch._dynamo.reset()
        torch_state.RESETS["inductor"]()
        counters.clear()
        if not backend:
            return self.again.target
        options = {k: v for k, v in self.again.options.items() if k in ("dynamic", "fullgraph")}
        return torch.compile(self.again.called[0], backend=backend, **options)

    def _changed(self, fact: facts.Fact) -> list[Any]:
        arguments: list[Any] = self.again.arguments()
        if fact.is_of_arguments:
            fact.change(arguments)
        return arguments

    def _apply(self, fact: facts.Fact) -> None:
        if not fact.is_of_arguments:
            fact.change(self.again.called)

    def warm(self, fact: facts.Fact, backend: str) -> dict[str, Any]:
        """Call the function, change the fact, and call it again."""
        with tempfile.TemporaryDirectory() as folder, torch_state.cache_folder(folder):
            target = self._target(backend)
            self.again.state.restore()
            before = self._eager(self.again.arguments())
            now = self.again.state.again()
            first = self._answer(target, self.again.arguments())
            if before.raised or first.distance(before) == 2:
                return {"why": f"before the change: {first.against(before)}"}
            now.restore()
            frames = counters["frames"]["total"]
            self._apply(fact)
            right = self._eager(self._changed(fact))
            answer = self._answer(target, self._changed(fact))
            guards = [
                guard
                for entry in _debug_get_cache_entry_list(_code(self.again.called[0]))
                for guard in compiling.guards_of(entry)
                if fact.key and re.search(rf"(?:\['|\.){fact.key}\b", guard)
            ]
            return {
                "recompiled": counters["frames"]["total"] > frames,
                "is_other": right.distance(before) > 0,
                "refused": bool(right.raised),
                "distance": answer.distance(right),
                "difference": answer.against(right),
                "guards": [guard[:120] for guard in guards[:2]],
            }

    def fresh(self, fact: facts.Fact, backend: str) -> dict[str, Any]:
        """Change the fact, and call the function for the first time, with empty caches."""
        with tempfile.TemporaryDirectory() as folder, torch_state.cache_folder(folder):
            target = self._target(backend)
            self.again.state.restore()
            self._apply(fact)
            right = self._eager(self._changed(fact))
            answer = self._answer(target, self._changed(fact))
            return {"distance": answer.distance(right), "raised": bool(answer.raised)}

    def try_warm(self, fact: facts.Fact) -> dict[str, Any]:
        """Return what became of a fact between two calls."""
        found = _in_fork(lambda: self.warm(fact, "aot_eager"))
        if "why" in found or found["refused"] or not found["distance"]:
            return found
        found.update(fresh=_in_fork(lambda: self.fresh(fact, "aot_eager")))
        if _is_unsound(found):
            found["own"] = _in_fork(lambda: self.warm(fact, "")).get("difference", "")
        return found

    # -- processes ---------------------------------------------------------------------------------

    def on_disk(self, fact: facts.Fact | None, folder: str, *, may_compile: bool) -> dict[str, Any]:
        """Change a fact, if any, and call the function for the first time with caches on disk."""
        with torch_state.patched_options(_CACHES), torch_state.cache_folder(folder):
            target = self._target("")
            self.again.state.restore()
            before = self._eager(self.again.arguments())
            if fact is not None:
                self._apply(fact)
            right = before if fact is None else self._eager(self._changed(fact))
            arguments = self.again.arguments() if fact is None else self._changed(fact)
            missed: list[bool] = []
            with compiling.without_lowering(missed if not may_compile else None, _Missed):
                answer = self._answer(target, arguments)
            hits = counters["aot_autograd"]["autograd_cache_hit"]
            graphs = counters["inductor"]["fxgraph_cache_hit"]
            return {
                "hits": hits + graphs,
                "cache": "AOTAutograd hit" if hits else "FX graph hit" if graphs else "no hit",
                "keys": _keys(folder),
                "recompiled": bool(missed),
                "is_other": right.distance(before) > 0,
                "refused": bool(right.raised) or bool(missed),
                "distance": 0 if missed else answer.distance(right),
                "difference": answer.against(right),
                "guards": [],
            }

    def try_on_disk(self, fact: facts.Fact, folder: str) -> dict[str, Any]:
        """Return what became of a fact between two processes with one cache."""
        with tempfile.TemporaryDirectory() as own:
            shutil.copytree(folder, own, dirs_exist_ok=True)
            found = _in_fork(lambda: self.on_disk(fact, own, may_compile=False))
        if "why" not in found and not found["recompiled"] and found["distance"]:
            found.update(fresh=_in_fork(lambda: self.fresh(fact, "")))
        return found


def _keys(folder: str) -> list[str]:
    place = os.path.join(folder, "aotautograd")
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


def _is_unsound(found: Mapping[str, Any]) -> bool:
    fresh = found.get("fresh", {})
    least = 1 if found["recompiled"] else 0
    return (
        not fresh.get("raised")
        and fresh.get("distance", 2) < found["distance"]
        and found["distance"] > least
    )


def _code(function: Any) -> Any:
    if isinstance(function, torch.nn.Module):
        function = function.forward
    return getattr(function, "__func__", function).__code__


def facts_of(again: Any, arguments: Mapping[str, Any]) -> Iterator[facts.Fact]:
    """Yield the facts that an expectation asks for."""
    if name := arguments["change"]:
        function = again.named(name)
        yield facts.Fact(f"change {name}", lambda _: function(), name)
        return
    tables: Mapping[str, Callable[[], Iterator[facts.Fact]]] = {
        "arguments": lambda: facts.of_arguments(again.arguments()),
        "python": lambda: facts.of_python(again.called[0], again.called[1:]),
        "torch": facts.of_torch,
    }
    for name, table in tables.items():
        if arguments["vary"] in ("all", name):
            yield from table()


def tried(again: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return for each fact what its trial showed."""
    if torch.cuda.is_initialized():
        raise CannotRepeat("a process with a GPU context cannot be forked")
    rows: list[dict[str, Any]] = []
    found = {fact.name: fact for fact in facts_of(again, arguments)}
    end, left, disk = time.monotonic() + _SECONDS, 0, {}
    trials = Trials(again)
    with tempfile.TemporaryDirectory() as folder:
        if arguments["processes"]:
            for word in ("filled", "again"):
                disk = _in_fork(lambda: trials.on_disk(None, folder, may_compile=True))
                if "why" in disk or disk["distance"] == 2:
                    raise CannotRepeat(f"cache {word}: {disk.get('why') or disk['difference']}")
            if not disk["hits"]:
                raise CannotRepeat("nothing was cached: an unchanged process had no hit")
        for fact in found.values():
            if time.monotonic() > end:
                left += 1
                continue
            trial = trials.try_on_disk(fact, folder) if disk else trials.try_warm(fact)
            limit = fact.limit if not disk and _applies(fact.limit) else ""
            rows.append({"fact": fact.name, "limit": limit, "fate": _fate(trial), **trial})
    return {"facts": rows, "left": left, "keys": disk.get("keys", []), "tensors": 1}


def _applies(limit: str) -> bool:
    return limit != "freezing" or compiling.is_set("freezing")


def _fate(trial: Mapping[str, Any]) -> str:
    if "why" in trial:
        return "not tried"
    if trial["distance"] and _is_unsound(trial):
        return "unsound"
    if trial["distance"] == 2 and not trial["refused"]:
        fresh = trial["fresh"]
        return "not tried" if "why" in fresh or fresh["raised"] else "wrong anew"
    return (
        "sound"
        if trial["recompiled"] or (trial["is_other"] and not trial["refused"])
        else "unobserved"
    )
