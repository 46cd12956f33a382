"""The commands for vendors of GPUs and compilers; each names the module that has its options and
``main``.
"""

from collections.abc import Mapping

from torch_conformance.cli.parser import Command

COMMANDS: Mapping[str, Command] = {
    "doctor": Command(
        "tools.attest.commands.doctor:DoctorOptions",
        "show what this machine has and lacks",
        "Show what this machine has and lacks, and what that allows. Exit 1 when something "
        "that it claims does not work.",
        (
            ("doctor", "this machine"),
            ("doctor --profile inductor-rocm", "what it lacks for a profile"),
        ),
    ),
    "submit": Command(
        "tools.attest.packing:SubmitOptions",
        "pack a recorded run into one archive that others can verify",
        "Pack a run that has ended into one archive: journal, JUnit report, the files that it "
        "read, the environment, raw observations and "
        "generated code, with an attestation. Folders of this machine and secrets are cut. "
        "The archive is verified before it is written.",
        (("submit latest --out results.tar.zst", "pack the latest run"),),
    ),
    "verify": Command(
        "tools.attest.verification:VerifyOptions",
        "check a submission without trusting its author",
        "Read an archive that 'submit' wrote, judge every observation in it again, and print "
        "which claims follow from evidence and which "
        "are the word of its author. Exit 0: conformant (without a profile: nothing failed); "
        "1: not, or the archive was tampered with; "
        "4: INCOMPLETE, or it could not be judged here.",
        (("verify results.tar.zst", "check an archive"),),
    ),
}
