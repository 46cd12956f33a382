"""The measurements of ``close`` that need a float64 reference of eager, in the worker: each completes the facts of one comparison."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations.calibrated import FACTOR
from runner.vocabulary.expectations.calibrated_groups import Sample
from runner.vocabulary.expectations.calibrated_measure import (
    NoReference,
    Scale,
    bounds_of,
    changed_elements,
    compare,
    is_reordered,
    scale_of,
)
from runner.vocabulary.expectations.close_measure import accumulated, accumulation_bounds, differences, leaves_of
from runner.vocabulary.expectations.close_words import Judge
from runner.vocabulary.expectations.stand_ins import Comparer, judged_stand_ins
from runner.vocabulary.expectations.tolerances import default_tolerance


@dataclass(frozen=True, slots=True)
class Answers:
    """The runs of eager after the case."""

    again: Any
    """Eager's answer to the same inputs."""
    reference: Any
    """The float64 reference for the same inputs."""
    pairs: Sequence[tuple[Any, Any, float]]
    """Answers of eager with their references, for the same and for nudged inputs, and the resolution of nudged ones."""
    magnitude: Callable[[], Any]
    """Returns the float64 reference for the absolute values of the inputs."""
    through: Sequence[str] = ()
    """For each leaf of the answer the narrowest format that eager rounded its values to on their way; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison whose facts are completed."""

    facts: dict[str, Any]
    arguments: Mapping[str, Any]
    values: Mapping[str, Any]
    """The compared values, by the words ``of``, ``to`` and ``no_worse_than``."""
    comparers: dict[int, Comparer]
    """Filled with what compares other tensors in the same way, by the identity of a leaf's facts."""
    with_stand_ins: bool = True
    """Whether stand-ins are measured, and a histogram of right answers is sent."""
    unwritten: Sequence[Any] = ()
    """For each leaf a mask of the elements that eager left as they were before, or None; empty for a result."""

    @property
    def fact(self) -> str:
        """The name of the facts."""
        return "accumulate" if self.arguments["judge"] == Judge.ACCUMULATE.value else "calibrated"


def add_reference(comparison: Comparison, answers: Callable[[], Answers]) -> None:
    """Add the facts to each leaf of two tensors, or ``why_not``."""
    try:
        _add_leaves(comparison, answers())
    except NoReference as why:
        _refuse(comparison, str(why))
    except Exception as error:  # code of a spec may raise anything when it is called again
        _refuse(comparison, f"{type(error).__name__}: {error}"[:200])


def _refuse(comparison: Comparison, why: str) -> None:
    for leaf in comparison.facts["leaves"]:
        leaf[comparison.fact] = {"why_not": why}


def _add_leaves(comparison: Comparison, answers: Answers) -> None:
    own = {word: leaves_of(value) for word, value in comparison.values.items()}
    runs = [leaves_of(answers.again), leaves_of(answers.reference)]
    pairs = [(leaves_of(one), leaves_of(right), step) for one, right, step in answers.pairs]
    if comparison.fact == "accumulate":
        runs.append(leaves_of(answers.magnitude()))
    everything = [*own.values(), *runs, *(part for one, right, _ in pairs for part in (one, right))]
    if any(len(one) != len(comparison.facts["leaves"]) for one in everything):
        raise NoReference("another run of eager gives another structure")
    for index, leaf in enumerate(comparison.facts["leaves"]):
        if leaf["type"] != "tensor" or leaf["reference_type"] != "tensor" or leaf["shape"] != leaf["reference_shape"]:
            continue
        try:
            samples = [Sample(one[index], right[index], step) for one, right, step in pairs]
            scale = _scale(leaf, own["to"][index], [run[index] for run in runs], samples, _through(comparison, answers, index))
            if "no_worse_than" in own:
                _check_other(own["no_worse_than"][index], own["to"][index], comparison.arguments["no_worse_than"])
                scale = scale_of([Sample(own["no_worse_than"][index], runs[1][index])], own["no_worse_than"][index], runs[1][index])
            _add(comparison, leaf, own["of"][index], scale, runs[-1][index])
            if comparison.unwritten and comparison.unwritten[index] is not None:
                changed = changed_elements(own["of"][index], scale, comparison.unwritten[index])
                leaf[comparison.fact].update({"unwritten": changed} if changed else {})
        except NoReference as why:
            leaf[comparison.fact] = {"why_not": str(why)}
        except Exception as error:  # an operation that this leaf's dtype or layout lacks: the other leaves are judged
            leaf[comparison.fact] = {"why_not": f"{type(error).__name__}: {error}"[:200]}


