"""Roles of access tokens, and their changes while a gateway runs."""

from collections.abc import Container, Mapping
from typing import Any

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway.auth_section import GatewayAuth
from fairlead.gateway.catalog.views import View
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.clients.auth_rules import AuthRule
from fairlead.gateway.gateway_file import ClientEntry, GatewayFile
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.protocol.caller import Principal
from fairlead.protocol.identity.token_principal import TokenPrincipal

A, B = "https://a.example", "https://b.example"
PART = View(servers=("red",))
OPS = AuthRule(client="ops", groups=("ops",), admin=True)
STAFF = AuthRule(client="staff", scopes=("mcp",), view="part")


def file(*rules: AuthRule, issuers: tuple[str, ...] = (A, B), **more: Any) -> GatewayFile:
    return GatewayFile(
        path="gateway.toml",
        settings=GatewaySettings(),
        named_views={"part": PART},
        auth=GatewayAuth(issuers=issuers, public_url="https://m.example", rules=rules)
        if rules
        else None,
        **more,
    )


def token(subject: str, *groups: str, issuer: str = A) -> TokenPrincipal:
    scopes = frozenset({"mcp"})
    return TokenPrincipal(
        issuer=issuer, subject=subject, scopes=scopes, claims={"groups": [*groups]}
    )


class Host:
    """A gateway that records access changes."""

    def __init__(self) -> None:
        self.roles: list[Mapping[str, View] | None] = []
        self.gone: Container[Principal] = ()

    def show(
        self, views: Mapping[str, View], view: View, roles: Mapping[str, View] | None = None
    ) -> None:
        self.roles.append(roles)

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        self.gone = principals


def test_the_rules_determine_role_and_admin_rights_of_a_token() -> None:
    access = ClientAccess(file(OPS, STAFF))
    ann, bob = access.admit(token("ann", "ops")), access.admit(token("bob"))
    assert ann is not None
    assert bob is not None
    assert (ann.role, bob.role) == ("ops", "staff")
    assert (access.is_admin(ann), access.is_admin(bob)) == (True, False)
    assert not access.is_admin("ops")  # a static client with the name of the role
    assert access.guards
    assert ClientAccess(file(OPS)).admit(token("bob")) is None
    assert ClientAccess(file(clients=(ClientEntry("bob", "b"),))).admit(token("bob")) is None


def test_a_subject_never_equals_a_client_of_the_same_name() -> None:
    access = ClientAccess(file(STAFF, clients=(ClientEntry("bob", "b", "part"),)))
    principals: list[object] = [
        access.verify("b"),
        access.admit(token("bob")),
        access.admit(token("bob", issuer=B)),
        token("bob"),
    ]
    assert None not in principals
    assert len(set(principals)) == len(principals)


async def test_removing_a_rule_disconnects_the_clients_that_it_admitted() -> None:
    access, host = ClientAccess(file(OPS, STAFF)), Host()
    ann, bob = access.admit(token("ann", "ops")), access.admit(token("bob"))
    assert await access.follow(file(OPS), host)
    assert bob in host.gone
    assert ann not in host.gone
    assert host.roles == [{"ops": View.everything()}]
    assert access.admit(token("bob")) is None


async def test_a_client_whose_role_has_changed_is_disconnected() -> None:
    access, host = ClientAccess(file(STAFF)), Host()
    ann, bob = access.admit(token("ann", "ops")), access.admit(token("bob"))
    assert await access.follow(file(OPS, STAFF), host)
    assert ann in host.gone
    assert bob not in host.gone


async def test_changing_the_view_of_a_role_does_not_disconnect_clients() -> None:
    access, host = ClientAccess(file(STAFF)), Host()
    bob = access.admit(token("bob"))
    assert await access.follow(file(AuthRule(client="staff", scopes=("mcp",))), host)
    assert host.roles == [{"staff": View.everything()}]
    assert bob not in host.gone
    assert not await access.follow(file(AuthRule(client="staff", scopes=("mcp",))), host)


async def test_tokens_of_a_removed_issuer_are_refused() -> None:
    access, host = ClientAccess(file(STAFF)), Host()
    ann, bob = access.admit(token("ann")), access.admit(token("bob", issuer=B))
    assert await access.follow(file(STAFF, issuers=(A,)), host)
    assert bob in host.gone
    assert ann not in host.gone
    assert access.admit(token("bob", issuer=B)) is None


async def test_removing_the_auth_section_refuses_all_access_tokens() -> None:
    access, host = ClientAccess(file(STAFF)), Host()
    ann = access.admit(token("ann"))
    assert await access.follow(file(), host)
    assert ann in host.gone
    assert access.admit(token("ann")) is None
    assert access.guards


async def test_the_auth_section_cannot_be_added_while_the_gateway_runs() -> None:
    access, host = ClientAccess(file(clients=(ClientEntry("bob", "b"),))), Host()
    with pytest.raises(ConfigError, match=r"started without \[auth\]: restart it"):
        await access.follow(file(STAFF), host)
    assert (host.roles, host.gone) == ([], ())
