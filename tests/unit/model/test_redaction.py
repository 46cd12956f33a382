"""Secrets: what is recorded, what is masked, and that harmless text stays as it is."""

import dataclasses
import time
from collections.abc import Iterator

import pytest

from tests import fakes
from torch_conformance.machine.capabilities import CaseAvailability
from torch_conformance.machine.redaction import (
    KNOWN,
    RECORDED_VARIABLES,
    KnownSecrets,
    environment_variables,
    is_secret_name,
    redacted,
    redacted_result,
    redacted_texts,
)
from torch_conformance.model.case import Availability, CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import AppliedWaiver, Attempt, CaseResult, WaiverEffect
from torch_conformance.run.pipeline import result_of_unavailable, result_of_unrun


@pytest.fixture(autouse=True)
def _knows_nothing() -> Iterator[None]:
    vars(KNOWN).update(vars(KnownSecrets()))
    yield
    vars(KNOWN).update(vars(KnownSecrets()))


def test_only_names_of_the_committed_list_are_recorded() -> None:
    texts = (
        "TORCH_LOGS=+dynamo TORCHINDUCTOR_CACHE_DIR=/c TRITON_CACHE_DIR=/t CUDA_VISIBLE_DEVICES=0 "
        "ROCM_PATH=/opt/rocm OMP_NUM_THREADS=2"
    )
    harmless = dict(text.split("=") for text in texts.split())
    others = (
        "HOME TORCH_TOKEN TORCH_AUTH TORCH_PAT TORCH_X CUDA_password TORCHINDUCTOR_REDIS_URL "
        "TORCH_TRACE OMP_X".split()
    )
    assert environment_variables({**harmless, **dict.fromkeys(others, "s3cret")}) == harmless


def test_no_listed_name_is_a_secret_name() -> None:
    assert [name for name in RECORDED_VARIABLES if is_secret_name(name)] == []
    assert len(RECORDED_VARIABLES) > 100


def test_the_value_of_a_harmless_name_is_masked_too() -> None:
    shown = environment_variables(
        {
            "TORCH_LOGS": "https://u:s3cret@host/x?sig=s3cret",
            "TORCH_COMPILE_BACKEND": "bob:s3cret@host",
        }
    )
    assert "s3cret" not in str(shown)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://user:s3cret@host:6379/0", "redis://***@host:6379/0"),
        ("https://s3cret@host/x", "https://***@host/x"),
        ("redis://user:s3cr@et@host", "redis://***@host"),
        ("redis://user:s3c/r?et@host", "redis://***@host"),
        ("redis://:s3/cret@host", "redis://***@host"),
        ("postgres://u:s3c#ret@host/db", "postgres://***@host/db"),
        ("redis://:s3cret@a,redis://u:s3cret@b", "redis://***@a,redis://***@b"),
        ("a=redis://u:s3cret@a b=http://v:s3cret@c/d", "a=redis://***@a b=http://***@c/d"),
        ("https://host/x?page=1&api_key=s3cret&b=2#c", "https://host/x?***"),
        ("https://host/x#Access_Token=s3cret", "https://host/x#***"),
        ("bob:s3cret@host", "***@host"),
        ("https://user:s3cret%40x%2Fy@host/x", "https://***@host/x"),
        (
            "next=https%3A%2F%2Fuser%3As3cret%2540x%40host%2Fa%40b",
            "next=https%3A%2F%2F***%40host%2Fa%40b",
        ),
        ("git+ssh://git:s3cret@[::1]:22/x", "git+ssh://***@[::1]:22/x"),
        ("--token=s3cret", "--token=***"),
        ("--hf-token='s3cret with blanks' x", "--hf-token=*** x"),
        ("Authorization: Bearer s3cret", "Authorization: Bearer ***"),
        ("X-Auth-Token: s3cret", "X-Auth-Token: ***"),
        ("Cookie: s3cret", "Cookie: ***"),
        ("sent bearer s3cretczNjcmV0 to it", "sent bearer *** to it"),
        ('{"token": "s3cret"}', '{"token": ***}'),
        ("MY_TOKEN=s3cret password: s3cret", "MY_TOKEN=*** password: ***"),
        ("https://host/x@v1", "https://host/x@v1"),
        ("https://host/x?", "https://host/x?"),
        ("/plain/path@2:3", "/plain/path@2:3"),
        ("it needs --key KEY and --token TOKEN", "it needs --key KEY and --token TOKEN"),
        ("cache key: f3abc, key = 3", "cache key: f3abc, key = 3"),
        (
            "a basic example, --select '*auth*' --jobs 2",
            "a basic example, --select '*auth*' --jobs 2",
        ),
        ("", ""),
    ],
)
def test_text_in_form_of_secret_is_masked(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        *(
            "?key" * 50_000 + "://" * 50_000,
            "a.b." * 50_000 + "@x",
            "--token" * 30_000,
            "eyJ-" * 30_000,
            "a=b:" * 30_000,
            "x-" * 50_000,
        ),
        *("a:" * 60_000 + "@", "http://" + "a:" * 60_000, "bearer " * 20_000, "://@" * 30_000),
    ],
    ids=lambda text: text[:8],
)
def test_a_long_text_takes_linear_time(text: str) -> None:
    begun = time.process_time()
    assert redacted(text)
    assert time.process_time() - begun < 10


