"""Refusals of requests with the challenges of RFC 6750, RFC 9449 and RFC 9728."""

from collections.abc import Iterable, Sequence

from msgspec import structs

from ...transport.http.server.request_guard import RequestRefusal
from ..challenge import format_challenge
from ..scopes import OFFLINE_ACCESS

__all__ = ["AccessChallenges"]

_CLOSE = (b"connection", b"close")  # the body of a refused request is not read
RETRY_AFTER = 5  # seconds after which a token that cannot be verified now may be sent again
MAX_REASONS = 100  # maximum number of reasons whose refusal is kept


class AccessChallenges:
    """Builder of refusals for requests to one resource."""

    def __init__(
        self,
        metadata_url: str | None,
        scopes: Sequence[str],
        *,
        login_scopes: Sequence[str] = (),
        bearer: bool = True,
        proof_algorithms: Sequence[str] = (),
    ) -> None:
        """Every request needs all `scopes`; `login_scopes` are named beside them if a client has to
        log in. With `proof_algorithms`, DPoP is offered; without `bearer`, it is required.
        """
        self._metadata_url = metadata_url
        self._scopes = _announced(scopes)
        self._login_scopes = _announced((*scopes, *login_scopes))
        self._bearer = bearer
        self._algorithms = " ".join(proof_algorithms)
        # Refusals of invalid tokens by their reason, because forged tokens may come in floods.
        self._invalid: dict[str, RequestRefusal] = {}

    def missing(self) -> RequestRefusal:
        """Return the refusal of a request without a token; it has no error code (RFC 6750)."""
        return self._refused(
            401, "An access token is required", self._challenges({}), "missing_token"
        )

    def invalid(self, why: str) -> RequestRefusal:
        """Return the refusal of a token that is invalid here."""
        found = self._invalid.get(why)
        if found is None:
            error = {"error": "invalid_token", "error_description": why}
            text = f"The access token is invalid: {why}"
            found = self._refused(401, text, self._challenges(error), "invalid_token")
            if len(self._invalid) < MAX_REASONS:
                self._invalid[why] = found
        return found

    def malformed(self, why: str) -> RequestRefusal:
        """Return the refusal of credentials that cannot be read."""
        error = {"error": "invalid_request", "error_description": why}
        text = f"The credentials are malformed: {why}"
        return self._refused(400, text, self._challenges(error), "malformed_credentials")

    def bad_proof(self, why: str, nonce: str | None, *, demand_nonce: bool) -> RequestRefusal:
        """Return the refusal of a DPoP proof; `nonce` is for the next proof."""
        code = "use_dpop_nonce" if demand_nonce else "invalid_dpop_proof"
        params = {"error": code, "error_description": why, "algs": self._algorithms}
        values = [format_challenge("DPoP", {**params, **self._members(self._login_scopes)})]
        refusal = self._refused(401, f"The DPoP proof is invalid: {why}", values, "invalid_proof")
        if nonce is None:
            return refusal
        fields = (*refusal.headers, (b"dpop-nonce", nonce.encode()))
        return structs.replace(refusal, headers=fields)

    def insufficient(self, needed: Iterable[str]) -> RequestRefusal:
        """Return the refusal of a token without the scopes that an operation needs.

        The challenge names these scopes and the scopes that every request needs.
        """
        scopes = _announced((*self._scopes, *needed))
        text = f"This operation needs the scopes: {' '.join(scopes)}"
        error = {"error": "insufficient_scope", "error_description": text}
        values = self._challenges(error, scopes)
        return RequestRefusal(403, text, _headers(values), "insufficient_scope")

    def unavailable(self, retry_after: int = RETRY_AFTER) -> RequestRefusal:
        """Return the refusal while the authorization server cannot be reached; not a 401, as
        the token may be valid.
        """
        text = f"The access token cannot be verified now; try again in {retry_after} s"
        fields = ((b"retry-after", b"%d" % retry_after), _CLOSE)
        return RequestRefusal(503, text, fields, "verification_unavailable")

    def _challenges(
        self, error: dict[str, str], scopes: tuple[str, ...] | None = None
    ) -> list[str]:
        members = self._members(self._login_scopes if scopes is None else scopes)
        values = []
        if self._algorithms:
            values.append(format_challenge("DPoP", {**error, "algs": self._algorithms, **members}))
        if self._bearer:
            values.append(format_challenge("Bearer", {**error, **members}))
        return values

    def _members(self, scopes: Sequence[str]) -> dict[str, str]:
        members = {"scope": " ".join(scopes)} if scopes else {}
        if self._metadata_url is not None:
            members["resource_metadata"] = self._metadata_url
        return members

    def _refused(self, status: int, text: str, values: list[str], reason: str) -> RequestRefusal:
        return RequestRefusal(status, text, (*_headers(values), _CLOSE), reason)


def _announced(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return scopes without repetitions and without the one that clients request by themselves."""
    return tuple(scope for scope in dict.fromkeys(scopes) if scope != OFFLINE_ACCESS)


def _headers(values: Iterable[str]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((b"www-authenticate", value.encode("ascii", "replace")) for value in values)
