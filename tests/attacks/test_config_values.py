"""Configuration files with unexpected values cause an error with a location, not a traceback."""

import io
import json
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.cli.framework.describe_entry import describe, needs_of
from fairlead.cli.main import main
from fairlead.config.discovery import DiscoveredServers, load_all_mcp_configs
from fairlead.config.entry_preview import preview
from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.files.formats import parse
from fairlead.config.hosts import HOSTS
from fairlead.config.paths import HostPaths
from fairlead.errors import ConfigError
from fairlead.gateway.gateway_file import read_gateway_file
from fairlead.policy.conditions.rules_error import RulesError
from fairlead.policy.rules.load_rules import read_rules
from tests.support.examples import examples
from tests.support.project_files import put, written

pytestmark = pytest.mark.slow  # runs in `make test-all`

ODD_YAML = {
    "int and str keys": "{1: a, b: c}",
    "a null key": "{~: a, b: c}",
    "booleans as keys": "{on: a, off: b, yes: c, x: d}",
    "a float key": "{1.5: a, b: c}",
    "a date key": "{2024-01-01: a, b: c}",
    "a list as a key": "{[1, 2]: a}",
    "a map as a key": "{{a: b}: c}",
    "a date": "2024-01-01",
    "a time": "2024-01-01T10:00:00+02:00",
    "binary": "!!binary aGVsbG8=",
    "broken binary": "!!binary '='",
    "a set": "!!set {b, a, c}",
    "an ordered map": "!!omap [a: 1, b: 2]",
    "pairs": "!!pairs [a: 1, a: 2]",
    "not a number": ".nan",
    "infinity": "-.inf",
    "a huge number": "0x" + "f" * 5000,
    "a huge decimal number": "9" * 5000,
    "a value that is not a number": "!!int abc",
    "a date that does not exist": "!!timestamp 2024-13-45",
    "a value that contains itself": "&a [*a]",
    "a map that contains itself": "&a {x: *a}",
    "an unknown tag": "!!python/object:os.system x",
    "a private tag": "!thing x",
    "sexagesimal": "190:20:30",
    "merged": "{<<: {a: 1}, b: 2}",
    "merged with a list": "{<<: [1, 2], b: 2}",
    "two documents": "a\n---\nb",
    "many brackets": "[" * 2_000,
    "many maps": "{a: " * 2_000,
    "many aliases": "[&a x, " + "*a, " * 100 + "]",
}
PLACES = {
    "the document": "{0}",
    "the servers": "mcpServers: {0}\nextensions: {0}\nservers: {0}\n",
    "an entry": "mcpServers: {{s: {0}}}\nextensions: {{s: {0}}}\nservers: {{s: {0}}}\n",
    "the command": "mcpServers: {{s: {{command: {0}, args: {0}, cwd: {0}}}}}\n"
    "extensions: {{s: {{type: stdio, cmd: {0}}}}}\n",
    "the environment": "mcpServers: {{s: {{command: x, env: {0}, args: [{0}]}}}}\n"
    "extensions: {{s: {{type: stdio, cmd: x, envs: {0}, env_keys: {0}}}}}\n",
    "a variable": "mcpServers: {{s: {{command: x, env: {{A: {0}}}}}}}\n"
    "extensions: {{s: {{type: stdio, cmd: x, envs: {{A: {0}}}}}}}\n",
    "a header": "mcpServers: {{s: {{url: http://x, headers: {{A: {0}}}, oauth: {0}}}}}\n",
    "settings": "mcpServers: {{s: {{command: x, timeout: {0}, enabled: {0}, includeTools: {0}}}}}\n"
    "extensions: {{s: {{type: stdio, cmd: x, timeout: {0}, enabled: {0}}}}}\n",
    "unknown keys": "mcpServers: {{s: {{command: x, whatever: {0}}}}}\nelse: {0}\n",
    "inputs": "mcpServers: {{s: {{command: '${{input:a}}'}}}}\n"
    "inputs: [{{id: a, default: {0}, options: {0}, description: {0}}}, {0}]\n",
    "the lists of names": "mcpServers: {{s: {{command: x}}}}\n"
    "disabledServers: {0}\nenabledServers: [{0}]\n",
}
YAML_FILES = (
    "home/.config/goose/config.yaml",
    "home/.continue/config.yaml",
    "home/.config/fairlead/mcp.yaml",
    "project/.continue/mcpServers/a.yaml",
    "project/.fairlead/mcp.yaml",
)


