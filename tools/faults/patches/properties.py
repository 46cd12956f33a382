"""Faults of side effects: what a compiled call changes beside its result."""

from tools.faults.planting import bite, replace


def random_number_drawn_by_each_graph() -> None:
    def drawing(target):
        def call(graph, inputs):
            import torch

            bite(torch.rand(1))
            return target(graph, inputs)

        return call

    replace("torch._inductor.output_code:CompiledFxGraph.__call__", drawing)


def writes_hidden_from_autograd() -> None:
    replace("torch.autograd.graph:increment_version", lambda _: lambda tensors: bite())
