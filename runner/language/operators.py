"""The cases of a source: one for each operator of torch's database (OpInfo), each call and each dtype."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from runner.language.read.anatomy import SOURCE, Anatomy
from runner.model.case import Case, CaseId, Expected, Step
from runner.model.conditions import Surroundings
from runner.model.devices import is_accelerator, kind_of
from runner.vocabulary.steps.samples import EachSample

TABLES = Path(__file__).parent / "data"
_PREFIX = "operators-"

COMMAND = "python -m tools.generate_operators"
"""The command that writes the table of the installed torch."""

CLOSE = "close"
"""The rule of most operators: values are compared with eager."""

FORM = "form"
"""The rule of operators without values of their own: type, shape, dtype and device are compared with eager."""


@dataclass(frozen=True, slots=True)
class Judged:
    """How an operator is judged, where not by ``close`` of its values, and why."""

    rule: str
    reason: str
    parts: tuple[str, ...] = ()
    """The parts of the compared values of which only the form is compared, as failures name them; the rule is for all others."""


_EMPTY = Judged(FORM, "its elements are whatever the memory held")

_ATTENTION = Judged(CLOSE, "without dropout the state of the generator is whatever the memory held", ("['result'][2]", "['result'][3]"))
"""The third and the fourth result are the seed and the offset."""

JUDGED: Mapping[str, Judged] = {
    "empty": _EMPTY,
    "empty_like": _EMPTY,
    "empty_permuted": _EMPTY,
    "empty_strided": _EMPTY,
    "new_empty": _EMPTY,
    "new_empty_strided": _EMPTY,
    "torch.ops.aten._efficient_attention_forward": _ATTENTION,
    "torch.ops.aten._flash_attention_forward": _ATTENTION,
}
"""By the operator's name, those that are judged otherwise."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Cases that do not exist because eager refuses every sample, which the database does not say."""

    reason: str
    on: Literal["everywhere", "cpu", "accelerators"] = "everywhere"
    """Where eager refuses."""
    takes: frozenset[str] | None = None
    """The dtypes that eager takes all the same."""


_JITERATOR = Refused("jiterator compiles for a GPU alone", on="cpu")

REFUSED: Mapping[str, Refused] = {
    "_batch_norm_with_update.out": Refused("the overload with out= has other arguments"),
    "equal.out": Refused("the result is a bool: there is no out="),
    "float_power_": Refused("the result is float64", takes=frozenset({"float64", "complex128"})),
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    "narrow_copy.out": Refused("torch has no kernel for a GPU", on="accelerators"),
    "sparse.mm-reduce": Refused("torch has no kernel of the reduction for a GPU", on="accelerators"),
}
"""By the name that an id has. Apart from these, ``Operator.promotes`` says which in-place calls eager refuses."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One entry of a table."""

    op: str
    variant: str
    dtypes: Mapping[str, frozenset[str]]
    """By kind of device."""
    calls: tuple[str, ...]
    promotes: bool = False
    """Whether results of integers are floating; then eager refuses the in-place call of integers."""
    core: str = ""
    """The kind of an operator that torch tags as core ATen: ``pointwise``, ``data`` or ``other``; empty for no such operator."""

    def is_refused(self, call: str, dtype: str, device: str) -> bool:
        """Whether eager refuses every sample of a case."""
        if self.promotes and call == "inplace" and not dtype.startswith(("float", "bfloat", "complex")):
            return True
        refusal = REFUSED.get(self.label(call))
        if refusal is None or dtype in (refusal.takes or ()):
            return False
        return refusal.on in ("everywhere", "accelerators" if is_accelerator(device) else "cpu")

    def label(self, call: str) -> str:
        """Return the operator as an id has it: ``add``, in place ``add_``, with out= ``add.out``; a variant follows a hyphen."""
        name = self.op + {"function": "", "inplace": "_", "out": ".out"}[call]
        return f"{name}-{self.variant}" if self.variant else name


@dataclass(frozen=True, slots=True)
class Table:
    """The operators of one torch minor."""

    minor: str
    operators: tuple[Operator, ...]

    def rows(self, device: str, dtypes: Sequence[str], calls: Sequence[str]) -> Iterator[tuple[Operator, str, list[str]]]:
        """Yield each operator with each call, and the dtypes of its cases on a device, in the order of the table."""
        kind = kind_of(device)
        for operator in self.operators:
            supported = operator.dtypes.get(kind, frozenset())
            for call in calls:
                if call in operator.calls:
                    usable = (dtype for dtype in dtypes if dtype in supported)
                    yield operator, call, [dtype for dtype in usable if not operator.is_refused(call, dtype, device)]