@contextmanager
def swallowed() -> Iterator[list[str]]:
    """Collect the unexpected errors that a reader logged."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("fairlead.manager")
    log.addHandler(handler)
    try:
        yield said
    finally:
        log.removeHandler(handler)


def look_at_everything(root: Path) -> DiscoveredServers:
    """Load all files and resolve every entry, as `list`, `why` and `approve` do."""
    home, project = root / "home", root / "project"
    project.mkdir(exist_ok=True)
    with swallowed() as said:
        loaded = load_all_mcp_configs(project, home=home, env={"HOME": str(home)}, platform="linux")
        for places in loaded.places.values():
            for one, _ in places:
                assert len(one.digest) == 64
                assert one.digest == one.digest
                json.dumps([describe(one), needs_of(one)])
                json.dumps([value.plain() for value in preview(one, {})])
                assert isinstance(one.place, str)
    assert said == []
    return loaded


def read_or_refuse(rules: Path, gateway: Path) -> None:
    """Read both files; only `RulesError` and `ConfigError` may be raised."""
    with suppress(RulesError):
        read_rules(rules)
    with suppress(ConfigError):
        read_gateway_file(gateway)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("value", ODD_YAML.values(), ids=ODD_YAML)
def test_an_unusual_yaml_value_does_not_affect_servers_of_other_files(
    tmp_path: Path, place: str, value: str
) -> None:
    for name in YAML_FILES:
        put(tmp_path, name, place.format(value))
    put(tmp_path, "project/.cursor/mcp.json", '{"mcpServers": {"good": {"command": "fine"}}}')
    assert "good" in look_at_everything(tmp_path).found


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("value", ODD_YAML.values(), ids=ODD_YAML)
def test_unusual_yaml_values_in_gateway_and_rules_files_raise_only_expected_errors(
    tmp_path: Path, place: str, value: str
) -> None:
    text = place.format(value).replace("mcpServers", "rules").replace("command", "do")
    put(tmp_path, "rules.yaml", text)
    put(tmp_path, "gateway.yaml", place.format(value).replace("mcpServers", "servers"))
    read_or_refuse(tmp_path / "rules.yaml", tmp_path / "gateway.yaml")


def test_yaml_keys_are_read_as_the_text_in_the_file() -> None:
    text = "on: 1\n1: 2\nnull: 3\n1.50: 4\n2024-01-01: 5\n0x1F: 6\n'on ': 7\n"
    document = parse("a.yaml", text.encode(), strict=False)
    assert list(document.data) == ["on", "1", "null", "1.50", "2024-01-01", "0x1F", "on "]


def test_a_number_and_the_same_text_in_quotes_are_duplicate_keys_in_strict_files() -> None:
    with pytest.raises(ConfigError, match="duplicate key"):
        parse("a.yaml", b'1: a\n"1": b\n')
    assert parse("a.yaml", b'1: a\n"1": b\n', strict=False).data == {"1": "b"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"a":' * 500 + "1" + "}" * 500),
        ("a.json", '{"a":' * 100_000),
        ("a.toml", "a = " + "[" * 200 + "]" * 200),
        ("a.toml", ".".join("a" * 400_000) + " = 1"),
        ("a.toml", "[" + ".".join(['"a"'] * 100_000) + "]\n"),
        ("a.toml", "a = {" + " . ".join("a" * 100_000) + " = 1}"),
        ("a.yaml", "[" * 1_000_000),
        ("a.yaml", "a: " + "{a: " * 300 + "}" * 300),
        ("a.yaml", "- " * 1_000_000),
    ],
    ids=lambda value: value[:20],
)
def test_deeply_nested_configuration_files_are_rejected_quickly(name: str, text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError):
        parse(name, text.encode(), strict=False)
    assert time.process_time() - began < 5


# Arbitrary documents


def words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**64, 0]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["${input:a}", "${X:-${Y}}", "{file:x}", "{env:X}", "!x", "stdio", "http", "\ud800", "\0"]
    ),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=4),
)
FIELDS = words(
    "command args env cwd url type timeout enabled disabled headers envFile headersHelper auth "
    "oauth transport cmd envs env_keys env_vars uri httpUrl inheritEnv requestIdFormat lazy "
    "dialect includeTools tools available_tools name bearer_token_env_var env_http_headers "
    "api_key_env api_key_format requestOptions apiKey scopes oauth_resource settings tcp id "
    "startup_timeout_sec bearerTokenEnv default options description password"
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(FIELDS | st.text(max_size=3), inner)
    ),
    max_leaves=8,
)
ENTRIES = st.dictionaries(FIELDS, VALUES, max_size=6) | VALUES
KEYS = words(
    "mcpServers servers context_servers mcp mcp_servers extensions amp.mcpServers inputs "
    "projects disabledServers enabledServers customizations mcp.servers allowedMcpServers"
)
DOCUMENTS = st.dictionaries(
    KEYS, st.dictionaries(st.text(max_size=4), ENTRIES, max_size=3) | st.lists(ENTRIES) | VALUES
)


def files_of_all_hosts() -> list[str]:
    """Return the path of every file that a host may read, below a home and a project."""
    machine = HostPaths(platform="linux", home="/home", cwd="/project", env={}, root="/nowhere")
    places = [place.path for host in HOSTS for place in host.places(machine, ConfigReader())]
    below = [path for path in places if path.startswith(("/home/", "/project/"))]
    return sorted({path.lstrip("/") for path in below})


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(DOCUMENTS)
def test_discovery_raises_no_exception_for_any_document_in_any_configuration_file(
    document: dict[str, Any],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in files_of_all_hosts():
            put(root, name, written(name, document))
        loaded = look_at_everything(root)
        assert isinstance(loaded, DiscoveredServers)


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(DOCUMENTS)
def test_the_list_command_succeeds_with_any_document_in_a_configuration_file(
    document: dict[str, Any],
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "FAIRLEAD_HOME"):
            patch.setenv(name, f"{folder}/{name}")
        for name in (".mcp.json", ".fairlead/mcp.yaml", ".codex/config.toml", "opencode.json"):
            put(Path(folder), name, written(name, document))
        for more in ((), ("--json",)):
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(io.StringIO()):
                code = main(["list", "--project", folder, *more])
            assert code == 0
        json.loads(out.getvalue(), parse_constant=pytest.fail)


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(DOCUMENTS.map(lambda document: {**document, "rules": document.get("mcp")}))
def test_gateway_and_rules_files_with_any_document_are_read_or_rejected(
    document: dict[str, Any],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.json", "a.yaml", "a.toml"):
            put(Path(folder), name, written(name, document))
            read_or_refuse(Path(folder, name), Path(folder, name))


@settings(max_examples=examples(200))
@given(
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode),
    st.sampled_from(["json", "toml", "yaml"]),
)
def test_parsing_arbitrary_bytes_raises_only_config_errors(content: bytes, ending: str) -> None:
    for strict in (True, False):
        try:
            document = parse(f"a.{ending}", content, strict=strict)
        except ConfigError:
            continue
        assert all(isinstance(key, str) for key in document.data)
