import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead import wire
from fairlead.limits import ERROR_DATA, ERROR_TEXT
from fairlead.wire import Failure, Notification, Request, Success, decode, encode, failure
from fairlead.wire import error_codes as codes
from fairlead.wire.messages import size_of


@pytest.mark.covers("RPC-01")
def test_message_types_can_be_imported_under_their_long_names() -> None:
    assert wire.JsonRpcRequest is Request
    assert wire.JsonRpcNotification is Notification
    assert wire.JsonRpcResponse is Success
    assert wire.JsonRpcError is Failure
    kinds = {Request, Notification, Success, Failure}
    assert set(typing.get_args(wire.JsonRpcMessage)) == kinds
    assert wire.JsonRpcMessage == wire.Message


@pytest.mark.covers("RPC-11")
def test_json_rpc_error_codes_have_named_constants() -> None:
    assert {name: getattr(codes, name) for name in codes.__all__} == {
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
        "RESOURCE_NOT_FOUND": -32002,
        "URL_ELICITATION_REQUIRED": -32042,
        "REQUEST_CANCELLED": -32800,
        "HEADER_MISMATCH": -32020,
        "MISSING_CAPABILITY": -32021,
        "UNSUPPORTED_VERSION": -32022,
    }


@pytest.mark.covers("RPC-05")
def test_an_error_object_contains_data_if_given() -> None:
    assert failure(1, -5, "no") == Failure(1, -5, "no", Raw(b'{"code":-5,"message":"no"}'))
    assert failure("a", -5, "no", {"why": [1]}) == Failure(
        "a", -5, "no", Raw(b'{"code":-5,"message":"no","data":{"why":[1]}}')
    )


@given(
    st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**40), 2**40),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.none() | st.booleans() | st.lists(st.integers(), max_size=3),
)
def test_an_encoded_failure_decodes_to_the_same_failure(
    request_id: int | str | None, code: int, message: str, data: object
) -> None:
    made = failure(request_id, code, message, data)
    assert decode(encode(made)) == made


def test_an_error_without_a_request_id_has_a_null_id_or_no_id() -> None:
    assert encode(failure(None, -32700, "?")) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}'
    )
    assert encode(failure(None, -32700, "?", absent_id=True)) == (
        b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"?"}}'
    )


def test_messages_are_immutable_and_compare_by_value() -> None:
    request = Request(1, "m", Raw(b"{}"))
    assert request == Request(1, "m", Raw(b"{}"))
    assert request != Request("1", "m", Raw(b"{}"))
    assert msgspec.structs.replace(request, id=2) == Request(2, "m", Raw(b"{}"))
    assert Request(1, "m").params is UNSET
    with pytest.raises(AttributeError):
        request.id = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (Notification("abc"), 3),
        (Request(1, "abc", Raw(b"{}")), 5),
        (Notification("abc", Raw(b'{"a":1}')), 10),
    ],
)
def test_the_size_of_a_message_counts_method_and_params(
    message: Request | Notification, size: int
) -> None:
    assert size_of(message) == size


def test_the_message_of_an_error_is_truncated_at_its_limit() -> None:
    hits = ERROR_TEXT.hits
    assert failure(1, -1, "x" * ERROR_TEXT.value).message == "x" * ERROR_TEXT.value
    assert ERROR_TEXT.hits == hits
    cut = failure(1, -1, "x" * (ERROR_TEXT.value + 1)).message
    assert (len(cut), "…" in cut) == (ERROR_TEXT.value, True)
    assert ERROR_TEXT.hits == hits + 1


def test_the_size_of_error_data_is_limited() -> None:
    around = len('{"code":-1,"message":"x","data":""}')
    fits = failure(1, -1, "x", "d" * (ERROR_DATA.value - around))
    assert len(bytes(fits.error)) == ERROR_DATA.value
    hits = ERROR_DATA.hits
    larger = failure(1, -1, "x", "d" * (ERROR_DATA.value - around + 1))
    assert msgspec.json.decode(larger.error)["data"] == {"omitted": ERROR_DATA.value + 1}
    assert ERROR_DATA.hits == hits + 1
