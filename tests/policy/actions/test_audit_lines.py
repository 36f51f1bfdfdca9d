"""Tests of single audit lines: outcome and content."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from fairlead.errors import ChannelClosed, RpcError
from fairlead.interceptor import Answer, Exchange, MalformedFrame
from fairlead.policy.actions.audit import Audit
from fairlead.policy.edit_message import with_whole_params
from fairlead.protocol.envelope import TransportContext
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.redaction.redact_text import REDACTED
from tests.support.single_exchange import UP, Behind, exchange
from tests.support.virtual_time import VirtualTime

CALL = {"name": "add", "arguments": {"a": 1}}


def failed(text: str) -> bytes:
    """Return the result of a tool that reports an error."""
    block = {"type": "text", "text": text}
    return json.dumps({"isError": True, "content": [block]}).encode()


class Lines:
    def __init__(self, **settings: Any) -> None:
        self.raw: list[bytes] = []
        self.audit = Audit(write=self.raw.append, **settings)

    async def pass_on(self, asked: Exchange, answer: Any = b"{}") -> Any:
        """Audit a message that has this answer or exception, and return the audit line."""

        async def behind(one: Exchange) -> Answer:
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[no-any-return]

        if isinstance(answer, BaseException):
            with pytest.raises(type(answer)):
                await self.audit(asked, behind)
        else:
            assert await self.audit(asked, behind) is answer
        return json.loads(self.raw[-1]) if self.raw else None


@pytest.mark.parametrize(
    ("answer", "decision", "more"),
    [
        (b"{}", "passed", {}),
        (RpcError(-32602, "no"), "refused", {"code": -32602, "reason": "no", "by": "peer"}),
        (
            RpcError(-32600, "no", {"source": "proxy"}),
            "refused",
            {"code": -32600, "reason": "no", "by": "proxy"},
        ),
        (RpcError(-1, "no", "proxy"), "refused", {"code": -1, "reason": "no", "by": "peer"}),
        (ChannelClosed("secret"), "failed", {"reason": "ChannelClosed"}),
        (asyncio.CancelledError(), "cancelled", {}),
    ],
    ids=str,
)
async def test_an_audit_line_contains_the_outcome_of_the_request(
    answer: Any, decision: str, more: dict[str, Any]
) -> None:
    line = await Lines().pass_on(exchange(params=CALL, address="10.0.0.1", principal="ann"), answer)
    assert line.pop("at").endswith("+00:00")
    assert line.pop("seconds") >= 0
    assert line == {
        "decision": decision,
        "direction": "client_to_server",
        "method": "tools/call",
        "target": "add",
        "identity": "ann",
        "client": "unknown",
        "transport": "http",
        "peer": "10.0.0.1",
        **more,
    }


async def test_an_audit_line_names_the_subject_and_the_scopes_of_an_access_token() -> None:
    principal = TokenPrincipal(
        issuer="https://a.example",
        subject="ann",
        client="app",
        scopes=frozenset({"write", "read"}),
        claims={"email": "ann@a.example"},
        role="staff",
    )
    line = await Lines().pass_on(exchange(params=CALL, principal=principal))
    assert line["identity"] == "oauth:https://a.example ann app"
    assert (line["role"], line["issuer"], line["subject"]) == ("staff", "https://a.example", "ann")
    assert (line["client_id"], line["scopes"]) == ("app", ["read", "write"])
    assert "ann@a.example" not in json.dumps(line)


async def test_selected_claims_are_audited() -> None:
    roles = {"realm_access": {"roles": ["a", "b"]}, "email": "ann@a.example", "jti": "x"}
    lines = Lines(claims=["email", "realm_access.roles", "absent"])
    for claims, expected in (
        (roles, {"email": "ann@a.example", "realm_access.roles": ["a", "b"]}),
        ({}, None),
    ):
        principal = TokenPrincipal(issuer="https://a.example", subject="ann", claims=claims)
        line = await lines.pass_on(exchange(params=CALL, principal=principal))
        assert line.get("claims") == expected
        lines.audit.access_refused(principal)
        assert json.loads(lines.raw[-1]).get("claims") == expected
    line = await lines.pass_on(exchange(params=CALL, principal="ann"))
    assert "claims" not in line


async def test_notifications_are_audited_only_if_the_option_is_set() -> None:
    told = exchange("notifications/x", request=False)
    assert await Lines().pass_on(told, None) is None
    assert (await Lines(notifications=True).pass_on(told, None))["decision"] == "passed"


@pytest.mark.parametrize(("drops", "decision"), [(True, "dropped"), (False, "passed")])
async def test_a_notification_is_audited_as_dropped_only_if_an_action_drops_it(
    drops: bool, decision: str
) -> None:
    lines = Lines(notifications=True)

    async def behind(one: Exchange) -> None:
        inner = with_whole_params(one, UNSET)  # interceptors may replace the exchange by a copy
        (inner.drop if drops else inner.note)("dropped: no")

    assert await lines.audit(exchange("notifications/x", request=False), behind) is None
    line = json.loads(lines.raw[-1])
    assert (line["decision"], line["did"]) == (decision, ["dropped: no"])


@pytest.mark.parametrize(
    ("payloads", "answer", "kept"),
    [
        ("never", RpcError(-32602, "no"), False),
        ("always", b"{}", True),
        ("offending", b"{}", False),
        ("offending", RpcError(-32700, "no"), True),
        ("offending", RpcError(-32600, "no"), True),
        ("offending", RpcError(-32602, "no"), True),
        ("offending", RpcError(-32601, "no"), False),
        ("offending", ChannelClosed(), False),
        ("offending", failed('{"code":"VALIDATION_ERROR","message":"x"}'), True),
        ("offending", failed('{"code":"TIMEOUT","message":"VALIDATION_ERROR"}'), False),
        ("offending", failed("VALIDATION_ERROR"), False),
        ("offending", b'{"content":[],"x":"VALIDATION_ERROR"}', False),
        ("offending", b'{"isError":true,"content":1,"x":"VALIDATION_ERROR"}', False),
        ("offending", b'["VALIDATION_ERROR"]', False),
    ],
    ids=str,
)
async def test_the_payloads_option_selects_requests_that_are_audited_with_params(
    payloads: Any, answer: Any, kept: bool
) -> None:
    line = await Lines(payloads=payloads).pass_on(exchange(params=CALL), answer)
    assert line.get("params") == (CALL if kept else None)


async def test_only_the_result_of_a_tool_call_is_audited_as_invalid_arguments() -> None:
    asked = exchange("prompts/get", {"name": "x"})
    line = await Lines(payloads="offending").pass_on(asked, b'"VALIDATION_ERROR"')
    assert "params" not in line
    nothing = await Lines(payloads="offending").pass_on(exchange(params=CALL), None)
    assert "params" not in nothing


async def test_audited_params_are_redacted_before_they_are_truncated() -> None:
    size = len(json.dumps(CALL))
    whole = await Lines(payloads="always", max_payload=size).pass_on(exchange(params=CALL))
    assert whole["params"] == CALL
    cut = await Lines(payloads="always", max_payload=size - 1).pass_on(exchange(params=CALL))
    assert cut["params"] == f"{json.dumps(CALL)[:-1]}… ({size} bytes)"
    secret = {"name": "x", "arguments": {"token": "abcdefgh"}}
    line = await Lines(payloads="always").pass_on(exchange(params=secret))
    assert "abcdefgh" not in json.dumps(line)
    assert (await Lines(payloads="always").pass_on(exchange("ping")))["params"] is None
    with pytest.raises(ValueError, match="^`max_payload` must be at least 0, not -1$"):
        Audit(max_payload=-1)


async def test_audited_reasons_are_truncated_at_five_hundred_characters() -> None:
    line = await Lines().pass_on(exchange(params=CALL), RpcError(-1, "x y " * 200))
    assert len(line["reason"]) < 560


async def test_at_most_twenty_resources_of_a_subscription_are_listed() -> None:
    uris = [f"file:///{number}" for number in range(21)]
    asked = exchange("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
    assert (await Lines().pass_on(asked))["targets"] == uris[:20]


async def test_audit_lines_are_appended_to_the_file_until_close(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("before\n")
    audit = Audit("audit.jsonl", folder=str(tmp_path))
    await audit(exchange(params=CALL), Behind())
    assert path.read_text().startswith('before\n{"at":')
    assert (path.read_text().count("\n"), audit.lost) == (2, 0)
    audit.close()
    audit.close()
    assert await audit(exchange(params=CALL), Behind()) == b"{}"
    assert (path.read_text().count("\n"), audit.lost) == (2, 1)


async def test_a_message_is_forwarded_even_if_its_audit_line_cannot_be_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(line: bytes) -> None:
        raise OSError("the disk is full")

    audit = Audit(write=full)
    for _ in range(3):
        assert await audit(exchange(params=CALL), Behind()) == b"{}"
    assert audit.lost == 3
    said = [one.getMessage() for one in caplog.records if "audit log" in one.getMessage()]
    assert said == ["1 lines of the audit log are lost: the disk is full"]


def frame(raw: bytes, **about: Any) -> MalformedFrame:
    where = TransportContext(transport_type="stdio", peer_address=about.get("address"))
    return MalformedFrame(
        frame=raw, size=len(raw), kind="refused", why="odd", direction=UP, transport=where
    )


@pytest.mark.parametrize(
    ("payloads", "kept"), [("never", False), ("offending", True), ("always", True)]
)
def test_a_malformed_frame_is_audited_with_its_text_unless_payloads_is_never(
    payloads: Any, kept: bool
) -> None:
    lines = Lines(payloads=payloads)
    lines.audit.on_malformed(frame(b"nonsense", address="10.0.0.1"))
    line = json.loads(lines.raw[-1])
    assert line.pop("at").endswith("+00:00")
    assert line.pop("frame", None) == ("nonsense" if kept else None)
    assert line == {
        "decision": "offence",
        "direction": "client_to_server",
        "transport": "stdio",
        "peer": "10.0.0.1",
        "kind": "refused",
        "reason": "odd",
        "bytes": 8,
    }
    lines.audit.on_malformed(frame(b"nonsense"))
    assert "peer" not in json.loads(lines.raw[-1])


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        # redacted because of the member name
        (b'{"password":"a b"}', f'{{"password":"{REDACTED}"}}'),
        (b"12345678901", "1234567890…"),
        (b"1234567890", "1234567890"),
        (b"x\xff", "x\ufffd"),
    ],
)
def test_the_text_of_an_audited_malformed_frame_is_redacted_and_truncated(
    raw: bytes, shown: str
) -> None:
    lines = Lines(payloads="always", max_payload=40 if raw.startswith(b"{") else 10)
    lines.audit.on_malformed(frame(raw))
    assert json.loads(lines.raw[-1])["frame"] == shown


async def test_closing_an_audit_releases_the_file_descriptor(tmp_path: Path) -> None:
    audit = Audit("audit.jsonl", folder=str(tmp_path))
    number = audit._file
    assert number is not None
    os.fstat(number)
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600
    audit.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


async def test_lost_audit_lines_are_reported_once_a_minute(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    def full(line: bytes) -> None:
        raise OSError("full")

    audit = Audit(write=full)
    for after in (0, 60.0, 0.5):
        virtual_time.now += after
        await audit(exchange(params=CALL), Behind())
    said = [one.getMessage() for one in caplog.records if "audit log" in one.getMessage()]
    assert said == [
        "1 lines of the audit log are lost: full",
        "3 lines of the audit log are lost: full",
    ]
