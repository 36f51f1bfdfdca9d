"""Tests of limits on log lines, and of withheld lines."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.limits import LOG_LINES, LOG_SEARCHED, LOG_SECRET_TEXT, LOG_SECRETS, LOG_TEXT
from fairlead.observe.log_filter import (
    ABOUT,
    MAX_LEARNT,
    _Pace,
    follow_secrets,
    redacted_logger,
    register_secrets,
    secrets_of_url,
)
from fairlead.redaction.redact_messages import Redactor

WITHHELD = "(withheld: the request has too many values or too long secrets to search for)"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def last(self) -> str:
        return self.records[-1].getMessage()


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, logger = Lines(), redacted_logger("fairlead.gateway")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


log = logging.getLogger("fairlead.gateway")


def test_a_burst_of_a_hundred_log_lines_and_then_twenty_per_second_are_written() -> None:
    pace = _Pace()
    assert [pace.allows(1000.0) for _ in range(102)] == [True] * 100 + [False] * 2
    assert pace.left_out == 2
    assert not pace.allows(1000.049)
    assert pace.allows(1000.051)
    assert not pace.allows(1000.06)
    assert [pace.allows(1001.06) for _ in range(21)] == [True] * 20 + [False]
    assert [pace.allows(2000.0) for _ in range(101)] == [True] * 100 + [False]


def test_the_next_log_line_states_how_many_lines_were_omitted(lines: Lines) -> None:
    def write(created: float) -> None:
        record = log.makeRecord(log.name, logging.INFO, "here.py", 7, "same", (), None)
        record.created = created
        log.handle(record)

    hits = LOG_LINES.hits
    for _ in range(103):
        write(1000.0)
    assert (len(lines.records), LOG_LINES.hits) == (100, hits + 3)
    write(1001.0)
    assert lines.last == "same (3 similar lines were omitted)"
    write(1001.0)
    assert lines.last == "same"


def test_the_number_of_debug_lines_is_not_limited(lines: Lines) -> None:
    for _ in range(150):
        log.debug("same")
    assert len(lines.records) == 150


def test_the_number_of_audit_lines_is_not_limited() -> None:
    handler, audit = Lines(), redacted_logger("fairlead.gateway.audit")
    audit.addHandler(handler)
    before = audit.level
    audit.setLevel(logging.INFO)
    try:
        for _ in range(150):
            audit.info("same")
    finally:
        audit.removeHandler(handler)
        audit.setLevel(before)
    assert len(handler.records) == 150


@pytest.mark.parametrize("extra", [0, 1])
def test_the_length_of_a_log_line_is_limited(lines: Lines, extra: int) -> None:
    text = "x y " * (LOG_TEXT.value // 4) + "z" * extra
    log.info("%s", text)
    if extra:
        assert lines.last == f"{text[: LOG_TEXT.value]}… ({len(text)} characters)"
    else:
        assert lines.last == text


def test_a_log_record_that_cannot_be_formatted_is_logged_unchanged() -> None:
    record = log.makeRecord(log.name, logging.INFO, "here.py", 1, "%d", ("x",), None)
    assert log.filter(record)
    assert (record.msg, record.args) == ("%d", ("x",))


def test_the_filter_is_added_to_a_logger_only_once() -> None:
    logger = redacted_logger("fairlead.gateway")
    before = len(logger.filters)
    assert redacted_logger("fairlead.gateway") is logger
    assert len(logger.filters) == before


@pytest.mark.parametrize(
    ("about", "removed"),
    [
        ({"token": "hidden-value"}, True),
        ({"a": [{"token": "hidden-value"}]}, True),
        (b'{"token":"hidden-value"}', True),
        ({"authorization": "Bearer hidden-value"}, True),
        ({"token": {"inner": ["hidden-value"]}}, True),
        ({"other": "hidden-value"}, False),
        (b"{", False),
    ],
    ids=str,
)
def test_secrets_of_the_request_are_removed_from_its_log_lines(
    lines: Lines, about: Any, removed: bool
) -> None:
    log.info("failed with hidden-value", extra={ABOUT: about})
    assert ("hidden-value" not in lines.last) is removed
    assert not hasattr(lines.records[-1], ABOUT)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_log_line_is_withheld_if_its_request_has_too_many_secrets(
    lines: Lines, extra: int
) -> None:
    secrets = [f"secret-{number:04}" for number in range(LOG_SECRETS.value + extra)]
    hits = LOG_SECRETS.hits
    log.info("text", extra={ABOUT: {"token": secrets}})
    assert lines.last == (WITHHELD if extra else "text")
    assert LOG_SECRETS.hits == hits + extra


@pytest.mark.parametrize("extra", [0, 1])
def test_a_log_line_is_withheld_if_the_secrets_of_its_request_are_too_long(
    lines: Lines, extra: int
) -> None:
    hits = LOG_SECRET_TEXT.hits
    log.info("text", extra={ABOUT: {"token": "s" * (LOG_SECRET_TEXT.value + extra)}})
    assert lines.last == (WITHHELD if extra else "text")
    assert LOG_SECRET_TEXT.hits == hits + extra


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_log_line_is_withheld_if_its_request_has_too_many_values(
    lines: Lines, kind: str, extra: int
) -> None:
    count = LOG_SEARCHED.value - 1 + extra  # the mapping itself counts as a value
    several: Any = list(range(count)) if kind == "list" else {f"n{n}": n for n in range(count)}
    hits = LOG_SEARCHED.hits
    log.info("text", extra={ABOUT: {"a": several}})
    assert lines.last == (WITHHELD if extra else "text")
    assert LOG_SEARCHED.hits == hits + extra


def test_registered_secrets_are_removed_from_all_log_lines(lines: Lines) -> None:
    class Owner:
        pass

    owner = Owner()
    register_secrets(owner, lambda: {"password": "registered-value-1"})
    log.info("said registered-value-1")
    assert "registered-value-1" not in lines.last


def test_a_redactor_follows_the_registered_secrets() -> None:
    class Owner:
        pass

    before, after = Owner(), Owner()
    register_secrets(before, lambda: {"token": "registered-before"})
    redactor = follow_secrets(Redactor(values=["known-elsewhere"]))
    register_secrets(after, lambda: {"token": "registered-after"})
    text = "registered-before registered-after known-elsewhere"
    assert redactor.text(text) == "[REDACTED] [REDACTED] [REDACTED]"


def test_replaced_secrets_are_forgotten_after_a_thousand_new_ones() -> None:
    """A gateway that renews its tokens for months must not keep all of them."""

    class Owner:
        pass

    renewed, constant = Owner(), Owner()
    redactor = follow_secrets(Redactor())
    register_secrets(constant, lambda: {"token": "constant-token"})
    for number in range(MAX_LEARNT):
        secret = {"token": f"token-number-{number}"}
        register_secrets(renewed, lambda secret=secret: secret)  # type: ignore[misc]
    assert redactor.values == {"constant-token", f"token-number-{MAX_LEARNT - 1}"}


def test_the_password_and_query_of_a_url_are_secrets() -> None:
    assert secrets_of_url("http://u:p@h/?a=1&a=2") == {"password": "p", "a": ["1", "2"]}
    assert secrets_of_url("http://[half") == {}
