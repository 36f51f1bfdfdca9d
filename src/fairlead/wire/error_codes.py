"""JSON-RPC error codes: the standard codes and the codes of the MCP specification."""

from typing import Final

__all__ = [
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "PARSE_ERROR",
    "REQUEST_CANCELLED",
    "RESOURCE_NOT_FOUND",
    "UNSUPPORTED_VERSION",
    "URL_ELICITATION_REQUIRED",
]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

# handshake era only; the stateless era uses INVALID_PARAMS with data.uri
RESOURCE_NOT_FOUND: Final = -32002
URL_ELICITATION_REQUIRED: Final = -32042  # 2025-11-25 only
REQUEST_CANCELLED: Final = -32800  # handshake era, HTTP; as in the Language Server Protocol
HEADER_MISMATCH: Final = -32020  # stateless era, HTTP
MISSING_CAPABILITY: Final = -32021  # stateless era, with data.requiredCapabilities
UNSUPPORTED_VERSION: Final = -32022  # stateless era, with data.supported and data.requested
