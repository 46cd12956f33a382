"""Values of options and modes: what torch's source says of each, and what a spec may write."""

import ast

import pytest

from runner.language.names.scan import allowed_values


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("a: bool = True", ("bool",)),
        ("a: bool | None = None", ("bool", "null")),
        ("a: Optional[int] = 3", ("int", "null")),
        ("a: Union[bool, Literal['x', 'y']] = True", ('"x"', '"y"', "bool")),
        ("a: typing.Literal[0, 1] = int(os.environ['A'])", ("0", "1")),
        ("a: 'float' = 0.5", ("float",)),
        ("a: list[str] = []", ("list",)),
        ("a: dict[str, Any] | None = None", ("null", "map")),
        ("a: Callable[[int], int] | None = None", ()),
        ("a: Something = None", ()),
        ("a: bool = None", ("bool", "null")),
        ("a = False", ("bool",)),
        ("a = os.environ.get('A') == '1'", ("bool",)),
        ("a = not b", ("bool",)),
        ("a = -1", ("int",)),
        ("a = os.environ.get('A', 'b').upper()", ("str",)),
        ("a = None", ()),
        ("a = decide()", ()),
        ("a: str = Config(default='x')", ("str",)),
    ],
)
def test_what_an_option_takes_is_read_from_its_annotation_and_default(statement, allowed):
    (node,) = ast.parse(statement).body
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    assert allowed_values(getattr(node, "annotation", None), node.value) == allowed


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('config: {max_autotune: "yes"}\n', '8:24: config max_autotune is "yes" (allowed: true or false)'),
        ("config: {max_autotune: null}\n", "8:24: config max_autotune is null (allowed: true or false)"),
        ("config: {max_autotune: [true]}\n", "config max_autotune is [true] (allowed: true or false)"),
        ("config: {freezing: 1}\n", "config freezing is 1 (allowed: true or false)"),
        ("config: [{set: {realize_reads_threshold: 1.5}}]\n", "config realize_reads_threshold is 1.5 (allowed: a whole number)"),
        ("config: {memory_pool: outputz}\n", "config memory_pool is \"outputz\" (did you mean 'outputs'?)"),
        ("dynamo_config: {recompile_limit: many}\n", 'dynamo_config recompile_limit is "many" (allowed: a whole number)'),
        ("functorch_config: {enable_autograd_cache: off}\n", 'functorch_config enable_autograd_cache is "off" (allowed: true or false)'),
        ("control: {config: {freezing: none}}\n", 'config freezing is "none" (allowed: true or false)'),
        ("compile: {options: {max_autotune: tru}}\n", '8:35: config max_autotune is "tru" (allowed: true or false)'),
        ("compile: {mode: max-autotun}\n", "8:17: unknown mode 'max-autotun' (did you mean 'max-autotune'?)"),
        ("control: {compile: {mode: reduce_overhead}}\n", "unknown mode 'reduce_overhead' (did you mean 'reduce-overhead'?)"),
        (
            'matrix: {tune: [true, "no"]}\nconfig: {max_autotune: "{{ tune }}"}\n',
            'config max_autotune is "no" (at [backend=cpu,tune=no]) (allowed: true or false)',
        ),
        ('matrix: {mode: [default, best]}\ncompile: {mode: "{{ mode }}"}\n', "unknown mode 'best' (at [backend=cpu,mode=best])"),
        ("compile: {options: {guard_filter_fn: true}}\n", "8:38: compile option guard_filter_fn is true (write {ref: NAME}: a function "),
        ("compile: {options: {use_aoti: true}}\n", "8:21: 'use_aoti' in the options of compile (torch.compile then calls AOTInductor, "),
        ("compile: {options: {guard_filter: true}}\n", "8:21: unknown config 'guard_filter' (did you mean 'guard_filter_fn'?)"),
        ("config: {guard_filter_fn: true}\n", "8:10: unknown config 'guard_filter_fn' (it is an option of torch.compile: compile: "),
        (
            'matrix: {keep: [7]}\ncompile: {options: {guard_filter_fn: "{{ keep }}"}}\n',
            "compile option guard_filter_fn is 7 (at [backend=cpu,keep=7]) (write {ref: NAME}: a function ",
        ),
        (
            'matrix: {tune: [1]}\ncompile: {options: {max_autotune: "{{ tune }}"}}\n',
            "config max_autotune is 1 (at [backend=cpu,tune=1]) (allowed: true or false)",
        ),
    ],
)
def test_a_value_that_no_torch_takes_is_refused_where_it_stands(more, problem, good, problems_of):
    (found,) = problems_of(good + more)
    assert problem in found


@pytest.mark.parametrize(
    "more",
    [
        "config: {fx_graph_remote_cache: null, max_autotune: false, memory_pool: outputs, cpp.threads: -1}\n",
        "config: {post_grad_custom_post_pass: {ref: f}}\nprelude: |\n  def f(graph): pass\n",
        "config: {max_autotune: {ref: f}}\nprelude: |\n  f = True\n",
        "dynamo_config: {optimize_ddp: python_reducer}\n",
        "compile: {mode: max-autotune-no-cudagraphs}\n",
        "compile: {options: {guard_filter_fn: {ref: f}, max_autotune: true}}\nprelude: |\n  def f(guards): return [True for _ in guards]\n",
        "compile: {options: {guard_filter_fn: {ref: torch.compiler.keep_tensor_guards_unsafe}}}\n",
        "compile: {mode: null}\n",
    ],
)
def test_values_that_torch_takes_are_taken(more, good, problems_of):
    assert problems_of(good + more) == []


def test_options_of_a_backend_and_of_a_folder_are_judged_too(good, problems_of):
    vendor = "mine: {summary: A device of mine, device: cpu, proof: {graphs: {min: 1}}, config: {freezing: often}}\n"
    (found,) = problems_of(good, backends=vendor)
    assert 'config freezing is "often" (allowed: true or false)' in found
    (found,) = problems_of({"a/_defaults.yaml": "config: {freezing: often}\n", "a/x.yaml": good})
    assert found.startswith("a/_defaults.yaml:1:20: config freezing is")
