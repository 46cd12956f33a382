"""The measurements of expectations. Only a worker imports this module."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations import again, close_measure, compilation, compiled_kernels, emitted, raises, samples, texts, values
from runner.vocabulary.expectations.again import Repeat
from runner.vocabulary.expectations.compilation import COMPILATION

MEASURES: Mapping[str, Callable[[Mapping[str, Any], Callable[[str], Any]], Json]] = {
    "close": close_measure.measure,
    "equals": values.measure_equality,
    "differs": values.measure_equality,
    "raises": raises.measure,
    "strides": values.measure_strides,
    "filecheck": emitted.measure_words,
    "text": texts.measure_text,
    "log": texts.measure_log,
    "dead": values.measure_dead,
    "kernels": lambda arguments, value: value(f"{COMPILATION}kernels"),
    "graph": compilation.measure_graph,
    "guards": lambda arguments, value: value(f"{COMPILATION}guards"),
    "recompiles": lambda arguments, value: value(f"{COMPILATION}recompiles"),
    "graph_breaks": lambda arguments, value: value(f"{COMPILATION}graph_breaks"),
    samples.KIND: samples.measure,
    "resources": compiled_kernels.measure_resources,
    "metadata": compiled_kernels.measure_metadata,
}
"""Measurements in the worker, by kind. Kinds that use only the facts of every step are absent."""

REPEATS: Mapping[str, Repeat] = {
    "deterministic": again.repeat_deterministic,
    "batch_invariant": again.repeat_batch_invariant,
    "poisoned": again.repeat_poisoned,
    "candidates": again.repeat_candidates,
}
"""Measurements in the worker that call the function of the step again, by kind. They run after the last step."""

ALWAYS_MEASURED = ("raises", "filecheck", "log", "dead", "kernels", "graph", "guards", "recompiles", "graph_breaks")
"""Kinds that need no result and are measured after an exception too."""
