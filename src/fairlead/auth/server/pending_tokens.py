"""Limit on the tokens that wait for an authorization server."""

from ...errors import AuthorizationError

__all__ = ["PendingTokens"]

MAX_PENDING = 1024  # tokens that wait for one authorization server at the same time


class PendingTokens:
    """The number of tokens that wait for one authorization server.

    Each authorization server has its own counter, so that a slow one does not delay the tokens of
    others. Used as a context manager while a token waits.
    """

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> None:
        """Count a token.

        Raises:
            AuthorizationError: Too many tokens are waiting.
        """
        if self._count >= MAX_PENDING:
            raise AuthorizationError(
                "too many tokens wait for the authorization server", step="token", temporary=True
            )
        self._count += 1

    def __exit__(self, *exc: object) -> None:
        self._count -= 1
