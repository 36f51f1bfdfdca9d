"""Tests of the filter for Exa servers and their keys."""

from typing import Any

import pytest

from fairlead.config.found_server import FoundServer, Level
from fairlead.config.host_files.normalize_entry import normalize_entry
from fairlead.config.server_filters import ExaFilter, Removal

pytestmark = pytest.mark.covers("CFG-12")

ENV = {"EXA": "from-env"}


def verdict(
    name: str, raw: dict[str, Any], dialect: str = "fairlead", level: Level = "user"
) -> Removal | None:
    found = FoundServer(
        name=name,
        host="x",
        host_title="X",
        path="/x",
        line=1,
        level=level,
        raw=raw,
        entry=normalize_entry(raw).entry,
        dialect=dialect,
    )
    return ExaFilter()(found, {**ENV, "OTHER": "private"})


@pytest.mark.parametrize(
    ("name", "raw", "keys"),
    [
        ("exa", {"command": "anything"}, ()),
        ("EXA", {"url": "https://proxy.example/"}, ()),
        ("s", {"url": "https://mcp.exa.ai/mcp?exaApiKey=k1&x=2"}, ("k1",)),
        ("s", {"url": "https://mcp.exa.ai/mcp?exaApiKey=${EXA}"}, ("from-env",)),
        ("s", {"url": "https://mcp.exa.ai/mcp?exaApiKey=${UNSET}"}, ()),
        ("s", {"url": "https://mcp.exa.ai/mcp", "headers": {"x-api-key": "k2"}}, ("k2",)),
        (
            "s",
            {"command": "npx", "args": ["mcp-remote", "https://mcp.exa.ai/mcp?exaApiKey=k"]},
            ("k",),
        ),
        ("s", {"command": "npx", "args": ["-y", "exa-mcp-server@1", "--api-key", "k3"]}, ("k3",)),
        ("s", {"command": "npx", "args": ["exa-mcp-server", "--exa-api-key=k4"]}, ("k4",)),
        (
            "s",
            {"command": "npx", "args": ["exa-mcp-server"], "env": {"EXA_API_KEY": "k5"}},
            ("k5",),
        ),
        (
            "s",
            {"command": "npx", "args": ["exa-mcp-server"], "env": {"EXA_API_KEY": "EXA"}},
            ("from-env",),
        ),
        ("s", {"command": "npx", "args": ["exa-mcp-server"], "env": {"EXA_API_KEY": "!cat x"}}, ()),
    ],
)
def test_exa_servers_are_removed_with_their_keys(
    name: str, raw: dict[str, Any], keys: tuple[str, ...]
) -> None:
    assert verdict(name, raw) == Removal("Exa is built in", keys)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("hexa", {"command": "x"}),
        ("exam", {"url": "https://exam.example"}),
        ("s", {"url": "https://mcp.exa.ai.evil.example/mcp"}),
        ("s", {"url": "https://evil.example/?u=mcp.exa.ai"}),
        ("s", {"url": "http://[broken"}),
        ("s", {"command": "npx", "args": ["not-exa-mcp-server"]}),
    ],
)
def test_servers_other_than_exa_are_kept(name: str, raw: dict[str, Any]) -> None:
    assert verdict(name, raw) is None


def test_the_repr_of_a_removal_has_no_keys() -> None:
    assert "k1" not in repr(verdict("exa", {"url": "https://mcp.exa.ai/mcp?exaApiKey=k1"}))


def test_a_project_entry_reads_only_exa_variables() -> None:
    url = "https://mcp.exa.ai/mcp?exaApiKey="
    for level in ("project", "user"):
        assert verdict("s", {"url": f"{url}${{EXA}}"}, level=level) == Removal(
            "Exa is built in", ("from-env",)
        )
    other = {"url": f"{url}${{OTHER}}"}
    assert verdict("s", other) == Removal("Exa is built in", ("private",))
    assert verdict("s", other, level="project") == Removal("Exa is built in", ())


def test_an_unset_variable_does_not_prevent_finding_other_exa_keys() -> None:
    args = ["exa-mcp-server", "--api-key", "${UNSET}", "--exa-api-key=k", "--apikey"]
    assert verdict("s", {"command": "npx", "args": args}) == Removal("Exa is built in", ("k",))
