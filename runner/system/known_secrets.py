"""The secrets of this run: values that are masked wherever they occur."""

import os
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote

from runner.system.secret_names import ORDINARY, is_secret_name

MASK = "***"


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
