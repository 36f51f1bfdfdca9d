"""Tests of connection settings in entries of Fairlead's own files."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fairlead.config.configured_servers import configured_servers
from fairlead.config.discovery import DiscoveredServers
from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.found_server import FoundServer
from fairlead.config.hosts import HOSTS, find_servers
from fairlead.config.upstream_settings import Rules, UpstreamSettings, read_server_settings
from fairlead.errors import ConfigError
from tests.support.home_directory import HOME, PROJECT, machine_in, write

ENTRY = {"command": "notes"}
OWN = {"share": "session", "idle_close": 5, "capabilities": ["elicitation"]}
READ = {"share": "session", "idle_close": 5.0, "capabilities": ("elicitation",)}


@pytest.mark.parametrize(
    ("raw", "settings"),
    [
        ({}, {}),
        (ENTRY, {}),
        ({**ENTRY, **OWN}, READ),
        ({"max_parked": 3, "upstream": "shared", "linger": 4}, {}),
        ({"strict": True, "max_connections": 4}, {"strict": True, "max_connections": 4}),
    ],
    ids=["empty", "none", "some", "others", "more"],
)
def test_upstream_settings_are_read_from_an_entry(
    raw: dict[str, Any], settings: dict[str, Any]
) -> None:
    found = read_server_settings(raw)
    assert found == settings
    structs.replace(UpstreamSettings(), **found)


@pytest.mark.covers("CFG-02")
def test_every_setting_can_be_set_in_an_entry() -> None:
    default = UpstreamSettings()
    everything = structs.asdict(default)
    assert read_server_settings(json.loads(json.dumps(everything))) == everything


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"share": "shared"}, "`share`: Invalid enum value 'shared'"),
        ({"era": "new"}, "`era`: Invalid enum value 'new'"),
        ({"max_connections": 1.5}, "`max_connections`: Expected `int`, got `float`"),
        ({"idle_close": "5"}, "`idle_close`: Expected `float`, got `str`"),
        ({"capabilities": "roots"}, "`capabilities`: Expected `array`, got `str`"),
        ({"strict": None}, "`strict`: Expected `bool`, got `null`"),
    ],
)
def test_a_setting_of_the_wrong_type_is_an_error(raw: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_server_settings({**ENTRY, **raw})
    assert refused.value.args[0] == reason


@pytest.mark.parametrize("key", ["idle_close", "max_connections", "connect_timeout"])
def test_a_negative_setting_is_an_error(key: str) -> None:
    with pytest.raises(ConfigError, match=f"`{key}`"):
        read_server_settings({key: -1})


# Settings in configuration files

FILES = {
    "fairlead": f"{HOME}/.config/fairlead/mcp.json",
    "fairlead-project": f"{PROJECT}/.fairlead/mcp.json",
    "cursor": f"{HOME}/.cursor/mcp.json",
}


def find(root: Path, host: str, **entry: Any) -> tuple[list[FoundServer], list[str]]:
    """Return the servers and problems in a host program's file with one entry."""
    write(root, {FILES[host]: json.dumps({"mcpServers": {"notes": {**ENTRY, **entry}}})})
    [program] = [one for one in HOSTS if one.id == host]
    files = ConfigReader()
    found = list(find_servers(program, machine_in(root), files))
    return found, [problem.reason for problem in files.problems]


@pytest.mark.parametrize("host", ["fairlead", "fairlead-project"])
def test_settings_in_entries_of_fairlead_files_are_used(tmp_path: Path, host: str) -> None:
    ([found], problems) = find(tmp_path, host, **OWN)
    assert (found.settings, problems) == (READ, [])
    spec = configured_servers(DiscoveredServers(found={"notes": found}))["notes"]
    assert (spec.settings, spec.digest) == (READ, found.digest)


def test_settings_in_entries_of_other_programs_are_ignored(tmp_path: Path) -> None:
    ([found], problems) = find(tmp_path, "cursor", **OWN)
    assert (found.settings, problems) == ({}, [])


@pytest.mark.parametrize("host", ["fairlead", "fairlead-project"])
def test_settings_of_a_fairlead_entry_do_not_affect_its_digest(tmp_path: Path, host: str) -> None:
    ([plain], _), ([with_settings], _) = find(tmp_path, host), find(tmp_path, host, **OWN)
    assert with_settings.digest == plain.digest
    assert with_settings.part_digests == plain.part_digests
    ([other], _) = find(tmp_path, host, **OWN, args=["-v"])
    assert other.digest != plain.digest


def test_settings_in_an_entry_of_another_program_affect_its_digest(tmp_path: Path) -> None:
    ([plain], _), ([other], _) = find(tmp_path, "cursor"), find(tmp_path, "cursor", **OWN)
    assert other.digest != plain.digest


def test_an_entry_with_an_invalid_setting_is_reported_as_a_problem(tmp_path: Path) -> None:
    found, problems = find(tmp_path, "fairlead", share="some")
    assert (found, problems) == ([], ["Server \"notes\": `share`: Invalid enum value 'some'"])


def test_rules_of_a_manager_are_converted_to_upstream_settings() -> None:
    rules = Rules(
        connect_timeout=1.0, health_interval=2.0, hang_timeout=3.0, idle_stop=4.0, tools_retry=5.0
    )
    assert rules.settings == UpstreamSettings(
        connect_timeout=1.0, health_interval=2.0, hang_timeout=3.0, idle_close=4.0, list_retry=5.0
    )
    assert (
        len(structs.fields(Rules)) == 5
    )  # if this fails, add the new rule to the comparison above


def test_default_rules_of_a_manager_equal_the_default_settings() -> None:
    assert Rules().settings == UpstreamSettings()


def test_values_that_are_not_defaults_replace_the_values_of_other_settings() -> None:
    others = UpstreamSettings(share="all", hang_timeout=9.0)
    found = UpstreamSettings(hang_timeout=2.0, idle_close=3.0).over(others)
    assert found == UpstreamSettings(share="all", hang_timeout=2.0, idle_close=3.0)
    assert UpstreamSettings().over(others) == others
