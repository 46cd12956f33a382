"""Faults of side effects: what a compiled call changes in addition to its result."""

from tools.faults.fault import CONFIG_KEY, OPTIONS_KEY, Fault
from tools.planting import answers, bite, replace


def random_number_drawn_by_each_graph() -> None:
    def drawing(target):
        def call(graph, inputs):
            import torch

            bite(torch.rand(1))
            return target(graph, inputs)

        return call

    replace("torch._inductor.output_code:CompiledFxGraph.__call__", drawing)


FAULTS = (
    Fault(
        "random-number-drawn-by-each-graph",
        random_number_drawn_by_each_graph,
        "Each call of a graph advances the generator of random numbers",
        ("padding/mm-zero-padded-inner-size[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        "writes-hidden-from-autograd",
        answers("torch.autograd.graph:increment_version"),
        "A write to an argument does not advance its version counter",
        ("basics/indexing-writes[backend=cpu]",),
        OPTIONS_KEY,
    ),
)
