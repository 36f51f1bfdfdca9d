"""Audit log: one JSON line per decision about a message, without secrets."""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import Struct, UnsetType

from ...errors import MCPErrorCode, RpcError
from ...interceptor import Answer, Exchange, InterceptorBase, MalformedFrame, Proceed
from ...protocol.caller import Principal, principal_name
from ...protocol.identity.token_principal import TokenPrincipal
from ...recording.journal.tool_error import is_tool_error
from ...redaction.redact_messages import Redactor
from ...wire import Request, single_line, to_json
from ...wire.error_codes import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from ...wire.json import read_json
from ..conditions.operators import find

__all__ = ["Audit"]

MAX_PAYLOAD: Final = 4096  # default of `max_payload`, the maximum size of the params in a line
# number of bytes at the start of a malformed frame that are searched for secrets
LOOKED_AT: Final = 64 << 10
MAX_TEXT: Final = 500  # maximum length of each string in a line, in characters
MAX_TARGETS: Final = 20  # maximum number of resources listed per subscription
COMPLAIN_AGAIN: Final = 60.0  # minimum number of seconds between two reports of lost lines

_OFFENCES: Final = (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS)

log = logging.getLogger("fairlead.gateway.audit")


class Audit(InterceptorBase):
    """Action that logs the outcome of each message: passed, refused, dropped, failed or cancelled.

    Put this action before all actions that decide about messages, because it records their outcome.
    The content of messages is not written, except for the params that `payloads` selects. They are
    redacted and truncated to `max_payload` bytes.
    """

    waits: ClassVar = False

    def __init__(
        self,
        path: str | None = None,
        *,
        notifications: bool = False,
        payloads: Literal["never", "offending", "always"] = "never",
        max_payload: int = MAX_PAYLOAD,
        secrets: Sequence[str] = (),
        claims: Sequence[str] = (),
        write: Callable[[bytes], object] | None = None,
        folder: str = "",
        known: Redactor | None = None,
    ) -> None:
        """Append lines to the file at `path` (relative to `folder`), pass them to `write`, or log
        them to "fairlead.audit".

        `payloads` selects the requests whose params are written: "never" for none, "offending" for
        invalid requests, or "always". `secrets` are names of additional members to redact. Secrets
        that are registered in `known` are redacted too. `claims` are paths (`realm_access.roles`)
        of claims in access tokens to write; claims may contain personal data.

        Raises:
            OSError: The file cannot be opened for writing.
            ValueError: `max_payload` is negative.
        """
        if max_payload < 0:
            raise ValueError(f"`max_payload` must be at least 0, not {max_payload}")
        self._notifications = notifications
        self._payloads = payloads
        self._max_payload = max_payload
        self._claims = [(path, tuple(path.split("."))) for path in claims]
        self._redactor = Redactor(names=secrets)
        self._texts = Redactor(names=secrets, longest=MAX_TEXT)
        if known is not None:
            self._redactor.follow(known)
            self._texts.follow(known)
        self._file: int | None = None
        if path is not None:
            # The mode keeps other users from reading the file.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._file = os.open(os.path.join(folder, path), flags, 0o600)
            write = self._append
        self._write = write or _to_log
        self.lost = 0  # number of lines that could not be written
        self._complained = float("-inf")

    def close(self) -> None:
        """Close the file; later lines are counted as lost."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        asked = isinstance(exchange.message, Request)
        if not asked and not self._notifications:
            return await proceed(exchange)
        if exchange.did is None:
            # Inner interceptors may copy the exchange; the copies share this list of notes.
            exchange.did = []
        delivery = None if asked else exchange.watch_delivery()
        began = time.monotonic()
        try:
            answer = await proceed(exchange)
        except RpcError as exc:
            self._decided(exchange, "refused", began, exc)
            raise
        except Exception as exc:
            self._decided(exchange, "failed", began, exc)
            raise
        # `BaseException`, because a cancellation must be recorded too; it is raised again.
        except BaseException:
            self._decided(exchange, "cancelled", began)
            raise
        dropped = delivery is not None and delivery.dropped
        offends = self._payloads == "offending" and asked and _did_not_fit(exchange, answer)
        self._decided(exchange, "dropped" if dropped else "passed", began, offends=offends)
        return answer

    def on_malformed(self, offence: MalformedFrame) -> None:
        """Record a frame that is not a valid message,
        or a message that is not allowed in this state.
        """
        line: dict[str, Any] = {
            "decision": "offence",
            "direction": offence.direction.value,
            "transport": offence.transport.transport_type,
            "peer": offence.transport.peer_address,
            "kind": offence.kind,
            "reason": offence.why,
            "bytes": offence.size,
        }
        self._put(line, {} if self._payloads == "never" else {"frame": self._frame(offence)})

    def access_refused(self, principal: TokenPrincipal) -> None:
        """Record a valid access token that the gateway refuses."""
        line: dict[str, Any] = {
            "decision": "refused",
            "identity": principal_name(principal),
            **self._token_facts(principal),
            "reason": "no rule of [auth] matches the access token",
            "by": "gateway",
        }
        self._put(line, {})

    def _token_facts(self, principal: Principal) -> dict[str, Any]:
        if not isinstance(principal, TokenPrincipal):
            return {}
        found = {name: find(dict(principal.claims), path) for name, path in self._claims}
        claims = {name: held[0] if len(held) == 1 else held for name, held in found.items() if held}
        return {**principal.facts(), "claims": claims or None}

    def _frame(self, offence: MalformedFrame) -> str:
        if offence.is_json:
            clean = self._redactor.message(offence.frame).decode("utf-8", "replace")
        else:
            clean = self._redactor.text(offence.frame[:LOOKED_AT].decode("utf-8", "replace"))
        return clean if len(clean) <= self._max_payload else f"{clean[: self._max_payload]}…"

    def _decided(
        self,
        exchange: Exchange,
        decision: str,
        began: float,
        error: Exception | None = None,
        *,
        offends: bool = False,
    ) -> None:
        caller, transport = exchange.caller, exchange.transport
        line: dict[str, Any] = {
            "decision": decision,
            "direction": exchange.direction.value,
            "method": exchange.method,
            **_named(exchange),
            "identity": principal_name(caller.principal),
            **self._token_facts(caller.principal),
            "client": caller.name,
            "session": _session_label(exchange),
            "transport": transport.transport_type,
            "peer": transport.peer_address,
            "did": exchange.did or None,
            "seconds": round(time.monotonic() - began, 6),
        }
        if isinstance(error, RpcError):
            line["code"], line["reason"] = error.code, error.message
            line["by"] = _whose(error)
            offends = self._payloads == "offending" and error.code in _OFFENCES
        elif error is not None:
            line["reason"] = type(error).__name__
        kept = offends or self._payloads == "always"
        self._put(line, {"params": self._payload(exchange)} if kept else {})

    def _payload(self, exchange: Exchange) -> Any:
        params = exchange.message.params
        if isinstance(params, UnsetType):
            return None
        clean = self._redactor.message(bytes(params))
        if len(clean) <= self._max_payload:
            return msgspec.Raw(clean)
        # Truncated after redaction, because the first half of a secret would not be recognised.
        start = clean[: self._max_payload].decode("utf-8", "ignore")
        return f"{start}… ({len(clean)} bytes)"

    def _put(self, line: dict[str, Any], payload: dict[str, Any]) -> None:
        """Redact and write a line.

        `payload` is already redacted, and is not truncated like other strings.
        """
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        kept = {"at": at, **{key: held for key, held in line.items() if held is not None}}
        raw = single_line(to_json({**self._texts.value(kept), **payload}))
        try:
            self._write(raw)
        # A full disk must not block messages, and `write` may raise any exception.
        except Exception as exc:
            self.lost += 1
            now = time.monotonic()
            if now - self._complained > COMPLAIN_AGAIN:
                self._complained = now
                log.error("%d lines of the audit log are lost: %s", self.lost, exc)

    def _append(self, line: bytes) -> None:
        if self._file is None:
            raise ValueError("the audit log is closed")
        whole = line + b"\n"
        written = os.write(self._file, whole)
        # A partial line would corrupt the next line, so it is removed.
        if written < len(whole):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError("the disk is full")


def _named(exchange: Exchange) -> dict[str, Any]:
    """Return the target's name for clients; if the server's own name differs,
    also the server and that name.
    """
    targets = exchange.targets
    if len(targets) != 1:
        named = [one.displayed for one in targets[:MAX_TARGETS]]
        return {"target": exchange.target, "targets": named or None}
    target = targets[0]
    own = None if target.own == exchange.target else target.own
    return {"target": exchange.target or target.displayed, "server": target.server, "own": own}


def _session_label(exchange: Exchange) -> str | None:
    """Return a label that identifies the session without revealing its id, which is a secret."""
    found = exchange.edge.session.session_id
    return None if found is None else hashlib.sha256(found.encode()).hexdigest()[:12]


def _to_log(line: bytes) -> None:
    logging.getLogger("fairlead.audit").info("%s", line.decode("utf-8", "replace"))


def _did_not_fit(exchange: Exchange, answer: Answer) -> bool:
    """Return True if a tool result reports invalid arguments."""
    if exchange.method != "tools/call" or answer is None:
        return False
    raw = bytes(answer)
    # Searching the bytes is cheaper than decoding every result.
    if MCPErrorCode.VALIDATION_ERROR.encode() not in raw or not is_tool_error(raw):
        return False
    blocks = read_json(raw, _Content, _Content()).content
    errors = [read_json(block.text.encode(), _Error, _Error()) for block in blocks]
    return any(one.code == MCPErrorCode.VALIDATION_ERROR for one in errors)


class _Error(Struct):
    """The error object that a failing tool returns as the text of a content block."""

    code: str = ""


class _Block(Struct):
    text: str = ""


class _Content(Struct):
    content: list[_Block] = []


def _whose(error: RpcError) -> str:
    """Return "proxy" if the error was created by this process, "peer" if the peer sent it."""
    data = error.data
    return "proxy" if isinstance(data, dict) and data.get("source") == "proxy" else "peer"
