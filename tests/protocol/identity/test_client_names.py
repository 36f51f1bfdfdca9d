"""Reserved names of clients: no name from one source equals a principal of another."""

import pytest

from fairlead.protocol.caller import UNNAMED, principal_from, principal_name
from fairlead.protocol.identity.client_names import is_reserved
from fairlead.protocol.identity.principal_scopes import granted_scopes, missing_scopes
from fairlead.protocol.identity.scoped_name import ScopedName


@pytest.mark.parametrize("name", ["", "token", UNNAMED, "oauth:", "oauth:issuer ann"])
def test_a_client_name_must_not_equal_a_principal_from_another_source(name: str) -> None:
    assert is_reserved(name)


@pytest.mark.parametrize("name", ["ann", "Token", "tokens", "oauth", "anonymous", "x oauth:"])
def test_a_client_may_have_any_name_that_is_not_reserved(name: str) -> None:
    assert not is_reserved(name)


@pytest.mark.covers("AUT-06")
def test_only_the_principal_of_the_owner_is_not_limited_by_scopes() -> None:
    """A client with the same name as the principal of the owner has no scopes."""
    assert granted_scopes(UNNAMED) is None
    for named in ("".join(["to", "ken"]), ScopedName("token"), "ann"):
        assert missing_scopes(named, ["admin"]) == ("admin",)


def test_the_principal_of_the_owner_is_restored_from_its_name() -> None:
    assert principal_from(principal_name(UNNAMED)) is UNNAMED
    assert principal_from("ann") == "ann"
