"""Redaction of secrets by their format, and by their value in every encoding."""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairlead import MCPClient, MCPClientConfig
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.gateway.operations.tape_control import TapeControl
from fairlead.policy.actions.audit import Audit
from fairlead.policy.actions.redact import Redact
from fairlead.recording.export.har_export import har_text
from fairlead.recording.journal import Journal
from fairlead.recording.tape import TapeReader
from fairlead.recording.tape.known_secrets import secrets_of
from fairlead.redaction.redact_messages import Redactor
from fairlead.redaction.redact_text import REDACTED, redact
from fairlead.redaction.token_patterns import may_hold_token
from tests.support.examples import examples

ROOT = Path(__file__).parents[2]
LETTERS = "Zq7Xk2Lm9Rt4Vw8Yb3Nc6Df1Gh5Js0Pa"  # 32 characters in random order


def jwt(**claims: Any) -> str:
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts]
    return ".".join([*encoded, LETTERS])


def pem(kind: str, newline: str) -> str:
    body = newline.join([LETTERS * 2] * 3)
    return f"-----BEGIN {kind}-----{newline}{body}{newline}-----END {kind}-----"


# Built from parts so that secret scanners do not report this file.
TOKENS = {
    "GitHub": "ghp" + f"_{LETTERS}abcd",
    "GitHub OAuth": "gho" + f"_{LETTERS}abcd",
    "GitHub server": "ghs" + f"_{LETTERS}abcd",
    "GitHub fine-grained": "github" + f"_pat_11ABCDEFG0{LETTERS}_{LETTERS}",
    "GitLab": "glpat" + f"-{LETTERS[:20]}",
    "OpenAI": "sk" + f"-{LETTERS}{LETTERS[:16]}",
    "OpenAI project": "sk" + f"-proj-{LETTERS}_{LETTERS}-ab",
    "Anthropic": "sk" + f"-ant-api03-{LETTERS}-{LETTERS}AA",
    "Stripe": "sk" + f"_live_{LETTERS[:24]}",
    "Slack bot": "xoxb" + f"-123456789012-1234567890123-{LETTERS[:24]}",
    "Slack user": "xoxp" + f"-123456789012-{LETTERS}",
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "AWS session": "ASIA" + "Y34FZKBOKMUTVV7A",
    "Google": "AIza" + f"Sy{LETTERS}-_a"[:35],
    "npm": "npm" + f"_{LETTERS}abcd",
    "PyPI": "pypi" + f"-AgEIcHlwaS5vcmc{LETTERS}",
    "Hugging Face": "hf" + f"_{LETTERS}ab",
    "JWT": jwt(sub="me", admin=True),
    "private key": pem("PRIVATE KEY", "\n"),
    "RSA key": pem("RSA PRIVATE KEY", "\r\n"),
    "OpenSSH key": pem("OPENSSH PRIVATE KEY", "\n"),
    "key with escaped line breaks": pem("EC PRIVATE KEY", "\\n"),
    "key that is cut off": pem("PRIVATE KEY", "\n").partition("-----END")[0],
}
# The part of each token that must be removed.
PARTS = dict.fromkeys(TOKENS, LETTERS[:16]) | {
    "AWS": "IOSFODNN7EXAMPLE",
    "AWS session": "Y34FZKBOKMUTVV7A",
}


