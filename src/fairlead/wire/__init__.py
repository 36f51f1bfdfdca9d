"""JSON-RPC 2.0: structure and encoding of messages, without I/O and without knowledge of MCP."""

from .codec import Batch, Decoder, answered_by, decode, encode, encode_request, encode_success
from .framing import MAX_MESSAGE, LineSplitter, TooLong
from .json import single_line, to_json
from .messages import (
    Failure,
    JsonRpcError,
    JsonRpcMessage,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    Message,
    Notification,
    Params,
    Request,
    RequestId,
    Success,
    failure,
)

__all__ = [
    "MAX_MESSAGE",
    "Batch",
    "Decoder",
    "Failure",
    "JsonRpcError",
    "JsonRpcMessage",
    "JsonRpcNotification",
    "JsonRpcRequest",
    "JsonRpcResponse",
    "LineSplitter",
    "Message",
    "Notification",
    "Params",
    "Request",
    "RequestId",
    "Success",
    "TooLong",
    "answered_by",
    "decode",
    "encode",
    "encode_request",
    "encode_success",
    "failure",
    "single_line",
    "to_json",
]
