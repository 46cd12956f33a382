"""The cases of a source: one for each operator of torch's database (OpInfo), each call and each
dtype.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from torch_conformance.language.read.anatomy import SOURCE, Anatomy
from torch_conformance.language.torch_names import OPERATOR, NameTables, committed_tables
from torch_conformance.model.case import Case, CaseId, Expected, Step
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.devices import is_accelerator, kind_of
from torch_conformance.vocabulary.steps.samples import EachSample

CLOSE = "close"
"""The rule of most operators: values are compared with eager."""

FORM = "form"
"""The rule of operators without values of their own: type, shape, dtype and device are compared
with eager.
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """How an operator is judged, where not by ``close`` of its values, and why."""

    rule: str
    reason: str
    parts: tuple[str, ...] = ()
    """The parts of the compared values of which only the form is compared, as failures name them;
    the rule is for all others.
    """


_EMPTY = Judged(FORM, "its elements are whatever the memory held")

_ATTENTION = Judged(
    CLOSE,
    "without dropout the state of the generator is whatever the memory held",
    ("['result'][2]", "['result'][3]"),
)
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
    """Cases that do not exist because eager refuses every sample, which the database does not
    say.
    """

    reason: str
    on: Literal["everywhere", "cpu", "accelerators"] = "everywhere"
    """Where eager refuses."""
    takes: frozenset[str] | None = None
    """The dtypes that eager accepts, of those that the database names."""


_JITERATOR = Refused("jiterator compiles only for GPUs", on="cpu")

REFUSED: Mapping[str, Refused] = {
    "_batch_norm_with_update.out": Refused("the overload with out= has other arguments"),
    "equal.out": Refused("the result is a bool, which out= cannot hold"),
    "float_power_": Refused("the result is float64", takes=frozenset({"float64", "complex128"})),
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    "narrow_copy.out": Refused("torch has no kernel for a GPU", on="accelerators"),
    "sparse.mm-reduce": Refused(
        "torch has no kernel of the reduction for a GPU", on="accelerators"
    ),
}
"""By the name that an id has.

Deviation from these, ``Operator.promotes`` says which in-place calls eager refuses.
"""


WITHOUT_FORMS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "nn.functional.interpolate-bilinear": (
        ("nonfinite",),
        "torch's own decomposition multiplies an infinity by a weight of 0, and eager does not",
    ),
    "resize_": (
        ("transposed", "expanded", "offset", "single", "odd", "nonfinite", "resized"),
        "new elements are whatever the memory held",
    ),
}
"""By the name that an id has, the forms for which eager is not a reference, and why."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One entry of a table."""

    op: str
    variant: str
    dtypes: Mapping[str, frozenset[str]]
    """By kind of device."""
    calls: tuple[str, ...]
    promotes: bool = False
    """Whether results of integers are floating; then eager refuses the in-place call of integers.
    """
    core: str = ""
    """The kind of an operator that torch tags as core ATen: ``pointwise``, ``data`` or ``other``;
    empty for no such operator.
    """

    def is_refused(self, call: str, dtype: str, device: str) -> bool:
        """Whether eager refuses every sample of a case."""
        if (
            self.promotes
            and call == "inplace"
            and not dtype.startswith(("float", "bfloat", "complex", "bcomplex"))
        ):
            return True
        refusal = REFUSED.get(self.label(call))
        if refusal is None or dtype in (refusal.takes or ()):
            return False
        return refusal.on in ("everywhere", "accelerators" if is_accelerator(device) else "cpu")

    def label(self, call: str) -> str:
        """Return the operator as an id has it: ``add``, in place ``add_``, with out= ``add.out``; a
        variant follows a hyphen.
        """
        name = self.op + {"function": "", "inplace": "_", "out": ".out"}[call]
        return f"{name}-{self.variant}" if self.variant else name


def rows(
    operators: Iterable[Operator], device: str, dtypes: Sequence[str], calls: Sequence[str]
) -> Iterator[tuple[Operator, str, list[str]]]:
    """Yield each operator with each call, and the dtypes of its cases on a device."""
    for operator in operators:
        supported = operator.dtypes.get(kind_of(device), operator.dtypes["cpu"])
        for call in (call for call in calls if call in operator.calls):
            usable = (dtype for dtype in dtypes if dtype in supported)
            yield (
                operator,
                call,
                [dtype for dtype in usable if not operator.is_refused(call, dtype, device)],
            )


