"""The jobs of the pipelines in the documents: what each executes in a shell, and the variables that its CI system sets."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from tests.fences import Fence


@dataclass(frozen=True)
class Job:
    """One job: its lines, and the variables of each of its copies."""

    name: str
    lines: list[str]
    copies: list[Mapping[str, str]] = field(default_factory=lambda: [{}])


def jobs_of(fence: Fence) -> list[Job]:
    """Return the jobs of a pipeline, in their order."""
    return list({"workflow": _github, "gitlab": _gitlab, "jenkins": _jenkins}[fence.mark](fence.text))


def _github(text: str) -> Iterator[Job]:
    for name, job in yaml.safe_load(text)["jobs"].items():
        lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
        points = [{key: str(value)} for key, values in job.get("strategy", {}).get("matrix", {}).items() for value in values] or [{}]
        yield Job(name, lines, [{key: _filled(value, point) for key, value in job.get("env", {}).items()} for point in points])


def _filled(text: str, point: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: point[found[1]], text)


def _gitlab(text: str) -> Iterator[Job]:
    document = yaml.safe_load(text)
    for name in (key for key in document if isinstance(document[key], dict) and "script" in document[key]):
        count = document[name].get("parallel", 1)
        copies = [{"CI_NODE_INDEX": str(number), "CI_NODE_TOTAL": str(count)} for number in range(1, count + 1)]
        yield Job(name, [*document["default"]["before_script"], *document[name]["script"], *document[name].get("after_script", [])], copies)


def _jenkins(text: str) -> Iterator[Job]:
    """Read what of a declarative pipeline these documents use: stages with ``sh`` steps, and one axis."""
    first, second = re.split(r"(?m)^    stage\('report'\)", text)
    found = re.search(r"axis \{ name '(\w+)'; values (.*?) \}", first)
    assert found is not None
    values = re.findall(r"'([^']*)'", found[2])
    for name, part, copies in (("run", first, [{found[1]: value} for value in values]), ("report", second, [{}])):
        yield Job(name, re.findall(r"(?m)^ *sh '([^']*)'$", part), copies)
