"""The text of a script, by jinja2: its header, its variables and options, and the parts that were collected."""

import functools
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runner.core.case import Case
from runner.core.devices import CPU, kind_of
from runner.core.escaping import line
from runner.language.flow import flow
from runner.language.read.substitution import as_text
from runner.plan.script.parts import MODULES, Parts, names_something, option, torch_state
from runner.plan.script.python_blocks import PythonBlocks
from runner.plan.script.values import literal, resolved
from runner.system import data_dirs
from runner.system.redaction import is_secret_name, redacted

if TYPE_CHECKING:
    from jinja2 import Template


class Rendering:
    """Joins the parts of one script."""

    def __init__(self, case: Case, plan: Mapping[str, Any], parts: Parts, blocks: PythonBlocks) -> None:
        self._case = case
        self._plan = plan
        self._body = plan["body"]
        self._parts = parts
        self._blocks = blocks

    def text(self, torch: str) -> str:
        """Return the script; ``torch`` is the version that conditions were decided for."""
        self._blocks.texts.append(f"def repro_compile_options():\n    return {resolved(self._body['compile'])}")
        return (
            _template().render(
                docstring="Shows one case of torch.compile with torch alone.",
                header=[line(redacted(text)) for text in self._header(torch)],
                environment=list(self._environment()),
                conditions=list(self._conditions()),
                fragments=self._parts.fragments(),
                options=list(self._options()),
                seed=self._plan["seed"],
                blocks=self._blocks.texts,
                body=self._parts.body,
            )
            + "\n"
        )

    def _header(self, torch: str) -> Iterator[str]:
        python = ".".join(map(str, sys.version_info[:3]))
        yield f"case: {self._case.id}"
        yield f"claim: {self._case.summary}"
        yield f"spec: {self._case.position}"
        yield f"written for torch {torch}, Python {python}, device {self._plan['device']}; run it with: python FILE"
        yield "exit code: 0 every expectation below held, 1 one failed, 2 this machine cannot run it"
        yield "expected:"
        for step in self._case.steps:
            for one in step.expectations:
                yield f"  {one.position}: {one.kind}: {flow(as_text(one.body))}"[:500]
        yield from ["not said by this script:", *(f"  {text}" for text in self._parts.left_out)] if self._parts.left_out else []

    def _environment(self) -> Iterator[str]:
        for name, value in self._body["env"].items():
            if is_secret_name(name):
                self._parts.leave_out(f"the variable {name}, whose value may be a secret: set it before")
            elif value is None:
                yield f"os.environ.pop({literal(name)}, None)"
            else:
                yield f"os.environ[{literal(name)}] = {literal(str(value))}"

    def _conditions(self) -> Iterator[str]:
        kind = kind_of(self._plan["device"])
        if self._plan.get("module"):
            yield f"importlib.import_module({literal(self._plan['module'])})"
        if kind != CPU:
            yield f"if not (hasattr(torch, {literal(kind)}) and getattr(torch, {literal(kind)}).is_available()):"
            yield from (f"    print({literal(f'cannot run here: no device {kind}')})", "    sys.exit(2)")
        for requirement in self._case.requires:
            if requirement.name == "module" and (requirement.argument or "").isidentifier():
                yield f"if importlib.util.find_spec({literal(requirement.argument)}) is None:"
                yield from (f"    print({literal(f'cannot run here: no module {requirement.argument}')})", "    sys.exit(2)")
        if self._body["services"]:
            yield 'if not os.environ.get("TORCHINDUCTOR_REDIS_URL"):'
            yield from ('    print("cannot run here: set TORCHINDUCTOR_REDIS_URL to a Redis server")', "    sys.exit(2)")

    def _options(self) -> Iterator[str]:
        yield from torch_state(self._body["torch"])
        yield "torch._inductor.config.compile_threads = 1"
        for section, module in MODULES.items():
            for name, value in self._body[section].items():
                if not names_something(value):
                    yield f"{option(module, name)} = {literal(value)}"


@functools.cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - the result is Python, not markup: every text comes in as a literal or an escaped comment
        loader=FileSystemLoader(data_dirs.folder("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("repro.py.j2")
