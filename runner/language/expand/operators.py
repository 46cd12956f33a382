"""Cases of ``source: {opinfo: ...}``: each case of the spec becomes one for each operator, call and dtype of torch's database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from runner.core.case import Case, CaseBody, CaseId, Expected, Step
from runner.core.conditions import Surroundings
from runner.language import operators
from runner.language.operators import CLOSE, JUDGED, Judged, Operator, Table
from runner.language.read.anatomy import SOURCE, Anatomy
from runner.vocabulary.expectations.samples import EachSample

_FIELDS = tuple(one.name for one in fields(Case))
_BODY = tuple(one.name for one in fields(CaseBody))

KEYS = ("op", "dtype")
"""The keys that the source adds to an id, after the backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The keys of ``opinfo``."""

    dtypes: Sequence[str]
    calls: Sequence[str] = ("function",)
    samples: str | int = "all"
    gradients: bool = True


def with_operators(anatomy: Anatomy, cases: Sequence[Case], known: Surroundings) -> list[Case]:
    """Return the cases of a spec; those of a spec with a source once for each entry of the table."""
    source = anatomy.data.get(SOURCE)
    if source is None:
        return list(cases)
    minor = None if known.torch is None else ".".join(map(str, known.torch[:2]))
    table, why_not = operators.table_for(minor)
    maker = _Maker(table, why_not, Source(**source["opinfo"]))
    return [made for case in cases for made in maker.cases(case)]


class _Maker:
    """Makes the cases of one spec. What is equal for many of them is made once: there are thousands."""

    def __init__(self, table: Table, why_not: str, source: Source) -> None:
        self._table = table
        self._missing = (why_not,) if why_not else ()
        self._source = source
        self._expected: dict[tuple[int, Judged | None], tuple[Expected, ...]] = {}

    def cases(self, case: Case) -> Iterator[Case]:
        begin, _, end = case.id.partition(f"[backend={case.backend}")
        (step,) = case.steps
        # the constructor takes a third of the time of dataclasses.replace
        as_is = {name: getattr(case, name) for name in _FIELDS if name not in ("id", "params", "body", "steps", "missing_names")}
        body = {name: getattr(case.body, name) for name in _BODY if name != "seed_key"}
        missing = (*case.missing_names, *self._missing)
        for operator, call, dtype in self._table.rows(case.device, self._source.dtypes, self._source.calls):
            label = operator.label(call)
            yield Case(
                **as_is,
                id=CaseId(f"{begin}[backend={case.backend},op={label},dtype={dtype}{end}"),
                params={"op": label, "dtype": dtype, **case.params},
                body=CaseBody(**body, seed_key=f"{case.body.seed_key} {label} {dtype}"),
                steps=(self._step(step, operator, call, dtype),),
                missing_names=missing,
            )

    def _step(self, step: Step, operator: Operator, call: str, dtype: str) -> Step:
        judged = JUDGED.get(operator.op)
        named = {"op": operator.op, "variant": operator.variant, "call": call, "dtype": dtype}
        rule = {} if judged is None else {"rule": judged.rule, "reason": judged.reason}
        return Step(
            kind=step.kind,
            position=step.position,
            repeat=step.repeat,
            when=step.when,
            arguments={**named, "samples": self._source.samples, "gradients": self._source.gradients, **rule},
            expectations=self._of_rule(step.expectations, judged),
        )

    def _of_rule(self, expectations: tuple[Expected, ...], judged: Judged | None) -> tuple[Expected, ...]:
        """Return the expectations of the spec, judged for each sample by the rule of the operator."""
        key = (id(expectations), judged)  # the cases that are expanded hold the tuple
        if key not in self._expected:
            how = judged or Judged(CLOSE, "")
            self._expected[key] = tuple(
                replace(one, check=EachSample(check=one.check, rule=how.rule, parts=how.parts, reason=how.reason)) for one in expectations
            )
        return self._expected[key]
