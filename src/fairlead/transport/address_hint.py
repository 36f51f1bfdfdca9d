"""Hints for connections that failed because of their URL: its scheme, certificate or path."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from ..errors import HttpError, RemoteProtocolError

__all__ = [
    "address_hint",
    "certificate_hint",
    "has_untrusted_certificate",
    "has_wrong_path",
    "shown_url",
    "url_of_address",
]

# An address without its scheme. Most file names match neither form.
_LOCAL = re.compile(r"(?i)(?:localhost|\d+(?:\.\d+){3}|\[[\da-f:.]+\])(?::\d+)?(?:/\S*)?")
_REMOTE = re.compile(r"(?i)[a-z\d-]+(?:\.[a-z\d-]+)*\.[a-z]{2,}(?::\d+(?:/\S*)?|/\S*)")

# Codes of OpenSSL: self-signed, self-signed in the chain, and issuer not found.
_UNTRUSTED: Final = (18, 19, 20, 21)
_NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
)


def address_hint(exc: BaseException, url: str) -> str:
    """Return a hint if the scheme, certificate or path of the URL is probably wrong.

    The error is classified by its attributes and causes, not by its text.
    """
    shown = shown_url(url)
    usual = "/ws" if url.lower().startswith("ws") else "/mcp"
    check_path = f"check the path of the MCP endpoint, usually {usual}"
    for cause in _causes(exc):
        if _is_web_page(cause):
            return f"{shown} is a web page: {check_path}"
        # `ssl` is imported only by TLS connections, and only those raise this error.
        if type(cause).__module__ == "ssl":
            return _tls_hint(cause, shown)
        if isinstance(cause, HttpError) and cause.status in (404, 405):
            return check_path
        # A web server that expects TLS answers 400 or resets the connection.
        refused = isinstance(cause, HttpError) and cause.status == 400
        if (refused or isinstance(cause, ConnectionResetError | EOFError)) and not _uses_tls(url):
            with_tls = re.sub("(?i)^(http|ws):", r"\1s:", shown)
            return f"if the server uses TLS, write {with_tls}"
    return ""


def certificate_hint(exc: BaseException) -> str:
    """Return a hint if a connection failed because of the certificate of its peer."""
    rejected = [one for one in _causes(exc) if type(one).__module__ == "ssl"]
    hints = [_tls_hint(one, "") for one in rejected if _verification_code(one) is not None]
    return "".join(hints[:1])


def has_wrong_path(exc: BaseException) -> bool:
    """Return True if the server has no page, or a web page, at the path of the URL."""
    return any(
        _is_web_page(one) or (isinstance(one, HttpError) and one.status in (404, 405))
        for one in _causes(exc)
    )


def has_untrusted_certificate(exc: BaseException) -> bool:
    """Return True if a connection failed because the certificate is self-signed or its issuer is
    unknown.
    """
    return any(
        type(one).__module__ == "ssl" and _verification_code(one) in _UNTRUSTED
        for one in _causes(exc)
    )


def url_of_address(text: str) -> str | None:
    """Return the probable URL for an address without a scheme; None for any other string."""
    if _LOCAL.fullmatch(text):
        return f"http://{text}"
    return f"https://{text}" if _REMOTE.fullmatch(text) else None


def shown_url(url: str) -> str:
    """Return a URL without the parts that may contain secrets."""
    try:
        parts = urlsplit(url)
        return parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query="", fragment=""
        ).geturl()
    except ValueError:
        return "the URL"


def _is_web_page(error: BaseException) -> bool:
    if isinstance(error, HttpError):
        kind = error.headers.get("content-type", "")
        return error.status == 200 and kind.startswith("text/html")
    return isinstance(error, RemoteProtocolError) and error.content_type == "text/html"


def _tls_hint(error: BaseException, shown: str) -> str:
    import ssl

    code = _verification_code(error)
    if code in _UNTRUSTED:
        return (
            "the certificate is self-signed or its issuer is unknown: set SSL_CERT_FILE to a file "
            "with the certificate of the issuer"
        )
    if code is not None:
        return "the certificate is not valid for this address: check the host name and the date"
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        without = re.sub("(?i)^(http|ws)s:", r"\1:", shown)
        return f"the server does not use TLS: write {without}"
    return ""


def _verification_code(error: BaseException) -> int | None:
    """Return OpenSSL's code for a rejected certificate; None for any other error."""
    import ssl

    return error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else None


def _uses_tls(url: str) -> bool:
    return url.lower().startswith(("https:", "wss:"))


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    while exc is not None:
        yield exc
        exc = exc.__cause__
