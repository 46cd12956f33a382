"""Modes that see each operator: the formats that values were rounded to, and a function in
float64.
"""

import functools
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import torch
import torch._decomp
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from torch_conformance.vocabulary.expectations.calibrated import FORMATS, LEAST_NEIGHBOURS
from torch_conformance.vocabulary.expectations.calibrated import wide as to_wide

Function = Callable[..., object]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
"""What an operator, or a function of torch, is called with."""

_COPIES = (torch.ops.aten.clone, torch.ops.aten._to_copy, torch.ops.aten.copy_)
"""Operators that round only where they change the dtype."""

_SELECTIONS = (torch.ops.aten.segment_reduce,)
"""Operators whose backward looks for numbers that equal the result, which may be another operand's:
an initial value.
"""

_MOVES = frozenset(
    "amax amin cat constant_pad_nd embedding flip gather index index_select max min roll "
    "stack take".split()
)
"""Operators whose results have numbers of their operands: no implementation rounds any."""

_NORMS = (
    "native_batch_norm",
    "cudnn_batch_norm",
    "batch_norm",
    "native_layer_norm",
    "native_group_norm",
)
"""Operators whose backward adds many numbers within, and whose results show the error of these
sums: they are jittered sum by sum.
"""

_NARROW = ("bfloat16", "float16")
"""The formats that are recorded.

A rounding to float8 is a part of the function: float64 has it, and no jitter changes it.
"""

_WRITTEN = ("running_mean", "running_var")
"""Arguments that batch norms change although some schemas do not say so."""


