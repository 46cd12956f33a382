"""The archive of a submission: which members it has, their manifest, and its bytes: a tar of plain files in one zstd frame.

The same members always give the same bytes. So a reader trusts nothing: it packs what it read again, and refuses a file whose content is
not that. A link, a folder, an owner, a time, another order, hidden bytes and a member that is there twice are no archive of a submission.

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

import io
import json
import re
import tarfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from urllib.parse import quote, unquote

from runner.model.diagnostics import UsageError
from runner.record.case_files import digest

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
_FORMAT = 1
_LEVEL = 17
_MAGIC = b"\x28\xb5\x2f\xfd"
_WINDOW = 1 << 27
"""The maximum window of a frame in bytes: what its reader must keep in memory."""


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


# -- the manifest: size and sha256 of every member but the attestation ------------------------------------------------


def as_json(value: object) -> bytes:
    """Return the one form in which a submission holds JSON, so that equal values are equal bytes."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, allow_nan=False, indent=1).encode("ascii") + b"\n"


def manifest_of(members: Mapping[str, bytes]) -> bytes:
    """Return the manifest of these members; itself and the attestation do not count."""
    listed = sorted(members.keys() - ATTESTATIONS - {MANIFEST})
    files = [{"path": name, "size": len(members[name]), "sha256": digest(members[name])} for name in listed]
    return as_json({"format": _FORMAT, "files": files})


def manifest_problems(members: Mapping[str, bytes]) -> Iterator[str]:
    """Yield how members and their manifest differ."""
    for name in sorted(FIXED - members.keys()):
        yield f"the member '{name}' is missing"
    try:
        listed = {str(entry["path"]): entry for entry in json.loads(members.get(MANIFEST, b"{}"))["files"]}
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


# -- bytes ----------------------------------------------------------------------------------------------------------


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError("this needs the package zstandard (install the extra: pip install 'torch-conformance[submit]')") from error
    return zstandard


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return the archive of these members; raise ``ValueError`` for members that its reader would refuse."""
    if why := _why_not(members):
        raise ValueError(why)
    data = bytes(_zstandard().ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True).compress(_tar(members)))
    if len(data) > MOST_COMPRESSED:
        raise ValueError(f"it has more than {MOST_COMPRESSED >> 20} MiB")
    return data


def _why_not(members: Mapping[str, bytes]) -> str:
    """Return why no archive has these members; empty if one can have them."""
    if len(members) > MOST_MEMBERS or sum(map(len, members.values())) > MOST_CONTENT:
        return f"it has more than {MOST_MEMBERS} files or {MOST_CONTENT >> 20} MiB"
    for name, data in members.items():
        if why := why_no_member(name) or (f"it has more than {MOST_MEMBER >> 20} MiB" if len(data) > MOST_MEMBER else ""):
            return f"{name}: {why}"
    both = collision(members)
    return f"'{both[0]}' and '{both[1]}' are one file where case does not count" if both else ""


def _tar(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    for name in sorted(members):
        info = tarfile.TarInfo(name)
        info.size = len(members[name])
        stream.write(info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
        stream.write(members[name] + bytes(-info.size % tarfile.BLOCKSIZE))
    stream.write(bytes(2 * tarfile.BLOCKSIZE))
    return stream.getvalue()


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the members of an archive by name; raise ``BadArchive`` for anything that ``packed`` would not have written."""
    content = _content(data)
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:", encoding="ascii", errors="strict") as tar:
            while (info := tar.next()) is not None:
                stream = tar.extractfile(info) if info.isreg() and not info.issparse() and len(members) < MOST_MEMBERS else None
                if stream is None or info.size > MOST_MEMBER:
                    raise BadArchive(f"the member '{info.name}' is no plain file, or is too large")
                members[info.name] = stream.read()
    except (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise BadArchive(f"it is no tar: {type(error).__name__}: {error}") from error
    if why := _why_not(members):
        raise BadArchive(why)
    if _tar(members) != content:
        raise BadArchive("it is not as 'submit' writes it: owner, mode, time, order or form of a member differ, or bytes are hidden")
    return members


def _content(data: bytes) -> bytes:
    """Return the content of the one frame that the file must be."""
    zstd = _zstandard()
    if len(data) > MOST_COMPRESSED:
        raise BadArchive(f"the file has more than {MOST_COMPRESSED >> 20} MiB")
    if data[:4] != _MAGIC:
        raise BadArchive("the file does not begin with a zstd frame")
    try:
        frame = zstd.get_frame_parameters(data)
        if frame.dict_id or not frame.has_checksum or frame.window_size > _WINDOW or not 0 < frame.content_size <= MOST_CONTENT:
            raise BadArchive(
                f"the zstd frame has a dictionary, no checksum, no size, a large window, or more than {MOST_CONTENT >> 20} MiB"
            )
        return bytes(zstd.ZstdDecompressor(max_window_size=_WINDOW).decompress(data, allow_extra_data=False))
    except zstd.ZstdError as error:
        raise BadArchive(f"the zstd frame is cut off or damaged, or something follows it: {error}") from error
