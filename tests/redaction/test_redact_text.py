import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.redaction.redact_text import redact


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2", "password=[REDACTED]"),
        ("password = hunter2 and more", "password = [REDACTED] and more"),
        ("GITHUB_TOKEN=ghp_1 X=2", "GITHUB_TOKEN=[REDACTED] X=2"),
        ("client_secret:\n  abc", "client_secret:\n  [REDACTED]"),
        ("my.private-key: abc", "my.private-key: [REDACTED]"),
        ("sessionToken='a b c' x", "sessionToken='[REDACTED]' x"),
        ("a=password=x", "a=password=[REDACTED]"),
        ("--password hunter2 --verbose", "--password [REDACTED] --verbose"),
        ("--api-key=abc", "--api-key=[REDACTED]"),
        ("--db-passwd 'a b'", "--db-passwd '[REDACTED]'"),
        ("GET /x?access_token=abc&y=1", "GET /x?access_token=[REDACTED]&y=1"),
        (
            "apikey=1;credentials=2,PASSWD=3",
            "apikey=[REDACTED];credentials=[REDACTED],PASSWD=[REDACTED]",
        ),
    ],
)
def test_values_after_secret_names_in_a_text_are_removed(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Cookie: a=b; c=d", "Cookie: [REDACTED]"),
        ("Set-Cookie: sid=1; Path=/\nDate: x", "Set-Cookie: [REDACTED]\nDate: x"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: [REDACTED]"),
        ('Authorization: Digest username="x", response="y"', "Authorization: [REDACTED]"),
        ("Authorization: Bearer a.b.c\r\nHost: h", "Authorization: [REDACTED]\r\nHost: h"),
        ('curl -H "Authorization: Bearer abc" h', 'curl -H "Authorization: [REDACTED]" h'),
        (
            r'{"h":["Authorization: Digest u=\"x\"","z"]}',
            '{"h":["Authorization: [REDACTED]","z"]}',
        ),
    ],
)
def test_secret_headers_are_removed_to_the_end_of_the_line(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'{"password": "two words, \"quoted\"; }"}', '{"password": "[REDACTED]"}'),
        ("{'api_key': 'it\\'s', 'n': 1}", "{'api_key': '[REDACTED]', 'n': 1}"),
        ('{"secret": ["a","b"], "x": 1}', '{"secret": [REDACTED], "x": 1}'),
        ('{"token": {"v": "}", "n": [1]}, "x": 1}', '{"token": [REDACTED], "x": 1}'),
        ('{"token": 12345, "x": 1}', '{"token": [REDACTED], "x": 1}'),
        ('{"a": [{"b": {"authToken": "x"}}]}', '{"a": [{"b": {"authToken": "[REDACTED]"}}]}'),
        (
            r'{"text":"{\"password\": \"hunter2\", \"x\": 1}"}',
            r'{"text":"{\"password\": \"[REDACTED]\", \"x\": 1}"}',
        ),
    ],
)
def test_secret_values_in_json_are_removed_at_any_depth(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pass@host/x", "https://user:[REDACTED]@host/x"),
        ("https://user:p@ss@host/x", "https://user:[REDACTED]@host/x"),
        ("postgres://u:p@h:5432/db", "postgres://u:[REDACTED]@h:5432/db"),
        ("https://ghp_abc@github.com/x", "https://[REDACTED]@github.com/x"),
        ("redis://:pw@h", "redis://:[REDACTED]@h"),
        ("sent Bearer abcdefgh1234 there", "sent Bearer [REDACTED] there"),
    ],
)
def test_credentials_in_urls_and_after_bearer_are_removed(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing to redact: none",
        '{"progressToken": 7, "nextCursor": "abc", "max_tokens": 5, "maxTokens": 6}',
        "ssh://git@github.com/x",
        "http://h:80/?mail=a@b.c",
        '"http://h:80","mail":"a@b"',
        "token",
        "password:",
        'token: "',
        "--token --verbose",
        "Bearer of news",
    ],
)
def test_a_text_without_secrets_is_returned_unchanged(text: str) -> None:
    assert redact(text) == text


PIECES = [
    "token",
    "cookie",
    ":",
    "=",
    " ",
    '"',
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    "\n",
    "x",
    "--",
    "@",
]

secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).map(
    lambda text: f"S3CR{text}3T"
)
names = st.sampled_from(["password", "Authorization", "x-api-key", "MY_TOKEN", "cookie", "secrets"])


@settings(deadline=None)
@given(names, secrets, st.integers(0, 3), st.booleans())
def test_secrets_in_json_text_are_removed(
    name: str, secret: str, depth: int, as_text: bool
) -> None:
    frame = json.dumps({"a": "b", name: secret, "z": [1]})
    for _ in range(depth):
        frame = json.dumps({"text": frame}) if as_text else f'{{"x": [{frame}, "end"]}}'
    shown = redact(frame)
    assert "S3CR" not in shown
    assert "3T" not in shown
    assert "[REDACTED]" in shown


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join))
def test_redacting_text_a_second_time_has_no_effect(text: str) -> None:
    shown = redact(text)
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "piece", ["a", "a.", "token", "token ", "a:", 'token="', "token:{", "http://a", "\\", "a://a:"]
)
def test_redacting_text_takes_linear_time(piece: str) -> None:
    """A backtracking pattern would take eight seconds for a line of eight thousand letters."""
    started = time.process_time()
    redact(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 2.0
