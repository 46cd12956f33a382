"""Values that a step binds: ``equals`` and ``differs``, ``strides``, ``dead``."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from torch_conformance.model.expectation import About, Mutant, Reading, Status, Verdict
from torch_conformance.model.protocol import Json, decode, encode
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.comparing import bits, dense, has_equality
from torch_conformance.vocabulary.expectations.expectation_base import (
    OUTPUT,
    BadExpectation,
    ConditionalOnCode,
    Kind,
    is_reference,
    text_of,
)
from torch_conformance.vocabulary.forms import (
    TEMPLATE,
    Form,
    MemoryFormat,
    ValueName,
    common,
    some_of,
    whole,
)
from torch_conformance.vocabulary.worker_session import Facts, Lookup, NewFacts
from torch_conformance.vocabulary.worker_torch import pytree, torch


def _others(value: object) -> Iterator[tuple[str, Any]]:
    """Yield names and values of small changes of a value."""
    match value:
        case bool():
            yield "changed", not value
        case int() | float() if value - 1 < value < value + 1:
            yield "one more", value + 1
            yield "one less", value - 1
        case str():
            yield "changed", f"{value}?"
        case list():
            yield "an element more", [*value, None]
            if value:
                yield "an element less", value[:-1]
                yield "changed", [changed(value[0]), *value[1:]]
        case dict() if value:
            first = next(iter(value))
            yield "an element less", {key: item for key, item in value.items() if key != first}
            yield "changed", {**value, first: changed(value[first])}
        case _:
            # None, NaN, and numbers so large that adding 1 changes nothing
            yield "changed", "changed"


def changed(value: object) -> object:
    """Return another value of the same type, where there is one."""
    return next(other for _, other in _others(value))


def same(value: object, expected: object) -> bool:
    """Whether two plain values are equal. NaN equals NaN, 1 equals 1.0, and true equals neither."""
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            same(value[key], expected[key]) for key in value
        )
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    return bool(value == expected) or (value != value and expected != expected)


def _class_of(value: object) -> str:
    """Return the class of a value; whole numbers and others may be equal."""
    return (
        "number"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else type(value).__name__
    )


def _other_form(value: object, other: Any, *, may_be_empty: bool) -> str:
    """Return how the forms of two values differ, whatever their numbers are; empty where they do
    not, and where one is None.

    With ``may_be_empty`` a list or map has also the form of an empty one.
    """
    if value is None or other is None:
        return ""
    if _class_of(value) != _class_of(other):
        return f"{_class_of(value)} against {_class_of(other)}"
    if isinstance(value, torch.Tensor):
        ours, theirs = (f"shape {list(tensor.shape)}, {tensor.dtype}" for tensor in (value, other))
        return "" if ours == theirs else f"{ours} against {theirs}"
    if value is not other and not (
        callable(value) or isinstance(value, enum.Enum) or has_equality(value)
    ):
        return f"two objects of class {_class_of(value)}, which has no __eq__"
    if not isinstance(value, list | tuple | dict) or (may_be_empty and not other):
        return ""
    if len(value) != len(other):
        return f"{len(value)} elements against {len(other)}"
    if isinstance(value, dict) and value.keys() != other.keys():
        return "other keys"
    pairs = (
        ((value[key], other[key]) for key in value)
        if isinstance(value, dict)
        else zip(value, other, strict=True)
    )
    return next(filter(None, (_other_form(*pair, may_be_empty=may_be_empty) for pair in pairs)), "")


def measure_equality(arguments: Facts, value: Lookup) -> Json:
    """Measure in the worker: plain values as they are, tensors as nested lists, and the comparison
    of two named values.
    """
    facts: NewFacts = {}
    for name, other in arguments["pairs"].items():
        left = value(name)
        if is_reference(other):
            right = value(other["ref"])
            facts[name] = {
                **_compare(left, right),
                "form": _other_form(left, right, may_be_empty=False),
            }
        else:
            plain = _as_plain(left)
            form = _other_form(plain, other, may_be_empty=not isinstance(left, torch.Tensor))
            facts[name] = {"value": encode(plain), "form": form}
    return facts


def _as_plain(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().tolist() if value.numel() <= 10_000 else value
    if isinstance(value, torch.Size):
        return [int(size) for size in value]
    if isinstance(value, dict):
        return {key: _as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(item) for item in value]
    return value


def _compare(left: object, right: object) -> NewFacts:
    """Compare two values exactly: structure, then each leaf; tensors by shape, dtype and bits (NaN
    equals NaN).
    """
    leaves, structure = pytree.tree_flatten(left)
    others, other_structure = pytree.tree_flatten(right)
    is_comparable, why = True, ""
    if structure != other_structure:
        why = "another structure"
    elif not leaves:
        is_comparable, why = False, "both are empty"
    else:
        pairs = enumerate(zip(leaves, others, strict=True))
        differences = ((index, leaf_difference(*pair)) for index, pair in pairs)
        why = next((f"leaf {index}: {text}" for index, text in differences if text), "")
    return {"comparable": is_comparable, "equal": not why, "why": why}


def leaf_difference(leaf: object, other: object) -> str:
    """Return how two leaves differ; empty where type, shape, dtype, device, layout and bits are the
    same.

    NaN equals NaN.
    """
    if not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor):
        return (
            ""
            if type(leaf) is type(other) and same(leaf, other)
            else f"{leaf!r:.100} against {other!r:.100}"
        )
    for fact in ("shape", "dtype", "device", "layout"):
        if getattr(leaf, fact) != getattr(other, fact):
            return f"{fact} {getattr(leaf, fact)} against {getattr(other, fact)}"
    facts = bits(dense(leaf), dense(other))
    pair = f"at {facts['index']}: {facts['value']} instead of {facts['reference']}"
    return f"{facts['differing']} of {leaf.numel()} elements; {pair}" if facts["differing"] else ""


@frozen
class _Pairs(Kind):
    """Named values with the values to compare. The two kinds differ in the expected result."""

    form = Form(
        {
            "type": "object",
            "minProperties": 1,
            "propertyNames": common("value_name"),
            "additionalProperties": True,
        }
    )
    measure = staticmethod(measure_equality)
    about = About.ANYTHING
    is_whole = True
    expects_equal: ClassVar[bool]
    pairs: Mapping[str, Any]

    @classmethod
    def check(cls, body: Json) -> None:
        """Raise ``BadExpectation`` for a value that is compared with itself."""
        for name, other in body.items():
            if is_reference(other) and other["ref"] == name:
                raise BadExpectation(
                    f"'{name}' is compared with itself", "name the result of another step", name
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names on both sides."""
        return (
            *self.pairs,
            *(str(other["ref"]) for other in self.pairs.values() if is_reference(other)),
        )

    def measurement(self) -> Facts:
        """The worker sends plain values; it compares two named values itself."""
        return {"pairs": encode(dict(self.pairs))}

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge each pair."""
        for name, other in self.pairs.items():
            literal = f"the value of {other['ref']}" if is_reference(other) else text_of(other)
            expected = f"{name} {'equal to' if self.expects_equal else 'different from'} {literal}"
            fact = facts.measured.get(name)
            if fact is None:
                yield Verdict.error(expected, "nothing was measured", leaf=name)
            elif is_reference(other) and not fact["comparable"]:
                why = f"the two cannot be compared: {fact['why']}"
                yield Verdict.error(expected, why, leaf=name)
            else:
                if is_reference(other):
                    equal = fact["equal"]
                    observed = "equal" if equal else f"different: {fact['why']}"
                else:
                    value = decode(fact["value"])
                    equal, observed = same(value, other), text_of(value)
                yield Verdict.of(equal is self.expects_equal, expected, observed, leaf=name)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Each pair on its own: changed if equality is expected, made equal if a difference is."""
        for name, other in self.pairs.items():
            fact = facts.measured[name]
            changes: list[tuple[str, Facts]] = [("made equal", {"value": encode(other)})]
            if is_reference(other):
                mutation = "changed" if self.expects_equal else "made equal"
                changes = [(mutation, {**fact, "equal": not self.expects_equal, "why": "changed"})]
            elif self.expects_equal:
                value = decode(fact["value"])
                changes = [
                    (mutation, {"value": encode(wrong)}) for mutation, wrong in _others(value)
                ]
            for mutation, changed in changes:
                yield Mutant(mutation, facts.with_measured(**{name: changed}), leaf=name)
            if not self.expects_equal and fact.get("form"):
                yield Mutant(
                    "any value of its form", facts, leaf=name, where=f"{name}: {fact['form']}"
                )


