"""Masks secrets in everything that is recorded, reported or printed as a message.

All writers use the rules of this module.

- Environment variables are recorded by exact name, from the committed list ``data/variables.txt``.
  A prefix is never enough.
- ``KNOWN`` masks values wherever they occur: of variables and of ``env:`` of specs with names of
  secrets, passwords in URLs there and in
  the command line, passwords of services. Workers inherit the environment and may print it.
- ``redacted`` masks, in addition, what is a secret by its form: user, password and query of a URL,
  ``user:password@host``, tokens of well-known
  services, private keys, Authorization headers, and the value of ``password=``, ``token=``,
  ``secret=``. It guesses from no other name: a
  pass of a compiler and a key of a cache are not secrets.
- ``redacted_result`` applies both to all free text of a result. Identifiers, digests and file names
  stay, because readers compare them.

Files in a case's folder (``stdout.txt``, ``observation.json``, generated code) belong to the worker
and are not masked.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from torch_conformance.model.protocol import Json
from torch_conformance.model.results import CaseResult, Redacted

MASK = "***"

RECORDED_VARIABLES = frozenset(
    (Path(__file__).parent / "data" / "variables.txt").read_text("ascii").split()
)
"""Names of recorded environment variables: switches, numbers, devices and folders of torch and its
libraries.
"""

_SECRET_WORDS = frozenset(
    "token secret password passwd passphrase passcode pwd pass pin auth authorization bearer "
    "credential cred pat key private cookie signature sig dsn jwt webhook".split()
)
_SECRET_PARTS = tuple(
    "token secret passw passphrase apikey credential oauth privatekey accesskey accountkey".split()
)
"""Parts of a name that mark a secret without separators: ``githubtoken``."""

HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM"})

ORDINARY = frozenset(
    "true false none null yes no enabled disabled default auto always never inductor eager "
    "debug info".split()
)
"""Values that are not secrets, under any name."""

_SHORTEST = 5
"""In characters. A shorter value is probably an ordinary word of the output."""

_WHOLE_WORD_BELOW = 8
"""In characters. A shorter value is masked only as a whole word."""


def is_secret_name(name: str) -> bool:
    """Whether a variable or an option with this name holds a secret.

    ``DB_PASS``, ``dbPass`` and ``db-pass`` are one name.
    """
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    words = [word if word.endswith("ss") else word.removesuffix("s") for word in words]
    is_secret = not _SECRET_WORDS.isdisjoint(words) or any(
        part in "".join(words) for part in _SECRET_PARTS
    )
    return is_secret and name not in HARMLESS_NAMES


# -- values: what is masked wherever it occurs -----------------------------------------------------


class KnownSecrets:
    """The values to mask wherever they occur."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn_environment(self, environ: Mapping[str, object]) -> None:
        """Learn the values of variables whose names look secret, and the passwords of URLs in any
        variable.

        None is a variable without.
        """
        for name, value in environ.items():
            if is_secret_name(name) and value is not None:
                self.learn(str(value), *str(value).splitlines())
            self.learn_urls(str(value))

    def learn_urls(self, text: str) -> None:
        """Learn the passwords between ``user:`` and ``@host`` in a text, with or without a
        scheme.
        """
        for word in text.split() if "@" in text else ():
            for url in re.split(r"(?=[A-Za-z][A-Za-z0-9+.-]*://)", word):
                userinfo, _, _ = url.rpartition("://")[2].rpartition("@")
                self.learn(userinfo.partition(":")[2])

    def learn(self, *values: str) -> None:
        """Add values to mask, also in stripped and in URL-quoted form.

        Short values and ordinary words are ignored, because they also occur where they are not
        secrets.
        """
        for value in values:
            for form in (value, value.strip(), quote(value, safe=""), unquote(value)):
                if (
                    len(form) >= _SHORTEST
                    and form.lower() not in ORDINARY
                    and not os.path.exists(form)
                ):
                    self._values[form] = None
        self._pattern = None

    def masked(self, text: str) -> str:
        """Return a text without these values."""
        if not self._values:
            return text
        if self._pattern is None:
            word = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])"
            longest_first = sorted(self._values, key=len, reverse=True)
            forms = [
                (word if len(value) < _WHOLE_WORD_BELOW else "{}").format(re.escape(value))
                for value in longest_first
            ]
            self._pattern = re.compile("|".join(forms))
        return self._pattern.sub(MASK, text)


KNOWN = KnownSecrets()
"""The secrets of this process; commands and services add to it."""

# -- forms: every repetition is bounded, so that matching takes linear time ------------------------

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://"

_URL = re.compile(
    rf"(?P<scheme>{_SCHEME})(?P<rest>(?:(?!(?<![A-Za-z0-9+.-]){_SCHEME})[^\s\"<>`])*)"
)

_QUERY = re.compile(r"(?P<sign>\?)[^\s].*|(?P<other>#)(?=[^=]*=).*", re.DOTALL)
"""What follows a ``?``, and a fragment with a value: ``#access_token=...``."""

_TRAILING = re.compile(r"['()\[\]{},.;:!]*\Z")

_BARE_USERINFO = re.compile(r"(?<![\w./@:*-])[\w.+%-]{1,64}:(?!//)[^\s\"<>]{1,256}@(?=[\w\[])")
"""User and password without a scheme: the text from a colon to the last @ of a word."""

