"""How a script judges each kind of expectation, from its parsed arguments. A kind that a script cannot judge has a reason instead."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from filecheck.ops import RE, Capture, Literal, Subst

from runner.core.conditions import Surroundings, choose, holds, without_code
from runner.core.matching.filecheck import Directive
from runner.core.matching.filecheck.directives import Kind
from runner.core.matching.filecheck.expressions import group_name
from runner.plan.script.steps import NotSaid
from runner.plan.script.values import literal
from runner.vocabulary.expectations.again import BatchInvariant, Deterministic
from runner.vocabulary.expectations.base import parse_count
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.close_rules import Judge
from runner.vocabulary.expectations.compilation import Events, GraphOfStage, Guards
from runner.vocabulary.expectations.counters import Calls, Counter, GeneratedFiles, Metric, Runs
from runner.vocabulary.expectations.filecheck import FileCheck
from runner.vocabulary.expectations.raises import Raises
from runner.vocabulary.expectations.texts import Exit, Log, Text, parts_of
from runner.vocabulary.expectations.values import Dead, Differs, Equals, Strides, is_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What the writers of expectations need."""

    here: Surroundings
    place: str
    uses: Callable[[str], None]
    leave_out: Callable[[str], None]
    """Notes a part of the expectation that the script does not judge."""

    @property
    def at(self) -> str:
        """The first argument of every check: where the expectation stands."""
        return literal(self.place)

    def with_leaf(self, leaf: str) -> str:
        """Return the same for one of several that stand together."""
        return literal(f"{self.place} {leaf}")


Lines = Iterator[str]


def _bounds(count: Any, here: Surroundings) -> str | None:
    """Return the arguments of a count; None where no entry of it applies here."""
    applies, value = choose(count, here)
    if not applies:
        return None
    found = parse_count(value)
    return f"{literal(found.least)}, {literal(found.most)}, {literal(tuple(found.among))}"


def _close(check: Close, to: Judging) -> Lines:
    judge = check.judge_kind
    if judge is Judge.CALIBRATED:
        to.leave_out("close judges by float64 in a shorter form: without groups of alike elements, nudged inputs and high quantiles")
    if not check.equal_nan:
        to.leave_out("close takes NaN on both sides as equal")
    to.uses("close")
    words = {word: value for word in ("rtol", "atol") if (value := getattr(check, word)) is not None}
    more = "".join(f", {word}={literal(value)}" for word, value in words.items())
    yield f"repro_close({to.at}, {literal(check.of)}, {literal(check.to)}, {literal(judge.value)}{more})"


def _counts(function: str) -> Callable[[Any, Judging], Lines]:
    def write(check: Counter | Metric, to: Judging) -> Lines:
        to.uses("counts")
        for name, count in check.counts.items():
            bounds = _bounds(count, to.here)
            if bounds is None:
                to.leave_out(f"{name} is not claimed here")
            else:
                yield f"{function}({to.with_leaf(name)}, {literal(name)}, {bounds})"

    return write


def _filecheck(check: FileCheck, to: Judging) -> Lines:
    if check.stage is not None:
        raise NotSaid("filecheck of a stage: the text of a target's compiler, which only the runner keeps")
    if check.text != "whole":
        to.leave_out("filecheck removes comments and boilerplate by a shorter rule than the runner's")
    found = _directives(check, to)
    for word in ("filecheck", "code"):
        to.uses(word)
    yield f"repro_filecheck({to.at}, {literal(check.code)}, {check.text == 'whole'}, ["
    yield from (f"    {one}," for one in found)
    yield "])"


def _directives(check: FileCheck, to: Judging) -> list[str]:
    return [_directive(one, to) for one in check.checks.directives]


