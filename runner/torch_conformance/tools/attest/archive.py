"""The archive of a submission: which members it has, and its bytes: a tar of plain files in one
zstd frame.

The same members always give the same bytes. So a reader trusts nothing: it packs what it read
again, and refuses a file whose content is not that. A link, a folder, an owner, a time, another
order, hidden bytes and a member that is there twice are not allowed in a submission.

| member                          | content                                                                    |
|---------------------------------|----------------------------------------------------------------------------|
| ``attestation.json``              | an in-toto Statement v1: what the run claims, sha256 of each other member  |
| ``attestation.dsse.json``         | the same, signed (DSSE); only in a signed submission                       |
| ``run.jsonl``                     | the journal                                                                |
| ``junit.xml``                     | the report of the journal                                                  |
| ``cases/NNNNN/...``               | what each case was judged by: observation, generated code, services        |
| ``files/shipped/...``             | the files of the project that the run read, below its folder ``specs``       |
| ``files/own/...``                 | all other files that the run read: specs, backends, waivers, profile       |
| ``files/module/...``              | the Python of modules of backends that are not installed as a distribution |
"""  # noqa: E501 - a table

import base64
import contextlib
import io
import json
import re
import shlex
import tarfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model.codec import encode
from torch_conformance.model.diagnostics import UsageError, one_line, shown_path
from torch_conformance.model.protocol import Json
from torch_conformance.record.case_files import digest
from torch_conformance.record.conclusion import profile_statement
from torch_conformance.record.journal import Run, totals

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )


ATTESTATION = "attestation.json"
ENVELOPE = "attestation.dsse.json"
JOURNAL = "run.jsonl"
JUNIT = "junit.xml"
SHIPPED = "files/shipped"
OWN = "files/own"
MODULE = "files/module"

FIXED = frozenset({ATTESTATION, JOURNAL, JUNIT})
"""Members that every archive has."""

MOST_COMPRESSED = 256 << 20
MOST_CONTENT = 1 << 30
MOST_MEMBER = 256 << 20
MOST_MEMBERS = 200_000
"""The bounds of an archive: bytes of the file, of its content, of a member; number of members."""

_MOST_NAME = 250
_CASE_FILE = re.compile(
    r"cases/[0-9]{5,9}/(?:observation\.json|services\.json|code-[0-9]{1,4}-[0-9]{1,4}\.txt)"
)
_OF_RUN = re.compile(r"files/(?:shipped|own|module)/[A-Za-z0-9_.+@=,~%-][A-Za-z0-9_.+@=,~%/-]*")
_SAFE = "/+@=,~"
_LEVEL = 17
_MAGIC = b"\x28\xb5\x2f\xfd"
_WINDOW = 1 << 27
"""The maximum window of a frame in bytes: what its reader must keep in memory."""


class BadArchive(Exception):
    """The file is not a submission, or is damaged, or was made to harm its reader."""


def member_of(name: str) -> str:
    """Return the member for a file that a run read, given its name in the packed journal; raise
    ``ValueError`` for an impossible one.
    """
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
    if any(
        part in ("", ".", "..") or not part.isprintable() for part in plain.split("/")
    ) or plain.count("/") != name.count("/"):
        return "its name leads out of its folder, or cannot be shown"
    return ""