_ASSIGNED = re.compile(
    r"(?P<name>(?:password|passwd|passphrase|secret|token|api_?key)"
    r"(?:\s{0,4}=(?!=)\s{0,4}|\\{0,3}[\"']\s{0,4}[:=]\s{0,4}|(?<!token):(?!:)\s{0,4}))"
    r"(?P<value>(?P<escape>\\{1,3})(?P<sign>[\"'])(?:(?!(?P=escape)(?P=sign)).){0,4096}(?P=escape)(?P=sign)"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\s&]*[^\s&\"')\]}},;])",
    re.IGNORECASE,
)
"""``password=value``, ``"token": "value"``, ``secret: value``.

A token after a colon is what a parser did not expect.
"""

_HEADER = re.compile(
    r"(?P<name>\b(?:(?:proxy-)?authorization|x-[\w-]{0,40}(?:token|key|auth)|private-token|(?:set-)?cookie)[\"']?\s{0,4}[:=]\s{0,4}[\"']?"
    r"(?:(?:bearer|basic|digest|token|negotiate|apikey)\s{1,4})?|\b(?:bearer|basic)\s{1,4}(?=[A-Za-z._~+/-]{0,256}[\d=])(?=[\w.~+/=-]{6}))"
    r"[^\s\"',;)\]}]+",
    re.IGNORECASE,
)

_WHOLE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 "
    r"]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    r"|\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{20,}|glpat-[\w-]{16,200}|hf_[A-Za-z0-9]{16,}|xox[a-z]-[\w-]{10,200}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}|npm_[A-Za-z0-9]{16,}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}|AIza[\w-]{20,200}|pypi-[\w-]{20,400}"
    r"|sk-[\w-]{20,200}|eyJ[\w-]{8,2000}\.[\w-]{8,}\.[\w-]*)"
    r"|(?<=hooks\.slack\.com/services/)[^\s\"'<>]+|(?<=discord\.com/api/webhooks/)[^\s\"'<>]+"
    # user and password of a URL that is a value in another URL, percent-encoded
    r"|(?<=%3[Aa]%2[Ff]%2[Ff])(?:(?!%2[Ff])[^\s\"'<>`&]){1,512}(?=%40)",
    re.DOTALL,
)
"""Private keys, and tokens of well-known services."""


def redacted(text: str) -> str:
    """Return a text without known secrets and without text in the form of a secret.

    An ambiguous ``@`` is read as the end of a password: a masked host name is the smaller harm.
    """
    text = _WHOLE.sub(MASK, KNOWN.masked(text))
    if "://" in text:
        text = _URL.sub(_masked_url, text)
    text = _ASSIGNED.sub(_masked_value, _HEADER.sub(rf"\g<name>{MASK}", text))
    return _BARE_USERINFO.sub(f"{MASK}@", text) if "@" in text else text


def _masked_value(match: re.Match[str]) -> str:
    value = match["value"].strip("\\\"'")
    is_trivial = (
        len(value) < _SHORTEST or value.lower() in ORDINARY or value.startswith((*"[({<", MASK))
    )
    return match[0] if is_trivial else f"{match['name']}{MASK}"


def _masked_url(match: re.Match[str]) -> str:
    trailing = _TRAILING.search(match["rest"])
    rest = match["rest"][: trailing.start()] if trailing else match["rest"]
    after = match["rest"][len(rest) :]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority and ":" not in authority.partition("@")[0]:
        rest = f"{MASK}@{rest[authority.rindex('@') + 1 :]}"
    elif "@" in rest and ":" in authority:  # a password may contain any of /?#@
        rest = f"{MASK}@{rest.rpartition('@')[2]}"
    return f"{match['scheme']}{_QUERY.sub(lambda query: query[0][0] + MASK, rest)}{after}"


# -- records ---------------------------------------------------------------------------------------


def environment_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the recorded variables by name.

    Merged parts of a run are compared by these variables only. Digests of other values are not
    recorded, because a short secret could be guessed from its digest.
    """
    return {name: redacted(environ[name]) for name in sorted(environ.keys() & RECORDED_VARIABLES)}


def redacted_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts by name, without secrets.

    A text is masked completely if its name means a secret.
    """
    return {
        name: MASK if value and is_secret_name(name) else redacted(value)
        for name, value in texts.items()
    }


IDENTIFIERS = frozenset(
    (
        "case_id spec area name backend folder digest evidence attachments covers cases until "
        "file kind failure_type isolation phases"
    ).split()
)
"""Identifier fields of results. Readers compare them, and workers do not write them."""

_Record = TypeVar("_Record")


def redacted_record(record: _Record) -> _Record:
    """Return a record with all free text masked, also in the records within it; the same object
    where nothing changes.
    """
    masked: _Record = _masked(record)
    return masked


def redacted_result(result: CaseResult) -> Redacted:
    """Return a result with all free text masked, also in its verdicts, waivers and attempts."""
    return Redacted(redacted_record(result))


def _masked(value: object) -> Json:
    if isinstance(value, str):
        shown = redacted(value) if value else value
        return value if shown == value else shown
    if isinstance(value, tuple):
        items = tuple(map(_masked, value))
        return (
            value
            if all(masked is other for masked, other in zip(items, value, strict=True))
            else items
        )
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.name not in IDENTIFIERS
    }
    changed = {name: masked for name, old in fields.items() if (masked := _masked(old)) is not old}
    return dataclasses.replace(value, **changed) if changed else value