def _directive(one: Directive, to: Judging) -> str:
    if one.ambiguous:
        to.leave_out(f"'{one}' takes Python's first alternative, not the longest match of POSIX")
    if one.kind is Kind.EMPTY:
        return literal((one.kind.value, str(one), (r"\n$",), 1))
    here: set[str] = set()
    pieces: list[Any] = []
    for part in one.parts:
        match part:
            case Literal(content=content):
                pieces.append(re.escape(content))
            case RE(content=content):
                pieces.append(f"({content})" if "|" in content else content)
            case Capture(name=name, pattern=pattern):
                here.add(name)
                pieces.append(f"(?P<{group_name(name)}>{pattern})")
            case Subst(variable=name) if name in here:
                pieces.append(f"(?P={group_name(name)})")
            case Subst(variable=name):
                pieces.append((group_name(name),))
            case _:
                raise NotSaid(f"filecheck: '{one}' has numbers that FileCheck computes")
    return literal((one.kind.value, str(one), tuple(pieces), one.count))


def _raises(check: Raises, to: Judging) -> Lines:
    to.uses("raises")
    cause = None if check.cause is None else (check.cause.type, check.cause.match)
    yield f"repro_raises({to.at}, {literal(check.type)}, {literal(check.match)}, {literal(cause)})"


def _pairs(*, equal: bool) -> Callable[[Any, Judging], Lines]:
    def write(check: Equals | Differs, to: Judging) -> Lines:
        to.uses("values")
        for name, other in check.pairs.items():
            is_name = is_reference(other)
            value = literal(other["ref"] if is_name else other)
            yield f"repro_equals({to.with_leaf(name)}, {literal(name)}, {value}, {is_name}, {equal})"

    return write


def _strides(check: Strides, to: Judging) -> Lines:
    to.uses("values")
    chosen = [check.output] if isinstance(check.output, int) else check.output
    words = ", ".join(map(literal, (check.of, chosen, check.equals, check.contiguous)))
    yield f"repro_strides({to.at}, {words})"


def _text(check: Text, to: Judging) -> Lines:
    to.uses("values")
    words = ", ".join(literal(word) for word in (list(parts_of(check.contains)), check.matches, list(parts_of(check.lacks))))
    yield f"repro_text({to.at}, {literal(check.of)}, repro_measured({literal(check.of)}), {words})"
    yield from _times(check, to, f"{literal(check.of)}, repro_measured({literal(check.of)})")


def _log(check: Log, to: Judging) -> Lines:
    for word in ("values", "spawn"):
        to.uses(word)
    lacks = list(parts_of(getattr(check, "lacks", None)))
    words = ", ".join(literal(word) for word in (list(parts_of(check.contains)), check.matches, lacks))
    yield f"repro_text({to.at}, 'standard error', repro_now.log, {words})"
    yield from _times(check, to, "'standard error', repro_now.log")


def _times(check: Text | Log, to: Judging, found: str) -> Lines:
    """Yield a line for each part that must be there so often. ``found`` is the code of the text's name and of the text."""
    bounds = None if check.count is None else _bounds(check.count, to.here)
    if bounds is not None:
        to.uses("counts")
        yield from (f"repro_times({to.at}, {found}, {literal(part)}, {bounds})" for part in parts_of(check.contains))


def _calls(check: Calls, to: Judging) -> Lines:
    for word in ("spies", "counts"):
        to.uses(word)
    bounds = _bounds({"min": 1} if check.count is None else check.count, to.here)
    if bounds is None:
        raise NotSaid(f"calls of {check.of} are not claimed here")
    yield f"repro_calls({to.at}, {literal(check.of)}, {literal(dict(check.where or {}))}, ({bounds}))"


def _exit(check: Exit, to: Judging) -> Lines:
    to.uses("spawn")
    parts = ", ".join(literal(list(parts_of(found))) for found in (check.stderr, check.stdout))
    yield f"repro_exit({to.at}, {literal(check.code)}, {check.nonzero}, {parts})"


def _dead(check: Dead, to: Judging) -> Lines:
    to.uses("values")
    yield from (f"repro_dead({to.with_leaf(name)}, {literal(name)})" for name in check.objects)


def _generated_files(check: GeneratedFiles, to: Judging) -> Lines:
    for word in ("counts", "code"):
        to.uses(word)
    bounds = _bounds(check.count, to.here)
    if bounds is None:
        raise NotSaid("generated_files is not claimed here")
    yield f"repro_count({to.at}, 'pieces of generated code', len(repro_now.code), {bounds})"


def _runs(check: Runs, to: Judging) -> Lines:
    to.uses("values")
    yield f"repro_runs({to.at})"


