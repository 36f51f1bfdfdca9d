"""Who was allowed what, and who was not: a line of JSON for each decision, without secrets."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import UnsetType

from ...errors import RpcError
from ...interceptor import Answer, Exchange, InterceptorBase, MalformedFrame, Proceed
from ...protocol.identity.principal import principal_name
from ...redaction.redact_messages import Redactor
from ...wire import Request, single_line, to_json
from ...wire.error_codes import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from ..session_label import session_label

__all__ = ["Audit"]

MAX_PAYLOAD: Final = 4096  # bytes of params that are kept
LOOKED_AT: Final = 64 << 10  # bytes of a frame that is no message
MAX_TEXT: Final = 500  # characters of any text
MAX_TARGETS: Final = 20  # resources of one subscription that are named
COMPLAIN_AGAIN: Final = 60.0  # seconds

_DROPPED: Final = ("dropped", "fault: drop")  # notes of those who do not pass it on
_OFFENCES: Final = (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS)

log = logging.getLogger("fairlead.gateway.audit")


class Audit(InterceptorBase):
    """Writes what became of each message: passed, refused, dropped, failed or cancelled.

    It belongs outside of all that decides. What was said in a message is not written, except the
    params of those that were no good, if `payloads` says so: redacted, and cut at `max_payload`.
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
        write: Callable[[bytes], object] | None = None,
        folder: str = "",
        known: Redactor | None = None,
    ) -> None:
        """Lines go to the end of the file at `path` (relative to `folder`), to `write`, or else to
        the log "fairlead.audit". `secrets` are names of further members that must not be seen;
        values that `known` knows are not seen either.

        Raises:
            OSError: it cannot be written there.
        """
        if max_payload < 0:
            raise ValueError("`max_payload` is not below 0")
        self._notifications = notifications
        self._payloads = payloads
        self._max_payload = max_payload
        self._redactor = Redactor(names=secrets)
        self._texts = Redactor(names=secrets, longest=MAX_TEXT)
        if known is not None:
            self._redactor.follow(known)
            self._texts.follow(known)
        self._file: int | None = None
        if path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._file = os.open(os.path.join(folder, path), flags, 0o600)
            write = self._append
        self._write = write or _to_log
        self.lost = 0  # lines that could not be written
        self._complained = float("-inf")

    def close(self) -> None:
        """Nothing more is written."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        asked = isinstance(exchange.message, Request)
        if not asked and not self._notifications:
            return await proceed(exchange)
        if exchange.did is None:
            exchange.did = []  # so that whoever changes it notes it where we see it
        began = time.monotonic()
        try:
            answer = await proceed(exchange)
        except RpcError as exc:
            self._decided(exchange, "refused", began, exc)
            raise
        except Exception as exc:
            self._decided(exchange, "failed", began, exc)
            raise
        except BaseException:
            self._decided(exchange, "cancelled", began)
            raise
        dropped = not asked and any(one.startswith(_DROPPED) for one in exchange.did or ())
        offends = self._payloads == "offending" and asked and _did_not_fit(exchange, answer)
        self._decided(exchange, "dropped" if dropped else "passed", began, offends=offends)
        return answer

    def on_malformed(self, offence: MalformedFrame) -> None:
        """A frame that is no message, or none that may come here and now."""
        line: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "decision": "offence",
            "direction": offence.direction.value,
            "transport": offence.transport.transport_type,
            "peer": offence.transport.peer_address,
            "kind": offence.kind,
            "reason": offence.why,
            "bytes": offence.size,
        }
        kept = {key: value for key, value in line.items() if value is not None}
        kept = self._texts.value(kept)
        if self._payloads != "never":
            kept["frame"] = self._frame(offence)
        self._put(single_line(to_json(kept)))

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
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "decision": decision,
            "direction": exchange.direction.value,
            "method": exchange.method,
            **_named(exchange),
            "identity": principal_name(caller.principal),
            "client": caller.name,
            "session": session_label(exchange),
            "transport": transport.transport_type,
            "peer": transport.peer_address,
            "did": exchange.did or None,
            "seconds": round(time.monotonic() - began, 6),
        }
        if isinstance(error, RpcError):
            line["code"], line["reason"] = error.code, error.message
            line["by"] = _whose(error)
        elif error is not None:
            line["reason"] = type(error).__name__
        kept = {key: value for key, value in line.items() if value is not None}
        kept = self._texts.value(kept)
        if offends or self._wants_payload(error):
            kept["params"] = self._payload(exchange)
        self._put(single_line(to_json(kept)))

    def _wants_payload(self, error: Exception | None) -> bool:
        offence = isinstance(error, RpcError) and error.code in _OFFENCES
        return self._payloads == "always" or (self._payloads == "offending" and offence)

    def _payload(self, exchange: Exchange) -> Any:
        params = exchange.message.params
        if isinstance(params, UnsetType):
            return None
        clean = self._redactor.message(bytes(params))
        if len(clean) <= self._max_payload:
            return msgspec.Raw(clean)
        # Cut only after redaction: half of a secret would not be recognised.
        start = clean[: self._max_payload].decode("utf-8", "ignore")
        return f"{start}… ({len(clean)} bytes)"

    def _put(self, line: bytes) -> None:
        try:
            self._write(line)
        except Exception as exc:  # a full disk must not stop the traffic
            self.lost += 1
            now = time.monotonic()
            if now - self._complained > COMPLAIN_AGAIN:
                self._complained = now
                log.error("%d lines of the audit log are lost: %s", self.lost, exc)

    def _append(self, line: bytes) -> None:
        if self._file is None:
            raise ValueError("it is closed")
        whole = line + b"\n"
        written = os.write(self._file, whole)
        if written < len(whole):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError("the disk is full")


def _named(exchange: Exchange) -> dict[str, Any]:
    """What is meant: by the client's name, and by the server and its own name if they differ."""
    targets = exchange.targets
    if len(targets) != 1:
        named = [one.displayed for one in targets[:MAX_TARGETS]]
        return {"target": exchange.target, "targets": named or None}
    target = targets[0]
    own = None if target.own == exchange.target else target.own
    return {"target": exchange.target or target.displayed, "server": target.server, "own": own}


def _to_log(line: bytes) -> None:
    logging.getLogger("fairlead.audit").info("%s", line.decode("utf-8", "replace"))


def _did_not_fit(exchange: Exchange, answer: Answer) -> bool:
    """Whether a tool of ours says that its arguments were no good: a result, and no refusal."""
    if exchange.method != "tools/call" or answer is None:
        return False
    return b"VALIDATION_ERROR" in bytes(answer)


def _whose(error: RpcError) -> str:
    """Who refused: one of us on the way, or whoever was asked."""
    data = error.data
    return "proxy" if isinstance(data, dict) and data.get("source") == "proxy" else "peer"
