"""Shared by ``text``, ``log`` and ``exit``: expected parts of a text, and a regular expression."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from runner.core.conditions import Surroundings, choose
from runner.core.expectation import Status
from runner.core.matching.patterns import check_pattern, search
from runner.core.matching.time_limit import PatternTooSlow
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, StepFacts
from runner.vocabulary.expectations.counts import check_count, count_mutants, parse_count

MOST = 1_000_000
"""The maximum length of a text from the worker, in characters, counted from the end."""


TEXT_MUTATIONS = ("its part removed", "its match removed")
"""The mutants of a text."""

LACKED = "a lacked part added"
"""The mutant of a text that must lack parts."""


def parts_of(body: str | list[str] | None) -> tuple[str, ...]:
    """Return the expected parts."""
    return () if body is None else (body,) if isinstance(body, str) else tuple(body)


def check_text(body: Any) -> None:
    """Check the pattern; raise ``BadExpectation``."""
    pattern = body.get("matches")
    reason = check_pattern(pattern) if pattern is not None else None
    if reason is not None:
        raise BadExpectation(f"the pattern is not a regular expression: {reason}", "escape ( ) [ ] { } . * + ? with \\", path=("matches",))
    if pattern is not None and search(pattern, "") is not None:
        raise BadExpectation(
            "the pattern matches an empty text, so it matches every text", "match at least one character", path=("matches",)
        )


def check_lacked(body: Any) -> None:
    """Check that a text can have the parts that it must have without one that it must lack; raise ``BadExpectation``."""
    for part in parts_of(body.get("lacks")):
        if any(part in wanted for wanted in parts_of(body.get("contains"))):
            raise BadExpectation(f"no text contains what it must and lacks {part!r}", "remove one of the two", path=("lacks",))


def check_times(body: Any) -> None:
    """Check how often the parts must be in a text; raise ``BadExpectation``."""
    count = body.get("count")
    if count is None:
        return
    if "contains" not in body:
        raise BadExpectation("count without contains", "write contains: TEXT beside it", path=("count",))
    try:
        check_count(count)
    except BadExpectation as error:
        raise BadExpectation(str(error), error.hint, path=("count", *error.path)) from error
    for value in [entry["value"] for entry in count] if isinstance(count, list) else [count]:
        required = parse_count(value)
        if required.most == 0:
            raise BadExpectation("0 times is no part of a text that contains it", "write lacks: TEXT", path=("count",))
        if required.least == 1 and required.most is None:
            raise BadExpectation("{min: 1} is true for every text that contains it", "remove count", path=("count",))


def judge_times(judged: Judgement, text: str, contains: tuple[str, ...], count: Any, here: Surroundings) -> Judgement:
    """Judge how often each part is in a text of which everything else held. Occurrences do not overlap."""
    applies, value = choose(count, here)
    if count is None or not applies or judged.status is not Status.HELD:
        return judged
    required = parse_count(value)
    expected = f"{judged.expected}, as often as {required}"
    for part in contains:
        number = text.count(part)
        too_many = required.most is not None and number > required.most
        if _may_be_cut(text) and not too_many:
            return Judgement.error("the text is longer than what is kept of it, so its beginning is not known", expected=expected)
        if not required.holds(number):
            return Judgement.failed(expected=expected, observed=f"{part!r} {number} times", detail=text[-4000:])
    return replace(judged, expected=expected)


def times_mutants(
    text: str, contains: tuple[str, ...], count: Any, here: Surroundings, changed: Callable[[str], StepFacts]
) -> Iterator[Mutant]:
    """Yield the text with each part more often and less often. ``changed`` makes facts with a text."""
    for part in contains if count is not None else ():

        def so_often(number: float, part: str = part) -> StepFacts:
            return changed("\n".join([text.replace(part, ""), *[part] * int(number)]))

        yield from count_mutants(count, text.count(part), here, so_often, where=repr(part))


def judge_text(text: str, contains: tuple[str, ...], pattern: str | None, *, what: str, lacks: tuple[str, ...] = ()) -> Judgement:
    """Judge a text. The judgement shows the first part that is missing, or that is there although it must not be."""
    for part in lacks:
        if part in text:
            at = text.index(part)
            return Judgement.failed(expected=f"{what} without {part!r}", observed=_shown(text[max(at - 60, 0) :]), detail=text[-4000:])
    for part in contains:
        if part not in text:
            return Judgement.failed(expected=f"{what} with {part!r}", observed=_shown(text), detail=text[-4000:])
    expected = f"{what} with " + " and ".join([*map(repr, contains), *([f"a match of /{pattern}/"] if pattern else [])])
    expected += "".join(f", without {part!r}" for part in lacks)
    if lacks and _may_be_cut(text):
        return Judgement.error("the text is longer than what is kept of it, so its beginning is not known", expected=expected)
    try:
        matches = pattern is None or search(pattern, text) is not None
    except PatternTooSlow:
        return Judgement.error("pattern too slow", expected=expected)
    return Judgement.of(matches, expected=expected, observed=_shown(text), detail="" if matches else text[-4000:])


def text_mutants(text: str, contains: tuple[str, ...], pattern: str | None, changed: Callable[[str], StepFacts]) -> Iterator[Mutant]:
    """Yield the text without each part, and without the matches of the pattern. ``changed`` makes facts with a text."""
    for part in contains:
        yield Mutant(name="its part removed", facts=changed(text.replace(part, "")), where=repr(part))
    if pattern is None:
        return
    # the text around a removed match may match again
    for _ in range(100):
        found = search(pattern, text)
        if found is None:
            yield Mutant(name="its match removed", facts=changed(text), where=f"/{pattern}/")
            return
        text = text[: found.start()] + text[found.end() :]
    yield Mutant.not_applicable("its match removed", "more than 100 matches", where=f"/{pattern}/")


def lacked_mutants(text: str, lacks: tuple[str, ...], changed: Callable[[str], StepFacts]) -> Iterator[Mutant]:
    """Yield the text with each part that it must lack."""
    for part in lacks:
        yield Mutant(name=LACKED, facts=changed(text + part), where=repr(part))


def _may_be_cut(text: str) -> bool:
    """Whether a text is as long as what is kept: counted in characters or bytes, of which a first one may be half."""
    return len(text.encode("utf-8", "surrogatepass")) > MOST - 8


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return f"{len(text)} characters: {line[:160]}{'...' if len(line) > 160 else ''}" if text else "an empty text"