def test_named_texts_are_masked_by_name_and_by_form() -> None:
    given = {"auth-token": "s3cret", "service": "redis=u:s3cret@h", "jobs": "2", "token": ""}
    assert redacted_texts(given) == {
        "auth-token": "***",
        "service": "redis=***@h",
        "jobs": "2",
        "token": "",
    }


def test_values_of_secret_variables_are_masked_wherever_they_appear() -> None:
    KNOWN.learn_environment(
        {
            "TORCH_PAT": "hunter2",
            "DB_URL": "redis://:pa/ss@host",
            "FLAG_TOKEN": "true",
            "SHORT_KEY": "abc",
            "PEM_KEY": "line-number-1\nline-number-2",
        }
    )
    printed = "it said hunter2, hunter2x stays; pa/ss; true abc; line-number-2"
    assert redacted(printed) == "it said ***, hunter2x stays; ***; true abc; ***"


def test_a_long_value_is_masked_within_a_word_and_when_quoted_and_one_of_a_url_everywhere() -> None:
    KNOWN.learn_environment(
        {"MY_SECRET": "correct/horse/battery", "N": 3, "UNSET": None, "COLOUR": "blue-green"}
    )
    assert (
        redacted("xcorrect/horse/batteryx correct%2Fhorse%2Fbattery blue-green")
        == "x***x *** blue-green"
    )
    KNOWN.learn_urls("run redis://u:longvalue3@h")
    assert redacted("longvalue3") == "***"


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "HIP_MONKEY",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "TORCH_PATH",
        "PASSES",
        "COMPASS",
    ],
)
def test_harmless_names_are_not_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "TORCH_AUTH",
        "TORCH_PAT",
        "TORCH_Api_Key_2",
        "githubToken",
        "MY_APIKEYS",
        "DB_PASS",
        "CUDA_password",
        "TRITON_SECRETS",
        "oauth2",
    ],
)
def test_secret_names_are_known(name: str) -> None:
    assert is_secret_name(name)


AT = Position(file="specs/token=s3cret.yaml", line=1, column=1)
LEAK = "password=s3cret"
FAILED = Verdict(
    kind="close", status=Status.FAILED, position=AT, expected=LEAK, observed=LEAK, detail=LEAK
)


def test_a_result_of_a_case_that_was_not_run_has_no_secrets() -> None:
    lacking = CaseAvailability(Availability.NO, LEAK)
    written = fakes.case(summary=LEAK)
    for result in (
        result_of_unavailable(written, lacking, (), LEAK),
        result_of_unavailable(written, lacking, [written.backend], LEAK),
        result_of_unrun(written, LEAK, LEAK),
    ):
        assert "s3cret" not in str(result)
        assert "password=***" in result.reason


