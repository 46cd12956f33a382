"""``served``, ``residue``: which operators of a call ATen still ran, and so which the compiler
computed itself.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from torch_conformance.model.expectation import About, Mutant, Reading, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import OperatorCalls
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.additional_calls import Repeated
from torch_conformance.vocabulary.expectations.expectation_base import BadExpectation
from torch_conformance.vocabulary.forms import Form
from torch_conformance.vocabulary.worker_session import Facts

OPERATOR = Form({"type": "string", "pattern": r"^[a-z_][a-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$"})
Operators = Annotated[
    Sequence[str], Form({"type": "array", "uniqueItems": True, "items": OPERATOR})
]
Allowed = Annotated[
    Sequence[str] | Mapping[str, Sequence[str]],
    Form(
        {
            "type": ["array", "object"],
            "uniqueItems": True,
            "items": OPERATOR,
            "minProperties": 1,
            "propertyNames": {"$ref": "common.schema.json#/$defs/dtype"},
            "additionalProperties": {"type": "array", "uniqueItems": True, "items": OPERATOR},
        }
    ),
]
Share = Annotated[float, Form({"type": "number", "exclusiveMinimum": 0, "maximum": 1})]

_MOST_PLACES = 10
"""How many operators by ATen a verdict shows with their places."""

_UNSERVED = "aten.one_more"
"""What a mutant adds to the residue."""


def calls_of(measured: Facts) -> Iterator[OperatorCalls]:
    """Yield how often eager runs each overload at each place, and how many of these calls the
    compiler cannot be shown to have computed; nothing for facts of a run before these were known.
    """
    whole = range(len(measured["eager"]))
    replaced = {at for name in measured["residue"] for at in measured["replaces"].get(name, whole)}
    places = (place for place, count in measured.get("places", ()) for _ in range(count))
    of_places = defaultdict[tuple[str, str], list[bool]](list)
    columns = zip(measured["eager"], measured.get("overloads", ()), places, strict=False)
    for at, (name, overload, place) in enumerate(columns):
        of_places[f"{name}.{overload}", place].append(at in replaced)
    for (name, place), are_replaced in of_places.items():
        left = sum(are_replaced)
        short = place if left else place.partition(": ")[0]
        yield OperatorCalls(operator=name, place=short, calls=len(are_replaced), by_aten=left)


def replaced_by(measured: Facts, names: Sequence[str]) -> dict[str, int]:
    """Return how many of eager's operators each of these may have run in place of, so that the
    compiler cannot be shown to have computed them; what two names share counts for the first.
    """
    free, replaced = set(range(len(measured["eager"]))), dict[str, int]()
    for name in dict.fromkeys(names):
        of_name = free.intersection(measured["replaces"].get(name, free))
        free -= of_name
        replaced[name] = len(of_name)
    return replaced


class OfOperators(Repeated):
    """What is expected of the residue: the operators that ATen ran in one more call of the compiled
    function.
    """

    records_operators = True
    about = About.INDUCTOR
    """A spec that another compiler joins says what inductor serves; what that compiler serves, its
    own entry says, in its proof.
    """
    measure = staticmethod(lambda arguments, again: again.operators())
    remark = (
        "The call is made after the last step of the case. Operators that only move or "
        "describe data do not count, nor does code that calls"
        " ATen's kernels below its dispatcher on a CPU."
    )

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """More operators by ATen."""
        eager, residue = facts.measured["eager"], facts.measured["residue"]
        more = [*residue, *[_UNSERVED] * max(1, len(eager))]
        yield Mutant("more operators by ATen", facts.with_measured(residue=more))


@frozen
class Served(OfOperators):
    """The compiler itself computes the operators of the call: ATen runs none of them, or few.

    ``served: all``
    ``served: {min: 0.8}``
    ``served: {allow: [aten.mm]}``
    """

    form = Form({"type": ["string", "object"], "if": {"type": "string"}, "then": {"const": "all"}})
    min: Share = 1.0
    """The least share of eager's operators that the compiler can be shown to have computed; all of
    them when absent. An operator of the residue that eager runs with the same shapes replaces that
    one, with other shapes all of its name, and one that eager does not run any.

    For example ``0.8``.
    """
    allow: Allowed = ()
    """Operators that ATen may run; by the type of their first floating-point argument, or of their
    first tensor, where they are a map. For example ``{float16: [aten.mm, aten.addmm]}``."""

    @classmethod
    def read(cls, body: Json) -> "Served":
        """Read the word or the map."""
        if body == "all":
            return cls()
        allow = body.get("allow", ())
        return cls(**{**body, "allow": allow if isinstance(allow, Mapping) else tuple(allow)})

    def allows(self, name: str, dtype: str) -> bool:
        """Whether ATen may run an operator for a type."""
        return name in (
            self.allow.get(dtype, ()) if isinstance(self.allow, Mapping) else self.allow
        )

    @property
    def expected(self) -> str:
        """What is expected, in words."""
        share = (
            "every operator" if self.min == 1 else f"at least {100 * self.min:g}% of the operators"
        )
        allowed = (
            [f"{name} in {dtype}" for dtype, names in self.allow.items() for name in names]
            if isinstance(self.allow, Mapping)
            else self.allow
        )
        return f"{share} computed by the compiler" + (
            f", {', '.join(allowed)} allowed by ATen" if allowed else ""
        )

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge the share."""
        eager, residue = facts.measured["eager"], facts.measured["residue"]
        if not (eager or residue):
            return Verdict.error(self.expected, "eager runs no operator that computes anything")
        types = facts.measured.get("types") or [""] * len(residue)
        left = [
            name
            for name, dtype in itertools.zip_longest(residue, types, fillvalue="")
            if not self.allows(name, dtype)
        ]
        replaced = sum(replaced_by(facts.measured, left).values())
        share = 1 - replaced / len(eager) if eager else 0.0
        by_aten = f"by ATen: {', '.join(dict.fromkeys(residue))}" if residue else "none by ATen"
        observed = f"{share:.0%} of {len(eager)} operators; {by_aten}"
        places = [
            f"{calls.operator}, {calls.by_aten} of {calls.calls} by ATen: {calls.place}".rstrip(
                ": "
            )
            for calls in calls_of(facts.measured)
            if calls.by_aten
        ]
        detail = "\n".join(places[:_MOST_PLACES])
        return Verdict.of(share >= self.min, self.expected, observed, detail=detail)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Yield also every operator of eager by ATen, and as many others but one."""
        yield from OfOperators.mutants(self, facts)
        eager = facts.measured["eager"]
        yield Mutant("every operator by ATen", facts.with_measured(residue=eager))
        if len(facts.measured["residue"]) + 1 < len(eager):
            replaces = {_UNSERVED: [*range(len(eager) - 1)]}
            others = facts.with_measured(residue=[_UNSERVED], replaces=replaces)
            yield Mutant("every operator but one by ATen", others)


@frozen
class Residue(OfOperators):
    """ATen runs exactly these operators in a call of the compiled function.

    ``residue: [aten.sort]``
    ``residue: {operators: [aten.sort], when: {device: cpu}}``
    """

    form = Form(
        {"type": ["array", "object"], "minItems": 1, "uniqueItems": True, "items": OPERATOR}
    )
    operators: Operators
    """The operators, each once. For example ``[aten.sort]``."""

    @classmethod
    def read(cls, body: Json) -> "Residue":
        """Read the list, or the map; raise ``BadExpectation`` for one without operators."""
        whole = body if isinstance(body, dict) else {"operators": body}
        if not whole.get("operators"):
            raise BadExpectation("a residue without operators", "write served: all", "operators")
        return cls(**{**whole, "operators": tuple(whole["operators"])})

    @property
    def expected(self) -> str:
        """What is expected, in words."""
        return f"ATen runs {', '.join(self.operators)}"

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge that these operators, and no others, are left."""
        residue = sorted(set(facts.measured["residue"]))
        observed = ", ".join(residue) or "the compiler left no operator to ATen"
        return Verdict.of(residue == sorted(self.operators), self.expected, observed)
