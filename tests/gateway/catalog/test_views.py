"""Views of merged lists."""

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.protocol.targets.targets import Target
from tests.support.single_exchange import exchange


def tool(merged: str) -> Target:
    return Target("tool", merged, merged, merged=merged)


def test_an_unrestricted_view_permits_all_items() -> None:
    view = View.everything()
    assert view.includes("any")
    assert view.permits(tool("any_tool"))
    assert view.permits_uri("file:///any")
    assert not view.hides(tool("any_tool"))
    assert view == View()


def test_a_view_includes_only_the_named_servers() -> None:
    view = View(servers=("git",))
    assert view.includes("git")
    assert not view.includes("github")


def test_deny_takes_precedence_over_allow() -> None:
    view = View(allow=("git_*", "time_now"), deny=("git_push*",))
    assert view.permits(tool("git_log"))
    assert view.permits(tool("time_now"))
    assert not view.permits(tool("git_push_force"))
    assert not view.permits(tool("time_zone"))
    assert not View(allow=()).permits(tool("git_log"))
    assert not View(deny=("*",)).permits(tool("git_log"))


def test_patterns_and_names_are_case_sensitive() -> None:
    assert not View(allow=("git_*",)).permits(tool("GIT_log"))


@pytest.mark.parametrize(
    "uri",
    [
        "file:///secret/key",
        "file:///%73ecret/key",
        "file:///docs/../secret/key",
        "file:///docs/%2e%2e/secret/key",
        "file:///docs/./..//secret/../secret/key",
        "FILE:///secret/key",
        "file:%2f%2f%2fdocs/..%2fsecret%2Fkey",
        "file:///secret/key?x=/docs",
    ],
)
def test_a_denied_uri_is_denied_in_every_spelling(uri: str) -> None:
    view = View(deny=("file:///secret/*",))
    assert not view.permits_uri(uri)
    assert view.permits_uri("file:///docs/key")


@pytest.mark.parametrize(
    "uri", ["file:///secret/key", "file:///docs/../secret/key", "file:///docs/%2E%2e/secret/key"]
)
def test_dot_segments_do_not_leave_an_allowed_folder(uri: str) -> None:
    assert not View(allow=("file:///docs/*",)).permits_uri(uri)


@pytest.mark.parametrize(
    ("pattern", "uri"),
    [
        ("file:///my%20docs/*", "file:///my%20docs/a%2Bb"),
        ("Note://Shopping", "Note://Shopping"),
        ("db://*", "db://table?where=a/../b%20c"),
        ("x://host//a/*", "x://host//a/b"),
        ("dir://host/a/", "dir://host/a/"),
        ("urn:isbn:*", "urn:isbn:123"),
        ("ui://*", "ui://app/{view}"),
    ],
)
def test_a_uri_with_the_same_spelling_as_an_allow_pattern_is_permitted(
    pattern: str, uri: str
) -> None:
    assert View(allow=(pattern,)).permits_uri(uri)
    assert not View(deny=(pattern,)).permits_uri(uri)


def test_an_allow_pattern_matches_only_the_exact_spelling_of_a_uri() -> None:
    view = View(allow=("file:///docs/*",))
    assert view.permits_uri("file:///docs/a")
    assert not view.permits_uri("file:///%64ocs/a")
    assert not view.permits_uri("FILE:///docs/a")


def test_equal_views_have_equal_hashes() -> None:
    one = View(allow=("a", "b"), rename={"x": "y", "v": "w"})
    other = View(allow=("a", "b"), rename={"v": "w", "x": "y"})
    assert one == other
    assert hash(one) == hash(other)
    assert {one: 1}[other] == 1
    assert one != View(allow=("a", "b"), rename={"x": "y"})


def test_a_view_is_immutable() -> None:
    names = {"git_log": "history"}
    view = View(rename=names)
    names["git_log"] = "other"
    assert view.rename["git_log"] == "history"
    with pytest.raises(TypeError):
        view.rename["git_log"] = "other"  # type: ignore[index]


def test_a_view_rejects_invalid_new_names() -> None:
    with pytest.raises(ConfigError, match="'a_x' and 'b_x' cannot both be renamed to 'x'"):
        View(rename={"a_x": "x", "b_x": "x"})
    with pytest.raises(ConfigError, match="cannot rename 'a_x' to an empty name"):
        View(rename={"a_x": ""})


def test_principals_without_a_view_of_their_own_get_the_default() -> None:
    bobs, default = View(servers=("red",)), View(deny=("*_secret",))
    views = ClientViews({"bob": bobs}, default)
    assert views.view_for("bob") is bobs
    assert views.view_for("alice") is default
    assert views.view_for(ANONYMOUS) is default
    assert views.view_of(exchange(principal="bob").caller) is bobs
    assert list(views) == [default, bobs]


def test_replaced_views_apply_to_existing_principals() -> None:
    views = ClientViews({"bob": View.nothing()}, View.everything())
    views.replace({"alice": View.nothing()}, View(hide=("x",)))
    assert views.view_for("alice") is View.nothing()
    assert views.view_for("bob") == View(hide=("x",))


def test_the_view_of_an_access_token_is_that_of_its_role() -> None:
    staff, bobs, default = View(deny=("x",)), View(deny=("y",)), View(deny=("z",))
    views = ClientViews({"bob": bobs}, default, {"staff": staff})
    bob = TokenPrincipal(issuer="https://a.example", subject="bob")
    assert views.view_for(bob.with_role("staff")) is staff
    assert views.view_for(bob) is default  # the default view, not that of the client "bob"
    assert views.view_for(bob.with_role("bob")) is View.nothing()
    assert views.view_for("staff") is default
    assert list(views) == [default, bobs, staff]
    views.replace({}, default)
    assert views.view_for(bob.with_role("staff")) is View.nothing()
