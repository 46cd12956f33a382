"""The manifest of a submission: size and sha256 of every member but the attestation."""

import json
from collections.abc import Iterator, Mapping

from runner.record.evidence import digest
from runner.record.submission.layout import ATTESTATIONS, FIXED, MANIFEST

FORMAT = 1


def as_json(value: object) -> bytes:
    """Return the one form in which a submission holds JSON, so that equal values are equal bytes."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, allow_nan=False, indent=1).encode("ascii") + b"\n"


def manifest_of(members: Mapping[str, bytes]) -> bytes:
    """Return the manifest of these members; itself and the attestation do not count."""
    listed = sorted(members.keys() - ATTESTATIONS - {MANIFEST})
    files = [{"path": name, "size": len(members[name]), "sha256": digest(members[name])} for name in listed]
    return as_json({"format": FORMAT, "files": files})


def problems(members: Mapping[str, bytes]) -> Iterator[str]:
    """Yield how members and their manifest differ."""
    for name in sorted(FIXED - members.keys()):
        yield f"the member '{name}' is missing"
    try:
        listed = {str(one["path"]): one for one in json.loads(members.get(MANIFEST, b"{}"))["files"]}
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        yield f"{MANIFEST} is no manifest: {type(error).__name__}"
        return
    there = members.keys() - ATTESTATIONS - {MANIFEST}
    for name in sorted(listed.keys() | there):
        if name not in there:
            yield f"'{name}' is in the manifest and not in the archive"
        elif name not in listed:
            yield f"'{name}' is in the archive and not in the manifest"
        elif listed[name] != {"path": name, "size": len(members[name]), "sha256": digest(members[name])}:
            yield f"'{name}' is not the file that the manifest names: its size or sha256 differs"
    if manifest_of(members) != members.get(MANIFEST):
        yield f"{MANIFEST} is not written as 'submit' writes it"
