"""Which names of variables and options say that their value is a secret, and which variables are recorded at all."""

import functools
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

VARIABLES = Path(__file__).parent / "data" / "variables.txt"
"""Names of environment variables that are recorded: switches, numbers, devices and folders of torch and its libraries."""


_SECRET_WORDS = (
    *("token", "secret", "password", "passwd", "passphrase", "pwd", "auth", "authorization", "bearer", "credential", "pat"),
    *("key", "apikey", "accesskey", "private", "cookie", "signature", "sig", "dsn", "jwt"),
    *("passcode", "cred", "webhook", "dbpass", "userpass", "sshpass"),
)


_SECRET_PARTS = ("token", "secret", "passw", "passphrase", "apikey", "credential", "oauth", "privatekey", "accesskey", "accountkey")
"""Parts of a name that mean a secret even where no separator stands around them: ``githubtoken``."""


_LAST_WORDS = ("pass", "pin")
"""Words that mean a secret at the end of a name alone: ``DB_PASS`` is one, ``--pass-pipeline`` and ``pin_memory`` are none."""


_OF_COMPILERS = frozenset("pre post custom grad joint fusion fx graph opt forward backward one single first second last cpu core".split())
"""Words before ``pass`` or ``pin`` with which it is a compiler's pass, or a thread that is bound to a core."""


HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "KEYTIMEOUT"})


ORDINARY = frozenset("true false none null yes no enabled disabled default auto always never inductor eager debug info".split())


def is_secret_name(name: str) -> bool:
    """Whether a variable, an option or a parameter of this name holds a secret."""
    if name in HARMLESS_NAMES:
        return False
    words = words_of(name)
    joined = "".join(words)
    if ends_in_secret(words) or is_session(words):
        return True
    return any(word in _SECRET_WORDS for word in words) or any(part in joined for part in _SECRET_PARTS)


def words_of(name: str) -> list[str]:
    """Return the words of a name in small letters, each in the singular: ``db_Pass``, ``dbPass`` and ``DB-PASS`` have the same."""
    found = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return [word if word.endswith("ss") else word.removesuffix("s") for word in found]


def ends_in_secret(words: Sequence[str]) -> bool:
    """Return whether the last word of a name, such as ``pass``, makes it a secret's; words of compilers excepted."""
    return bool(words) and words[-1] in _LAST_WORDS and not _OF_COMPILERS.intersection(words)


def is_session(words: Sequence[str]) -> bool:
    """Whether a name is that of a session's identity: ``AWS_SESSION``, ``sessionId``; a session of anything else is no secret."""
    pairs = list(itertools.pairwise(words))
    return ("aw", "session") in pairs or ("session", "id") in pairs or "sessionid" in words


@functools.cache
def recorded_variables() -> frozenset[str]:
    """Return the names of the committed list."""
    return frozenset(VARIABLES.read_text("ascii").split())