AROUND: dict[str, Callable[[str], str]] = {
    "alone": lambda token: token,
    "in a sentence": lambda token: f"use {token}, please",
    "in quotes": lambda token: f'key is "{token}".',
    "in a URL": lambda token: f"https://example.com/v1?x=1&k={quote(token)}&y=2",
    "behind a line break": lambda token: f"first line\n{token}",
    "behind an escaped line break": lambda token: f"first line\\n{token}\\nlast",
    "behind an encoded space": lambda token: f"first%20{token}",
    "in JSON": lambda token: json.dumps({"a": [1, token]}),
    "in JSON in JSON": lambda token: json.dumps(json.dumps({"a": f"x\n{token}"})),
}


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_recognised_by_its_format(name: str, around: str) -> None:
    text, part = AROUND[around](TOKENS[name]), PARTS[name]
    assert part in text
    for clean in (redact(text), Redactor().text(text)):
        assert part not in clean
        assert REDACTED in clean
    for ascii_only in (True, False):
        raw = json.dumps({"result": {"content": [{"text": text}]}}, ensure_ascii=ascii_only)
        clean_raw = Redactor().message(raw.encode())
        assert part.encode() not in clean_raw
        assert Redactor().message(clean_raw) is clean_raw


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Basic dXNlcjpwYXNz and more", "Basic [REDACTED] and more"),
        ("got BASIC dXNlcjpwYXNzd29yZA==", "got BASIC [REDACTED]"),
        ("Server=db;Uid=sa;Pwd=hunter2;", "Server=db;Uid=sa;Pwd=[REDACTED];"),
        ("SERVER=db;UID=sa;PWD=hunter2;", "SERVER=db;UID=sa;PWD=[REDACTED];"),
        ("http://h/x?pwd=hunter2&y=1", "http://h/x?pwd=[REDACTED]&y=1"),
        ("login failed, passwd: hunter2", "login failed, passwd: [REDACTED]"),
        ("next=%2Fx%3Ftoken%3Dhunter2", "next=%2Fx%3Ftoken%3D[REDACTED]"),
        ("db is root:hunter2@localhost:5432/main", "db is root:[REDACTED]@localhost:5432/main"),
        ("amqp user:p4ss!w0rd@10.0.0.7/vhost", "amqp user:[REDACTED]@10.0.0.7/vhost"),
        ("mysql://root:hunter2@db/main", "mysql://root:[REDACTED]@db/main"),
    ],
)
def test_credentials_in_headers_and_connection_strings_are_recognised(
    text: str, shown: str
) -> None:
    assert redact(text) == shown
    raw = json.dumps({"error": {"message": text}}).encode()
    assert json.loads(Redactor().message(raw)) == {"error": {"message": shown}}


HARMLESS = [
    "pip install scikit-learn sk-learn sk-image task-manager disk-usage-analyzer-long-name",
    "task-0123456789abcdef0123456789abcdef is done, risk-assessment-of-the-third-quarter too",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 (HEAD -> main)",
    "id 123e4567-e89b-12d3-a456-426614174000, call_abc123DEF456ghi789JKL012, toolu_01A09q90qw",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "registry/app:1.2@sha256:0123456789abcdef, npm:left-pad@1.3.0/index.js",
    "nextCursor eyJvZmZzZXQiOjEwLCJsaW1pdCI6NTB9",
    "eyJhIjoxfQ== is JSON in base64. A sentence. Another one.",
    "the Basic principles, basic understanding, basic research: Basic 12345678",
    "Basic authentication is supported; basic YWJjZGVmZ2g= has no colon",
    "Bearer of news",
    "mailto:bob@example.com/inbox, mail:bob@example.com:25, see bob@example.com",
    "@modelcontextprotocol/server-filesystem and git@github.com:owner/repo.git",
    "PWD=/home/ada OLDPWD=/tmp",
    "GH_HOST, gh_pages, ghp_short, github_pat_, npm_config_registry, npm_lifecycle_event",
    "AKIAIOSFOD is too short, ASIAN MARKETS AND ASIA-PACIFIC-REGION-INDEX",
    "AIzawa, eyJ, eyJ.eyJ, sk_live_, xoxb-, glpat-, pypi-attestations-of-a-long-name-1",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "| a | b |\n|-----|-----|\n| 1 | 2 |\n" + "-" * 200,
    "snake_case_name_of_a_variable, kebab-case-name-of-a-package, 2026-07-28T10:00:00Z",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q",
]


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("text", HARMLESS)
def test_redaction_leaves_ordinary_texts_unchanged(text: str) -> None:
    assert redact(text) == text
    raw = json.dumps({"result": {"text": text}}).encode()
    assert Redactor().message(raw) is raw


def test_source_code_and_documentation_contain_nothing_that_looks_like_a_token() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    assert len(files) > 100
    found = [str(file) for file in files if may_hold_token(file.read_bytes())]
    assert found == []


@pytest.mark.parametrize("name", [name for name in TOKENS if "key" not in name])
def test_the_quick_check_detects_tokens_of_every_format(name: str) -> None:
    token = TOKENS[name].encode()
    for before in (b"", b'"', b" ", b"\\n", b"%0A", b"=", b"\xc3\xa4"):
        assert may_hold_token(before + token)


