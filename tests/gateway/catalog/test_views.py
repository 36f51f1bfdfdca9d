"""What one client gets to see."""

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway.catalog.views import View
from fairlead.protocol.targets.targets import Target


def tool(merged: str) -> Target:
    return Target("tool", merged, merged, merged=merged)


def test_everything_is_everything() -> None:
    view = View.everything()
    assert view.includes("any")
    assert view.permits(tool("any_tool"))
    assert view.permits_uri("file:///any")
    assert not view.hides(tool("any_tool"))
    assert view == View()


def test_only_the_servers_that_are_named() -> None:
    view = View(servers=("git",))
    assert view.includes("git")
    assert not view.includes("github")


def test_deny_wins_over_allow() -> None:
    view = View(allow=("git_*", "time_now"), deny=("git_push*",))
    assert view.permits(tool("git_log"))
    assert view.permits(tool("time_now"))
    assert not view.permits(tool("git_push_force"))
    assert not view.permits(tool("time_zone"))
    assert not View(allow=()).permits(tool("git_log"))
    assert not View(deny=("*",)).permits(tool("git_log"))


def test_names_are_told_apart_by_case() -> None:
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
def test_a_refused_uri_is_refused_however_it_is_written(uri: str) -> None:
    view = View(deny=("file:///secret/*",))
    assert not view.permits_uri(uri)
    assert view.permits_uri("file:///docs/key")


@pytest.mark.parametrize(
    "uri", ["file:///secret/key", "file:///docs/../secret/key", "file:///docs/%2E%2e/secret/key"]
)
def test_an_allowed_folder_is_not_left_by_steps_back(uri: str) -> None:
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
def test_an_allowed_uri_may_be_written_as_it_is_allowed(pattern: str, uri: str) -> None:
    assert View(allow=(pattern,)).permits_uri(uri)
    assert not View(deny=(pattern,)).permits_uri(uri)


def test_permission_is_given_to_the_letter() -> None:
    view = View(allow=("file:///docs/*",))
    assert view.permits_uri("file:///docs/a")
    assert not view.permits_uri("file:///%64ocs/a")
    assert not view.permits_uri("FILE:///docs/a")


def test_equal_views_are_one_key() -> None:
    one = View(allow=("a", "b"), rename={"x": "y", "v": "w"})
    other = View(allow=("a", "b"), rename={"v": "w", "x": "y"})
    assert one == other
    assert hash(one) == hash(other)
    assert {one: 1}[other] == 1
    assert one != View(allow=("a", "b"), rename={"x": "y"})


def test_nobody_changes_a_view_afterwards() -> None:
    names = {"git_log": "history"}
    view = View(rename=names)
    names["git_log"] = "other"
    assert view.rename["git_log"] == "history"
    with pytest.raises(TypeError):
        view.rename["git_log"] = "other"  # type: ignore[index]


def test_two_tools_with_one_new_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'a_x' and 'b_x' cannot both be renamed to 'x'"):
        View(rename={"a_x": "x", "b_x": "x"})
    with pytest.raises(ConfigError, match="cannot rename 'a_x' to an empty name"):
        View(rename={"a_x": ""})
