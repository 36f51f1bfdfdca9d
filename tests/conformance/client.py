"""The client that the official conformance suite starts, once for each scenario.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/client.py http://localhost:3000/mcp

The client library handles the subject of each scenario; this file has only the code of a user.
"""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

from fairlead import MCPClient
from fairlead.auth.client.interactive_login import AuthorizationRequest
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import EnterpriseLogin, OAuthSettings
from fairlead.client import Question, accept

Scenario = Callable[[MCPClient], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    def add(run: Scenario) -> Scenario:
        SCENARIOS[name] = run
        return run

    return add


@scenario("initialize")
@scenario("json-schema-ref-no-deref")
async def list_tools(client: MCPClient) -> None:
    await client.tools()


@scenario("tools_call")
async def add_numbers(client: MCPClient) -> None:
    await client.tools()
    await client.call("add_numbers", {"a": 5, "b": 3})


@scenario("elicitation-sep1034-client-defaults")
async def fill_in_defaults(client: MCPClient) -> None:
    await client.tools()
    await client.call("test_client_elicitation_defaults")


@scenario("sse-retry")
async def reconnect(client: MCPClient) -> None:
    await client.tools()
    await client.call("test_reconnection")


@scenario("request-metadata")
async def describe_itself(client: MCPClient) -> None:
    await client.tools()
    await client.call("any_tool")


@scenario("sep-2322-client-request-state")
async def answer_in_rounds(client: MCPClient) -> None:
    await client.tools()
    await asyncio.gather(client.call("test_mrtr_echo_state"), client.call("test_mrtr_unrelated"))
    await client.call("test_mrtr_no_state")
    await client.call("test_mrtr_no_result_type")


@scenario("http-standard-headers")
async def use_everything(client: MCPClient) -> None:
    for tool in await client.tools():
        await client.call(tool.name)
    for resource in await client.resources():
        await client.read(resource.uri)
    for prompt in await client.prompts():
        await client.prompt(prompt.name)


@scenario("http-custom-headers")
async def call_as_told(client: MCPClient) -> None:
    await client.tools()
    for call in context()["toolCalls"]:
        await client.call(call["name"], call["arguments"])


@scenario("http-invalid-tool-headers")
async def call_all_tools(client: MCPClient) -> None:
    for tool in await client.list_tools():
        wanted = tool["inputSchema"].get("required", ())
        await client.call(tool["name"], dict.fromkeys(wanted, "something"))


@scenario("json-schema-2020-12-preservation")
async def return_a_schema(client: MCPClient) -> None:
    schemas = {tool.name: json.loads(bytes(tool.input_schema)) for tool in await client.tools()}
    await client.call("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


async def authorized_calls(client: MCPClient) -> None:
    """Make several requests, because a scenario may change its server after the first request."""
    await client.tools()
    await client.call("test-tool")
    await client.call("test-tool")


def oauth(name: str) -> OAuthSettings:
    """Return the settings of a scenario; the suite provides clients and keys for some."""
    given = context() if "MCP_CONFORMANCE_CONTEXT" in os.environ else {}
    usual: dict[str, Any] = {
        "redirect_uri": "http://localhost:3000/callback",
        "client_metadata_url": "https://conformance-test.local/client-metadata.json",
        "client_id": given.get("client_id"),
        "client_secret": given.get("client_secret"),
        "issuer": given.get("issuer"),
    }
    match name:
        case "auth/client-credentials-jwt":
            usual |= {
                "grant": "client_credentials",
                "private_key": given["private_key_pem"],
                "signing_algorithm": given["signing_algorithm"],
            }
        case "auth/client-credentials-basic":
            usual["grant"] = "client_credentials"
        case "auth/wif-jwt-bearer":
            usual |= {"grant": "jwt_bearer", "assertion": given["valid_jwt"], "client_id": None}
        case "auth/enterprise-managed-authorization":
            company = EnterpriseLogin(
                token_endpoint=given["idp_token_endpoint"],
                client_id=given["idp_client_id"],
                id_token=given["idp_id_token"],
            )
            usual |= {"grant": "enterprise", "enterprise": company}
    return OAuthSettings(**usual)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def visit(request: AuthorizationRequest) -> str:
    """Return the redirect URL of the authorization page; the suite logs in automatically."""
    try:
        urllib.request.build_opener(_NoRedirect).open(request.url, timeout=10)
    except urllib.error.HTTPError as redirect:
        return str(redirect.headers["Location"])
    raise RuntimeError("the authorization page does not redirect")


def on_elicit(question: Question) -> dict[str, Any]:
    """Accept a form with its defaults, and set every other boolean to True."""
    fields = (question.schema or {}).get("properties", {})
    agreed = {name: True for name, field in fields.items() if field.get("type") == "boolean"}
    return accept({**agreed, **question.defaults})


def context() -> Any:
    """Return the data that the suite provides for this scenario."""
    return json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])


async def main(url: str, name: str) -> None:
    if name.startswith("auth/"):
        authorizer = OAuthAuthorizer(
            url, oauth(name), authorize=lambda request: asyncio.to_thread(visit, request)
        )
        async with MCPClient.connect_http(url, http={"authorizer": authorizer}) as client:
            await authorized_calls(client)
        return
    async with MCPClient.connect_http(
        url,
        on_elicit=on_elicit,
        on_sample=lambda params: "Text of a model",
        on_roots=lambda: ["/tmp"],
    ) as client:
        await SCENARIOS[name](client)


if __name__ == "__main__":
    asked_for = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if asked_for not in SCENARIOS and not asked_for.startswith("auth/"):
        sys.exit(f"unknown scenario {asked_for!r}: expected one of {', '.join(SCENARIOS)}")
    asyncio.run(main(sys.argv[-1], asked_for))