def test_free_text_of_result_is_masked_and_identifiers_stay() -> None:
    texts = {"reason": LEAK, "stdout": LEAK, "stderr": LEAK, "repro": LEAK, "notes": (LEAK,)}
    attempt = Attempt(
        outcome=Outcome.FAIL,
        reason=LEAK,
        failure_type="close",
        seconds=1.0,
        isolation="fork",
        folder="cases/00001",
        verdicts=(FAILED,),
        stdout=LEAK,
    )
    waiver = AppliedWaiver(
        effect=WaiverEffect.MATCHED,
        cases="a?b=c*",
        position=AT,
        reason=LEAK,
        issue="https://h/x?s3cret",
        until="2027-01-01",
    )
    result = CaseResult(
        case_id=CaseId("a/token=s3cret[backend=cpu]"),
        spec="specs/a.yaml",
        outcome=Outcome.FAIL,
        failure_type="close",
        verdicts=(FAILED,),
        position=AT,
        seconds=1.0,
        attempts=(attempt,),
        waivers=(waiver,),
        **texts,
    )
    shown = redacted_result(result)
    named = {
        "case_id": CaseId("x"),
        "position": None,
        "verdicts": (),
        "attempts": (),
        "waivers": (),
    }
    assert "s3cret" not in str(dataclasses.replace(shown, **named))
    assert (shown.case_id, shown.position) == (result.case_id, result.position)
    [verdict], [made], [applied] = shown.verdicts, shown.attempts, shown.waivers
    assert (verdict.expected, verdict.observed, verdict.detail, verdict.position) == (
        *["password=***"] * 3,
        AT,
    )
    assert (made.reason, made.stdout, made.verdicts, made.folder) == (
        "password=***",
        "password=***",
        shown.verdicts,
        "cases/00001",
    )
    assert (applied.reason, applied.issue, applied.cases) == (
        "password=***",
        "https://h/x?***",
        "a?b=c*",
    )


SECRET_TEXTS = [
    "dbPassword=hunters3cret",
    "clientSecret: hunters3cret",
    "//registry.npmjs.org/:_authToken=hunters3cret",
    "SLACK_WEBHOOK_URL=https://hooks.slack.com/services/T0/B0/hunters3cret",
    '"password":"hunters3cret"',
    '{"a":{"password":"hun\\"ters3cret","n":3},"b":[1]}',
    '{\\"password\\": \\"hunters3cret\\", \\"b\\": 2}',
    "{'password': 'hunters3cret', 'b': 2}",
    "u:p@sss3cret@host",
    "x u:a@b@sss3cret@host/db",
    "password=a,bs3cret",
    "password=a;bs3cret)cs3cret next",
    'password="a \\"bs3cret cs3cret" rest',
    "password='a \\'bs3cret cs3cret' rest",
    "export DB_PASSWORD='hunters3cret'; echo",
    'f(password="hunters3cret", n=3)',
    "-----BEGIN RSA PRIVATE KEY-----\nMIIs3cret\nabcs3cret\n-----END RSA PRIVATE KEY-----\n",
]


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_ordinary_forms_of_secrets_are_masked(text: str) -> None:
    shown = redacted(text)
    assert "s3cret" not in shown
    assert "***" in shown
    assert redacted(shown) == shown


@pytest.mark.parametrize(
    "head",
    ["npm_", "sk_live_", "sk_test_", "rk_live_", "AIza", "ASIA", "AKIA", "xoxb-", "xoxe-", "pypi-"],
)
def test_tokens_of_known_services_are_masked(head: str) -> None:
    token = head + "ABCDEFGHIJKLMNOPQRSTUVWX0123456789ABCDE"
    assert token[-8:] not in redacted(f"it printed {token} and went on")


HARMLESS_TEXTS = [
    *(
        "pin_memory=True",
        "pass: 3",
        "num_tokens=128",
        "key=3",
        "passes: 4",
        "tokenizer: fast",
        "std::token::x",
        "sort_key: abc",
    ),
    "post_grad_custom_pre_pass=fn",
    "specs/token.yaml:3:5: wrong",
    "specs/a.yaml:3:5: tensor @ tensor",
    "docker run --user 1000:1000 x",
    "git push -u origin main:main",
    'torch.compile(f, mode="max-autotune")',
    "user x said password y",
    "https%3A%2F%2Fhost%2Fx",
    "config.pre_grad_fusion_options: {normalization_pass: {}, batch_linear: {}}",
    "error: unexpected token: identifier",
    "token == other_token, secret=None, token=3",
    "https://github.com/pytorch/pytorch/issues/1#issuecomment-123456",
    "guard key=___check_obj_id(L['self'], 9404288)",
]


@pytest.mark.parametrize("text", HARMLESS_TEXTS)
def test_harmless_texts_stay(text: str) -> None:
    assert redacted(text) == text


def test_text_around_masked_value_stays() -> None:
    assert redacted('f(password="a, bcd", n=3)') == "f(password=***, n=3)"
    assert redacted('{"token": 12345, "n": 3}') == '{"token": ***, "n": 3}'
    assert (
        redacted("https://h/x next (password=a,bcd) x&y") == "https://h/x next (password=***) x&y"
    )