@functools.cache
def load(minor: str) -> tuple[Operator, ...]:
    """Return the operators of a minor of the committed list, sorted by their names."""
    operators = (
        _operator(declared, label)
        for kind, declared, label in committed_tables()[minor].entries
        if kind == OPERATOR
    )
    return tuple(sorted(operators, key=lambda operator: (operator.op, operator.variant)))


def _operator(declared: str, label: str) -> Operator:
    """Return an operator of the list: the dtypes of the CPU; those that CUDA adds (``+``) or
    lacks (``-``); calls and kind.
    """
    (cpu, cuda, words) = (part.split() for part in declared.split(";"))
    (op, _, variant) = label.partition("-")
    return Operator(
        op=op,
        variant=variant,
        dtypes={
            "cpu": frozenset(cpu),
            "cuda": frozenset(word[1:] for word in cuda).symmetric_difference(cpu),
        },
        calls=("function", *(word for word in words if word in ("inplace", "out"))),
        promotes="promotes" in words,
        core=next((word.removeprefix("core-") for word in words if word.startswith("core-")), ""),
    )


def labels() -> set[str]:
    """Return the operators of all minors, as ids have them."""
    return {
        operator.label(call)
        for minor in committed_tables()
        for operator in load(minor)
        for call in operator.calls
    }


def operators_for(minor: str | None) -> tuple[Operator, ...]:
    """Return the operators of a minor; for None, and for a minor that the list does not have, those
    of the newest.
    """
    minors = [*committed_tables()]
    return load(minor if minor in minors else minors[-1])


# -- cases of a source -----------------------------------------------------------------------------


def with_operators(
    anatomy: Anatomy, cases: Sequence[Case], surroundings: Surroundings, names: NameTables
) -> list[Case]:
    """Return the cases of a spec with a source, once for each entry of the table.

    What many of them share is made once: there are thousands.
    """
    operators = operators_for(
        None if surroundings.torch is None else ".".join(map(str, surroundings.torch[:2]))
    )
    source = {
        "calls": ("function",),
        "samples": "all",
        "gradients": True,
        "operators": "all",
        **anatomy.data[SOURCE]["opinfo"],
    }
    expected: dict[tuple[int, Judged | None], tuple[Expected, ...]] = {}
    of_operators: list[Case] = []
    changed = ("id", "params", "seed_key", "steps", "missing_names", "tags")
    for case in cases:
        begin, _, end = case.id.partition(f"[backend={case.backend}")
        (step,) = case.steps
        # the constructor takes a third of the time of dataclasses.replace
        as_is = {
            field.name: getattr(case, field.name)
            for field in fields(Case)
            if field.name not in changed
        }
        for operator, call, dtypes in rows(
            operators, case.device, source["dtypes"], source["calls"]
        ):
            if source["operators"] == "core" and not operator.core:
                continue
            tags = (*case.tags, f"core-{operator.core}") if operator.core else case.tags
            special = JUDGED.get(operator.op)
            key = (id(step.expectations), special)  # the cases hold the tuple
            if key not in expected:
                sample_judge = special or Judged(CLOSE, "")
                expected[key] = tuple(
                    replace(
                        raw,
                        check=EachSample(
                            check=raw.check,
                            rule=sample_judge.rule,
                            parts=sample_judge.parts,
                            reason=sample_judge.reason,
                        ),
                    )
                    for raw in step.expectations
                )
            label, absent = operator.label(call), names.absent_operator(operator.op)
            arguments = {
                "op": operator.op,
                "variant": operator.variant,
                "call": call,
                "dtype": "",
                "samples": source["samples"],
            }
            if "forms" in source:
                left_out, _ = WITHOUT_FORMS.get(label, ((), ""))
                arguments["forms"] = [form for form in source["forms"] if form not in left_out]

            rule = {} if special is None else {"rule": special.rule, "reason": special.reason}
            for dtype in dtypes:
                of_operator = Step(
                    kind=step.kind,
                    position=step.position,
                    repeat=step.repeat,
                    when=step.when,
                    arguments={
                        **arguments,
                        "dtype": dtype,
                        "gradients": source["gradients"],
                        **rule,
                    },
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
                        missing_names=(*case.missing_names, absent)
                        if absent
                        else case.missing_names,
                    )
                )
    return of_operators
