"""``raises``: the step ends with a certain exception, which may have a certain cause."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.model.case_facts import Cause
from runner.model.conditions import Surroundings
from runner.model.expectation import Judgement, Mutant, StepFacts
from runner.model.matching.patterns import check_pattern, is_general_pattern, search
from runner.model.matching.time_limit import PatternTooSlow
from runner.model.protocol import Json
from runner.vocabulary.expectations.expectation_base import EAGER, BadExpectation, Conditional, text_of
from runner.vocabulary.expectations.texts import check_searched

_ANOTHER = "another.Error"
_ANOTHER_TEXT = "RuntimeError: an error was raised while torch ran: something else went wrong, it failed with an exception"
_OF_A_TYPO = {
    "builtins.AttributeError": "'thing' object has no attribute 'other'; module 'thing' has no attribute 'other'",
    "builtins.NameError": "name 'other' is not defined",
    "builtins.ImportError": "cannot import name 'other' from 'thing' (unknown location)",
    "builtins.ModuleNotFoundError": "No module named 'other'",
}
"""What an exception of a type says where a name is misspelt."""
_OF_ALMOST_ALL = ("torch._dynamo.exc.TorchDynamoException", "torch._dynamo.exc.TorchRuntimeError")
"""Types that Dynamo raises for failures of many causes, a misspelt name among them."""
_EVERY_EXCEPTION = ("builtins.Exception", "builtins.BaseException", "builtins.object")


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCause:
    """An exception that must be in the chain below the raised one."""

    type: str
    match: str | None = None

    def __str__(self) -> str:
        return _in_words(self.type, self.match)

    def is_in(self, causes: Iterable[Cause]) -> bool:
        """Whether one of the causes has the type and the text; raise ``PatternTooSlow``."""
        return any(
            _is_type(self.type, cause.ancestors) and (self.match is None or search(self.match, cause.message) is not None)
            for cause in causes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Raises(Conditional):
    """``raises: {type: RuntimeError, match: "after Dynamo Freezing", cause: {type: KeyError}}``."""

    kind: ClassVar[str] = "raises"
    mutations: ClassVar[tuple[str, ...]] = (
        "none raised",
        "another type",
        "another text",
        "no cause",
        "another cause",
        "another text of the cause",
        "after the backend",
    )
    type: str | None = None
    match: str | None = None
    cause: WantedCause | None = None
    as_eager: bool = False
    """Whether the exception must be eager's: of the same type and, without ``match``, with the same text."""
    before: str | None = None
    """``backend``: dynamo raised it before the backend got a graph."""

    @property
    def claims_refusal(self) -> bool:
        """Where the spec says so, or eager raises the same."""
        return self.before is not None or self.as_eager

    @property
    def names(self) -> tuple[str, ...]:
        """Eager, where its exception is compared."""
        return (EAGER,) if self.as_eager else ()

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker sends eager's exception where it is compared."""
        return {"as": EAGER} if self.as_eager else None

    @classmethod
    def parse(cls, body: Any) -> "Raises":
        """Read type and pattern."""
        cause = body.get("cause")
        for described, path in ((body, ("match",)), (cause or {}, ("cause", "match"))):
            check_searched(described.get("match"), path, "match at least one character, or leave the pattern out")
        if "as" in body and "type" in body:
            raise BadExpectation("type together with as", "as: eager asks for eager's type; use one of them", path=("type",))
        required_cause = None if cause is None else WantedCause(type=cause["type"], match=cause.get("match"))
        return cls(
            type=body.get("type"),
            match=body.get("match"),
            cause=required_cause,
            when=body.get("when"),
            as_eager="as" in body,
            before=body.get("before"),
        )

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge the type (a subclass passes), then the text, then the chain of causes."""
        eager = facts.measured["eager"] if self.as_eager else None
        if self.as_eager and eager is None:
            return [Judgement.failed(expected="what eager raises", observed="eager raised no exception")]
        type_ = self.type if eager is None else eager["type"]
        expected = _in_words(str(type_), self.match) + (", as eager" if eager else "") + (f", caused by {self.cause}" if self.cause else "")
        expected += f", before the {self.before} gets a graph" if self.before else ""
        if facts.raised is None:
            return [Judgement.failed(expected=expected, observed="no exception")]
        observed = f"{facts.raised.type}: {facts.raised.message.strip().splitlines()[0] if facts.raised.message.strip() else ''}"
        if facts.raised.type != type_ if eager else not _is_type(str(type_), facts.raised.ancestors):
            return [Judgement.failed(expected=expected, observed=observed, detail=facts.raised.traceback)]
        try:
            if eager and self.match is None and facts.raised.message != eager["message"]:
                return [
                    Judgement.failed(
                        expected=f"{expected}: {text_of(eager['message'])}", observed=f"{type_}: {text_of(facts.raised.message)}"
                    )
                ]
            if eager and self.match is not None and search(self.match, eager["message"]) is None:
                return [Judgement.failed(expected=expected, observed=f"eager raised {type_}: {text_of(eager['message'])}")]
            if self.match is not None and search(self.match, facts.raised.message) is None:
                return [Judgement.failed(expected=expected, observed=observed, detail=facts.raised.message)]
            if self.before and (why := _why_not_before(facts)):
                return [Judgement.failed(expected=expected, observed=f"{observed}: {why}", detail=facts.raised.traceback)]
            if self.cause is None or self.cause.is_in(facts.raised.causes):
                return [Judgement.passed(expected=expected, observed=observed)]
        except PatternTooSlow:
            return [Judgement.error("pattern too slow", expected=expected)]
        chain = "; caused by ".join(f"{cause.type}: {cause.message}" for cause in facts.raised.causes)
        return [
            Judgement.failed(
                expected=expected, observed=f"{observed}; caused by {text_of(chain or 'nothing')}", detail=facts.raised.traceback
            )
        ]

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """No exception, one of an unrelated type, another text if the text is expected, and likewise for the cause."""
        if facts.raised is None:
            return
        yield Mutant(name="none raised", facts=replace(facts, raised=None))
        other = replace(facts.raised, type=_ANOTHER, ancestors=(_ANOTHER, *_EVERY_EXCEPTION))
        yield Mutant(name="another type", facts=replace(facts, raised=other))
        if self.match is not None or self.as_eager:
            text = _OF_A_TYPO.get(facts.raised.type, _ANOTHER_TEXT)
            yield Mutant(name="another text", facts=replace(facts, raised=replace(facts.raised, message=text)))
        if self.before and facts.dynamo is not None:
            yield Mutant(name="after the backend", facts=replace(facts, dynamo=replace(facts.dynamo, graphs=1)))
        if self.cause is None:
            return
        yield Mutant(name="no cause", facts=replace(facts, raised=replace(facts.raised, causes=())))
        changes: dict[str, dict[str, Any]] = {"another cause": {"type": _ANOTHER, "ancestors": (_ANOTHER, *_EVERY_EXCEPTION)}}
        if self.cause.match is not None:
            changes["another text of the cause"] = {"message": _ANOTHER_TEXT}
        for name, change in changes.items():
            causes = tuple(replace(cause, **change) for cause in facts.raised.causes)
            yield Mutant(name=name, facts=replace(facts, raised=replace(facts.raised, causes=causes)))


RAISED = "<raised by eager>"
"""The name of the exception of the eager side, which no spec can write."""


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: type and text of the exception of the eager side, None where it raised none."""
    return {"eager": value(RAISED)}


