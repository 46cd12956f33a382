"""Masks secrets in everything that is recorded, reported or printed as a message. All writers use the rules of this module.

Four rules:

1. Environment variables are recorded by exact name, from the committed list ``data/variables.txt``. A prefix is never enough.
2. ``redacted`` masks forms: user, password and query of every URL, ``user:password@host``, the value of ``--token`` and similar options,
   ``password=...``, Authorization headers.
3. ``KNOWN`` masks values: environment variables with names of secrets, passwords in URLs there, passwords of services.
   Workers inherit the environment and may print it.
4. ``redacted_result`` applies 2 and 3 to all free text of a result. Identifiers, digests and file names stay, because readers compare them.

Files in a case's folder (``stdout.txt``, ``observation.json``, generated code) belong to the worker and are not masked.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from runner.system.known_secrets import KNOWN, MASK
from runner.system.secret_names import HARMLESS_NAMES, ends_in_secret, is_secret_name, is_session, recorded_variables, words_of

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"<>`]*")


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")


_QUERY = re.compile(r"[?#].*", re.DOTALL)


_TRAILING = re.compile(r"['()\[\]{},.;:!]*\Z")


_ENCODED_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}%(?:25){0,3}3A%(?:25){0,3}2F%(?:25){0,3}2F[^\s\"'<>`]*", re.IGNORECASE)


# without a scheme: the text from a colon to the last @ of a word
_BARE_USERINFO = re.compile(r"(?<![\w./@:*-])[\w.+%-]{1,64}:(?!//)[^\s\"<>]{1,256}@(?=[\w\[])")


# every repetition is bounded, so that matching takes linear time
_OPTION = re.compile(r"(?<![\w-])-{1,2}(?P<name>[A-Za-z][\w.-]{0,60})(?:=|\s{1,8})")


_ASSIGNED = re.compile(
    r"(?<![\w-])(?P<name>[A-Za-z_][\w.-]{0,60})(?P<quote>\\{0,3}[\"'])?(?:\s{0,4}=(?!=)\s{0,4}|\s{0,4}:\s{1,4}|:(?=\\{0,3}[\"']))"
)


_GLUED = re.compile(r"(?<![\w./-])(?P<name>[A-Za-z_][\w-]{0,60})(?P<quote>\\{0,3}[\"'])?:(?=[^\s:])")
"""``password:value``. Without a blank after the colon it may also be a position or a type."""


_HEADER = re.compile(
    r"\b(?P<name>(?:proxy-)?authorization|x-[\w-]{0,40}(?:token|key|auth)[\w-]{0,40}|private-token|(?:set-)?cookie)[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
    r"(?:(?:bearer|basic|digest|token|negotiate|apikey)\s{1,4})?",
    re.IGNORECASE,
)


_SCHEME_WORD = re.compile(r"\b(?:bearer|basic)\s{1,4}(?=[A-Za-z._~+/-]{0,256}[\d=])(?=[\w.~+/=-]{6})", re.IGNORECASE)


_QUOTED = (
    r"(?P<escape>\\{1,3})(?P<sign>[\"'])(?:(?!(?P=escape)(?P=sign)).){0,4096}(?P=escape)(?P=sign)"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
)


_VALUE = re.compile(rf"{_QUOTED}|[^\s\"',;&|)\]}}]+")


_LITERAL = re.compile(rf"{_QUOTED}|[^\s,\]}}]+")
"""A value after a quoted name, as in JSON."""


_TO_BLANK = re.compile(rf"{_QUOTED}|[^\s&]+")
"""A value after ``name=``. A password may contain any character except blanks and ``&``."""


_WITHIN = {quote: re.compile(rf"{_QUOTED}|[^\s&{quote}]+") for quote in "\"'"}
"""The same after a quoted ``name=``: the quote ends the value."""


_CLOSING = re.compile(r"[\"')\]},;]+\Z")


_ASSIGNED_WORDS = frozenset(
    (
        "token secret password passwd passphrase passcode pwd credential cred pat webhook dbpass userpass sshpass "
        "apikey accesskey privatekey secretkey accountkey signingkey encryptionkey masterkey"
    ).split()
)


_ASSIGNED_PARTS = ("password", "passwd", "passphrase", "apikey", "accesskey", "privatekey", "secretkey", "accountkey", "credential")


_ASSIGNED_ENDS = ("token", "secret")


_HARMLESS_VALUE = re.compile(r"[\"']?(?:[0-9]{1,3}|true|false|none|null|yes|no|on|off|/[^\s\"']*)[\"']?", re.IGNORECASE)
"""Values that are not masked after a name that may or may not mean a secret."""


_OF_PROGRAMS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\b(?:curl|wget|http|https|xh)\b[^\n]{0,500}?\s(?:-u|-U)|(?<!\S)--(?:proxy-)?user)(?:\s{1,8}|=)?(?!\d{1,9}:\d{1,9}(?!\S))(?=[\"']?[^\s:\"']{1,256}:)",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n]{0,500}?\s-p(?=[^\s])",
        r"\bsshpass\b[^\n]{0,100}?\s-p\s{0,8}(?=[^\s])",
        r"\b(?:login|user|account)\s{1,8}[^\s]{1,256}\s{1,8}password\s{1,8}(?=[^\s])",
    )
)
"""The text before a password on command lines of known programs and in a netrc file."""


_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)", re.DOTALL
)


_WELL_KNOWN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,200}|hf_[A-Za-z0-9]{16,}|xox[a-z]-[\w-]{10,200}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}|npm_[A-Za-z0-9]{16,}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}|AIza[\w-]{20,200}|pypi-[\w-]{20,400}"
    r"|sk-[\w-]{20,200}|eyJ[\w-]{8,2000}\.[\w-]{8,}\.[\w-]*)"
)


_WEBHOOK = re.compile(r"(?<=hooks\.slack\.com/services/)[^\s\"'<>]+|(?<=discord\.com/api/webhooks/)[^\s\"'<>]+")


def redacted(text: str) -> str:
    """Return a text without known secrets and without text in the form of a secret.

    An ambiguous ``@`` is read as the end of a password: a masked host name is the smaller harm.
    """
    text = KNOWN.masked(text)
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(MASK, text)
    if "://" in text:
        text = _URL.sub(lambda found: _masked_urls(found.group()), text)
        text = _WEBHOOK.sub(MASK, text)
    if "%" in text:
        text = _ENCODED_URL.sub(lambda found: _masked_encoded(found.group()), text)
    for pattern in _OF_PROGRAMS:
        text = _masked_after(pattern, text, lambda name: True, _TO_BLANK)
    text = _masked_after(_HEADER, text, lambda name: True)
    text = _masked_after(_SCHEME_WORD, text, lambda name: True)
    text = _masked_after(_OPTION, text, is_secret_name)
    text = _masked_after(_ASSIGNED, text, _is_assigned_secret, _TO_BLANK)
    text = _masked_after(_GLUED, text, _is_glued_secret, _TO_BLANK)
    if "@" in text:
        text = _BARE_USERINFO.sub(f"{MASK}@", text)
    return _WELL_KNOWN.sub(MASK, text)


def _masked_after(pattern: re.Pattern[str], text: str, is_secret: Callable[[str], bool], form: re.Pattern[str] = _VALUE) -> str:
    """Mask the value after each match with the name of a secret. Other text stays."""
    pieces: list[str] = []
    end = 0
    for found in pattern.finditer(text):
        groups = found.groupdict()
        if found.start() < end or not is_secret(groups.get("name", "")):
            continue
        value_end = _end_of_value(found, text, form)
        if value_end == found.end() or (_is_doubtful(groups.get("name", "")) and _HARMLESS_VALUE.fullmatch(text, found.end(), value_end)):
            continue
        pieces += [text[end : found.end()], MASK]
        end = value_end
    return "".join([*pieces, text[end:]])


def _end_of_value(found: re.Match[str], text: str, form: re.Pattern[str]) -> int:
    """Return where the value after a name ends. Closing brackets and quotes of the text around it are not part of it."""
    if form is _TO_BLANK:
        before = text[found.start() - 1 : found.start()]
        form = _LITERAL if found.groupdict().get("quote") else _WITHIN.get(before, _TO_BLANK)
    value = form.match(text, found.end())
    if value is None:
        return found.end()
    if value.group()[0] in "\"'" and value.group()[-1] == value.group()[0] and len(value.group()) > 1:
        return value.end()
    if value.group()[0] == "\\" or form is _VALUE:
        return value.end()
    closing = _CLOSING.search(value.group())
    return value.start() + closing.start() if closing and closing.start() else value.end()


def _is_assigned_secret(name: str) -> bool:
    """Whether ``name = value`` in free text is a secret. ``key`` and ``auth`` alone have other meanings there."""
    words = words_of(name)
    pairs = [one + other for one, other in itertools.pairwise(words)]
    joined = "".join(words)
    if name in HARMLESS_NAMES:
        return False
    if ends_in_secret(words) or is_session(words) or any(part in joined for part in _ASSIGNED_PARTS):
        return True
    return any(word in _ASSIGNED_WORDS for word in [*words, *pairs, joined]) or joined.endswith(_ASSIGNED_ENDS)


def _is_glued_secret(name: str) -> bool:
    """Whether ``name:value`` is a secret: the name must end with a word for secrets, because types and positions follow many names."""
    return _is_assigned_secret(name) and _is_assigned_secret("".join(words_of(name)[-1:]) or name)


def _is_doubtful(name: str) -> bool:
    """Whether only some values of this name are secrets: ``pass: 3`` is a count, ``pwd=/tmp`` a folder, ``tokens=128`` a size."""
    words = words_of(name)
    return words[-1:] in (["pass"], ["pin"], ["pwd"], ["cred"]) or name.lower().endswith("tokens")


def _masked_encoded(run: str) -> str:
    """Mask a URL that is percent-encoded once or several times. A URL without a secret is unchanged."""
    plain = run
    while "://" not in plain and (decoded := unquote(plain)) != plain:
        plain = decoded
    shown = _masked_urls(plain) if _SCHEME.search(plain) else plain
    return run if shown == plain else quote(shown, safe="*")


def _masked_urls(run: str) -> str:
    """Mask each URL of a text without blanks. The text may hold several URLs in a row."""
    starts = [found.start() for found in _SCHEME.finditer(run)]
    ends = [*starts[1:], len(run)]
    return run[: starts[0]] + "".join(_masked_url(run[start:end]) for start, end in zip(starts, ends, strict=True))


def _masked_url(url: str) -> str:
    scheme, sign, rest = url.partition("://")
    trailing = _TRAILING.search(rest)
    end = trailing.start() if trailing else len(rest)
    rest, after = rest[:end], rest[end:]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority and ":" not in authority.partition("@")[0]:
        rest = f"{MASK}@{rest[authority.rindex('@') + 1 :]}"
    elif "@" not in rest and (encoded := re.match(r".*%40", authority, re.IGNORECASE | re.DOTALL)):
        rest = f"{MASK}%40{rest[encoded.end() :]}"
    elif "@" in rest and ":" in authority:  # a password may contain any of /?#@
        rest = f"{MASK}@{rest.rpartition('@')[2]}"
    return f"{scheme}{sign}{_QUERY.sub(lambda found: found.group()[0] + MASK if len(found.group()) > 1 else found.group(), rest)}{after}"


def environment_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded variables by name.

    Merged parts of a run are compared by these variables only. Digests of other values are not recorded, because a short secret could be
    guessed from its digest.
    """
    return {name: redacted(environ[name]) for name in sorted(environ.keys() & recorded_variables())}


