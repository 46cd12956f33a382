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
import functools
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

MASK = "***"

# -- names ----------------------------------------------------------------------------------------------------------

VARIABLES = Path(__file__).parent / "data" / "variables.txt"
"""Names of recorded environment variables: switches, numbers, devices and folders of torch and its libraries."""

_SECRET_WORDS = (
    *("token", "secret", "password", "passwd", "passphrase", "pwd", "auth", "authorization", "bearer", "credential", "pat"),
    *("key", "apikey", "accesskey", "private", "cookie", "signature", "sig", "dsn", "jwt"),
    *("passcode", "cred", "webhook", "dbpass", "userpass", "sshpass"),
)

_SECRET_PARTS = ("token", "secret", "passw", "passphrase", "apikey", "credential", "oauth", "privatekey", "accesskey", "accountkey")
"""Parts of a name that mark a secret without separators: ``githubtoken``."""

_LAST_WORDS = ("pass", "pin")
"""Words that mark a secret only at the end of a name: ``DB_PASS`` is a secret, ``--pass-pipeline`` and ``pin_memory`` are not."""

_OF_COMPILERS = frozenset("pre post custom grad joint fusion fx graph opt forward backward one single first second last cpu core".split())
"""Other words of a name with which ``pass`` means a compiler pass, and ``pin`` a thread pinned to a core."""

_WORDS_IN_TEXT = frozenset(
    (
        "token secret password passwd passphrase passcode pwd credential cred pat webhook dbpass userpass sshpass "
        "apikey accesskey privatekey secretkey accountkey signingkey encryptionkey masterkey"
    ).split()
)

_PARTS_IN_TEXT = ("password", "passwd", "passphrase", "apikey", "accesskey", "privatekey", "secretkey", "accountkey", "credential")

HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "KEYTIMEOUT"})

ORDINARY = frozenset("true false none null yes no enabled disabled default auto always never inductor eager debug info".split())


def is_secret_name(name: str, *, in_text: bool = False) -> bool:
    """Whether a variable, option or parameter with this name holds a secret.

    ``in_text``: whether ``name = value`` in free text is one. ``key`` and ``auth`` alone have other meanings there.
    """
    if name in HARMLESS_NAMES:
        return False
    words = _words_of(name)
    joined, pairs = "".join(words), list(itertools.pairwise(words))
    if words and words[-1] in _LAST_WORDS and not _OF_COMPILERS.intersection(words):
        return True
    if ("aw", "session") in pairs or ("session", "id") in pairs or "sessionid" in words:  # other sessions are not secrets
        return True
    if in_text:
        candidates = {*words, joined, *(first + second for first, second in pairs)}
        parts = any(part in joined for part in _PARTS_IN_TEXT) or joined.endswith(("token", "secret"))
        return parts or not candidates.isdisjoint(_WORDS_IN_TEXT)
    return any(word in _SECRET_WORDS for word in words) or any(part in joined for part in _SECRET_PARTS)


def _words_of(name: str) -> list[str]:
    """Return the words of a name in lower case and in the singular: ``db_Pass``, ``dbPass`` and ``DB-PASS`` give the same words."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return [word if word.endswith("ss") else word.removesuffix("s") for word in words]


@functools.cache
def recorded_variables() -> frozenset[str]:
    """Return the variable names of the committed list."""
    return frozenset(VARIABLES.read_text("ascii").split())


# -- values: what is masked wherever it occurs --------------------------------------------------------------------------

_SHORTEST = 5
"""In characters. A shorter value is probably an ordinary word of the output."""

_WHOLE_WORD_BELOW = 8
"""In characters. A shorter value is masked only as a whole word."""


class KnownSecrets:
    """The values to mask wherever they occur."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn_environment(self, environ: Mapping[str, str]) -> None:
        """Learn the values of variables whose names look secret, and the passwords of URLs in any variable."""
        for name, value in environ.items():
            if is_secret_name(name):
                self.learn(value, *value.splitlines())
            self.learn(*_passwords(value))

    def learn_options(self, values: Mapping[str, object]) -> None:
        """Learn the values of a spec's ``env:``, as those of the environment."""
        self.learn_environment({name: str(value) for name, value in values.items() if value is not None})

    def learn_command(self, argv: Sequence[str], redacted: Sequence[str]) -> None:
        """Learn the values of secret options and the passwords of URLs of a command line, given its redacted form."""
        for argument, shown, before in zip(argv, redacted, ["", *argv], strict=False):
            self.learn(*_passwords(argument))
            if shown == MASK and before.startswith("-"):
                self.learn(argument)
            elif shown.endswith(f"={MASK}"):
                self.learn(argument.partition("=")[2])

    def learn(self, *values: str) -> None:
        """Learn values. Short values and ordinary words are ignored, because they also occur where they are not secrets."""
        for value in values:
            for form in (value, value.strip(), quote(value, safe=""), unquote(value)):
                if len(form) >= _SHORTEST and form.lower() not in ORDINARY and not os.path.exists(form):
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
    """Return the passwords between ``user:`` and ``@host`` in a text, with or without a scheme."""
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

# -- forms ----------------------------------------------------------------------------------------------------------

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

_HARMLESS_VALUE = re.compile(r"[\"']?(?:[0-9]{1,3}|true|false|none|null|yes|no|on|off|/[^\s\"']*)[\"']?|[\[({]", re.IGNORECASE)
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
    text = _masked_after(_ASSIGNED, text, lambda name: is_secret_name(name, in_text=True), _TO_BLANK)
    text = _masked_after(_GLUED, text, _ends_as_secret, _TO_BLANK)
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


def _ends_as_secret(name: str) -> bool:
    """Whether ``name:value`` is a secret: the name must end with a word for secrets, because types and positions follow many names."""
    return all(is_secret_name(part, in_text=True) for part in (name, "".join(_words_of(name)[-1:]) or name))


def _is_doubtful(name: str) -> bool:
    """Whether only some values of this name are secrets: ``pass: 3`` is a count, ``pwd=/tmp`` a folder, ``tokens=128`` a size."""
    words = _words_of(name)
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