@frozen
class Equals(_Pairs):
    """Named values equal the given value or another named value, exactly; tensors bit for bit.

    ``equals: {padded: [32768, 2048, 1]}``
    ``equals: {first: {ref: second}}``
    """

    expects_equal = True


@frozen
class Differs(_Pairs):
    """Named values differ from the given value or from another named value of the same type, length
    and shape.

    What has another form differs whatever the code does, and is an ERROR unless `weak` says why it
    may.

    ``differs: {first: {ref: second}}``
    """

    expects_equal = False
    instead = "name a value that it may have"


def measure_strides(arguments: Facts, value: Lookup) -> Json:
    """Measure in the worker: shape, strides and formats of every tensor of the value."""
    by_rank = {4: ["channels_last"], 5: ["channels_last_3d"]}
    strides: NewFacts = {}
    for key, name in (("tensors", arguments["of"]), ("others", arguments.get("to"))):
        tensors: list[Json] = []
        for leaf in pytree.tree_leaves(None if name is None else value(name)):
            if isinstance(leaf, torch.Tensor):
                names = ["contiguous_format", *by_rank.get(leaf.ndim, [])]
                formats: list[Json] = [
                    name for name in names if leaf.is_contiguous(memory_format=getattr(torch, name))
                ]
                tensors.append(
                    {"shape": list(leaf.shape), "strides": list(leaf.stride()), "formats": formats}
                )
        if name is not None:
            strides[key] = tensors
    return strides