@pytest.mark.parametrize(
    "piece",
    [
        *("ghp_", "sk-", "eyJ", "eyJa.", "eyJaaaaa.b", "AKIA", "AIza", "_", "-", "J", "A", "xoxb-"),
        *(
            "-----BEGIN ",
            "-----BEGIN PRIVATE KEY-----",
            "PRIVATE ",
            "basic ",
            "Basic\t",
            "a:b@",
            "@",
        ),
        *(
            "a@b",
            "x:yyyy@h/",
            "user:pass",
            "pwd=",
            "%3D",
            "token%3D",
            "\\",
            "\\u",
            "\\u0061",
            "%41",
        ),
    ],
)
def test_redacting_a_message_takes_linear_time(piece: str) -> None:
    redactor = Redactor(values=["hunter2-hunter2", 'quo"ted\\', "aaaaaaaa"])
    text = piece * (200_000 // len(piece))
    started = time.process_time()
    redact(text)
    redactor.text(text)
    redactor.message(json.dumps(text).encode())
    assert time.process_time() - started < 4.0


# Known values


def in_base64(value: str, before: bytes, behind: bytes) -> str:
    return base64.b64encode(before + value.encode() + behind).decode()


def for_urls(value: str, before: bytes, behind: bytes) -> str:
    return base64.urlsafe_b64encode(before + value.encode() + behind).decode().rstrip("=")


def every_escape(value: str) -> str:
    return "".join(
        json.dumps(char)[1:-1] if ord(char) > 126 else rf"\u{ord(char):04x}" for char in value
    )


FORMS: dict[str, Callable[[str, bytes, bytes], str]] = {
    "plain": lambda value, *_: value,
    "base64": in_base64,
    "base64 for URLs": for_urls,
    "hexadecimal": lambda value, *_: value.encode().hex(),
    "HEXADECIMAL": lambda value, *_: value.encode().hex().upper(),
    "percent": lambda value, *_: quote(value, safe=""),
    "percent, but slashes": lambda value, *_: quote(value),
    "percent-encoded form": lambda value, *_: quote_plus(value),
    "all percent": lambda value, *_: "".join(f"%{byte:02x}" for byte in value.encode()),
    "JSON": lambda value, *_: json.dumps(value),
    "JSON without escapes": lambda value, *_: json.dumps(value, ensure_ascii=False),
    "JSON in JSON": lambda value, *_: json.dumps(json.dumps({"a": value})),
    "all escaped": lambda value, *_: f'"{every_escape(value)}"',
}
values = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]),
    min_size=6,
    max_size=30,
).filter(lambda value: len(set(value)) > 3 and value not in REDACTED)


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(80))
@given(
    value=values,
    before=st.binary(max_size=5),
    behind=st.binary(max_size=5),
    around=st.tuples(st.text(max_size=12), st.text(max_size=12)),
    spelling=st.sampled_from(["ascii", "utf-8", "slashes", "escapes"]),
)
def test_a_known_value_is_removed_in_every_encoding_and_position(
    form: str,
    value: str,
    before: bytes,
    behind: bytes,
    around: tuple[str, str],
    spelling: str,
) -> None:
    written = FORMS[form](value, before, behind)
    # Random surrounding text may extend the encoded value or contain the value.
    text = f"{around[0]} {written} {around[1]}".encode("utf-8", "replace").decode()
    assume(value not in f"{around[0]} {around[1]}{REDACTED}")
    redactor = Redactor(values=[value])
    clean = redactor.text(text)
    assert not holds(clean, value)
    assert REDACTED in clean
    raw = json.dumps({"result": [1, text]}, ensure_ascii=spelling != "utf-8")
    if spelling == "slashes":
        raw = raw.replace("/", "\\/")
    if spelling == "escapes":
        raw = json.dumps({"result": [1, "@"]}).replace("@", every_escape_or_plain(text))
    shown = json.loads(redactor.message(raw.encode()))["result"][1]
    assert not holds(shown, value)


def every_escape_or_plain(text: str) -> str:
    """Escape every second character, so that no part of the value remains unescaped."""
    return "".join(
        every_escape(char) if number % 2 else json.dumps(char)[1:-1]
        for number, char in enumerate(text)
    )


