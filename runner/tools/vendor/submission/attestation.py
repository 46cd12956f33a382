"""The attestation of a submission: an in-toto Statement v1 of what the run claims, and its signature in a DSSE envelope.

It has no time and no random number, so that the same run and key give the same bytes.
"""

import base64
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from runner.machine.scratch import open_untrusted
from runner.model.codec import encode
from runner.model.diagnostics import UsageError, one_line, shown_path
from runner.record.case_files import digest
from runner.record.journal import Run, totals
from runner.tools.vendor.submission.archive import ENVIRONMENT, JOURNAL, JUNIT, MANIFEST, as_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://github.com/torch-conformance/torch-conformance/blob/main/docs/reference/submission.md#predicate-v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

_MOST_KEY = 1 << 16


def environment_of(run: Run) -> bytes:
    """Return the facts of the machine, those of each node of a fleet, and the recorded variables, as a member."""
    parts = (part for result in run.results for part in (result, *result.attempts) if part.node)
    nodes = {part.node.get("name", ""): dict(part.node) for part in parts}
    recorded = {"environment": dict(run.header.environment), "variables": dict(run.header.variables)}
    return as_json({**recorded, "nodes": nodes} if nodes else recorded)


def statement_of(run: Run, members: Mapping[str, bytes], signer: str) -> bytes:
    """Return the Statement of a run that has ended; ``signer`` is the id of the key, empty for an unsigned submission."""
    assert run.footer is not None, "a run without a footer is not packed"
    subject = [{"name": name, "digest": {"sha256": digest(members[name])}} for name in (ENVIRONMENT, JUNIT, MANIFEST, JOURNAL)]
    profile = [{"name": profile.name, "version": profile.version, "sha256": profile.digest} for profile in run.header.profile]
    predicate = {
        "tool": {"name": "torch-conformance", "version": run.header.version},
        "run": {"id": run.header.run_id, "started": run.header.started, "ended": run.footer.ended, "merged": list(run.header.merged)},
        "environment": {"sha256": digest(members[ENVIRONMENT]), "facts": dict(run.header.environment)},
        "files": dict(run.header.specs),
        "selection": {"sha256": run.header.selection, "cases": len(run.results)},
        "totals": totals(run.results),
        "exit_code": run.footer.exit_code,
        "profile": profile,
        "statement": encode(run.footer.statement),
        "signer": signer,
    }
    return as_json({"_type": STATEMENT_TYPE, "subject": subject, "predicateType": PREDICATE_TYPE, "predicate": predicate})


def signer_in(statement: bytes) -> str:
    """Return the id of the key that a Statement says it is signed with; empty for none."""
    try:
        return str(json.loads(statement)["predicate"]["signer"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""


def difference(attested: bytes, expected: bytes) -> str:
    """Return which part of a Statement is not what the other members give; empty if none."""
    if attested == expected:
        return ""
    try:
        sides = [{**statement, **statement["predicate"]} for statement in map(json.loads, (attested, expected))]
    except (ValueError, TypeError, LookupError, RecursionError):
        return "it is no Statement in JSON"
    keys = sorted(key for key in sides[0].keys() | sides[1].keys() if key != "predicate" and sides[0].get(key) != sides[1].get(key))
    return f"'{one_line(keys[0])}' is not what the archive gives" if keys else "it is not written as 'submit' writes it"


# -- signatures -----------------------------------------------------------------------------------------------------


def read_private_key(path: Path) -> "Ed25519PrivateKey":
    """Return the private key of a PEM file; raise ``UsageError`` for anything else."""
    data = _key_file(path)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    with contextlib.suppress(ValueError, TypeError):
        if isinstance(key := load_pem_private_key(data, None), Ed25519PrivateKey):
            return key
    what, hint = "no private key of the kind Ed25519 in PEM form without a passphrase", "openssl genpkey -algorithm ed25519 -out KEY"
    raise UsageError(f"--key {shown_path(path)}: this is {what} ({hint})")


def read_public_key(path: Path) -> "Ed25519PublicKey":
    """Return the public key of a PEM file; raise ``UsageError`` for anything else."""
    data = _key_file(path)
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    with contextlib.suppress(ValueError):
        if isinstance(key := load_pem_public_key(data), Ed25519PublicKey):
            return key
    hint = "openssl pkey -in KEY -pubout"
    raise UsageError(f"--key {shown_path(path)}: this is no public key of the kind Ed25519 in PEM form ({hint})")


def _key_file(path: Path) -> bytes:
    try:
        import cryptography  # noqa: F401 - tests that it is installed; the callers import its parts
    except ImportError as error:
        raise UsageError("--key needs the package cryptography (install the extra: pip install 'torch-conformance[submit]')") from error
    try:
        with open_untrusted(path.resolve()) as stream:
            return stream.read(_MOST_KEY)
    except OSError as error:
        raise UsageError(f"--key {shown_path(path)}: it cannot be read: {error.strerror or error}") from error


def key_id(key: "Ed25519PublicKey") -> str:
    """Return the id of a key: the sha256 of its raw bytes."""
    return digest(key.public_bytes_raw())


def _to_sign(payload: bytes) -> bytes:
    """Return the pre-authentication encoding of DSSE v1."""
    kind = PAYLOAD_TYPE.encode("ascii")
    return b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])


def _envelope(statement: bytes, signer: str, signature: bytes) -> bytes:
    payload, encoded = (base64.b64encode(data).decode("ascii") for data in (statement, signature))
    return as_json({"payloadType": PAYLOAD_TYPE, "payload": payload, "signatures": [{"keyid": signer, "sig": encoded}]})


def signed(statement: bytes, key: "Ed25519PrivateKey") -> bytes:
    """Return the envelope of a Statement."""
    return _envelope(statement, key_id(key.public_key()), key.sign(_to_sign(statement)))


def why_not_signed(envelope: bytes, statement: bytes, key: "Ed25519PublicKey | None") -> str:
    """Return why an envelope is no signature of a Statement by a key; empty if it is. Without a key only its form is checked."""
    try:
        (entry,) = json.loads(envelope)["signatures"]
        signer, signature = str(entry["keyid"]), base64.b64decode(entry["sig"], validate=True)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        return f"it is no envelope with one signature: {type(error).__name__}"
    if _envelope(statement, signer, signature) != envelope:
        return "it is not the envelope of this Statement as 'submit' writes it"
    if signer != signer_in(statement):
        return "its key is not the one that the Statement names"
    if key is None:
        return ""
    if signer != key_id(key):
        return "it is signed with another key than that of --key"
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, _to_sign(statement))
    except InvalidSignature:
        return "its signature is not of the key of --key"
    return ""
