"""The header of a run, except for the facts of the machine, which a worker reports later."""

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime

from runner import __version__
from runner.core.case import Case
from runner.core.conformance import ProfileRecord
from runner.core.header import RunHeader
from runner.core.options import RunOptions
from runner.judge.waivers import Waivers
from runner.language.load import Suite
from runner.plan.worker_plan import digest_of
from runner.record.journal import digest_of_selection
from runner.system.installed_torch import facts_of_files, installed_torch
from runner.system.redaction import environment_variables, redacted_command, redacted_result, redacted_texts


def header_of(
    options: RunOptions, suite: Suite, waivers: Waivers, whole: Sequence[Case], selected: Sequence[Case], seed: int | None
) -> RunHeader:
    """Return the header of a new run. ``whole`` is the selection of all shards, ``selected`` that of this one."""
    return RunHeader(
        run_id="",
        started=now(),
        version=__version__,
        command=redacted_command(sys.argv),
        environment=redacted_texts(facts_of_files(installed_torch())),
        variables=environment_variables(os.environ),
        specs={**suite.digests, **judging_files(suite, waivers)},
        selected=len(selected),
        shuffle="" if seed is None else str(seed),
        selected_whole=len(whole),
        selection=digest_of_selection({case.id: digest_of(case) for case in whole}),
        options=option_texts(options),
    )


def with_recorded_profile(header: RunHeader, profile: ProfileRecord) -> RunHeader:
    """Return the header of a run of a profile: its file is one of those that decide how cases are judged."""
    waivers = tuple(map(redacted_result, profile.waivers))  # as the results that name them are
    return replace(header, profile=(replace(profile, waivers=waivers),), specs={**header.specs, profile.file: profile.digest})


def option_texts(options: RunOptions) -> dict[str, str]:
    """Return every option by its name on the command line, as text; empty where it was not given.

    ``--resume`` and ``merge`` compare these texts with those of other runs.
    """
    names = sorted(field.name for field in fields(options))
    return redacted_texts({name.replace("_", "-"): option_text(getattr(options, name)) for name in names})


def option_text(value: object) -> str:
    """Return the value of one option as a header has it."""
    if value is None or value is False:
        return ""
    return shlex.join(redacted_command(list(map(str, value)))) if isinstance(value, tuple) else str(value)


def judging_files(suite: Suite, waivers: Waivers) -> dict[str, str]:
    """Return the digests of the files that decide how cases are judged: backends and waivers."""
    documents = [backend.document for backend in suite.backends.by_name.values()]
    return {**{document.file: document.digest for document in documents}, **waivers.digests}


def now() -> str:
    """Return the current time in UTC, as a journal records it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
