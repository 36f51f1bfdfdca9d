"""Tests of request params that handlers decode themselves."""

from typing import Any

import pytest
from msgspec import UNSET, Raw, Struct

from fairlead import RpcError
from fairlead.server.decode_params import decode_params, required_uri
from tests.support.single_exchange import exchange


class Params(Struct):
    n: int = 0


def test_absent_parameters_are_decoded_as_an_empty_object() -> None:
    assert decode_params(Raw(b'{"n":5,"other":1}'), Params) == Params(5)
    assert decode_params(UNSET, Params) == Params()


@pytest.mark.parametrize(
    "params",
    [b'{"n":"x"}', b"[]", b"{", b'{"a":' + b"[" * 100_000],
    ids=["type", "list", "truncated", "deep"],
)
def test_parameters_that_cannot_be_decoded_are_rejected(params: bytes) -> None:
    with pytest.raises(RpcError) as refused:
        decode_params(Raw(params), Params)
    assert refused.value.code == -32602
    assert refused.value.message.startswith("Invalid params: ")


@pytest.mark.parametrize("params", [None, {}, {"uri": 5}], ids=["none", "empty", "number"])
def test_a_read_request_without_a_uri_is_rejected(params: Any) -> None:
    with pytest.raises(RpcError) as refused:
        required_uri(exchange("resources/read", params))
    assert refused.value.code == -32602
    assert refused.value.message == "params.uri is required: the URI of a resource"
    assert required_uri(exchange("resources/read", {"uri": "r://1"})) == "r://1"