@functools.cache
def load(minor: str) -> Table | None:
    """Return the table of a torch minor; None where there is none."""
    file = TABLES / f"{_PREFIX}{minor}.json"
    if not file.is_file():
        return None
    data = json.loads(file.read_text("utf-8"))
    sets = [frozenset(text.split()) for text in data["dtypes"]]
    kinds = [key for key in ("cpu", "cuda") if key in data["operators"][0]]
    return Table(
        minor=data["torch"],
        operators=tuple(
            Operator(
                op=row["op"],
                variant=row.get("variant", ""),
                dtypes={kind: sets[row[kind]] for kind in kinds},
                calls=("function", *row.get("calls", ())),
                promotes=row.get("promotes", False),
                core=row.get("core", ""),
            )
            for row in data["operators"]
        ),
    )


def minors() -> list[str]:
    """Return the minors with a table, oldest first."""
    stems = (file.stem.removeprefix(_PREFIX) for file in TABLES.glob(f"{_PREFIX}*.json"))
    return sorted(stems, key=lambda minor: tuple(map(int, minor.split("."))))


def labels() -> set[str]:
    """Return the operators of all tables, as ids have them."""
    tables = filter(None, map(load, minors()))
    return {operator.label(call) for table in tables for operator in table.operators for call in operator.calls}


def table_for(minor: str | None) -> tuple[Table, str]:
    """Return the table of a minor, else the newest one and why its cases cannot run; None stands for a machine without torch."""
    newest = minors()[-1]
    if (table := load(minor or newest)) is not None:
        return table, ""
    table = load(newest)
    assert table is not None, "the file of the newest table is there"
    lacks = f"the operators of torch {minor} have no table, only those of {', '.join(minors())}"
    return table, f"{lacks} ('{COMMAND}' in the repository writes it)"


# -- cases of a source ------------------------------------------------------------------------------------------------


def with_operators(anatomy: Anatomy, cases: Sequence[Case], known: Surroundings) -> list[Case]:
    """Return the cases of a spec with a source, once for each entry of the table.

    What many of them share is made once: there are thousands.
    """
    table, why_not = table_for(None if known.torch is None else ".".join(map(str, known.torch[:2])))
    source = {"calls": ("function",), "samples": "all", "gradients": True, "operators": "all", **anatomy.data[SOURCE]["opinfo"]}
    expected: dict[tuple[int, Judged | None], tuple[Expected, ...]] = {}
    of_operators: list[Case] = []
    own = ("id", "params", "seed_key", "steps", "missing_names", "tags")
    for case in cases:
        begin, _, end = case.id.partition(f"[backend={case.backend}")
        (step,) = case.steps
        # the constructor takes a third of the time of dataclasses.replace
        as_is = {field.name: getattr(case, field.name) for field in fields(Case) if field.name not in own}
        missing = (*case.missing_names, *([why_not] if why_not else []))
        for operator, call, dtypes in table.rows(case.device, source["dtypes"], source["calls"]):
            if source["operators"] == "core" and not operator.core:
                continue
            tags = (*case.tags, f"core-{operator.core}") if operator.core else case.tags
            judged = JUDGED.get(operator.op)
            key = (id(step.expectations), judged)  # the cases hold the tuple
            if key not in expected:
                how = judged or Judged(CLOSE, "")
                expected[key] = tuple(
                    replace(raw, check=EachSample(check=raw.check, rule=how.rule, parts=how.parts, reason=how.reason))
                    for raw in step.expectations
                )
            label = operator.label(call)
            arguments = {"op": operator.op, "variant": operator.variant, "call": call, "dtype": "", "samples": source["samples"]}
            rule = {} if judged is None else {"rule": judged.rule, "reason": judged.reason}
            for dtype in dtypes:
                of_operator = Step(
                    kind=step.kind,
                    position=step.position,
                    repeat=step.repeat,
                    when=step.when,
                    arguments={**arguments, "dtype": dtype, "gradients": source["gradients"], **rule},
                    expectations=expected[key],
                )
                of_operators.append(
                    Case(
                        **as_is,
                        id=CaseId(f"{begin}[backend={case.backend},op={label},dtype={dtype}{end}"),
                        params={"op": label, "dtype": dtype, **case.params},
                        seed_key=f"{case.seed_key} {label} {dtype}",
                        steps=(of_operator,),
                        tags=tags,
                        missing_names=missing,
                    )
                )
    return of_operators