def collision(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two names that are one file where case or Unicode's forms do not count, or where one
    is a folder of the other.
    """
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


def as_json(value: object) -> bytes:
    """Return the one form in which a submission holds JSON, so that equal values are equal
    bytes.
    """
    return (
        json.dumps(value, ensure_ascii=True, sort_keys=True, allow_nan=False, indent=1).encode(
            "ascii"
        )
        + b"\n"
    )


def changed(value: object, change: Callable[[str, str], str], key: str = "") -> Json:
    """Return JSON with each text changed; ``change`` is given the text and the key of the object
    that has it.
    """
    if isinstance(value, str):
        return change(value, key)
    if isinstance(value, list):
        return [changed(item, change, key) for item in value]
    return (
        {name: changed(item, change, name) for name, item in value.items()}
        if isinstance(value, dict)
        else value
    )


def repro(options: Mapping[str, str], case_id: str) -> str:
    """Return the command that runs only one case; ``options`` are those of the run, with the names
    that files have in a submission.
    """
    words = ["torch-conformance", "run", *shlex.split(options.get("paths", ""))]
    for option in ("backends", "waivers"):
        words += [
            word for file in shlex.split(options.get(option, "")) for word in (f"--{option}", file)
        ]
    if challenge := options.get("challenge"):
        words += ["--challenge", challenge]
    return shlex.join([*words, "--select", case_id])


# -- bytes -----------------------------------------------------------------------------------------


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise UsageError(
            "this needs the package zstandard (pip install zstandard cryptography)"
        ) from error
    return zstandard


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return the archive of these members; raise ``ValueError`` for members that its reader would
    refuse.
    """
    if why := _why_not(members):
        raise ValueError(why)
    data = bytes(
        _zstandard()
        .ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
        .compress(_tar(members))
    )
    if len(data) > MOST_COMPRESSED:
        raise ValueError(f"it has more than {MOST_COMPRESSED >> 20} MiB")
    return data


def _why_not(members: Mapping[str, bytes]) -> str:
    """Return why no archive has these members; empty if one can have them."""
    if len(members) > MOST_MEMBERS or sum(map(len, members.values())) > MOST_CONTENT:
        return f"it has more than {MOST_MEMBERS} files or {MOST_CONTENT >> 20} MiB"
    for name, data in members.items():
        if why := why_no_member(name) or (
            f"it has more than {MOST_MEMBER >> 20} MiB" if len(data) > MOST_MEMBER else ""
        ):
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
    """Return the members of an archive by name; raise ``BadArchive`` for anything that ``packed``
    would not have written.
    """
    content = _content(data)
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(
            fileobj=io.BytesIO(content), mode="r:", encoding="ascii", errors="strict"
        ) as tar:
            while (info := tar.next()) is not None:
                stream = (
                    tar.extractfile(info)
                    if info.isreg() and not info.issparse() and len(members) < MOST_MEMBERS
                    else None
                )
                if stream is None or info.size > MOST_MEMBER:
                    raise BadArchive(
                        f"the member '{info.name}' is not a plain file, or is too large"
                    )
                members[info.name] = stream.read()
    except (tarfile.TarError, ValueError, OverflowError, EOFError, RecursionError) as error:
        raise BadArchive(f"it is not a tar archive: {type(error).__name__}: {error}") from error
    if why := _why_not(members):
        raise BadArchive(why)
    if _tar(members) != content:
        raise BadArchive(
            "it is not as 'submit' writes it: owner, mode, time, order or form of a member "
            "differ, or bytes are hidden"
        )
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
        if (
            frame.dict_id
            or not frame.has_checksum
            or frame.window_size > _WINDOW
            or not 0 < frame.content_size <= MOST_CONTENT
        ):
            raise BadArchive(
                "the zstd frame has a dictionary, no checksum, no size, a large window, or "
                f"more than {MOST_CONTENT >> 20} MiB"
            )
        return bytes(
            zstd.ZstdDecompressor(max_window_size=_WINDOW).decompress(data, allow_extra_data=False)
        )
    except zstd.ZstdError as error:
        raise BadArchive(
            f"the zstd frame is cut off or damaged, or something follows it: {error}"
        ) from error


# -- the attestation: an in-toto Statement v1 of what the run claims, and its signature in a DSSE en


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://github.com/torch-conformance/torch-conformance/blob/main/docs/reference/submission.md#predicate-v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

_MOST_KEY = 1 << 16


def statement_of(run: Run, members: Mapping[str, bytes], signer: str) -> bytes:
    """Return the Statement of a run that has ended; ``signer`` is the id of the key, empty for an
    unsigned submission.
    """
    assert run.footer is not None, "a run without a footer is not packed"
    subject = [
        {"name": name, "digest": {"sha256": digest(members[name])}}
        for name in sorted(members.keys() - {ATTESTATION, ENVELOPE})
    ]
    profile = [
        {"name": profile.name, "version": profile.version, "sha256": profile.digest}
        for profile in run.header.profile
    ]
    predicate = {
        "tool": {"name": "torch-conformance", "version": run.header.version},
        "run": {
            "id": run.header.run_id,
            "started": run.header.started,
            "ended": run.footer.ended,
            "merged": list(run.header.merged),
        },
        "environment": dict(run.header.environment),
        "files": dict(run.header.specs),
        "selection": {"sha256": run.header.selection, "cases": len(run.results)},
        "totals": totals(run.results),
        "exit_code": run.footer.exit_code,
        "profile": profile,
        "statement": [encode(statement)]
        if (statement := profile_statement(run.header, run.results))
        else [],
        "signer": signer,
    }
    return as_json(
        {
            "_type": STATEMENT_TYPE,
            "subject": subject,
            "predicateType": PREDICATE_TYPE,
            "predicate": predicate,
        }
    )


def signer_in(statement: bytes) -> str:
    """Return the id of the key that a Statement says it is signed with; empty for none."""
    try:
        return str(json.loads(statement)["predicate"]["signer"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""


def differences(attested: bytes, expected: bytes) -> Iterator[str]:
    """Yield how a Statement is not what the other members give."""
    try:
        attested_statement, expected_statement = (
            {**statement, **statement["predicate"]}
            for statement in map(json.loads, (attested, expected))
        )
        digests, members = (
            {subject["name"]: subject["digest"] for subject in statement["subject"]}
            for statement in (attested_statement, expected_statement)
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        yield "it is not a Statement in JSON"
        return
    for name in sorted(digests.keys() | members.keys(), key=str):
        if digests.get(name) != members.get(name):
            problem = (
                "is not there"
                if name not in members
                else "is not named"
                if name not in digests
                else "has another sha256"
            )
            yield f"the member '{one_line(name)}' {problem}"
    keys = sorted(
        key
        for key in attested_statement.keys() | expected_statement.keys()
        if key not in ("predicate", "subject")
        and attested_statement.get(key) != expected_statement.get(key)
    )
    yield from (f"'{one_line(key)}' is not what the archive gives" for key in keys)
    if not keys and digests == members and attested != expected:
        yield "it is not written as 'submit' writes it"


# -- signatures ------------------------------------------------------------------------------------


def read_key(path: Path, *, private: bool) -> Any:
    """Return the private or the public key of a PEM file; raise ``UsageError`` for anything
    else.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UsageError(
            "--key needs the package cryptography (pip install cryptography)"
        ) from error
    data = read_untrusted(path, _MOST_KEY, f"--key {shown_path(path)}")

    kind: type = ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey
    with contextlib.suppress(ValueError, TypeError):
        key = (
            serialization.load_pem_private_key(data, None)
            if private
            else serialization.load_pem_public_key(data)
        )
        if isinstance(key, kind):
            return key
    expected = (
        "private key of the kind Ed25519 in PEM form without a passphrase"
        if private
        else "public key of the kind Ed25519 in PEM form"
    )
    hint = (
        "openssl genpkey -algorithm ed25519 -out KEY" if private else "openssl pkey -in KEY -pubout"
    )
    raise UsageError(f"--key {shown_path(path)}: this is no {expected} ({hint})")


def read_untrusted(path: Path, limit: int, title: str) -> bytes:
    """Return so many bytes of a file that the command line names; raise ``UsageError``."""
    try:
        with open_untrusted(path.resolve()) as stream:
            return stream.read(limit)
    except OSError as error:
        raise UsageError(f"{title}: it cannot be read: {error.strerror or error}") from error


def key_id(key: "Ed25519PublicKey") -> str:
    """Return the id of a key: the sha256 of its raw bytes."""
    return digest(key.public_bytes_raw())


def _to_sign(payload: bytes) -> bytes:
    """Return the pre-authentication encoding of DSSE v1."""
    kind = PAYLOAD_TYPE.encode("ascii")
    return b" ".join(
        [b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload]
    )


def _envelope(statement: bytes, signer: str, signature: bytes) -> bytes:
    payload, encoded = (base64.b64encode(data).decode("ascii") for data in (statement, signature))
    return as_json(
        {
            "payloadType": PAYLOAD_TYPE,
            "payload": payload,
            "signatures": [{"keyid": signer, "sig": encoded}],
        }
    )


def signed(statement: bytes, key: "Ed25519PrivateKey") -> bytes:
    """Return the envelope of a Statement."""
    return _envelope(statement, key_id(key.public_key()), key.sign(_to_sign(statement)))


def why_not_signed(envelope: bytes, statement: bytes, key: "Ed25519PublicKey | None") -> str:
    """Return why an envelope is not a signature of a Statement by a key; empty if it is.

    Without a key only its form is checked.
    """
    try:
        (entry,) = json.loads(envelope)["signatures"]
        signer, signature = str(entry["keyid"]), base64.b64decode(entry["sig"], validate=True)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        return f"it is not an envelope with one signature: {type(error).__name__}"
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