def redacted_command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line without secrets. The argument after ``--token`` is always masked."""
    shown: list[str] = []
    is_value = False
    for argument in argv:
        name, sign, _ = argument.partition("=")
        is_option = name.startswith("-") and is_secret_name(name.lstrip("-"))
        if is_value:
            shown.append(MASK)
        else:
            shown.append(f"{name}={MASK}" if is_option and sign else redacted(argument))
        is_value = is_option and not sign and not is_value
    return tuple(shown)


def learn_command(argv: Sequence[str]) -> None:
    """Add the secrets of a command line to ``KNOWN``."""
    KNOWN.learn_command(argv, redacted_command(argv))


IDENTIFIERS = frozenset(
    {
        "case_id",
        "spec",
        "area",
        "name",
        "backend",
        "folder",
        "digest",
        "evidence",
        "attachments",
        "covers",
        "cases",
        "until",
        "file",
        "kind",
    }
    | {"failure_type", "isolation", "phases"}
)
"""Identifier fields of results. Readers compare them, and workers do not write them."""


_Record = TypeVar("_Record")


def redacted_result(record: _Record) -> _Record:
    """Return a result with all free text masked, also in its verdicts, waivers and attempts."""
    assert dataclasses.is_dataclass(record)
    assert not isinstance(record, type)
    given = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    changed = {name: shown for name, value in given.items() if name not in IDENTIFIERS and (shown := _redacted_value(value)) is not value}
    return dataclasses.replace(record, **changed) if changed else record


def _redacted_value(value: Any) -> Any:
    if isinstance(value, str):
        shown = redacted(value) if value else value
        return value if shown == value else shown
    if isinstance(value, tuple):
        items = tuple(map(_redacted_value, value))
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    return redacted_result(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def redacted_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts by name, without secrets. A text is masked completely if its name means a secret."""
    return {name: MASK if value and is_secret_name(name) else redacted(value) for name, value in texts.items()}
