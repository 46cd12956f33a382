"""torch's database of operators: the operators with their samples."""

import contextlib
import importlib
import importlib.util
import itertools
import random
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy
import torch

from torch_conformance.worker.torch_compat import sample_forms
from torch_conformance.worker.torch_compat.sample_forms import RESIZED

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo

_DATABASE = "torch.testing._internal.common_methods_invocations"


@dataclass(frozen=True, slots=True)
class Sample:
    """One call: its positional arguments, the first of which is the operator's input, and its
    keyword arguments.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    form: str = ""
    """The form of ``sample_forms`` that it was given; empty for a sample of the database."""

    @property
    def text(self) -> str:
        """The form as the description of the sample begins with it."""
        return f"{self.form}: " if self.form else ""

    @property
    def is_further_call(self) -> bool:
        """Whether what was compiled for the sample before is called."""
        return self.form == RESIZED


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the database, for one dtype and one way to call it."""

    entry: Any
    dtype: torch.dtype
    device: str
    function: Callable[..., Any]
    takes_gradients: bool
    """Whether its samples require gradients."""
    is_in_place: bool = False
    takes_out: bool = False

    def samples(self, most: int | None) -> list[Sample]:
        """Return the first samples, all for None, drawn from the current seed of torch's generator.

        Some samples are drawn by Python's ``random`` and by numpy: these have the same seed, and
        their state is restored. An in-place call gets no sample whose input is broadcast: eager
        refuses it.
        """
        python, of_numpy = random.getstate(), numpy.random.get_state()
        seed = torch.initial_seed()
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        try:
            samples = self.entry.sample_inputs(
                self.device, self.dtype, requires_grad=self.takes_gradients
            )
            usable = (
                sample for sample in samples if not (self.is_in_place and sample.broadcasts_input)
            )
            return [
                Sample((sample.input, *sample.args), dict(sample.kwargs))
                for sample in itertools.islice(usable, most)
            ]
        finally:
            random.setstate(python)
            numpy.random.set_state(of_numpy)


def in_forms(
    operator: Operator, samples: list[Sample], forms: Sequence[str]
) -> Iterator[tuple[int, Sample]]:
    """Yield numbered samples that are transformed into the given forms; numbers continue after
    those of ``samples``. A form that is a further call follows its original sample.
    """
    calls = [(sample.args, sample.kwargs) for sample in samples]
    transformed = sample_forms.in_forms(operator.function, calls, forms)
    for number, (base, form, args, kwargs) in enumerate(transformed, len(samples)):
        sample = Sample(args, kwargs, form)
        yield from [(base, samples[base])] * sample.is_further_call
        yield number, sample


def placed(copy: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor, as far from the beginning of its memory as a form placed it."""
    return sample_forms.at_offset(copy) if sample_forms.is_at_offset(tensor) else copy


def database() -> list[Any]:
    """Return the entries of torch's database of operators."""
    with contextlib.ExitStack() as undo:
        if _DATABASE not in sys.modules and importlib.util.find_spec("expecttest") is None:
            # torch's test modules only derive a class from its TestCase
            stand_in: Any = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase
            sys.modules["expecttest"] = stand_in
            undo.callback(sys.modules.pop, "expecttest")
        # what these modules change in torch at import: calls of scripts, and the right to set the
        # flags of backends
        undo.callback(torch.set_rng_state, torch.get_rng_state())
        for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
            undo.callback(setattr, kind, "__call__", kind.__call__)
        undo.enter_context(mock.patch.object(torch.backends, "disable_global_flags"))
        module: Any = importlib.import_module(_DATABASE)
    # of random operators the database holds functions that set a seed within, by a context that
    # dynamo cannot trace; both sides share the state of the generators
    module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    entries: list[Any] = module.op_db
    return entries


def find(
    name: str, variant: str, *, dtype: str, device: str, call: str, gradients: bool
) -> Operator:
    """Return an operator of the database; raise ``LookupError`` where this torch does not have it
    for the dtype or the call.
    """
    entry = next(
        (info for info in database() if (info.name, info.variant_test_name) == (name, variant)),
        None,
    )
    if entry is None:
        raise LookupError(
            f"torch {torch.__version__} has no operator "
            f"'{name}'{f' ({variant})' if variant else ''} in its database"
        )
    kind, torch_dtype = torch.device(device).type, getattr(torch, dtype)
    if torch_dtype not in entry.supported_dtypes(kind):
        raise LookupError(
            f"torch {torch.__version__} has no samples of '{name}' for {dtype} on {kind}"
        )
    function = function_of(entry, call)
    if function is None:
        raise LookupError(f"torch {torch.__version__} has no call '{call}' of '{name}'")
    # a leaf that requires gradients cannot be changed in place, and a function with out= has no
    # gradients
    takes = (
        gradients
        and call == "function"
        and entry.supports_autograd
        and torch_dtype in entry.supported_backward_dtypes(kind)
    )
    return Operator(
        entry,
        torch_dtype,
        device,
        function,
        takes,
        is_in_place=call == "inplace",
        takes_out=call == "out",
    )


def function_of(entry: "OpInfo", call: str) -> Callable[..., Any] | None:
    """Return what is called: the operator's function, also with ``out=``, or its in-place method;
    None where it has none.
    """
    if call == "out" and not entry.supports_out:
        return None
    return entry.inplace_variant if call == "inplace" else entry.op


def announce_sample(index: int, text: str) -> None:
    """Write to standard error which sample begins: after a crash or a timeout the end of it is
    shown.
    """
    print(f"sample {index}: {text}", file=sys.stderr, flush=True)
