"""From a Python test to a spec that validates."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from runner.core.diagnostics import Diagnostic, errors
from runner.language.authoring.drafting import Draft, spec_name, written
from runner.language.authoring.driven.spec import driven
from runner.language.authoring.points import axes_to_pin, points, suffix
from runner.language.authoring.python_file import PythonFile, Test
from runner.language.authoring.reading import Reading, TooLarge
from runner.language.authoring.rules import RULES
from runner.language.authoring.values import Expectation, NotCarried, Step
from runner.language.authoring.whole_test import read_test

Attempt = Callable[[PythonFile, Test, Mapping[str, int]], tuple[Reading, Draft]]


def draft(file: PythonFile, test: Test, *, may_drive: bool = True) -> Draft:
    """Return the spec of a test. What cannot be carried is named in it; without a text nothing could be carried.

    With ``may_drive``, a test that is not whole as calls of a function becomes one step that runs its Python, where that is whole.
    """
    reading, made = _attempt(file, test, {})
    if made.state == "whole":
        return made
    found = _of_points(file, test, reading.axes, _attempt) if reading.axes else None
    return found or (_driven(file, test) if may_drive else None) or made


def _driven(file: PythonFile, test: Test) -> Draft | None:
    """Return the whole spec of a test whose Python drives torch by itself; None where that is not whole either."""
    reading, made = _attempt_driven(file, test, {})
    if made.state != "whole" and reading.axes:
        return _of_points(file, test, reading.axes, _attempt_driven)
    return made if made.state == "whole" else None


def _attempt_driven(file: PythonFile, test: Test, pinned: Mapping[str, int]) -> tuple[Reading, Draft]:
    reading = Reading(file=file, test=test, rules=RULES, pinned=pinned)
    try:
        text = driven(reading)
        problems = problems_of(text, spec_name(test.name))
        if not problems:
            return reading, _draft_of(reading, text)
        reading.lose(test.function.lineno, f"the spec would not validate: {problems[0].message}")
    except NotCarried as error:
        reading.lose(test.function.lineno, str(error))
    except (TooLarge, RecursionError):
        reading.lose(test.function.lineno, "the test is too large")
    return reading, _draft_of(reading, "")


def _attempt(file: PythonFile, test: Test, pinned: Mapping[str, int]) -> tuple[Reading, Draft]:
    reading = Reading(file=file, test=test, rules=RULES, pinned=pinned)
    try:
        read_test(reading)
        return reading, _valid(reading)
    except NotCarried as error:
        reading.lose(test.function.lineno, str(error))
    except TooLarge:
        reading.lose(test.function.lineno, "the test is too large")
    except RecursionError:
        reading.lose(test.function.lineno, "the test is nested too deeply")
    return reading, _draft_of(reading, "")


def _of_points(file: PythonFile, test: Test, axes: Mapping[str, list[str]], attempt: Attempt) -> Draft | None:
    """Return the specs of a test that does different things for different values; None where they are not whole either."""
    found: dict[tuple[tuple[str, int], ...], tuple[Reading, Draft]] = {}

    def made_of(point: Mapping[str, int]) -> tuple[Reading, Draft]:
        return found.setdefault(tuple(point.items()), attempt(file, test, point))

    def is_whole(point: Mapping[str, int]) -> bool:
        reading, made = made_of(point)
        return made.state == "whole" and all(reading.axes.get(name) == axes[name] for name in point)

    names = axes_to_pin(axes, is_whole)
    chosen = points(axes, names) if names else []
    if not chosen or not all(is_whole(point) for point in chosen):
        return None
    texts = [(suffix(axes, point), made_of(point)[1]) for point in chosen]
    if len({words for words, _ in texts}) != len(texts):
        texts = [(str(index + 1), made) for index, (_, made) in enumerate(texts)]
    name = spec_name(test.name)
    notes = tuple(sorted({note for _, made in texts for note in made.notes}))
    return Draft(test=test.name, specs=tuple((f"{name}-{words}", made.text) for words, made in texts), lost=(), notes=notes)


def _draft_of(reading: Reading, text: str) -> Draft:
    specs = ((spec_name(reading.test.name), text),) if text else ()
    return Draft(test=reading.test.name, specs=specs, lost=tuple(sorted(reading.lost)), notes=tuple(sorted(reading.notes)))


def _valid(reading: Reading) -> Draft:
    """Return a draft without the parts that ``validate`` refuses."""
    for _ in range(_MOST_ATTEMPTS):
        text = written(reading)
        problems = problems_of(text, spec_name(reading.test.name))
        if not problems:
            return _draft_of(reading, text)
        _without(problems[0], text, reading)
    raise NotCarried("the spec does not validate")


_MOST_ATTEMPTS = 12


def problems_of(text: str, name: str) -> list[Diagnostic]:
    """Return the errors of a spec, in order."""
    from runner.language.load import inspect

    with tempfile.TemporaryDirectory(prefix="torch-conformance-new-") as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return sorted(errors(inspect([path]).problems))


def _without(problem: Diagnostic, text: str, reading: Reading) -> None:
    """Remove the expectation or the option that a problem is about; raise ``NotCarried`` where it is about something else."""
    said = problem.message + (f" ({problem.hint})" if problem.hint else "")
    found = _expectation_at(problem, text, reading)
    if found is not None:
        step, expectation = found
        step.expects.remove(expectation)
        reading.lose(expectation.line, said)
        return
    for options in [reading.config, *reading.block_configs[:1]]:
        for section in options.values():
            name = next((name for name in section if f"'{name}'" in problem.message), None)
            if name is not None:
                del section[name]
                reading.lose(reading.test.function.lineno, f"the option '{name}': {said}")
                return
    raise NotCarried(f"the spec would not validate: {said}")


def _expectation_at(problem: Diagnostic, text: str, reading: Reading) -> tuple[Step, Expectation] | None:
    """Return the expectation that a problem is about, by the words of its line."""
    line = text.split("\n")[problem.position.line - 1]
    for step in reading.steps:
        for expectation in step.expects:
            ((kind, value),) = expectation.body.items()
            names = [*value] if kind in ("counter", "metric") else []
            said = any(f"{name}" in problem.message for name in names)
            if said or (kind in ("filecheck", "raises", "generated_files", "equals", "differs") and kind in f"{line} {problem.message}"):
                return step, expectation
    return None