def _check_other(other: Any, eager: Any, name: str) -> None:
    form, expected = ((list(getattr(one, "shape", [])), getattr(one, "dtype", type(one).__name__)) for one in (other, eager))
    if form != expected:
        raise NoReference(
            f"'{name}' has a value of shape {form[0]} and dtype {form[1]}, eager of shape {expected[0]} and dtype {expected[1]}"
        )


def _through(comparison: Comparison, answers: Answers, index: int) -> str:
    # the bound of an accumulation is one of its own dtype
    return answers.through[index] if answers.through and comparison.fact == "calibrated" else ""


def _scale(leaf: Mapping[str, Any], eager: Any, runs: Sequence[Any], samples: Sequence[Sample], through: str) -> Scale:
    if leaf["dtype"] != leaf["reference_dtype"]:
        raise NoReference("the dtypes differ")
    everything = [*runs, *(part for sample in samples for part in (sample.answer, sample.reference))]
    if any(getattr(part, "shape", None) != eager.shape for part in everything):
        raise NoReference("another run of eager gives another shape")
    if not (eager.is_floating_point() or eager.is_complex()):
        raise NoReference(f"values of dtype {leaf['dtype']} are exact")
    again, *references = runs
    if any(part.element_size() != (16 if part.is_complex() else 8) for part in [*references, *(sample.reference for sample in samples)]):
        raise NoReference("the function computes in a narrower dtype than float64 itself")
    rtol, atol = default_tolerance(leaf["dtype"])
    apart = differences(again, eager, rtol=rtol, atol=atol)
    if apart["nan_mismatches"] or apart["inf_mismatches"] or (apart["mismatches"] and not is_reordered([eager, again], references[0])):
        raise NoReference("a second run of eager gives another answer")
    return scale_of(samples, eager, references[0], through)


def _add(comparison: Comparison, leaf: dict[str, Any], actual: Any, scale: Scale, magnitude: Any) -> None:
    arguments = comparison.arguments
    factor = arguments.get("factor") or FACTOR
    right = scale.eager.reshape(actual.shape).to(actual.dtype)
    if comparison.fact == "accumulate":
        length, dtype = arguments["accumulate"]["length"], arguments["accumulate"].get("dtype", "float32")

        def facts_of(tensor: Any) -> dict[str, Any]:
            return {"accumulate": accumulated(tensor, scale, magnitude, length, dtype)}

        bounds = accumulation_bounds(scale, magnitude, length, dtype)
    else:
        bounds = bounds_of(scale, factor)

        def facts_of(tensor: Any) -> dict[str, Any]:
            found = compare(tensor, scale, factor, equal_nan=arguments["equal_nan"])
            if not (comparison.with_stand_ins or found["outside"]):
                found.pop("histogram", None)
            return {"calibrated": found}

    def comparer(tensor: Any) -> dict[str, Json]:
        found = facts_of(tensor)
        mismatches = differences(tensor, right, rtol=leaf["rtol"], atol=leaf["atol"], equal_nan=arguments["equal_nan"])
        found[comparison.fact].pop("histogram", None)
        return {**found, **{name: mismatches[name] for name in ("nan_mismatches", "inf_mismatches", "excess")}}

    leaf.update(facts_of(actual))
    if not comparison.with_stand_ins:
        return
    leaf["stand_ins"] = {**leaf.get("stand_ins", {}), **judged_stand_ins(right, bounds.reshape(actual.shape), comparer)}
    comparison.comparers[id(leaf)] = comparer