def holds(text: str, value: str) -> bool:
    """Return True if the text contains an encoding of the value, even within base64."""
    plain = value.encode()
    found = value in text or plain.hex() in text.lower()
    for piece in text.replace("-", "+").replace("_", "/").split():
        bare = "".join(
            char for char in piece if char.isascii() and (char.isalnum() or char in "+/")
        )
        for start in range(4):
            rest = bare[start:]
            decoded = base64.b64decode(rest[: len(rest) // 4 * 4])
            found = found or plain in decoded
    return found


def test_a_single_line_of_a_known_multi_line_key_is_removed() -> None:
    key = pem("PRIVATE KEY", "\n").replace(LETTERS, LETTERS[::-1])
    line = key.splitlines()[2]
    redactor = Redactor(values=[key])
    assert line not in redactor.text(f"I read {line}")
    assert redactor.text(f"I read {key}") == f"I read {REDACTED}"
    assert redactor.text("-----BEGIN CERTIFICATE-----") == "-----BEGIN CERTIFICATE-----"


@pytest.mark.parametrize("size", [6, 7, 11, 14, 15, 16, 40])
def test_known_values_of_any_length_are_found_at_every_offset(size: int) -> None:
    value = (LETTERS * 2)[:size]
    redactor = Redactor(values=[value])
    for before in range(40):
        for raw in (value, value.encode().hex(), in_base64(value, b"x" * before, b"yz")):
            message = json.dumps({"a": "." * before + raw}).encode()
            assert redactor.message(message) is not message


@pytest.mark.parametrize(
    ("variable", "secret"),
    [
        *(("OPENAI_KEY", True), ("NOTION_PAT", True), ("DB_PASS", True), ("DB_PWD", True)),
        *(("BASIC_AUTH", True), ("SENTRY_DSN", True), ("AWS_SECRET_ACCESS_KEY", True)),
        *(("LOG_LEVEL", False), ("KEYBOARD", False), ("PATHS", False), ("AUTHOR", False)),
    ],
)
def test_variables_with_secret_names_are_secret(variable: str, secret: bool) -> None:
    entry = {"command": "x", "env": {variable: "correct-horse-battery"}, "inheritEnv": []}
    assert ("correct-horse-battery" in secrets_of(entry)) is secret


def test_the_working_directory_is_not_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/home/ada/project")
    assert "/home/ada/project" not in secrets_of({"command": "x"})


def test_a_variable_with_a_token_is_secret_regardless_of_its_name() -> None:
    token = TOKENS["GitLab"]
    assert token in secrets_of({"command": "x", "env": {"FLAVOUR": token}, "inheritEnv": []})


# Tapes, archives, journals, audits, clients

SERVER = """
import base64, os, urllib.parse
from fairlead import MCPServer

server = MCPServer("shop")

@server.tool()
def tell(text: str) -> str:
    key = os.environ["SHOP_KEY"]
    login = base64.b64encode(f"user:{key}".encode()).decode()
    return " ".join([text, key, login, key.encode().hex(), urllib.parse.quote(key, safe="")])

server.run()
"""
KEY = "correct/horse+battery=staple"


@pytest.mark.covers("OBS-05", "GTW-10")
@pytest.mark.parametrize("version", ["2025-11-25", "auto"])
async def test_tapes_archives_journals_audits_and_clients_do_not_contain_a_key(
    version: str, tmp_path: Path
) -> None:
    redactor = Redactor()
    journal, tapes = Journal(redactor=redactor), TapeControl(tmp_path / "tapes")
    (tmp_path / "tapes").mkdir()
    lines: list[bytes] = []
    audit = Audit(write=lines.append, payloads="always", known=redactor)
    observing = Observability(journal=journal, tapes=tapes, redactor=redactor)
    entry = {"command": sys.executable, "args": ["-c", SERVER], "env": {"SHOP_KEY": KEY}}
    config = MCPClientConfig(protocol_version=version, timeout_seconds=20, max_retries=0)
    async with (
        asyncio.timeout(40),
        Gateway(observing=observing, interceptors=[audit, Redact(known=redactor)]) as gateway,
    ):
        await gateway.connect({"shop": entry})
        tapes.start("one")
        async with MCPClient.connect_inprocess(gateway, config) as client:
            answer = (await client.call("shop_tell", {"text": TOKENS["GitHub"]})).text
        tapes.stop()
    reader = TapeReader(tmp_path / "tapes" / "one")
    kept = {
        "client": answer,
        "tape": (tmp_path / "tapes" / "one.tape.jsonl").read_text(),
        "archive": b"".join(har_text(reader.info, reader)).decode(),
        "journal": msgspec.json.encode(journal.records()).decode(),
        "audit": b"".join(lines).decode(),
    }
    for where, text in kept.items():
        assert REDACTED in text, where
        assert PARTS["GitHub"] not in text, where
        assert not holds(text, KEY), where
        assert quote(KEY, safe="") not in text, where
