"""The layout of a submission: which members an archive may have, and how large it may be.

| member                          | content                                                                    |
|---------------------------------|----------------------------------------------------------------------------|
| ``manifest.json``                 | size and sha256 of every other member but the attestation                  |
| ``attestation.json``              | an in-toto Statement v1: what the run claims                               |
| ``attestation.dsse.json``         | the same, signed (DSSE); only in a signed submission                       |
| ``run.jsonl``                     | the journal                                                                |
| ``junit.xml``                     | the report of the journal                                                  |
| ``environment.json``              | the facts of the machine and the recorded variables                        |
| ``cases/NNNNN/...``               | what each case was judged by: observation, generated code, services        |
| ``files/shipped/...``             | the files of the project that the run read, below its folder ``specs``       |
| ``files/own/...``                 | all other files that the run read: specs, backends, waivers, profile       |
"""

import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import quote, unquote

MANIFEST = "manifest.json"
ATTESTATION = "attestation.json"
ENVELOPE = "attestation.dsse.json"
JOURNAL = "run.jsonl"
JUNIT = "junit.xml"
ENVIRONMENT = "environment.json"
SHIPPED = "files/shipped"
OWN = "files/own"

FIXED = frozenset({MANIFEST, ATTESTATION, JOURNAL, JUNIT, ENVIRONMENT})
"""Members that every archive has."""
ATTESTATIONS = frozenset({ATTESTATION, ENVELOPE})
"""Members that the manifest cannot name: they name the manifest."""

MOST_COMPRESSED = 256 << 20
MOST_CONTENT = 1 << 30
MOST_MEMBER = 256 << 20
MOST_MEMBERS = 200_000
"""The bounds of an archive: bytes of the file, of its content, of a member; number of members."""

_MOST_NAME = 250
_CASE_FILE = re.compile(r"cases/[0-9]{5,9}/(?:observation\.json|services\.json|code-[0-9]{1,4}-[0-9]{1,4}\.txt)")
_OF_RUN = re.compile(r"files/(?:shipped|own)/[A-Za-z0-9_.+@=,~%-][A-Za-z0-9_.+@=,~%/-]*")
_SAFE = "/+@=,~"


class BadArchive(Exception):
    """What was read is no submission, or is damaged or made to harm its reader."""


def member_of(name: str) -> str:
    """Return the member for a file that a run read, given its name in the packed journal; raise ``ValueError`` for an impossible one."""
    member = quote(name, safe=_SAFE)
    if why := why_no_member(member):
        raise ValueError(f"{name}: {why}")
    return member


def name_of(member: str) -> str:
    """Return the name of a file in the packed journal, given its member."""
    return unquote(member, errors="strict")


def why_no_member(name: str) -> str:
    """Return why no member of a submission has this name; empty if one may."""
    if len(name) > _MOST_NAME:
        return f"its name has more than {_MOST_NAME} characters"
    if name in FIXED or name == ENVELOPE or _CASE_FILE.fullmatch(name):
        return ""
    if not _OF_RUN.fullmatch(name):
        return "a submission has no such member"
    try:
        plain = name_of(name)
    except UnicodeDecodeError:
        return "its name is not encoded as UTF-8"
    if quote(plain, safe=_SAFE) != name:
        return "its name is not encoded as 'submit' encodes names"
    if any(part in ("", ".", "..") or not part.isprintable() for part in plain.split("/")) or plain.count("/") != name.count("/"):
        return "its name leads out of its folder, or cannot be shown"
    return ""


def collision(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that are one file where case or Unicode's forms do not count, or where one is a folder of the other."""
    seen: dict[str, str] = {}
    for name in names:
        key = unicodedata.normalize("NFC", name_of(name)).casefold()
        if key in seen:
            return seen[key], name
        seen[key] = name
    for key, name in seen.items():
        parts = key.split("/")
        for end in range(1, len(parts)):
            if (above := "/".join(parts[:end])) in seen:
                return seen[above], name
    return None
