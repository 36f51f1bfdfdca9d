"""Files that describe a gateway: what they may say, and what they hear if they say it wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.client.server_entry import MCPHttpServerConfig, MCPStdioServerConfig
from fairlead.errors import ConfigError
from fairlead.gateway import GatewaySettings, RelaySettings, View
from fairlead.gateway.gateway_file import GatewayFile, read_gateway_file

EVERYTHING: dict[str, Any] = {
    "name": "harbour",
    "listen": "127.0.0.1:9000",
    "path": "/all",
    "token": "${TOKEN}",
    "admin_token": "${ADMIN:-r00t}",
    "search": True,
    "deadline": 0.5,
    "page_size": "${PAGE}",
    "upstream": "per-session",
    "max_channels": 2,
    "allowed_hosts": ["${HOST}"],
    "include": "discovered",
    "servers": {
        "notes": {"command": "python", "args": ["n.py"], "env": {"KEY": "${KEY}"}, "lazy": True},
        "search": {
            "headers": {"X-Key": "k"},
            "replicas": [{"url": "http://a/mcp"}, {"url": "http://b/mcp"}],
        },
        "off": {"command": "nothing", "enabled": False},
    },
    "views": {
        "default": {"servers": ["notes"]},
        "guests": {"allow": ["notes_*"], "deny": ["*_write"], "rename": {"notes_read": "read"}},
    },
    "clients": {"alice": {"token": "one"}, "bob": {"token_env": "BOB", "view": "guests"}},
}
TOML = """
name = "harbour"
listen = "127.0.0.1:9000"
path = "/all"
token = "${TOKEN}"
admin_token = "${ADMIN:-r00t}"
search = true
deadline = 0.5
page_size = "${PAGE}"
upstream = "per-session"
max_channels = 2
allowed_hosts = ["${HOST}"]
include = "discovered"

[servers.notes]
command = "python"
args = ["n.py"]
env = { KEY = "${KEY}" }
lazy = true

[servers.search]
headers = { X-Key = "k" }
replicas = [{ url = "http://a/mcp" }, { url = "http://b/mcp" }]

[servers.off]
command = "nothing"
enabled = false

[views.default]
servers = ["notes"]

[views.guests]
allow = ["notes_*"]
deny = ["*_write"]
rename = { notes_read = "read" }

[clients.alice]
token = "one"

