"""Names of variables and options whose values are secrets, and the names of the variables that are recorded."""

import functools
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

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


HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "KEYTIMEOUT"})


ORDINARY = frozenset("true false none null yes no enabled disabled default auto always never inductor eager debug info".split())


def is_secret_name(name: str) -> bool:
    """Whether a variable, option or parameter with this name holds a secret."""
    if name in HARMLESS_NAMES:
        return False
    words = words_of(name)
    joined = "".join(words)
    if ends_in_secret(words) or is_session(words):
        return True
    return any(word in _SECRET_WORDS for word in words) or any(part in joined for part in _SECRET_PARTS)


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case and in the singular: ``db_Pass``, ``dbPass`` and ``DB-PASS`` give the same words."""
    found = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return [word if word.endswith("ss") else word.removesuffix("s") for word in found]


def ends_in_secret(words: Sequence[str]) -> bool:
    """Return whether the last word of a name, such as ``pass``, marks a secret. Names with words of compilers are excluded."""
    return bool(words) and words[-1] in _LAST_WORDS and not _OF_COMPILERS.intersection(words)


def is_session(words: Sequence[str]) -> bool:
    """Whether a name means a session id: ``AWS_SESSION``, ``sessionId``. Other sessions are not secrets."""
    pairs = list(itertools.pairwise(words))
    return ("aw", "session") in pairs or ("session", "id") in pairs or "sessionid" in words


@functools.cache
def recorded_variables() -> frozenset[str]:
    """Return the variable names of the committed list."""
    return frozenset(VARIABLES.read_text("ascii").split())
