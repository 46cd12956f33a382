"""Masks secrets in everything that is recorded, reported or printed as a message: one module, so that no writer has rules of its own.

Four rules:

1. Environment variables are recorded by exact name, from the committed list ``data/variables.txt``. A prefix is never enough.
2. ``redacted`` masks forms: user, password and query of every URL, ``user:password@host``, the value of ``--token`` and its like,
   ``password=...``, Authorization headers.
3. ``KNOWN`` masks values: those of environment variables whose names look secret, passwords within URLs there, passwords of services.
   Workers inherit the environment and may print it.
4. ``redacted_result`` applies 2 and 3 to all free text of a result. Identifiers, digests and file names stay, because readers compare them.

Files in a case's folder (``stdout.txt``, ``observation.json``, generated code) are the worker's own and are not masked.
"""

import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

VARIABLES = Path(__file__).parent / "data" / "variables.txt"
"""Names of environment variables that are recorded: switches, numbers, devices and folders of torch and its libraries."""

MASK = "***"

_SECRET_WORDS = (
    *("token", "secret", "password", "passwd", "passphrase", "pwd", "auth", "authorization", "bearer", "credential", "pat"),
    *("key", "apikey", "accesskey", "private", "cookie", "signature", "sig", "dsn", "jwt"),
)
_SECRET_PARTS = ("token", "secret", "passw", "apikey", "credential", "oauth", "privatekey", "accesskey")
"""Parts of a name that mean a secret even where no separator stands around them: ``githubtoken``."""

_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "KEYTIMEOUT"})
_ORDINARY = frozenset("true false none null yes no enabled disabled default auto always never inductor eager debug info".split())
_SHORTEST = 5
"""Characters; a shorter value is too likely to be an ordinary word of the output."""

_WHOLE_WORD_BELOW = 8
"""A shorter value is masked only where it stands as a word."""