[clients.bob]
token_env = "BOB"
view = "guests"
"""
ENV = {"TOKEN": "t", "PAGE": "7", "HOST": "ship", "BOB": "two"}


def read(folder: Path, text: str, ending: str = "toml") -> GatewayFile:
    file = folder / f"gateway.{ending}"
    file.write_text(text)
    return read_gateway_file(file, ENV)


def as_yaml(data: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(data))


@pytest.mark.parametrize("ending", ["toml", "json", "yaml"])
def test_everything_that_a_file_may_say(tmp_path: Path, ending: str) -> None:
    writers = {"toml": lambda _: TOML, "json": json.dumps, "yaml": as_yaml}
    file = read(tmp_path, writers[ending](EVERYTHING), ending)
    guests = View(allow=("notes_*",), deny=("*_write",), rename={"notes_read": "read"})
    assert file.settings == GatewaySettings(
        name="harbour",
        view=View(servers=("notes",)),
        search=True,
        deadline=0.5,
        page_size=7,
        admin_token="r00t",
        relay=RelaySettings(upstream="per-session", max_channels=2),
    )
    assert (file.listen, file.endpoint, file.token) == ("127.0.0.1:9000", "/all", "t")
    assert (file.allowed_hosts, file.discovered) == (("ship",), True)
    assert file.views == {"bob": guests}
    assert file.verify_token is not None
    whose = [file.verify_token(token) for token in ("one", "two", "three", "")]
    assert whose == ["alice", "bob", None, None]
    entries = {name: [one.entry for one in many] for name, many in file.servers.items()}
    headers = {"X-Key": "k"}
    assert entries == {
        "notes": [
            MCPStdioServerConfig(command="python", args=["n.py"], env={"KEY": "${KEY}"}, lazy=True)
        ],
        "search": [
            MCPHttpServerConfig(url="http://a/mcp", headers=headers),
            MCPHttpServerConfig(url="http://b/mcp", headers=headers),
        ],
    }
    assert file.servers["notes"][0].source.path == file.path
    for secret in ("'t'", "one", "two", "r00t"):
        assert secret not in repr(file)


def test_an_empty_file_is_a_gateway_of_the_usual_kind(tmp_path: Path) -> None:
    file = read(tmp_path, "")
    assert file.settings == GatewaySettings()
    assert (file.servers, file.views, file.verify_token) == ({}, {}, None)


async def test_variables_of_servers_are_filled_in_when_they_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = read(tmp_path, '[servers.a]\ncommand = "x"\nenv = { A = "${LATER}" }')
    monkeypatch.setenv("LATER", "now")
    [configured] = file.servers["a"]
    assert configured.resolve is not None
    entry = await configured.resolve()
    assert isinstance(entry, MCPStdioServerConfig)
    assert entry.env == {"A": "now"}


WRONG = [
    ("serch = true", 1, 'there is no setting "serch"; did you mean "search"?'),
    ("\n\npageSize = 3", 3, 'there is no setting "pageSize"; did you mean "page_size"?'),
    ("xyzzy = 1", 1, 'there is no setting "xyzzy"; there are '),
    ("page_size = 'ten'", 1, "`page_size` is a whole number, not a text"),
    ("search = 1", 1, "`search` is true or false, not a number"),
    ("deadline = -1", 1, "`deadline` is not below zero"),
    ("name = 'x'\nupstream = 'sharedd'", 2, '`upstream` is "shared" or "per-session"'),
    ("include = 'all'", 1, '`include` is "discovered"'),
    ("path = 'mcp'", 1, "`path` is like /mcp"),
    ("admin_token = '${NOWHERE}'", 1, "`admin_token`: not set in the environment: NOWHERE"),
    ("token = 'a b'", 1, "a token has no blanks"),
    ("servers = 3", 1, "`servers` is a map of names, not a number"),
    ("[servers.a]\ncomand = 'x'", 2, 'Server "a": there is no key "comand"; did you mean "com'),
    ("\n[servers.a]\nlazy = true", 2, 'Server "a": `command` is missing'),
    ("[servers.a]\ncommand = 'x'\n[servers.b]\ncommand = 3", 3, 'Server "b": Expected `str`'),
    ("[servers]\na = 3", 2, 'Server "a": an entry with `command` or `url` is expected'),
    ("[servers.a]\nreplicas = []", 2, "`replicas` is a list of entries"),
    ("[servers.a]\nreplicas = [{ ulr = 'x' }]", 2, 'there is no key "ulr"; did you mean "url"?'),
    ("[servers.'a/b']\ncommand = 'x'", 1, "'a/b' is no name: 1 to 100 letters"),
    ("[servers.notes]\ncommand = 'x'\n[views.v]\nservers = ['note']", 4, 'mean "notes"?'),
    ("[views.v]\nalow = []", 2, 'View "v": there is no key "alow"; did you mean "allow"?'),
    ("[views.v]\nallow = 'x'", 2, "`allow` is a list of texts, not a text"),
    ("[views.v]\nrename = { a = 'c', b = 'c' }", 1, "'a' and 'b' are both renamed to 'c'"),
    ("[clients.a]", 1, 'Client "a" needs `token` or `token_env`'),
    ("[clients.a]\ntoken_env = 'NOWHERE'", 2, "the environment variable NOWHERE is not set"),
    ("[clients.a]\ntoken = 'x'\nview = 'v'", 3, 'there is no view "v"; there are none'),
    ("[clients.a]\ntoken = 'x'\n[clients.b]\ntoken = 'x'", 3, '"a" has the same token as "b"'),
    ("name = ", 1, "not valid TOML"),
]


@pytest.mark.parametrize(("text", "line", "words"), WRONG)
def test_mistakes_are_told_with_their_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "gateway.toml"), line)


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("json", '{"servers": {"a": {"command": "x"}},\n"views": {"v":\n{"serves": []}}}'),
        ("yaml", "servers:\n  a: {command: x}\nviews: {v: {serves: []}}\n"),
    ],
)
def test_lines_in_other_formats(tmp_path: Path, ending: str, text: str) -> None:
    with pytest.raises(ConfigError, match='did you mean "servers"') as caught:
        read(tmp_path, text, ending)
    assert caught.value.line == 3


def test_values_that_may_be_secrets_are_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "[clients.a]\ntoken = ['s3cret']")
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_gateway_file(tmp_path / "none.toml")
