"""The Python script of one sample of an operator: it imports torch alone, and compares the compiled call with eager as the case does."""

from collections.abc import Iterator

from runner.model.case import Case
from runner.plan.worker_plan import seed_of
from runner.vocabulary.steps import SAMPLES

MODULES = {"config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config", "functorch_config": "torch._functorch.config"}
"""The module of torch for each section of options."""

_BODY = '''
entry = next(one for one in database.op_db if (one.name, one.variant_test_name) == ({op!r}, {variant!r}))
function = {function}
gradients = {gradients}


def run(function):
    """Draw the samples again, call one of them, and return what is compared."""
    random.seed({seed})
    numpy.random.seed({seed})
    torch.manual_seed({seed})
    samples = [one for one in entry.sample_inputs({device!r}, {dtype}, requires_grad=gradients){skip}]
    if len(samples) <= {sample}:
        sys.exit(f"there is no sample {sample}: the database has {{len(samples)}}, counted from 0 (repro --sample N takes a smaller N)")
    sample = samples[{sample}]
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    print("arguments:", args, kwargs)
    # copies, as in the case: a sample may be a view, or a leaf that requires gradients
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), (args, kwargs))
    found = {{}}{out}
    torch.manual_seed({seed})
    found["result"] = result = function(*args, **kwargs)
    if gradients:
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        results = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if inputs and results:
            torch.manual_seed({seed})
            found["gradients"] = torch.autograd.grad(results, inputs, [torch.randn_like(one) for one in results], allow_unused=True)
    return found


def call(*args, **kwargs):
    return function(*args, **kwargs)


eager = run(function)
compiled = run(torch.compile(call{options}))
print("eager:", eager)
print("compiled:", compiled)
pairs = zip(pytree.tree_leaves(compiled), pytree.tree_leaves(eager), strict=True)
for value, reference in pairs:
    if isinstance(reference, torch.Tensor):
        torch.testing.assert_close(value, reference, equal_nan=True)
    else:
        assert value == reference, (value, reference)
print("equal within the tolerances of the dtype")
'''


_OUT = """
    torch.manual_seed({seed})
    result = entry.op(*args, **kwargs)
    found["out"] = kwargs["out"] = pytree.tree_map_only(torch.Tensor, lambda x: torch.ones_like(x).contiguous(), result)"""

_GRADIENTS = "entry.supports_autograd and {dtype} in entry.supported_backward_dtypes({kind!r})"


def script(case: Case, sample: int) -> str:
    """Return the script of a sample, from 0, of a case whose one step is ``samples``."""
    return "\n".join(_lines(case, sample)) + "\n"


def is_of_operator(case: Case) -> bool:
    """Whether a case comes from torch's database of operators."""
    return [step.kind for step in case.steps] == [SAMPLES]


def _lines(case: Case, sample: int) -> Iterator[str]:
    named = case.steps[0].arguments
    settings = case.body.settings
    yield f"# {case.id}, sample {sample}. Needs torch alone; 'expecttest' is only a base class of torch's own tests."
    if settings.env:
        yield "import os\n"
        yield from (f"os.environ[{name!r}] = {str(value)!r}" for name, value in settings.env.items() if value is not None)
    yield "import random\nimport sys\nimport types\nimport unittest\n"
    yield 'sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))'
    yield "import numpy\nimport torch\nimport torch._dynamo.config\nimport torch._functorch.config\nimport torch._inductor.config"
    yield "from torch.testing._internal import common_methods_invocations as database\nfrom torch.utils import _pytree as pytree\n"
    yield "# random operators take the state of the generators, which is the same for both calls"
    yield "database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)"
    for section, module in MODULES.items():
        yield from (f"{module}.{name} = {value!r}" for name, value in settings.by_section[section].items())
    call, dtype, kind, seed = named["call"], f"torch.{named['dtype']}", case.device.partition(":")[0], seed_of(case)
    has_gradients = bool(named["gradients"]) and call == "function"
    options = "".join(f", {name}={value!r}" for name, value in settings.compile.items())
    yield _BODY.format(
        op=named["op"],
        variant=named["variant"],
        function="entry.inplace_variant" if call == "inplace" else "entry.op",
        dtype=dtype,
        gradients=_GRADIENTS.format(dtype=dtype, kind=kind) if has_gradients else "False",
        device=case.device,
        seed=seed,
        sample=sample,
        skip=" if not one.broadcasts_input" if call == "inplace" else "",
        out=_OUT.format(seed=seed) if call == "out" else "",
        options=options,
    ).strip("\n")