def _deterministic(check: Deterministic, to: Judging) -> Lines:
    for word in ("values", "deterministic"):
        to.uses(word)
    yield f"repro_deterministic({to.at}, {literal(check.runs)})"


def _batch_invariant(check: BatchInvariant, to: Judging) -> Lines:
    for word in ("values", "batch"):
        to.uses(word)
    yield f"repro_batch_invariant({to.at}, {check.dim}, {literal(list(check.inputs))}, {literal(list(check.sizes))})"


def _optional_bounds(count: Any, to: Judging, absent: str | None) -> str:
    """Return the bounds of a count as a tuple, those of ``absent`` where there is no count, and ``None`` where nothing is claimed here."""
    bounds = absent if count is None else _bounds(count, to.here)
    return "None" if bounds is None else f"({bounds})"


def _events(check: Events, to: Judging) -> Lines:
    to.uses("frames")
    reason = check.reason
    wanted = None if reason is None else (list(parts_of(reason.get("contains"))), reason.get("matches"))
    words = (to.at, literal(check.kind), literal(check.what), _optional_bounds(check.count, to, "1, None, ()"), literal(wanted))
    yield f"repro_events({', '.join(words)})"


def _guards(check: Guards, to: Judging) -> Lines:
    to.uses("frames")
    directives = "None" if check.checks is None else f"[{', '.join(_directives(check.checks, to))}]"
    words = f"{_optional_bounds(check.count, to, None)}, {literal(list(parts_of(check.contains)))}, {literal(check.matches)}"
    yield f"repro_guards({to.at}, {words}, {directives})"


def _graph(check: GraphOfStage, to: Judging) -> Lines:
    to.uses("graphs")
    if check.ops:
        to.leave_out("operators that torch does not have, or that are of another stage, count 0")
    ops = {name: bounds for name, count in check.ops.items() if (bounds := _optional_bounds(count, to, None)) != "None"}
    words = f"{literal(check.stage)}, {literal(check.index)}, {_optional_bounds(check.count, to, None)}"
    directives = "None" if check.checks is None else f"[{', '.join(_directives(check.checks, to))}]"
    yield f"repro_graph({to.at}, {words}, {{{', '.join(f'{literal(name)}: {bounds}' for name, bounds in ops.items())}}}, {directives})"


def _not_said(reason: str) -> Callable[[Any, Judging], Lines]:
    def refuse(check: Any, to: Judging) -> Lines:
        raise NotSaid(reason)

    return refuse


WRITERS: Mapping[str, Callable[[Any, Judging], Lines]] = {
    "close": _close,
    "counter": _counts("repro_counter"),
    "metric": _counts("repro_metric"),
    "filecheck": _filecheck,
    "raises": _raises,
    "equals": _pairs(equal=True),
    "differs": _pairs(equal=False),
    "strides": _strides,
    "generated_files": _generated_files,
    "runs": _runs,
    "calls": _calls,
    "exit": _exit,
    "text": _text,
    "log": _log,
    "dead": _dead,
    "deterministic": _deterministic,
    "batch_invariant": _batch_invariant,
    "remote_cache": _not_said("the runner's server counts what a remote cache answered"),
    "kernels": _not_said(
        "launched and compiled kernels: the runner tells them from other calls of the generated code, for each compiler of kernels"
    ),
    "graph": _graph,
    "guards": _guards,
    "recompiles": _events,
    "graph_breaks": _events,
    "poisoned": _not_said("fresh memory that holds NaN: the runner replaces torch's allocations"),
    "candidates": _not_said("each candidate of autotuning in turn: the runner chooses them"),
    "choices": _not_said("the census of candidates: the runner follows each from its template to its benchmark or its refusal"),
    "resources": _not_said("what a target's compiler reports of a kernel"),
    "metadata": _not_said("what a target's compiler writes beside a kernel"),
}
"""The statements of each kind of expectation."""


def is_claimed_without_code(check: Any, here: Surroundings) -> bool:
    """Whether the part of an expectation's condition that is known before a step has run holds here."""
    return holds(without_code(getattr(check, "when", None)), here)
