"""The options of ``submit`` and ``verify``."""

import argparse
from pathlib import Path

from runner.cli import selecting

SUBMIT_HELP = "pack a recorded run into one archive that others can verify"
SUBMIT_DESCRIPTION = (
    "Pack a run that has ended into one archive: journal, JUnit report, the files that it read, the environment, raw observations and "
    "generated code, with an attestation. Folders of this machine and secrets are cut. The archive is verified before it is written."
)
VERIFY_HELP = "check a submission without trusting its author"
VERIFY_DESCRIPTION = (
    "Read an archive that 'submit' wrote, judge every observation in it again, and print which claims follow from evidence and which are "
    "the word of its author. Exit 0: conformant (without a profile: nothing failed); 1: not, or the archive was tampered with; 4: "
    "INCOMPLETE, or it could not be judged here."
)


def add_submit(command: argparse.ArgumentParser) -> None:
    """Add the options of ``submit``."""
    option = command.add_argument
    option("run", metavar="RUN", help="a recorded run: a folder, an id, or latest")
    option("--out", type=Path, metavar="FILE", help="the file to write (default: submission-<run>.tar.zst in the working folder)")
    option("--key", type=Path, metavar="FILE", help="sign with this private key: Ed25519, PEM, without a passphrase")
    option("--replace", action="store_true", help="replace the file if it exists")
    option("--json", action="store_true", help="print one object")


def add_verify(command: argparse.ArgumentParser) -> None:
    """Add the options of ``verify``."""
    option = command.add_argument
    option("archive", type=Path, metavar="ARCHIVE", help="the file that 'submit' wrote")
    selecting.profile(command, "state whether the run conforms to this profile of yours, not to the author's copy of it")
    option(
        "--specs",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="published files of the author (specs, backends, waivers, profile) that those in the archive must equal: a file or a folder "
        "(repeatable; the shipped ones are always compared)",
    )
    option("--key", type=Path, metavar="FILE", help="the author's public key (Ed25519, PEM): the archive must have a valid signature of it")
    option("--json", action="store_true", help="print one object")


COMMANDS = {"submit": (add_submit, SUBMIT_HELP, SUBMIT_DESCRIPTION), "verify": (add_verify, VERIFY_HELP, VERIFY_DESCRIPTION)}
"""What adds the options of each command, its help and its description."""