_CONTIGUOUS = Form(
    {
        "type": ["boolean", "string"],
        "if": {"type": "string"},
        "then": {"title": "memory format", **MemoryFormat},
    }
)


@frozen
class Strides(ConditionalOnCode):
    """The strides of tensors, in elements, or their memory format.

    ``strides: {output: [0, 1], contiguous: true}``
    ``strides: {equals: [2048, 1]}``
    ``strides: {to: eager}``
    """

    form = some_of("equals", "to", "contiguous")
    measure = staticmethod(measure_strides)
    about = About.ANYTHING
    of: ValueName = OUTPUT
    """The value; the step's own result when absent."""
    output: (
        Annotated[
            int | list[int],
            Form({"type": ["integer", "array"], "minimum": 0, "items": whole(0), "minItems": 1}),
        ]
        | None
    ) = None
    """Indices of its tensors; all when absent. For example ``[0, 1]``."""
    equals: (
        Annotated[
            list[int], Form({"type": ["array", "string"], **TEMPLATE, "items": common("integer")})
        ]
        | None
    ) = None
    """The strides of each. For example ``[2048, 1]``."""
    to: ValueName | None = None
    """eager, a part of it, or a named value: its tensors have the same strides. A dimension of one
    element has none. For example ``eager``."""
    contiguous: Annotated[bool | str, _CONTIGUOUS] | None = None
    """Whether each is contiguous, or the memory format in which it is contiguous.

    For example ``true``, ``channels_last``.
    """

    @classmethod
    def check(cls, body: Json) -> None:
        """Refuse a comparison with the value itself, and strides that are said twice."""
        if "to" in body and body["to"] == body.get("of", OUTPUT):
            raise BadExpectation(
                f"the strides of {body['to']} are always its own", "write to: eager", "to"
            )
        if "to" in body and (others := [word for word in ("equals", "contiguous") if word in body]):
            raise BadExpectation(
                f"to together with {others[0]}", "write an expectation for each", "to"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The values whose strides are read."""
        return (self.of,) if self.to is None else (self.of, self.to)

    def measurement(self) -> Facts | None:
        """The worker sends what is known of the values."""
        return {"of": self.of, **({} if self.to is None else {"to": self.to})}

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge each selected tensor. The judgement shows the first that fails."""
        tensors = facts.measured["tensors"]
        chosen = self._chosen(len(tensors))
        if not chosen or max(chosen) >= len(tensors):
            return [
                Verdict.error(
                    f"tensors {chosen or 'at all'} of {self.of}", f"{len(tensors)} tensors"
                )
            ]
        others = facts.measured.get("others", tensors)
        if len(others) != len(tensors):
            return [
                Verdict.failed(
                    f"{len(others)} tensors in {self.of}, as in {self.to}", str(len(tensors))
                )
            ]
        judgements = []
        for index in chosen:
            tensor, other, where = tensors[index], others[index], f"{self.of}[{index}]"
            observed = f"shape {tensor['shape']}, strides {tensor['strides']}"
            judged = Verdict.passed(f"{where} with strides {self.equals}", observed)
            if self.to is not None:
                expected = f"{where} with strides {other['strides']}, as {self.to}"
                judged = Verdict.of(_steps(tensor) == _steps(other), expected, observed)
            elif self.equals is not None and tensor["strides"] != self.equals:
                judged = Verdict.failed(judged.expected, observed)
            elif self.contiguous is not None:
                format_ = (
                    self.contiguous if isinstance(self.contiguous, str) else "contiguous_format"
                )
                required = self.contiguous is not False
                expected = f"{where} {'' if required else 'not '}contiguous as {format_}"
                judged = Verdict.of((format_ in tensor["formats"]) is required, expected, observed)
            judgements.append(judged)
        return [
            next(
                (judged for judged in judgements if judged.status is not Status.HELD), judgements[0]
            )
        ]

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Each selected tensor on its own, with other strides and formats."""
        tensors = facts.measured["tensors"]
        for index in self._chosen(len(tensors)):
            tensor = tensors[index]
            others = {}
            if self.equals is not None or self.to is not None or self.contiguous is None:
                others["another stride"] = {
                    **tensor,
                    "strides": [stride + 1 for stride in tensor["strides"]] or [1],
                }
            if self.contiguous is not None:
                others["another layout"] = {
                    **tensor,
                    "formats": [name for name in _FORMATS if name not in tensor["formats"]],
                }
            for name, other in others.items():
                changed = facts.with_measured(
                    tensors=[*tensors[:index], other, *tensors[index + 1 :]]
                )
                yield Mutant(name, changed, where=f"{self.of}[{index}]")

    def _chosen(self, count: int) -> list[int]:
        if self.output is None:
            return list(range(count))
        return [self.output] if isinstance(self.output, int) else list(self.output)


def _steps(tensor: Facts) -> list[tuple[int, int]]:
    """Return size and stride of each dimension.

    Of one element, and where there is none, the stride of a dimension says nothing.
    """
    pairs = list(zip(tensor["shape"], tensor["strides"], strict=True))
    return [(size, 0 if size == 1 or 0 in tensor["shape"] else stride) for size, stride in pairs]


_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d")


WEAK = "<weak>"
"""The name of the worker's weak references; they are keyed by the names of the expectations."""


def measure_dead(arguments: Facts, value: Lookup) -> Json:
    """Measure in the worker, for each name: whether the object existed, its type, and whether it is
    alive.
    """
    import gc

    gc.collect()
    weak = value(WEAK)
    return {name: weak[name].state() for name in arguments["objects"]}


@frozen
class Dead(Kind):
    """Objects that were alive when the case began and that have been freed: attributes of the
    function, of inputs, of values of let.

    ``dead: [function.weight]``
    """

    about = About.ANYTHING
    form = Form(
        {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "string", "pattern": r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+$"},
        }
    )
    measure = staticmethod(measure_dead)
    needs_result = False
    names_objects = True
    objects: tuple[str, ...]
    """No names of values, because the step must not hold them: they are looked up once, as the case
    begins.
    """

    @classmethod
    def read(cls, body: Json) -> "Dead":
        """Return the expectation with a tuple, whose text is a part of the digest of a case."""
        return cls(objects=tuple(body))

    def measurement(self) -> Facts:
        """The worker collects garbage and checks its weak references."""
        return {"objects": list(self.objects)}

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge each object on its own. An object that never existed is an error."""
        for name in self.objects:
            fact, expected = facts.measured[name], f"{name} is freed"
            if not fact["was"]:
                why = f"it did not exist at the beginning of the case: {fact['type']}"
                yield Verdict.error(expected, why, leaf=name)
            else:
                observed = f"a {fact['type']}, {'still alive' if fact['alive'] else 'freed'}"
                yield Verdict.of(fact["alive"] is False, expected, observed, leaf=name)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Each object on its own, still alive."""
        for name in self.objects:
            alive = {**facts.measured, name: {**facts.measured[name], "alive": True}}
            yield Mutant("still alive", replace(facts, measured=alive), leaf=name)
