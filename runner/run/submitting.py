"""``submit``: packs a recorded run, verifies the archive as a stranger would, and returns it only if nothing contradicts it."""

from dataclasses import dataclass

from runner.core.diagnostics import UsageError
from runner.core.header import RunHeader
from runner.core.options import SubmitOptions
from runner.record.submission.attestation import key_id, read_private_key
from runner.record.submission.packing import Altered, JUnitOf, members_of, recorded
from runner.record.submission.tape import packed
from runner.run.cut_texts import texts_of_cut_facts
from runner.run.verification import JUnitDifference, verified
from runner.run.verification_report import Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """An archive that is ready to be written."""

    header: RunHeader
    data: bytes
    files: int
    signer: str
    """The id of the key; empty where it is not signed."""
    verification: Verification


def submission(options: SubmitOptions, junit: JUnitOf, difference: JUnitDifference) -> Submission:
    """Return the archive of a run; raise ``UsageError`` for a run that cannot be submitted, ``Altered`` for one that was changed.

    ``junit`` writes the report of a journal, and ``difference`` compares one with a journal.
    """
    key = read_private_key(options.key) if options.key else None
    folder, run = recorded(options.run)
    members = members_of(folder, run, junit, key, lambda packed, members: texts_of_cut_facts(folder, run, packed, members))
    try:
        data = packed(members)
    except ValueError as error:
        raise UsageError(f"{options.run}: it cannot be packed: {error}") from error
    return Submission(
        header=run.header,
        data=data,
        files=len(members),
        signer=key_id(key.public_key()) if key else "",
        verification=verified(data, difference=difference, key=key.public_key() if key else None),
    )


__all__ = ["Altered", "Submission", "submission"]
