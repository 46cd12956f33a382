"""``samples``: the step of a spec with a source of cases: each sample of an operator, eager and
compiled, measured and judged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from torch_conformance.model.diagnostics import Diagnostic
from torch_conformance.model.escaping import counted, headline
from torch_conformance.model.expectation import (
    ALIASING,
    NO_EXCEPTION,
    NUMBERS,
    RANDOM_STREAM,
    About,
    Expectation,
    Mutant,
    Reading,
    Status,
    Verdict,
    WrongValue,
)
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations import OF_SAMPLES, close
from torch_conformance.vocabulary.expectations.close import Close, form_problem, ways_judged
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from torch_conformance.vocabulary.steps.step_base import (
    NotCarriedOut,
    StepContext,
    StepKind,
    Traits,
    needed,
)
from torch_conformance.vocabulary.worker_session import (
    Facts,
    Function,
    Lookup,
    Operator,
    Sample,
    Session,
)
from torch_conformance.vocabulary.worker_torch import Tensor, pytree, torch

Given = tuple[list[Any], dict[str, Any]]
"""The positional and the keyword arguments of a call."""


UNCHANGED = "what eager leaves as it is"
"""The key of what the compiled call did to it."""

_MOST_TEXT = 600
"""Characters of the description of a sample, and of the message of an exception."""


@dataclass(kw_only=True)
class SampleRun:
    """One sample that was run.

    ``compiled`` and ``eager`` hold what is compared, by the same keys.
    """

    index: int
    text: str
    """Shapes, strides and dtypes of its tensors, and its plain arguments."""
    operator: Function
    """The operator, not compiled."""
    takes_out: bool
    takes_gradients: bool
    reseed: Callable[[], None]
    has_drawn: Callable[[], bool] = lambda: False
    """Returns whether the generators differ from their state after ``reseed``."""
    refused: str = ""
    """The exception of eager: the sample claims nothing."""
    no_gradients: str = ""
    """The exception of eager's backward: only the results are compared."""
    raised: dict[str, str] | None = None
    """The exception of the compiled call."""
    draws: bool = False
    """Whether eager draws random numbers."""
    graphs: int = 0
    """How many compiled graphs the compiled call ran."""
    compiled: dict[str, Any] = field(default_factory=dict)
    eager: dict[str, Any] = field(default_factory=dict)
    fixed: list[Any] = field(default_factory=list)
    """The gradients of the results from which the backward began; empty where there was none."""
    operators: Any = None
    """The records of the operators that ATen ran in eager and in the compiled call, where the case
    asks for them.
    """
    of_operators: "SampleRun | None" = None
    """The call in which they are recorded, where its answer has other bits than eager's: it is
    compared as a sample.
    """
    inputs: list[Any] = field(default_factory=list)
    """``None`` where other calls have a target, the arguments before the call, and ``fixed``: eager
    computes the same from copies.
    """

    def call(
        self,
        function: Function,
        arguments: Given,
        make_context: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> dict[str, Any]:
        """Call a function from the state of the case's seed; return its result, and the gradients
        of its inputs where it has some.

        The call and its backward each run in a new context of ``make_context``; the tensors for
        ``out=`` are created before it.
        """
        is_eager = function is self.operator
        with torch.enable_grad():
            outputs = self._call(function, arguments, make_context())
            self.draws = self.has_drawn() if is_eager else self.draws
            if not self.takes_gradients or self.no_gradients:
                return outputs
            self.reseed()
            try:
                # a random gradient for each result that has a history, the same on both sides
                fixed = (
                    [torch.randn_like(tensor) for tensor in _differentiable(outputs["result"])]
                    if _differentiable(arguments)
                    else []
                )
                if fixed:
                    with make_context():
                        outputs["gradients"] = _gradients(outputs["result"], arguments, fixed)
            except Exception as error:  # eager has no gradients for this sample
                if not is_eager:
                    raise
                self.no_gradients = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
            else:
                self.fixed = fixed if is_eager else self.fixed
        return outputs

    def recompute(
        self, called: Sequence[Any], context: AbstractContextManager[Any]
    ) -> dict[str, Any]:
        """Return what eager computes from other inputs, by the keys of ``eager``; ``context`` is
        entered only for the call.
        """
        _, args, kwargs, fixed = called
        outputs = self._call(self.operator, (args, kwargs), context)
        if fixed:
            outputs["gradients"] = _gradients(outputs["result"], (args, kwargs), fixed)
        if "arguments" in self.eager:
            leaves = _leaves((args, kwargs))
            outputs["arguments"] = {index: leaves[int(index)] for index in self.eager["arguments"]}
        return {**outputs, UNCHANGED: self.eager[UNCHANGED]} if UNCHANGED in self.eager else outputs

    def _call(
        self,
        function: Function,
        arguments: Given,
        context: AbstractContextManager[Any] | None = None,
    ) -> dict[str, Any]:
        """Call the operator, or what was compiled of it; return its result, and the tensors of
        ``out=``.
        """
        args, kwargs = arguments
        outputs: dict[str, Any] = {}
        if self.takes_out:
            self.reseed()
            kwargs = {**kwargs, "out": _outputs(self.operator(*args, **kwargs))}
            outputs["out"] = kwargs["out"]
        self.reseed()
        with context or nullcontext():
            outputs["result"] = function(*args, **kwargs)
        return outputs


def _outputs(result: object) -> Any:
    """Return tensors of ones for ``out=``, of the shapes and dtypes of a result.

    They are contiguous: dynamo compiles no other.
    """

    def ones(tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided or tensor.is_nested:
            return torch.ones_like(tensor, requires_grad=False)
        return tensor.new_ones(tensor.shape)

    return pytree.tree_map_only(torch.Tensor, ones, result)


def _gradients(result: object, arguments: Given, fixed: Sequence[Any]) -> list[Any]:
    """Return the gradients of the arguments for fixed gradients of the results, in the dtypes of
    the results.
    """
    results = _differentiable(result)
    fixed = [gradient.to(tensor.dtype) for tensor, gradient in zip(results, fixed, strict=True)]
    return list(torch.autograd.grad(results, _differentiable(arguments), fixed, allow_unused=True))


def _differentiable(value: object) -> list[Any]:
    return [
        leaf for leaf in _leaves(value) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]


def _leaves(value: object) -> list[Any]:
    leaves: list[Any] = pytree.tree_leaves(value)
    return leaves


def _run(session: Session, operator: Operator, index: int, sample: Sample) -> SampleRun:
    def make_arguments() -> Given:
        """Return copies of the arguments of the sample, with the strides of their tensors."""

        def copy(tensor: Tensor) -> Tensor:
            copied = session.opinfo.placed(session.copy(tensor), tensor)
            return copied.requires_grad_(tensor.requires_grad)

        copied: Given = pytree.tree_map_only(torch.Tensor, copy, (list(sample.args), sample.kwargs))
        return copied

    run = SampleRun(
        index=index,
        text=f"{sample.text}{description(sample)}"[:_MOST_TEXT],
        operator=operator.function,
        takes_out=operator.takes_out,
        takes_gradients=operator.takes_gradients,
        reseed=session.reseed,
        has_drawn=session.has_drawn,
    )
    session.opinfo.announce_sample(index, run.text)
    theirs = make_arguments()
    try:
        with session.phases("eager"), session.reference.running():
            run.eager = run.call(operator.function, theirs)
    except NotCarriedOut as error:
        run.refused = str(error.__cause__ or error)[:_MOST_TEXT]
        return run
    if not sample.is_further_call:
        session.torch_state.RESETS["dynamo"]()
    watched, ours = session.compiled_functions.watched(), make_arguments()
    try:
        with session.phases("trace"):
            if not sample.is_further_call:
                session.kept[Samples.kind] = session.compiled_functions.of(plain(operator.function))
            compiled = session.kept[Samples.kind]
            with session.runtime.counted() if session.runtime.spy is not None else nullcontext():
                run.compiled = run.call(compiled, ours)
            session.device_api.synchronize()
    except NotCarriedOut:
        raise
    except Exception as error:  # torch may raise anything: it is the result of this sample
        run.raised = raised(error)
    else:
        watched.end(f"sample {index}")
        run.graphs = watched.graphs
        before = make_arguments()
        _add_changed_arguments(session, run, ours, theirs, before)
        run.inputs = [None, *before, run.fixed]
        if session.additional.records_operators:  # now: the next sample is compiled again
            run.of_operators = session.additional.operators_of_sample(run, compiled, make_arguments)
    return run


def raised(error: Exception) -> dict[str, str]:
    """Return what is known of an exception."""
    kind, phase = type(error), getattr(error, "_conformance_phase", "trace")
    return {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "message": str(error)[:_MOST_TEXT],
        "phase": phase,
    }


def plain(function: Function) -> Function:
    """Return a function of Python that calls an operator: what is compiled may be written in C."""

    def call(*args: object, **kwargs: object) -> object:
        return function(*args, **kwargs)

    return call


def _add_changed_arguments(session: Session, sample: SampleRun, *givens: Given) -> None:
    """Add the tensors among the arguments that differ after the two calls, writes to those that
    eager does not write, and shared memory.

    ``givens`` are the arguments of the compiled call and of eager's after the calls, and copies of
    them from before the calls.
    """
    sides = (
        (side["result"], _leaves(inputs))
        for side, inputs in zip((sample.compiled, sample.eager), givens, strict=False)
    )
    unwanted = session.effects.shared_memory(*sides)
    for number, (ours, theirs, before) in enumerate(zip(*map(_leaves, givens), strict=True)):
        if not isinstance(ours, torch.Tensor):
            continue
        change, is_changed = session.effects.unwanted_write(ours, theirs, before), False
        if change is None and ours.layout is torch.strided and not ours.is_nested:
            # no operator changes an argument of another layout
            with torch.no_grad():
                is_changed = (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype) or not bool(
                    ((ours == theirs) | ((ours != ours) & (theirs != theirs))).all()
                )
        for side, value in ((sample.compiled, ours), (sample.eager, theirs)) if is_changed else ():
            side.setdefault("arguments", {})[str(number)] = value
        if change is not None:
            unwanted[str(number)] = change
    for side, index in ((sample.compiled, 0), (sample.eager, 1)) if unwanted else ():
        side[UNCHANGED] = {path: pair[index] for path, pair in unwanted.items()}


def description(sample: Sample) -> str:
    """Return the arguments of a sample as text: shape, strides and dtype of tensors, other values
    as Python writes them.
    """
    arguments = [
        *((str(index), value) for index, value in enumerate(sample.args)),
        *sample.kwargs.items(),
    ]
    return "; ".join(f"{name}: {_described(value)}" for name, value in arguments)


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        strides = (
            f" strides {list(value.stride())}"
            if value.layout is torch.strided and not value.is_nested
            else f" {value.layout}"
        )
        return (
            f"{dtype}{list(value.shape)}{strides}{' requires_grad' if value.requires_grad else ''}"
        )
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_described, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return repr(value)[:120]


@frozen
class Samples(StepKind):
    """The step of a spec with ``source: {opinfo: {dtypes: [...], samples: all}}``.

    In a case it names one operator and one dtype.
    """

    traits = Traits(
        has_result=True,
        claims=True,
        compiles=True,
        has_reference=True,
        needs_own_graphs=True,
        may_have_no_graph=True,
    )
    dtypes: Json = None
    calls: Json = None
    samples: str | int = "all"
    operators: Json = None
    gradients: bool | str = True
    forms: Sequence[str] = ()
    op: str = ""
    variant: str = ""
    dtype: str = ""
    call: str = "function"
    rule: str = ""
    reason: str = ""

    @property
    def most(self) -> int | None:
        """The greatest number of samples; None for all."""
        numbers: Mapping[str | int, int | None] = {"all": None, "first": 1}
        return numbers[self.samples] if self.samples in numbers else int(self.samples)

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield backends that compile nothing."""
        yield from context.compiling_nothing("operators", "use another backend")

    def run(self, session: Session) -> None:
        """Run the samples; ``output`` is a list of ``SampleRun``."""
        with needed("torch's database of operators"), session.phases("inputs"):
            operator = session.opinfo.find(
                self.op,
                self.variant,
                dtype=self.dtype,
                device=session.device_api.name,
                call=self.call,
                gradients=bool(self.gradients),
            )
            session.reseed()
            first = 1 if self.samples == "first" and not self.forms else None
            samples, most = operator.samples(first), self.most
            if not samples:
                raise LookupError(
                    f"no sample of '{self.op}' for {self.dtype} can be called this way"
                )
            # at most so many, spread evenly: those of one kind often follow each other
            count = len(samples) if most is None else min(most, len(samples))
            numbers = [index * len(samples) // count for index in range(count)]
            chosen = [(number, samples[number]) for number in numbers]
            chosen += session.opinfo.in_forms(operator, samples, self.forms)
        ran = [_run(session, operator, number, sample) for number, sample in chosen]
        session.output = [
            done for sample in ran for done in (sample, sample.of_operators) if done is not None
        ]


# -- how its samples are judged --------------------------------------------------------------------

FORM = "form"
"""The rule that compares type, shape, dtype and device, and no values."""

_MOST_VALUES = 20_000
"""The greatest number of values of a case that are compared; a sample above it is an ERROR."""

_MOST_NAMED = 10
"""How many more failed samples a judgement names."""


def measure_samples(arguments: Facts, value: Lookup) -> Json:
    """Measure in the worker: one entry for each sample.

    ``value`` returns the result of the step, a list of ``steps.samples.SampleRun``.
    """
    entries: list[dict[str, Any]] = []
    count, has_elements = 0, False
    for sample in value(OUTPUT):
        entry = {
            name: getattr(sample, name)
            for name in ("index", "text", "refused", "no_gradients", "raised", "draws", "graphs")
        }
        entry.update(value=None, why_not="")
        if not sample.refused and sample.raised is None:
            if count > _MOST_VALUES:
                entry["why_not"] = f"the samples before have more than {_MOST_VALUES:,} values"
            else:
                entry.update(_compared(arguments, sample, with_stand_ins=not has_elements))
                count += len(entry["value"]["leaves"]) if entry["value"] else 0
                has_elements = has_elements or (
                    entry["value"] is not None and _has_elements(entry["value"])
                )
        entries.append(entry)
    return {"samples": entries}


@frozen
class EachSample(Expectation):
    """An expectation that holds where it holds for every sample that eager computes."""

    kind = OF_SAMPLES
    measure = staticmethod(measure_samples)
    about = About.ANYTHING
    check: Expectation
    rule: str = ""
    """How values are judged; ``form`` compares none."""
    parts: tuple[str, ...] = ()
    """The paths of values of which only the form is compared."""
    reason: str = ""
    """Why the rule, or that of the parts, is not ``close``."""

    @classmethod
    def parse(cls, body: object) -> "EachSample":
        """Read the body of ``close``."""
        return cls(check=Close.parse(body))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the expectation."""
        return self.check.names

    def measurement(self) -> Facts | None:
        """The worker measures each sample as it would measure the expectation; of the form it needs
        no further run of eager.
        """
        arguments = self.check.measurement()
        if self.rule != FORM or arguments is None:
            return arguments
        return {word: value for word, value in arguments.items() if word != "judge"}

    def judge(self, facts: Reading) -> list[Verdict]:
        """Judge every sample; the judgement shows the first that failed, and names the others."""
        if facts.measured is None:
            return [Verdict.error("every sample close to eager", "nothing was measured")]
        entries = facts.measured["samples"]
        judgements = [
            (entry, judgement)
            for entry in entries
            if (judgement := self._judged(entry, facts)) is not None
        ]
        if not judgements:
            first = (
                entries[0]["refused"] or "its result holds no tensor and no number"
                if entries
                else "there is none"
            )
            return [
                Verdict.error("every sample close to eager", f"no sample can be compared: {first}")
            ]
        wrong = [
            (entry, judgement)
            for entry, judgement in judgements
            if judgement.status in (Status.FAILED, Status.ERROR)
        ]
        # a sample that was called again, with other numbers, has two entries
        count = len({entry["index"] for entry, _ in judgements})
        if wrong:
            entry, first = wrong[0]
            lines = [
                f"{len({bad['index'] for bad, _ in wrong})} of {count} samples failed",
                f"sample {entry['index']}: {entry['text']}",
            ]
            lines += [first.detail] if first.detail else []
            lines += [
                f"sample {other['index']}: {judgement.observed[:200]}; {other['text'][:200]}"
                for other, judgement in wrong[1 : 1 + _MOST_NAMED]
            ]
            if len(wrong) > 1 + _MOST_NAMED:
                lines.append(f"and {len(wrong) - 1 - _MOST_NAMED} more")
            # a waiver is compared with every wrong sample
            values = tuple(value for pair in wrong for value in _wrong_values(*pair))
            return [
                replace(
                    first,
                    expected=f"sample {entry['index']}: {first.expected}",
                    detail="\n".join(lines),
                    wrong=values,
                )
            ]
        if all(judgement.status is Status.NOT_APPLICABLE for _, judgement in judgements):
            return [Verdict.not_applicable()]
        samples = {entry["index"]: entry for entry in reversed(entries)}.values()
        others = {
            "refused by eager": sum(bool(entry["refused"]) for entry in samples),
            "without a value": sum(_is_empty(entry["value"]) for entry in samples),
            "without gradients": sum(bool(entry["no_gradients"]) for entry in samples),
            "without a compiled graph": sum(
                not entry["graphs"] and not entry["refused"] for entry in samples
            ),
        }
        parts = [f"{counted(count, 'sample')} compared"]
        observed = ", ".join(
            [*parts, *(f"{number} {label}" for label, number in others.items() if number)]
        )
        if self.rule != FORM:
            leaves = [
                leaf
                for entry in entries
                if entry["value"] is not None
                for leaf in entry["value"]["leaves"]
            ]
            by_value = [leaf for leaf in leaves if leaf["path"] not in self.parts]
            left = len(leaves) - len(by_value)
            by_form = (
                f", {left} value{'' if left == 1 else 's'} by the form ({self.reason})"
                if left
                else ""
            )
            observed += f"; {ways_judged(by_value)}{by_form}"
        passed = Verdict.passed("every sample close to eager", observed)
        worst = [judgement.worst for _, judgement in judgements if judgement.worst is not None]
        return [replace(passed, worst=max(worst, default=None))]

    def _judged(self, entry: Facts, facts: Reading) -> Verdict | None:
        """Return the judgement of a sample; None where eager refuses it, or where both results are
        equally empty.
        """
        if entry["refused"] or _is_empty(entry["value"]):
            return None
        raised = entry["raised"]
        if raised is not None:
            observed = (
                f"{raised['type']} in phase '{raised['phase']}': {headline(raised['message'])}"
            )
            return Verdict.failed(NO_EXCEPTION, observed, detail=raised["message"])
        if entry["why_not"]:
            return Verdict.error("a value that can be compared", entry["why_not"])
        if self.rule == FORM:
            return _judge_form(entry["value"])
        if (
            self.parts
            and (
                form := _judge_form(_with_leaves(entry["value"], lambda path: path in self.parts))
            ).status
            is not Status.HELD
        ):
            return form
        measured = _with_leaves(entry["value"], lambda path: path not in self.parts)
        judgements = self.check.judge(replace(facts, measured=measured))
        return next(
            (judgement for judgement in judgements if judgement.status is not Status.HELD),
            judgements[0],
        )

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Those of the first sample with elements; for the others no stand-ins are measured."""
        entries = facts.measured["samples"]
        compared = [number for number, entry in enumerate(entries) if entry["value"] is not None]
        index = next(
            (number for number in compared if _has_elements(entries[number]["value"])),
            next(iter(compared), None),
        )
        if index is None or self.rule == FORM:
            return
        measured = _with_leaves(entries[index]["value"], lambda path: path not in self.parts)
        for mutant in self.check.mutants(replace(facts, measured=measured)):
            if mutant.facts is None:
                yield mutant
            else:
                changed = [
                    *entries[:index],
                    {**entries[index], "value": mutant.facts.measured},
                    *entries[index + 1 :],
                ]
                yield replace(mutant, facts=facts.with_measured(samples=changed))


_OF_ARGUMENTS = tuple(f"expected {OUTPUT}['{key}']" for key in ("arguments", UNCHANGED))


def _wrong_values(entry: Facts, judgement: Verdict) -> Iterator[WrongValue]:
    """Yield what a judgement of a sample refuses, with what of it is wrong."""
    texts = f"sample {entry['index']}: {judgement.expected}, observed {judgement.observed}"
    aspect = "" if entry["raised"] else "structure"
    for value in judgement.wrong or [WrongValue(message=f"expected {texts}", aspect=aspect)]:
        of_arguments = value.message.startswith(_OF_ARGUMENTS) and value.aspect != ALIASING
        of_stream = entry.get("draws") and value.aspect == NUMBERS
        aspect = "side effect" if of_arguments else RANDOM_STREAM if of_stream else value.aspect
        yield replace(value, aspect=aspect)


def _is_empty(measured: Facts | None) -> bool:
    """Whether two results of one structure hold no value: an empty tuple."""
    return (
        measured is not None
        and not measured["leaves"]
        and measured["structure"] == measured["reference_structure"]
    )


def _has_elements(measured: Facts) -> bool:
    """Whether a tensor of a sample has elements, so that another value could replace it."""
    return any(leaf.get("numel") for leaf in measured["leaves"])


def _with_leaves(measured: Facts, is_chosen: Callable[[str], bool]) -> Mapping[str, Any]:
    return {**measured, "leaves": [leaf for leaf in measured["leaves"] if is_chosen(leaf["path"])]}


def _judge_form(measured: Facts) -> Verdict:
    expected = "type, shape, dtype and device of eager"
    if measured["structure"] != measured["reference_structure"]:
        return Verdict.failed(f"{measured['reference_structure']}", measured["structure"])
    passed = Verdict.passed(expected, f"{len(measured['leaves'])} values")
    return next(filter(None, map(form_problem, measured["leaves"])), passed)


def _compared(arguments: Facts, sample: Any, *, with_stand_ins: bool) -> dict[str, Any]:
    """Return the facts of one sample as ``close`` measures them.

    The only place where a sample is compared.
    """
    sides = {OUTPUT: sample.compiled, EAGER: sample.eager}
    if "at" in arguments:
        arguments = {**arguments, "at": arguments["at"].get(str(sample.index), {})}
    try:
        measured: Any = close.measure(arguments, sides.__getitem__, with_stand_ins=with_stand_ins)
        for leaf in measured["leaves"]:
            if leaf["path"].startswith("['gradients']"):  # torch.autograd.grad promises no layout
                leaf.pop("strides", None)
                leaf.pop("reference_strides", None)
    except Exception as error:  # comparing values of an operator may raise anything
        return {"why_not": f"{type(error).__name__}: {error}"[:500]}
    return {"value": measured}
