"""Routes and requests of the admin API."""

from typing import Any

import pytest
from msgspec import Struct

from fairlead.errors import ConfigError
from fairlead.gateway.admin.route import BadRequest, PageRequest, Route, mistakes, number_of
from fairlead.limits import ADMIN_BODY_BYTES
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.http.server.asgi import AsgiCall


class Wanted(Struct, forbid_unknown_fields=True):
    a: int = 0


def request(*events: dict[str, Any], query: str = "", values: tuple[str, ...] = ()) -> PageRequest:
    left = list(events)

    async def receive() -> Any:
        return left.pop(0)

    async def send(event: Any) -> None:
        raise AssertionError

    scope = {"method": "GET", "path": "/", "headers": [], "query_string": query.encode()}
    return PageRequest(AsgiCall(scope, receive, send), ANONYMOUS, values)


def body(text: bytes) -> dict[str, Any]:
    return {"type": "http.request", "body": text, "more_body": False}


@pytest.mark.parametrize(
    ("route", "path", "values"),
    [
        ("/admin/journal", "/admin/journal", ()),
        ("/admin/journal", "/admin/journal/1", None),
        ("/admin/journal/{id}", "/admin/journal/1", ("1",)),
        ("/admin/journal/{id}", "/admin/journal/1/2", None),
        ("/admin/journal/{id}", "/admin/journal/", None),
        ("/a/{name}/b/{id}", "/a/x/b/y", ("x", "y")),
        ("/a/{uri:path}", "/a/x/y", ("x/y",)),
        ("/a/{uri:path}", "/a/", ("",)),
    ],
)
def test_a_route_extracts_its_placeholder_values_from_the_path(
    route: str, path: str, values: tuple[str, ...] | None
) -> None:
    assert Route("GET", route, lambda request: None).values(path) == values


def test_the_text_of_a_route_contains_the_names_of_its_placeholders() -> None:
    route = Route("GET", "/a/{id}/b/{uri:path}", lambda request: None)
    assert str(route) == "GET /a/ID/b/URI"


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("7", 7), ("9" * 15, int("9" * 15))])
def test_a_path_value_of_decimal_digits_is_parsed_as_a_number(text: str, number: int) -> None:
    assert number_of(text) == number
    assert request(values=(text,)).number == number


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "9" * 16, "٣"])
def test_a_path_value_must_have_one_to_fifteen_decimal_digits(text: str) -> None:
    with pytest.raises(BadRequest, match=" is not a number$"):
        number_of(text)


def test_a_request_has_the_decoded_query_parameters() -> None:
    assert request(query="a=1&a=2&b=%20x").query == {"a": "2", "b": " x"}
    assert request().query == {}


async def test_a_request_body_is_decoded_or_rejected_if_it_is_invalid() -> None:
    assert (await request(body(b'{"a": 3}')).body(Wanted)).a == 3
    assert (await request(body(b"")).body(Wanted)).a == 0
    for wrong in (b"{", b'{"b": 1}', b'{"a": "x"}', b"\xff"):
        with pytest.raises(BadRequest, match="^invalid body: "):
            await request(body(wrong)).body(Wanted)


async def test_a_body_that_is_too_large_is_refused() -> None:
    hits = ADMIN_BODY_BYTES.hits
    with pytest.raises(BadRequest, match="^the body is larger than 16777216 bytes$"):
        await request(body(bytes(ADMIN_BODY_BYTES.value + 1))).body(Wanted)
    assert ADMIN_BODY_BYTES.hits == hits + 1


async def test_reading_the_body_fails_if_the_client_has_disconnected() -> None:
    with pytest.raises(ConfigError, match="^the client has disconnected$") as gone:
        await request({"type": "http.disconnect"}).body(Wanted)
    assert not isinstance(gone.value, BadRequest)


def test_config_errors_become_bad_requests_unless_their_type_is_excluded() -> None:
    class Other(ConfigError):
        pass

    with pytest.raises(BadRequest, match="wrong"), mistakes(Other):
        raise ConfigError("wrong")
    with pytest.raises(Other), mistakes(Other):
        raise Other("else")
    with pytest.raises(ValueError, match="x"), mistakes():
        raise ValueError("x")


def test_the_error_for_an_invalid_number_truncates_a_long_value() -> None:
    with pytest.raises(BadRequest) as refused:
        number_of("x" * 51)
    assert str(refused.value) == f"'{'x' * 50}' is not a number"
    assert number_of("9" * 15) == 999_999_999_999_999
    with pytest.raises(BadRequest):
        number_of("9" * 16)