def _why_not_before(facts: StepFacts) -> str:
    """Return why a step does not show that dynamo raised before the backend got a graph; empty where it does."""
    if facts.dynamo is None:
        return "what dynamo did was not recorded"
    if facts.dynamo.graphs:
        return f"the backend had got {facts.dynamo.graphs} graphs of the function"
    return "" if facts.dynamo.frames else "dynamo traced no function of the case: the call was eager"


def is_general(body: Any) -> bool:
    """Whether almost any failure fits: the type is a base class of all exceptions, or a wide one and no ``match`` is specific."""
    name, patterns = body.get("type", "").removeprefix("builtins."), [body.get("match"), (body.get("cause") or {}).get("match")]
    is_specific = any(
        pattern and (check_pattern(pattern) or search(pattern, "") or not is_general_pattern(pattern)) for pattern in patterns
    )
    is_wide = (isinstance(getattr(builtins, name, None), type) or name in _OF_ALMOST_ALL) and not is_specific
    return is_wide or f"builtins.{name}" in _EVERY_EXCEPTION


def _in_words(type_: str, pattern: str | None) -> str:
    return type_ + (f" with text matching /{pattern}/" if pattern else "")


def _is_type(type_name: str, ancestors: tuple[str, ...]) -> bool:
    return (type_name if "." in type_name else f"builtins.{type_name}") in ancestors