def is_secret_name(name: str) -> bool:
    """Whether a variable, an option or a parameter of this name holds a secret."""
    if name in _HARMLESS_NAMES:
        return False
    words = [word.lower().removesuffix("s") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    joined = re.sub(r"[^a-z]", "", name.lower())
    if words[-1:] == ["pas"]:  # ``DB_PASS``; ``--pass-pipeline`` is a compiler's
        return True
    return any(word in _SECRET_WORDS for word in words) or any(part in joined for part in _SECRET_PARTS)


@functools.cache
def recorded_variables() -> frozenset[str]:
    """Return the names of the committed list."""
    return frozenset(VARIABLES.read_text("ascii").split())


def environment_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are recorded, by name.

    Parts of a run are compared by these alone, so that no digest of a secret is needed: a short secret could be guessed from one.
    """
    return {name: redacted(environ[name]) for name in sorted(environ.keys() & recorded_variables())}


# -- forms ----------------------------------------------------------------------------------------------------------

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"<>`]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}://")
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_TRAILING = re.compile(r"['()\[\]{},.;:!]*\Z")
# no scheme: what follows a colon up to an @, within one word
_BARE_USERINFO = re.compile(r"(?<![\w./@:*-])[\w.+%-]{1,64}:(?!//)[^\s@\"<>]{1,256}@(?=[\w\[])")
# every repetition is bounded, so that no text takes more than linear time
_OPTION = re.compile(r"(?<![\w-])-{1,2}(?P<name>[A-Za-z][\w.-]{0,60})(?:=|\s{1,8})")
_ASSIGNED = re.compile(r"(?<![\w-])(?P<name>[A-Za-z_][\w.-]{0,60})[\"']?(?:\s{0,4}=\s{0,4}|\s{0,4}:\s{1,4}|:(?=[\"']))")
_HEADER = re.compile(
    r"\b(?P<name>(?:proxy-)?authorization|x-[\w-]{0,40}(?:token|key|auth)[\w-]{0,40}|private-token|(?:set-)?cookie)[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
    r"(?:(?:bearer|basic|digest|token|negotiate|apikey)\s{1,4})?",
    re.IGNORECASE,
)
_SCHEME_WORD = re.compile(r"\b(?:bearer|basic)\s{1,4}(?=[A-Za-z._~+/-]{0,256}[\d=])(?=[\w.~+/=-]{6})", re.IGNORECASE)
_VALUE = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|[^\s\"',;&|)\]}]+")
_ASSIGNED_WORDS = frozenset("token secret password passwd passphrase credential pat apikey accesskey privatekey secretkey".split())
_WELL_KNOWN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,200}|hf_[A-Za-z0-9]{16,}|xox[abprs]-[\w-]{10,200}|AKIA[0-9A-Z]{16}"
    r"|sk-[\w-]{20,200}|eyJ[\w-]{8,2000}\.[\w-]{8,}\.[\w-]*)"
)


def redacted(text: str) -> str:
    """Return a text without what is known to be a secret, or looks like one.

    Where it cannot be told whether an ``@`` ends a password, it is taken to: losing a host name is the smaller harm.
    """
    text = KNOWN.masked(text)
    if "://" in text:
        text = _URL.sub(lambda found: _masked_urls(found.group()), text)
    if "@" in text:
        text = _BARE_USERINFO.sub(f"{MASK}@", text)
    text = _masked_after(_HEADER, text, lambda name: True)
    text = _masked_after(_SCHEME_WORD, text, lambda name: True)
    text = _masked_after(_OPTION, text, is_secret_name)
    text = _masked_after(_ASSIGNED, text, _is_assigned_secret)
    return _WELL_KNOWN.sub(MASK, text)


def _masked_after(pattern: re.Pattern[str], text: str, is_secret: Callable[[str], bool]) -> str:
    """Mask the value behind each match whose name is a secret's; what is no value, and other names, stay."""
    pieces: list[str] = []
    end = 0
    for found in pattern.finditer(text):
        if found.start() < end or not is_secret(found.groupdict().get("name", "")):
            continue
        value = _VALUE.match(text, found.end())
        if value is not None:
            pieces += [text[end : found.end()], MASK]
            end = value.end()
    return "".join([*pieces, text[end:]])


def _is_assigned_secret(name: str) -> bool:
    """Whether ``name = value`` in free text is a secret: ``key`` and ``auth`` alone mean other things there."""
    words = [word.lower().removesuffix("s") for word in re.split(r"[^A-Za-z]+", name) if word]
    pairs = [one + other for one, other in itertools.pairwise(words)]
    return is_secret_name(name) and any(word in _ASSIGNED_WORDS for word in [*words, *pairs, "".join(words)])


def _masked_urls(run: str) -> str:
    """Mask each URL of a text without blanks: several may follow each other."""
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
    elif "@" in rest and ":" in authority:  # a password may hold any of /?#@
        rest = f"{MASK}@{rest.rpartition('@')[2]}"
    return f"{scheme}{sign}{_QUERY.sub(lambda found: found.group()[0] + MASK if len(found.group()) > 1 else found.group(), rest)}{after}"


def redacted_command(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line without secrets: the argument that follows ``--token`` is one, whatever it looks like."""
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


# -- values ---------------------------------------------------------------------------------------------------------


class KnownSecrets:
    """Values that are secrets wherever they appear."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn_environment(self, environ: Mapping[str, str]) -> None:
        """Learn the values of variables whose names look secret, and the passwords of URLs in any variable."""
        for name, value in environ.items():
            if is_secret_name(name):
                self.learn(value, *value.splitlines())
            self.learn(*_passwords(value))

    def learn_command(self, argv: Sequence[str]) -> None:
        """Learn the values of secret options and the passwords of URLs of a command line."""
        for argument, shown, before in zip(argv, redacted_command(argv), ["", *argv], strict=False):
            self.learn(*_passwords(argument))
            if shown == MASK and before.startswith("-"):
                self.learn(argument)
            elif shown.endswith(f"={MASK}"):
                self.learn(argument.partition("=")[2])

    def learn(self, *values: str) -> None:
        """Learn values; one that is short, or an ordinary word, is left out: it would be masked where it means nothing."""
        for value in values:
            for form in (value, value.strip(), quote(value, safe=""), unquote(value)):
                if len(form) >= _SHORTEST and form.lower() not in _ORDINARY and not os.path.exists(form):
                    self._values[form] = None
        self._pattern = None

    def forget(self) -> None:
        """Forget everything: for tests."""
        self._values.clear()
        self._pattern = None

    def masked(self, text: str) -> str:
        """Return a text without these values."""
        if not self._values:
            return text
        if self._pattern is None:
            longest_first = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(_occurrence, longest_first)))
        return self._pattern.sub(MASK, text)


def _occurrence(value: str) -> str:
    escaped = re.escape(value)
    return rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])" if len(value) < _WHOLE_WORD_BELOW else escaped


def _passwords(text: str) -> list[str]:
    """Return what stands between ``user:`` and ``@host`` in a text, with or without a scheme."""
    found: list[str] = []
    for run in text.split():
        for url in re.split(r"(?=[A-Za-z][A-Za-z0-9+.-]*://)", run) if "://" in run else [run]:
            userinfo, sign, _ = url.rpartition("://")[2].rpartition("@")
            _, colon, password = userinfo.partition(":")
            if sign and colon:
                found.append(password)
    return found


KNOWN = KnownSecrets()
"""The secrets of this process; commands and services add to it."""


# -- results --------------------------------------------------------------------------------------------------------

_IDENTIFIERS = frozenset(
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
"""Fields of results that name something: readers compare them, and no worker writes them."""

_Record = TypeVar("_Record")


def redacted_result(record: _Record) -> _Record:
    """Return a result with all its free text masked, also that of its verdicts, waivers and attempts."""
    assert dataclasses.is_dataclass(record)
    assert not isinstance(record, type)
    given = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    changed = {name: shown for name, value in given.items() if name not in _IDENTIFIERS and (shown := _redacted_value(value)) is not value}
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
    """Return texts by name, each without secrets; one whose name looks secret is masked whole."""
    return {name: MASK if value and is_secret_name(name) else redacted(value) for name, value in texts.items()}