class OperatorMode(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch: Any
    """A dispatch mode that passes each operator to ``call``."""

    sees_inner_tensors: ClassVar[bool] = False
    """Whether wrapper subclasses are left out: these call operators on their inner tensors, which
    the mode gets then.
    """

    def call(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Call the operator; return its result."""
        return func(*args, **kwargs)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Iterable[type],
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> object:
        """Pass the operator to ``call``."""
        if self.sees_inner_tensors and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented
        return self.call(func, args, kwargs or {})


class Roundings(OperatorMode):
    """Records for each storage the narrowest of bfloat16 and float16 to which operators rounded its
    values, or the values that these were computed from.

    Inputs count as not rounded; so do values that follow only from indices, masks or shapes.
    """

    def __init__(self) -> None:
        super().__init__()
        # a weak reference keeps the address of a storage that was freed from being used again
        self._narrowest: dict[int, tuple[StorageWeakRef, str]] = {}
        self.draws: list[list[torch.dtype]] = []
        """The dtypes of the operands of each operator that drew random numbers."""

    def call(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Call the operator, then record the formats of its results."""
        if _draws(func):
            self.draws.append([tensor.dtype for tensor in tensor_leaves((args, kwargs))])
        operands = _tensors((args, kwargs))
        operand_storages = storages_of(operands)
        result = func(*args, **kwargs)
        if isinstance(func, torch._ops.OpOverload):
            before = "" if reads_only_shapes(func) else min_of(*map(self.narrowest, operands))
            for tensor in _written(func, args, kwargs, operand_storages, result):
                name = _name(tensor)
                if name not in _NARROW or _is_exact_copy(func, operands, name):
                    name = ""  # not rounded: a wider format, or a copy in the dtype of the original
                if name := min_of(before, name, self.narrowest(tensor)):
                    for address, storage in storages_of(tensor).items():
                        self._narrowest[address] = storage, name
        return result

    def narrowest(self, value: object) -> str:
        """Return the narrowest format to which the values of a tensor were rounded; empty if no
        operator rounded them, or ``value`` is not a tensor.
        """
        storages = self._narrowest.keys() & storages_of(value).keys()
        return min_of(*(self._narrowest[storage][1] for storage in storages))


_PRODUCTS = re.compile(
    r"(add|badd|addb)?(b?mm|mv|r)|v?dot|bilinear|_trilinear|.*conv(olution)?[_0-9a-z]*"
    r"|_.*attention.*|(mkldnn_)?linear(_backward)?|mkldnn_rnn_layer.*"
)
"""Operators that multiply and add, by their names."""

TF32 = "tf32"
"""The format of operands that has no dtype in torch: a fraction of ten bits in 32."""


class InFormat(OperatorMode):
    """Computes products of float32 tensors in another format, which a compiler declares.

    With a generator, operands in tf32 are rounded up or down at random.
    """

    def __init__(self, form: str, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self._form, self._generator = form, generator
        self.has_rounded = False
        """Whether there was such a product."""

    def call(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Call the operator. For a product, round its operands, and its result too if the format is
        a dtype.
        """
        if (
            not isinstance(func, OpOverload)
            or not _PRODUCTS.fullmatch(operator_of(func))
            or func._schema.is_mutable
            or all(operand.dtype is not torch.float32 for operand in _tensors((args, kwargs)))
        ):
            return func(*args, **kwargs)
        self.has_rounded = True
        if self._form == TF32:
            with _disable_current_modes():
                round_ = functools.partial(_in_tf32, generator=self._generator)
                rounded = pytree.tree_map_only(torch.Tensor, round_, (args, kwargs))
            return func(*rounded[0], **rounded[1])
        dtype = getattr(torch, self._form)

        def cast(tensor: torch.Tensor, before: torch.dtype, after: torch.dtype) -> torch.Tensor:
            return tensor.to(after) if tensor.dtype is before else tensor

        narrow = functools.partial(cast, before=torch.float32, after=dtype)
        wide = functools.partial(cast, before=dtype, after=torch.float32)
        operands = pytree.tree_map_only(torch.Tensor, narrow, (args, kwargs))
        return pytree.tree_map_only(torch.Tensor, wide, func(*operands[0], **operands[1]))


def _in_tf32(tensor: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Return a float32 tensor rounded to the ten fraction bits of tf32: to nearest, or with a
    generator up or down at random. Other dtypes are returned unchanged.
    """
    if tensor.dtype is not torch.float32:
        return tensor
    unit = 1 << (23 - FORMATS[TF32].bits)
    more = (
        torch.full(tensor.shape, unit // 2, dtype=torch.int32)
        if generator is None
        else torch.randint(unit, tensor.shape, generator=generator, dtype=torch.int32)
    )
    bits = (tensor.detach().view(torch.int32) + more.to(tensor.device)) & -unit
    return torch.where(tensor.isfinite(), bits.view(torch.float32), tensor)


class Jittered(OperatorMode):
    """Changes each rounded result of an operator by a random amount of up to ``amplitude`` ulp:
    eager with other roundings.

    The change of the final answer is the error that rounding explains, for any function. All random
    numbers come from the generator. ``is_fine``: operators that are not pointwise round each of
    their additions, so their operands are jittered by ``AMPLITUDE`` ulp and their results by
    ``SUMMED`` ulp. ``keeps_exact``: results that were not rounded stay unchanged, and so do ties.
    """

    sees_inner_tensors = True

    def __init__(
        self,
        generator: torch.Generator,
        amplitude: float = 1.0,
        *,
        is_fine: bool = False,
        keeps_exact: bool = False,
    ) -> None:
        super().__init__()
        self._generator, self._amplitude, self._is_fine = generator, amplitude, is_fine
        self._keeps_exact = keeps_exact
        self.keeps_copies = False

    def call(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Call the operator, then jitter its floating-point results."""
        if (decomposed := _decompositions().get(func)) is not None:
            with self:
                return decomposed(*args, **kwargs)
        operands = _tensors((args, kwargs))
        operand_storages = storages_of(operands)
        is_rounded = (
            bool(operands)
            and isinstance(func, torch._ops.OpOverload)
            and not (reads_only_shapes(func) or _draws(func))
            and not (self.keeps_copies and func._overloadpacket in _COPIES)
        )
        adds = is_rounded and self._is_fine and not _is_pointwise(func)
        precise = _in_float64(func, args, kwargs) if is_rounded and self._keeps_exact else None
        result = self._of_jittered_operands(func, args, kwargs) if adds else func(*args, **kwargs)
        if is_rounded:
            for tensor in _written(func, args, kwargs, operand_storages, result):
                if func._overloadpacket is torch.ops.aten.sum:
                    # 0 of a sum of -0 that begins with 0: a kernel that adds nothing has -0
                    tensor.copy_(torch.where(tensor == 0, -tensor, tensor))
                is_selected = func._overloadpacket in _SELECTIONS or _is_selection(operands, tensor)
                if not (_is_exact_copy(func, operands, _name(tensor)) or is_selected):
                    times, terms = self._amplitude if _is_wide(tensor) else 1.0, _FEW_TERMS
                    if adds and _is_wide(tensor):
                        times, terms = SUMMED, _FEW_TERMS_FINELY
                    times *= _times(operands, tensor, terms)
                    changed = jittered(tensor, self._generator, times=times)
                    if isinstance(precise, torch.Tensor) and precise.shape == tensor.shape:
                        changed = torch.where(tensor == precise, tensor, changed)
                    tensor.copy_(changed)
        return result

    def _of_jittered_operands(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Return the result of an operator for operands jittered by up to ``AMPLITUDE`` ulp.

        The original operands are used if the operator writes to one, or if it selects among them or
        returns one: such a result is jittered afterwards.
        """
        if any(
            argument.alias_info is not None or argument.name in _WRITTEN
            for argument in func._schema.arguments
        ):
            return func(*args, **kwargs)

        def jitter(leaf: torch.Tensor) -> torch.Tensor:
            is_jittered = _tensors(leaf) and is_strided(leaf) and _is_wide(leaf)
            return jittered(leaf, self._generator, times=AMPLITUDE) if is_jittered else leaf

        operands = pytree.tree_map_only(torch.Tensor, jitter, (args, kwargs))
        result = func(*operands[0], **operands[1])
        leaves, tensors = pytree.tree_leaves(result), _tensors(result)
        if len(leaves) != len(tensors) or any(
            _is_selection(_tensors(operands), tensor) for tensor in tensors
        ):
            return func(*args, **kwargs)
        return result


@functools.cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Return decompositions of layer and group norms, of the backward of all norms, and of
    variances, by operator.

    The forward of batch norm is not decomposed: it rarely gets equal numbers, and this takes time.
    """
    names = ["native_layer_norm", "native_group_norm", *(f"{name}_backward" for name in _NORMS)]
    operators = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    return {
        **torch._decomp.get_decompositions(operators),
        **{
            getattr(getattr(torch.ops.aten, name), overload): functools.partial(_deviation, name)
            for name in ("var", "var_mean", "std", "std_mean")
            for overload in ("dim", "correction")
        },
    }


def _deviation(
    name: str,
    numbers: torch.Tensor,
    dim: object = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> object:
    """Return ``torch.var`` or ``torch.std`` as sqrt(sum((x - mean)**2) / (n - correction)); with
    the mean for ``var_mean`` and ``std_mean``.

    If all numbers are equal, the result is the rounding error of the mean.
    """
    dim = dim or list(range(numbers.ndim))
    total = numbers.sum(dim, keepdim=True)
    terms = numbers.numel() / max(total.numel(), 1)
    freedom = terms - (int(unbiased) if correction is None else correction)
    mean = total / max(terms, 1)
    result = (numbers - mean).abs().square().sum(dim, keepdim) / max(freedom, 0)
    result = result.sqrt() if name.startswith("std") else result
    return (result, mean.reshape(result.shape)) if name.endswith("mean") else result


def _in_float64(func: OpOverload, args: Args, kwargs: Kwargs) -> object:
    """Return the result of an operator in float64; None if it draws random numbers or raises."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return None

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(_wider(tensor.dtype), copy=True)

    args, kwargs = pytree.tree_map_only(
        torch.dtype, _wider, pytree.tree_map_only(torch.Tensor, copied, (args, kwargs))
    )
    try:
        return func(*args, **kwargs)
    except Exception:  # an operator may refuse float64 with any exception
        return None


def _is_pointwise(func: OpOverload) -> bool:
    """Whether each element of the results is copied from an operand, or computed from one element
    of each.
    """
    operator = operator_of(func)
    if torch.Tag.pointwise in func.tags or func._overloadpacket in _COPIES or operator in _MOVES:
        return True
    if operator.startswith("_foreach_"):
        single = getattr(torch.ops.aten, operator.removeprefix("_foreach_").removesuffix("_"), None)
        return single is not None and any(
            torch.Tag.pointwise in getattr(single, name).tags for name in single.overloads()
        )
    # the steps of optimizers
    return operator.startswith("_fused_") and operator.endswith("_")


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether a tensor is strided: not sparse, not nested."""
    return tensor.layout is torch.strided and not tensor.is_nested


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether the dtype of a tensor is floating-point or complex."""
    return tensor.is_floating_point() or tensor.is_complex()


def _is_wide(tensor: torch.Tensor) -> bool:
    return bool(torch.finfo(tensor.dtype).eps <= RESOLUTION)


def _is_selection(operands: Sequence[torch.Tensor], result: torch.Tensor) -> bool:
    """Whether each element of a result equals one of the largest operand, as a maximum does.

    Such results are not jittered: nothing was rounded, and the backward searches for equal numbers.
    """
    largest = max(operands, key=torch.Tensor.numel)
    if largest.dtype != result.dtype or largest.numel() > _MOST_COMPARED or result.is_complex():
        return False
    if not (is_strided(largest) and is_strided(result)):
        return False
    # hundreds of runs ask this of each operator; most results fail at the first number or at a few
    numbers, candidates = result.double().reshape(-1), largest.double().reshape(-1)
    return all(
        bool((numbers[first, None] == candidates).any(1).all())
        for first in (slice(1), slice(1, 16))
    ) and bool(torch.isin(numbers, candidates).all())


def _times(operands: Sequence[torch.Tensor], result: torch.Tensor, few: int) -> float:
    """Return the factor, at least 1, for the jitter of a sum of more than ``few`` terms with few
    distinct values: equal terms are all rounded to the same side, as in the gradient of a mean.
    """
    most = max(operand.numel() for operand in operands)
    terms = most / max(result.numel(), 1)
    if terms > few and torch.finfo(result.dtype).eps <= RESOLUTION:
        for operand in operands:
            is_plain = is_strided(operand) and not operand.is_complex()
            if operand.numel() == most and is_plain and _has_few_numbers(operand):
                return float(min(terms, _MOST_TERMS) / few)
    return 1.0


def _has_few_numbers(tensor: torch.Tensor) -> bool:
    """Whether each value of a tensor occurs ``_ALIKE`` times on average, as in the gradient of a
    mean.
    """
    sample = tensor.detach().reshape(-1)[:: -(-tensor.numel() // _MOST_COMPARED) or 1]
    # a few first, as most tensors have more numbers
    return all(
        part.unique().numel() * _ALIKE <= sample.numel()
        for part in (sample[:: sample.numel() // _FEW_TERMS or 1], sample)
    )


_MOST_COMPARED = 1 << 14
"""How many numbers are compared; of terms, evenly spread."""

_FEW_TERMS = 1024
"""So many equal terms jitter their sum by one unit. Added one after the other, n of them are off by
n/30 units at the median of 60 sums and by n/10 at most, which the bounds are just above."""

_FEW_TERMS_FINELY = 32
"""The same for ``SUMMED`` units."""

_MOST_TERMS = 1 << 16
"""Longer sums are added in parts."""

_ALIKE = 64
"""How often a number occurs, at least and on average, among equal terms."""


def jittered(
    tensor: torch.Tensor, generator: torch.Generator, least: float = 2.0**-7, times: float = 1.0
) -> torch.Tensor:
    """Return a tensor of the same shape and dtype, with each element x changed by up to
    |x| * eps * ``times``, where eps is that of the dtype.

    A tensor of whole numbers is returned unchanged: it has counts, or is a mask. So is one with an
    eps above ``least``: a rounding to float8 is a part of the function. If there are few distinct
    values, equal ones get the same change: an operator rounds equal results equally, and a sum of
    them is always rounded to the same side.
    """
    if tensor.is_complex():
        return torch.view_as_complex(
            jittered(
                torch.view_as_real(tensor.detach().resolve_conj()).contiguous(),
                generator,
                least,
                times,
            )
        )
    eps = torch.finfo(tensor.dtype).eps
    if eps > least:
        return tensor.detach()
    numbers = tensor.detach().to(torch.float64)
    changes = (torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * 2 - 1).to(
        tensor.device
    ) * (eps * times)
    if numbers.numel() >= _ALIKE and _has_few_numbers(numbers):
        distinct, places = numbers.unique(return_inverse=True)
        changes = changes.reshape(-1)[: distinct.numel()][places]
    is_integer = numbers == numbers.to(torch.int64)  # in a tenth of the time of trunc
    is_whole = (is_integer & (numbers.abs() * eps < 1)) | ~numbers.isfinite()
    return tensor.detach() if bool(is_whole.all()) else (numbers * (1 + changes)).to(tensor.dtype)


RESOLUTION = torch.finfo(torch.float32).eps
"""The coarsest resolution of inputs that are jittered.

Their jitter represents the rounding within an operator: it adds in float32.
"""


AMPLITUDE = 16.0
"""In ulp. Results in wide formats are jittered by this much, and the change of the answer is
divided by it: a change that does not grow with the jitter, as that of a sign, stays small.
"""

SUMMED = AMPLITUDE / 8
"""In ulp. The jitter of a sum whose operands are jittered by ``AMPLITUDE``: compiled sums of
1,000,000 positive terms are up to 5 ulp off, which the bounds are just above.
"""


def min_of(*names: str) -> str:
    """Return the format with the fewest bits, ignoring empty names; empty if there is none."""
    return min((name for name in names if name), key=lambda name: FORMATS[name].bits, default="")


def tensor_leaves(value: object) -> list[torch.Tensor]:
    """Return the tensors among the pytree leaves of a value, without parameters of modules."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _tensors(value: object) -> list[torch.Tensor]:
    return list(filter(is_inexact, tensor_leaves(value)))


def storages_of(value: object) -> dict[int, StorageWeakRef]:
    """Return the storages of the tensors of a value, by address; tensors without a storage have
    none.
    """
    storages: dict[int, StorageWeakRef] = {}
    for tensor in tensor_leaves(value):
        with suppress(RuntimeError, NotImplementedError):
            storage = StorageWeakRef(tensor.untyped_storage())
            storages[storage.cdata] = storage
    return storages


def _written(
    func: OpOverload, args: Args, kwargs: Kwargs, operand_storages: Container[int], result: object
) -> list[torch.Tensor]:
    """Return the floating-point tensors that an operator wrote: new results and changed arguments.

    A result is new if one of its storages is not in ``operand_storages``.
    """
    written = [
        tensor
        for tensor in _tensors(result)
        if any(address not in operand_storages for address in storages_of(tensor))
    ]
    return written + _tensors(list(written_arguments(func, args, kwargs)))


def written_arguments(func: OpOverload, args: Args, kwargs: Kwargs) -> Iterator[object]:
    """Yield the arguments that an operator changes."""
    for index, argument in enumerate(func._schema.arguments):
        if (
            argument.alias_info is not None and argument.alias_info.is_write
        ) or argument.name in _WRITTEN:
            yield args[index] if index < len(args) else kwargs.get(argument.name)


def operator_of(func: OpOverload) -> str:
    """Return the name of an operator, without its library and its overload."""
    return str(func._schema.name.rpartition("::")[2])


def reads_only_shapes(func: OpOverload) -> bool:
    """Whether an operator reads only the shapes of its operands, not their elements."""
    operator = operator_of(func)
    return operator.endswith("_like") or operator.startswith("new_")


def _is_exact_copy(func: OpOverload, operands: Sequence[torch.Tensor], name: str) -> bool:
    """Whether an operator copied its operands without rounding them to the format of its result."""
    bits = [FORMATS[of].bits for operand in operands if (of := _name(operand)) in FORMATS]
    return (
        func._overloadpacket in _COPIES
        and name in FORMATS
        and all(FORMATS[name].bits >= bits_of_operand for bits_of_operand in bits)
    )


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _draws(func: OpOverload) -> bool:
    """Whether an operator draws random numbers; of attention, the operators it may consist of."""
    return torch.Tag.nondeterministic_seeded in func.tags and "attention" not in func._schema.name


_CASTS = (
    torch.Tensor.to,
    torch.Tensor.type,
    torch.Tensor.half,
    torch.Tensor.bfloat16,
    torch.Tensor.float,
)

_REAL = (torch.float32, torch.float16, torch.bfloat16)
_COMPLEX = (torch.complex64, torch.complex32)


class Widened(OperatorMode):
    """Replaces float16, bfloat16 and float32 in arguments of operators by float64, and the complex
    ones by complex128; random numbers are the same as in eager.
    """

    def __init__(self, draws: Sequence[Sequence[torch.dtype]] = ()) -> None:
        super().__init__()
        self.problem = ""
        """Why the result is not a float64 reference; empty if it is one."""
        self.keeps_copies = False
        self._dtypes = iter(draws)
        """The dtypes of the operands of each operator that draws: other dtypes would draw other
        numbers.
        """

    def __enter__(self) -> "Widened":
        """Set the default dtype too."""
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the default dtype."""
        super().__exit__(*error)
        torch.set_default_dtype(self._default)

    def call(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Call the operator with wider arguments."""
        dtype = kwargs.get("dtype") if func._overloadpacket in _COPIES else None
        if _draws(func):
            return self._drawn(func, args, kwargs)
        if func is torch.ops.aten.view.dtype:
            self.problem = "the function reinterprets the bits of a tensor"
        elif not func._schema.is_mutable:
            args, kwargs = pytree.tree_map_only(torch.dtype, _wider, (args, kwargs))
            tensors = tensor_leaves((args, kwargs))
            is_view = any(argument.alias_info is not None for argument in func._schema.arguments)
            if (
                not is_view
                and len(tensors) > 1
                and any(tensor.dtype in (torch.float64, torch.complex128) for tensor in tensors)
            ):
                args, kwargs = pytree.tree_map_only(
                    torch.Tensor, lambda tensor: tensor.to(_wider(tensor.dtype)), (args, kwargs)
                )
        result = func(*args, **kwargs)
        return result.copy_(result.to(dtype)) if self.keeps_copies and dtype in _REAL else result

    def _drawn(self, func: OpOverload, args: Args, kwargs: Kwargs) -> object:
        """Draw random numbers in eager's dtypes, on which the numbers depend, and widen them."""
        dtypes = iter(next(self._dtypes, ()))
        operands = pytree.tree_map_only(
            torch.Tensor, lambda tensor: tensor.to(next(dtypes)), (args, kwargs)
        )
        torch.set_default_dtype(self._default)
        try:
            drawn = func(*operands[0], **operands[1])
        finally:
            torch.set_default_dtype(torch.float64)
        wide = {
            id(narrow): tensor
            for narrow, tensor in zip(
                *map(pytree.tree_leaves, (operands, (args, kwargs))), strict=True
            )
        }
        for narrow in _written(func, operands[0], operands[1], (), ()):
            wide[id(narrow)].copy_(narrow)
        return pytree.tree_map_only(
            torch.Tensor, lambda leaf: wide.get(id(leaf), leaf.to(_wider(leaf.dtype))), drawn
        )


def is_what_casts_lose(eager: object, wide: object, with_casts: object) -> bool:
    """Whether eager's answer depends on the roundings by casts in the function: among 64
    neighbouring elements, a quarter of the float64 answers differ by more than half without these
    roundings, and eager agrees with the answers that have them.

    Roundings of ordinary mixed precision are small compared with the answer.
    """
    leaves = list(filter(is_strided, tensor_leaves((eager, wide, with_casts))))
    if len(leaves) != 3:
        return False
    ours, without, right = map(to_wide, leaves)
    if not len(ours) == len(without) == len(right):
        return False
    difference = (right - without).abs()
    is_other = (difference > torch.maximum(right.abs(), without.abs()) / 2) & (
        (ours - right).abs() <= difference / 16
    )
    rows = is_other.double().split(LEAST_NEIGHBOURS)
    return any(float(row.mean()) >= 1 / 4 for row in rows[: max(len(ours) // LEAST_NEIGHBOURS, 1)])


class Reported(TorchFunctionMode):  # type: ignore[misc]  # mypy does not follow torch: this base class has the type Any
    """Reports the dtype ``narrow`` for float64 tensors to the spec's Python, which reads it in the
    case.

    With ``keeps_casts``, ``mode`` keeps the roundings of explicit casts (``to``, ``half``), not of
    those by autocast or within operators.
    """

    def __init__(self, mode: Widened | Jittered, narrow: torch.dtype, *, keeps_casts: bool) -> None:
        super().__init__()
        self._mode, self._keeps_casts = mode, keeps_casts
        self._reported = {torch.float64: narrow, torch.complex128: narrow.to_complex()}
        self.is_left = False
        """Whether the function computed with numpy, whose operators no mode sees."""
        self.casts = False
        """Whether the function names a cast."""

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        """Replace the result of ``tensor.dtype``."""
        self.is_left |= func in (torch.Tensor.numpy, torch.Tensor.__array__)
        is_cast = func in _CASTS
        self.casts |= is_cast
        self._mode.keeps_copies = is_cast and self._keeps_casts
        result = func(*args, **(kwargs or {}))
        self._mode.keeps_copies = False
        return self._reported.get(result, result) if func == torch.Tensor.dtype.__get__ else result


def narrow_dtype(tensors: Iterable[torch.Tensor]) -> torch.dtype:
    """Return the dtype of the first tensor narrower than float64 (for a complex one, of its parts);
    float32 if there is none.
    """
    real = {torch.complex64: torch.float32, torch.complex32: torch.float16}
    dtypes = (real.get(tensor.dtype, tensor.dtype) for tensor in tensors)
    return next((dtype for dtype in dtypes if dtype in _REAL), torch.float32)


WIDER = {
    **dict.fromkeys(_REAL, torch.float64),
    **dict.fromkeys(_COMPLEX, torch.complex128),
}
NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}
"""Other dtypes for numbers of a dtype; other dtypes remain."""


def _wider(dtype: torch.dtype) -> torch.dtype:
    return WIDER.get(dtype, dtype)


def to_dtypes(tensors: Iterable[torch.Tensor], dtypes: Mapping[torch.dtype, torch.dtype]) -> None:
    """Convert each tensor in place to the dtype that ``dtypes`` has for its own; raise
    ``TypeError`` as ``change`` does.
    """
    change(tensors, lambda tensor: tensor.to(dtypes.get(tensor.dtype, tensor.dtype)))


def change(
    tensors: Iterable[torch.Tensor], changed: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Replace the numbers of each floating-point tensor in place by those that ``changed`` returns,
    of the same shape and any dtype.

    Identity, class, hooks and attributes of tensors are preserved. Each storage is changed once, so
    tensors that share memory still do. Raise ``TypeError`` for tensors that are not plain, and for
    tensors of two dtypes that share memory.
    """
    by_storage: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and is_strided(tensor):
            by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
        elif is_inexact(tensor):
            raise TypeError(
                f"an input is a tensor of another kind: {type(tensor).__name__}, {tensor.layout}"
            )
    for sharing in by_storage.values():
        first = sharing[0]
        if not any(map(is_inexact, sharing)):
            continue
        if len({(tensor.dtype, tensor.is_conj(), tensor.is_neg()) for tensor in sharing}) > 1:
            raise TypeError("two tensors of different dtypes share memory")
        if len(sharing) == 1 and (first.is_contiguous() or not first.numel()):
            first.data = changed(first.detach())
            continue
        # from the first element of any to the last of all, with the gaps between them
        parts = [tensor for tensor in sharing if tensor.numel()]
        start = min(tensor.storage_offset() for tensor in parts)
        ends = (
            tensor.storage_offset()
            + sum(
                (size - 1) * stride
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
            for tensor in parts
        )
        memory = changed(first.detach().as_strided((max(ends) + 1 - start,), (1,), start))
        for tensor in parts:
            tensor.data = memory.as_strided(
                tensor.shape, tensor.stride(), tensor.storage_offset() - start
            )
