"""Short inputs that could cost much processor time or memory."""

import logging
import time

import msgspec
import pytest

from fairlead.errors import RpcError
from fairlead.limits import DECLARATION_BYTES, LOG_SECRET_TEXT
from fairlead.observe.log_filter import ABOUT, redact_logs
from fairlead.policy.tool_lock.suspicious_text import find_suspicious_text
from fairlead.protocol.caller import ANONYMOUS, Meta, stateless_caller
from fairlead.protocol.schema.schema_validator import SchemaValidator


def seconds(work: object) -> float:
    start = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - start


@pytest.mark.attack(
    "a tool description with an angle bracket and thousands of spaces",
    "patterns with bounded repeats",
    "the check takes milliseconds",
)
def test_a_description_with_thousands_of_spaces_is_checked_quickly() -> None:
    tool = {"name": "x", "description": "<" + " " * 16_000}
    assert seconds(lambda: find_suspicious_text(tool)) < 1


@pytest.mark.attack(
    "a schema with short patterns whose compiled form is large",
    "`schema_pattern_bytes`",
    "values are not checked against the pattern",
)
def test_a_pattern_that_would_be_large_when_compiled_is_skipped() -> None:
    schema = {"type": "string", "pattern": "(a{1000}){300}"}
    assert seconds(lambda: SchemaValidator(schema, foreign=True)) < 1
    assert SchemaValidator(schema, foreign=True).is_valid("b")
    assert not SchemaValidator(schema, foreign=True).is_valid(1)


@pytest.mark.attack(
    "capabilities of megabytes", "`declaration_bytes`", "rejected with -32602 and not stored"
)
def test_a_client_that_declares_too_large_capabilities_is_rejected() -> None:
    large = b'{"experimental":"' + b"x" * DECLARATION_BYTES.value + b'"}'
    meta = Meta(protocol_version="2026-07-28", client_capabilities=msgspec.Raw(large))
    with pytest.raises(RpcError, match="more than 65536 bytes"):
        stateless_caller(meta, ANONYMOUS)


@pytest.mark.attack(
    "a failing call with long values in members with secret names",
    "`log_secret_text`",
    "the log line is withheld",
)
def test_a_log_line_about_long_secrets_is_withheld(caplog: pytest.LogCaptureFixture) -> None:
    redact_logs()
    values = ["Unknown", *(f"{n:04d}" * 120 for n in range(40))]
    about = msgspec.Raw(msgspec.json.encode({"arguments": {"password": values}}))
    before = LOG_SECRET_TEXT.hits
    logger = logging.getLogger("fairlead.server")
    spent = seconds(lambda: logger.warning("Unknown tool: x", extra={ABOUT: about}))
    assert spent < 0.5
    assert LOG_SECRET_TEXT.hits == before + 1
    assert "withheld" in caplog.text
