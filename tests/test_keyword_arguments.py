"""Tests of the checks of arguments and settings."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from fairlead import MCPClient, MCPManager, MCPServer, MCPServerConfig, mcp_tool
from fairlead.client import MCPClientConfig
from fairlead.gateway import Gateway
from fairlead.interceptor import Interceptor
from fairlead.keyword_arguments import named_arguments
from fairlead.relay.relay import Relay
from fairlead.transport.http.server.http_settings import HttpSettings

server: Any = MCPServer("s")


@pytest.mark.covers("SRV-13")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: MCPServer("s", rate_limt_rate=1),
            "unknown keyword argument 'rate_limt_rate': did you mean 'rate_limit_rate'?",
        ),
        (
            lambda: MCPServer("s", lifespn=None),
            "unknown keyword argument 'lifespn': did you mean 'lifespan'?",
        ),
        (
            lambda: MCPServerConfig(instrucions="x"),  # type: ignore[call-arg]
            "unknown keyword argument 'instrucions': did you mean 'instructions'?",
        ),
        (
            lambda: server.tool(descripton="x"),
            "unknown keyword argument 'descripton': did you mean 'description'?",
        ),
        (
            lambda: server.prompt(structured=False),
            "unknown keyword argument 'structured': expected one of description, name, scopes, "
            "title",
        ),
        (
            lambda: server.resource("r://1", mimeType="x"),
            "unknown keyword argument 'mimeType': did you mean 'mime_type'?",
        ),
        (
            lambda: server.prompt(tittle="x"),
            "unknown keyword argument 'tittle': did you mean 'title'?",
        ),
        (
            lambda: server.register_tool("t", {}, print, outputSchema={}),
            "unknown keyword argument 'outputSchema': did you mean 'output_schema'?",
        ),
        (
            lambda: server.register_resource("r://1", "r", provider=print),
            "unknown keyword argument 'provider': did you mean 'content_provider'?",
        ),
        (
            lambda: server.register_prompt("p", desciption="x"),
            "unknown keyword argument 'desciption': did you mean 'description'?",
        ),
        (
            lambda: server.create_http_app(auth_tokn="x"),
            "unknown keyword argument 'auth_tokn': did you mean 'auth_token'?",
        ),
        (
            lambda: mcp_tool(catgory="x"),  # type: ignore[call-overload]
            "unknown keyword argument 'catgory': did you mean 'category'?",
        ),
        (
            lambda: server.mount(MCPServer("t"), prefx="a"),
            "unknown keyword argument 'prefx': did you mean 'prefix'?",
        ),
        (
            lambda: MCPClient.connect("python s.py", on_elicitation=print),  # type: ignore[call-arg]
            "unknown keyword argument 'on_elicitation': did you mean 'on_elicit'?",
        ),
        (
            lambda: MCPManager(on_elicitation=print),  # type: ignore[call-arg]
            "unknown keyword argument 'on_elicitation': did you mean 'on_elicit'?",
        ),
        (
            lambda: MCPClientConfig(timeout=3),  # type: ignore[call-arg]
            "unknown keyword argument 'timeout': did you mean 'timeout_seconds'?",
        ),
        (
            lambda: HttpSettings(sesions=False),  # type: ignore[call-arg]
            "unknown keyword argument 'sesions': did you mean 'sessions'?",
        ),
        (
            lambda: Gateway(serch=True),
            "unknown keyword argument 'serch': did you mean 'search'?",
        ),
        (
            lambda: Relay({"command": "x"}, era_="auto"),
            "unknown keyword argument 'era_': did you mean 'era'?",
        ),
    ],
)
def test_the_error_for_an_unknown_keyword_argument_names_the_closest_argument(
    call: Any, message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MCPServer("s", middleware=[]), "'middleware': use `interceptors=[...]`"),
        (lambda: MCPServer("s", timeout=3), "'timeout': use `default_tool_timeout=`"),
        (lambda: MCPServer("s", stateless_http=True), "use `sessions=False`"),
        (lambda: server.tool(tags=["a"]), "'tags': tags are supported for functions in modules"),
        (lambda: server.tool(structured_output=True), "use `output_schema=True`"),
        (lambda: server.resource("r://1", enabled=False), "or remove it with"),
        (lambda: server.prompt(tags=["a"]), "'tags': tags are supported for functions in modules"),
        (lambda: server.run(transport="http"), "use `MCPServer(name, transport="),
        (lambda: server.mount(MCPServer("t"), namespace="a"), "'namespace': use `prefix=`"),
        (lambda: server.create_http_app(stateless_http=True), "use `sessions=False`"),
        (
            lambda: MCPClient.connect("python s.py", sampling_handler=print),  # type: ignore[call-arg]
            "'sampling_handler': use `on_sample=`",
        ),
        (
            lambda: MCPManager(timeout=3),  # type: ignore[call-arg]
            "'timeout': use `config=MCPClientConfig(timeout_seconds=...)`",
        ),
        (lambda: Gateway(port=80), "'port': pass it to `gateway.run_http()`"),
    ],
)
def test_the_error_for_an_argument_of_another_library_says_what_to_use(
    call: Any, message: str
) -> None:
    with pytest.raises(TypeError, match="^unknown keyword argument ") as caught:
        call()
    assert message in str(caught.value)


@pytest.mark.covers("SRV-13")
@pytest.mark.parametrize(
    ("settings", "problem", "message"),
    [
        ({"default_tool_timeout": "30s"}, TypeError, "must be a number of seconds, not '30s'"),
        ({"port": "abc"}, TypeError, "port must be a whole number, not 'abc'"),
        ({"port": 70_000}, ValueError, "port must be a number from 0 to 65535, not 70000"),
        ({"max_in_flight": -1}, ValueError, "max_in_flight must be 0 or more, not -1"),
        ({"input_timeout": float("nan")}, ValueError, "must be 0 or more seconds, not nan"),
        ({"rate_limit_burst": 1.5}, TypeError, "must be a whole number, not 1.5"),
        ({"rate_limit_burst": True}, TypeError, "must be a whole number, not True"),
        ({"warm_up": "no"}, TypeError, "warm_up must be True or False, not 'no'"),
        ({"transport": "htp"}, ValueError, "transport must be 'stdio' or 'http', not 'htp'"),
        ({"log_level": "LOUD"}, ValueError, "log_level must be one of DEBUG, INFO, "),
        ({"tool_modules": "mod"}, TypeError, "must be a list or tuple of strings, not 'mod'"),
        ({"per_tool_timeouts": {"a": "x"}}, TypeError, "must be a dict of numbers or None, not"),
        ({"per_tool_rate": "x"}, TypeError, "must be a number or a dict of numbers, not 'x'"),
        ({"auth_token": b"pass"}, TypeError, "a string or None, not a value of type bytes"),
        ({"interceptors": print}, TypeError, "must be a list or tuple of Interceptor objects"),
        ({"interceptors": [5]}, TypeError, "must be a list or tuple of Interceptor objects"),
        ({"lifespan": 5}, TypeError, "lifespan must be a function or None, not 5"),
        ({"registry": 5}, TypeError, "registry must be MCPToolRegistry or None, not 5"),
    ],
    ids=str,
)
def test_a_setting_of_the_wrong_type_is_rejected_when_the_server_is_created(
    settings: dict[str, Any], problem: type[Exception], message: str
) -> None:
    with pytest.raises(problem) as caught:
        MCPServer("s", **settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"default_tool_timeout": 30, "per_tool_rate": {"a": 1}, "tool_modules": ["json"]},
        {"log_level": "debug", "instructions": None, "per_tool_timeouts": {"a": 0.5}},
    ],
)
def test_settings_of_the_right_types_are_accepted(settings: dict[str, Any]) -> None:
    assert MCPServer("s", **settings).config == MCPServerConfig(name="s", **settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: server.tool(timeout="30s"), "timeout must be a number of seconds or None"),
        (lambda: server.tool(title=5), "title must be a string or None, not 5"),
        (lambda: server.tool(meta=5), "meta must be a dict of any values or None, not 5"),
        (lambda: server.tool(inline="yes"), "inline must be True or False, not 'yes'"),
        (lambda: server.tool(scopes=5), "scopes must be a string or a list or tuple of strings"),
        (lambda: server.register_tool(print, {}, "t"), "name must be a string, not <built-in"),
        (lambda: server.mount("a", MCPServer("t")), "use server.mount(other, prefix='a')"),
        (lambda: server.mount(object()), "expected an MCPServer of fairlead, not <object"),
        (lambda: server.mount(MCPServer("t"), 5), "prefix must be a string, not 5"),
        (lambda: MCPServer(5), "config must be MCPServerConfig or a string or None, not 5"),  # type: ignore[arg-type]
        (lambda: MCPManager(startup=5), "startup must be 'wait' or 'background', not 5"),  # type: ignore[arg-type]
        (
            lambda: MCPClient.connect("python s.py", on_elicit=5),  # type: ignore[arg-type]
            "on_elicit must be a function, not 5",
        ),
        (
            lambda: MCPClient.connect("python s.py", {"timeout_seconds": 5}),  # type: ignore[arg-type]
            "config must be an MCPClientConfig, not {'timeout_seconds': 5}",
        ),
        (lambda: Gateway(page_size="all"), "page_size must be a whole number, not 'all'"),
    ],
)
def test_an_argument_of_the_wrong_type_is_rejected_at_once(call: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert message in str(caught.value)


@named_arguments(unchecked=("free",))
def example(
    free: int = 0,
    values: Mapping[str, Sequence[int]] | None = None,
    mode: Literal["a", "b"] = "a",
    parts: Sequence[Interceptor] = (),
    later: "Unknown | None" = None,  # type: ignore[name-defined] # noqa: F821 - never resolved
) -> None: ...


def test_only_annotations_that_are_known_are_checked() -> None:
    example("not a number", {"a": [1]}, later=5)  # type: ignore[arg-type]
    example(1, {"a": (1, 2)}, "b", [print])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a dict of a list or tuple of whole numbers or None"):
        example(1, {"a": "12"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="mode must be 'a' or 'b', not 'c'"):
        example(mode="c")  # type: ignore[arg-type]


def test_long_values_are_not_part_of_messages() -> None:
    with pytest.raises(TypeError, match="must be a whole number, not a value of type str"):
        MCPServer("s", port="1" * 1000)


def test_the_error_for_too_many_positional_arguments_names_the_maximum() -> None:
    with pytest.raises(TypeError) as caught:
        MCPServer("s", "Read me.")  # type: ignore[misc]
    most = "MCPServer takes at most 1 positional argument, not 2: pass the others by name"
    assert str(caught.value) == most
    with pytest.raises(TypeError, match="takes at most 0 positional arguments, not 1: pass"):
        MCPClientConfig("name")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MCPManager({"time": {}}), "cwd must be a folder, not dict: to connect servers, "),
        (lambda: MCPManager(["server.py"]), "use `await manager.connect_servers({...})`"),
        (MCPClient, "MCPClient needs transport: use `async with MCPClient.connect(tar"),
        (lambda: MCPClient(print), "use `async with MCPClient.connect(target, ...) as client:`"),
        (lambda: MCPClient("s.py", on_elicit=print), "MCPClient takes a transport, not 's.py'"),
        (lambda: MCPClient.connect_stdio("python s.py"), "command must be a list"),
        (lambda: MCPClient.connect_stdio(1), "command must be a list"),
        (lambda: MCPClient.connect_stdio([]), "command must be a list"),
        (lambda: MCPClient.connect_stdio([1]), "a list of strings and paths, but contains 1"),
        (lambda: MCPClient.connect_http(1), "base_url must be a string, not 1"),
        (lambda: MCPClient.connect_http("http://x", headers={"a": 1}), "headers must be a dict of"),
        (lambda: MCPClient.connect_websocket(1), "url must be a string, not 1"),
        (lambda: MCPClient.connect_tcp("x", "80"), "port must be a whole number, not '80'"),
        (lambda: MCPClient.connect_unix(1), "path must be a string, not 1"),
        (lambda: MCPClient.connect_inprocess(1), "server must be a server object, not int"),
        (lambda: MCPClient.connect_channel(1), "open_channel must be a function, not 1"),
    ],
)
def test_an_argument_of_the_wrong_type_for_a_client_or_manager_is_rejected_at_once(
    call: Any, message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert message in str(caught.value)
