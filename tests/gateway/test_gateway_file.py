"""Gateway files: their keys, and the errors for invalid files."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fairlead.client.server_entry import MCPHttpServerConfig, MCPStdioServerConfig
from fairlead.errors import ConfigError
from fairlead.gateway import GatewaySettings, RelaySettings, View
from fairlead.gateway.gateway_file import ClientEntry, GatewayFile, read_gateway_file
from fairlead.protocol.caller import UNNAMED

EVERYTHING: dict[str, Any] = {
    "name": "harbour",
    "listen": "127.0.0.1:9000",
    "path": "/all",
    "token": "${TOKEN}",
    "admin_token": "${ADMIN:-r00t}",
    "search": True,
    "deadline": 0.5,
    "page_size": "${PAGE}",
    "share": "session",
    "max_connections": 2,
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
share = "session"
max_connections = 2
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
ENV = {"TOKEN": "t", "PAGE": "7", "HOST": "ship", "BOB": "two", "EMPTY": ""}


def read(folder: Path, text: str, ending: str = "toml") -> GatewayFile:
    file = folder / f"gateway.{ending}"
    file.write_text(text)
    return read_gateway_file(file, ENV)


def as_yaml(data: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(data))


@pytest.mark.parametrize("ending", ["toml", "json", "yaml"])
def test_all_keys_of_a_gateway_file_are_read(tmp_path: Path, ending: str) -> None:
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
        relay=RelaySettings(share="session", max_connections=2),
    )
    assert file.warnings == ()
    assert (file.listen, file.endpoint, file.token) == ("127.0.0.1:9000", "/all", "t")
    assert (file.allowed_hosts, file.discovered) == (("ship",), True)
    assert file.views == {"bob": guests}
    assert [(one.name, one.token) for one in file.clients] == [("alice", "one"), ("bob", "two")]
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


def test_an_empty_gateway_file_has_the_default_settings(tmp_path: Path) -> None:
    file = read(tmp_path, "")
    path = str(tmp_path / "gateway.toml")
    assert file == GatewayFile(path=path, settings=GatewaySettings())
    assert (file.servers, file.views) == ({}, {})
    assert (file.discovered, file.journal, file.metrics, file.record) == (False,) * 4
    assert (file.token, file.listen, file.endpoint, file.rules, file.lock) == (None,) * 5
    assert (file.allowed_hosts, file.allowed_origins, file.clients) == ((), (), ())
    assert (file.tls_cert, file.tls_key, file.lock_policy) == (None, None, "refuse")


def test_the_schema_key_of_a_gateway_file_is_ignored(tmp_path: Path) -> None:
    assert read(tmp_path, '{"$schema": "x", "name": "n"}', "json").settings.name == "n"


PLACES: list[tuple[str, str, Any]] = [
    ("listen = 9000", "listen", "9000"),
    ("listen = 'here.sock'", "listen", "here.sock"),
    ("allowed_hosts = ['a', 'b']", "allowed_hosts", ("a", "b")),
    ("allowed_origins = ['https://a', 'https://b']", "allowed_origins", ("https://a", "https://b")),
    ("tls_cert = 'c.pem'", "tls_cert", "c.pem"),
    ("tls_key = 'k.pem'", "tls_key", "k.pem"),
    ("journal = true", "journal", True),
    ("metrics = true", "metrics", True),
    ("record = true", "record", True),
    ("record = 'name'", "record", "name"),
    ("rules = '/r.toml'", "rules", "/r.toml"),
    ("lock = '/l.json'", "lock", "/l.json"),
    ("lock_policy = 'warn'", "lock_policy", "warn"),
    ("lock_policy = 'ask'", "lock_policy", "ask"),
    ("path = '/a'", "endpoint", "/a"),
    ("path = '/a/b.c'", "endpoint", "/a/b.c"),
    ("token = '!~'", "token", "!~"),
    ("include = 'discovered'", "discovered", True),
]


@pytest.mark.parametrize(("text", "name", "value"), PLACES, ids=[one[0] for one in PLACES])
def test_each_setting_is_stored_in_its_attribute_of_the_gateway_file(
    tmp_path: Path, text: str, name: str, value: Any
) -> None:
    file = read(tmp_path, text)
    assert getattr(file, name) == value
    assert structs.replace(file, **{name: getattr(read(tmp_path, ""), name)}) == read(tmp_path, "")


def test_paths_in_a_gateway_file_are_relative_to_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    file = read(tmp_path, "rules = 'r.toml'\nlock = '~/l.json'")
    assert (file.rules, file.lock) == (str(tmp_path / "r.toml"), "/home/ann/l.json")


def test_variables_in_a_gateway_file_are_read_from_the_process_environment_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g.toml").write_text("name = '${HARBOUR:-none}'")
    monkeypatch.setenv("HARBOUR", "outer")
    assert read_gateway_file(tmp_path / "g.toml").settings.name == "outer"
    assert read_gateway_file(tmp_path / "g.toml", {}).settings.name == "none"
    assert read_gateway_file(tmp_path / "g.toml", {"HARBOUR": "x"}).settings.name == "x"


def test_a_relative_path_of_a_gateway_file_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert read_gateway_file("g.toml").path == str(tmp_path / "g.toml")


def test_each_client_gets_the_view_named_in_its_entry_or_the_default(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        """
        [views.default]
        hide = ["*_secret"]
        [views.wide]
        [clients.ann]
        token = "a"
        [clients.bob]
        token = "b"
        view = "wide"
        """,
    )
    assert file.settings.view == View(hide=("*_secret",))
    assert file.named_views == {"default": View(hide=("*_secret",)), "wide": View()}
    assert file.views == {"bob": View()}
    assert file.clients == (ClientEntry("ann", "a"), ClientEntry("bob", "b", "wide"))
    assert repr(file.clients[0]) == "<Client 'ann'>"


def test_a_view_may_name_unknown_servers_only_if_discovery_is_enabled(tmp_path: Path) -> None:
    view = "[servers.a]\ncommand = 'x'\n[views.v]\nservers = ['a', 'b']"
    with pytest.raises(ConfigError, match="unknown server 'b': expected one of a"):
        read(tmp_path, view)
    file = read(tmp_path, f"include = 'discovered'\n{view}")
    assert file.named_views["v"].servers == ("a", "b")
    assert read(tmp_path, "[views.v]\nservers = []").named_views["v"].servers == ()


def test_a_token_from_the_environment_is_preferred_to_one_in_the_file(tmp_path: Path) -> None:
    file = read(tmp_path, "[clients.bob]\ntoken = 'one'\ntoken_env = 'BOB'")
    assert file.clients == (ClientEntry("bob", "two"),)


def test_a_replica_combines_its_own_keys_with_the_shared_ones(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        """
        [servers.a]
        command = "x"
        args = ["shared"]

        replicas = [
            { args = ["1"] }, { enabled = false }, { command = "y" }
        ]

        [servers.b]
        enabled = false
        replicas = [{ command = "z" }]
        [servers.c]
        command = "c"
        """,
    )
    assert {name: [one.entry for one in many] for name, many in file.servers.items()} == {
        "a": [
            MCPStdioServerConfig(command="x", args=["1"]),
            MCPStdioServerConfig(command="y", args=["shared"]),
        ],
        "c": [MCPStdioServerConfig(command="c")],
    }
    assert [one.source.line for one in [*file.servers["a"], *file.servers["c"]]] == [2, 2, 13]
    assert repr(file) == f"<GatewayFile {file.path}: 2 servers>"


def test_only_the_value_of_a_variable_is_converted_from_text_to_a_number(tmp_path: Path) -> None:
    assert read(tmp_path, "page_size = '${PAGE}'").settings.page_size == 7
    assert read(tmp_path, "page_size = 0").settings.page_size == 0
    assert read(tmp_path, "fresh = 0").settings.fresh == 0
    with pytest.raises(ConfigError, match="`page_size` must be an integer, not a string"):
        read(tmp_path, "page_size = '7'")
    with pytest.raises(ConfigError, match="`page_size` must be an integer, not a string"):
        read(tmp_path, "page_size = '${TOKEN}'")


async def test_variables_of_servers_are_replaced_when_they_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = read(tmp_path, '[servers.a]\ncommand = "x"\nenv = { A = "${LATER}" }')
    monkeypatch.setenv("LATER", "now")
    [configured] = file.servers["a"]
    assert configured.resolve is not None
    entry = await configured.resolve()
    assert isinstance(entry, MCPStdioServerConfig)
    assert entry.env == {"A": "now"}


@pytest.mark.parametrize("where", ["", "[servers.a]\ncommand = 'x'\n"], ids=["all", "one server"])
@pytest.mark.parametrize(
    ("text", "settings", "warnings"),
    [
        (
            "upstream = 'shared'",
            {"share": "alike"},
            ['`upstream` is deprecated: use `share = "alike"`'],
        ),
        (
            "upstream = 'per-session'",
            {"share": "session"},
            ['`upstream` is deprecated: use `share = "session"`'],
        ),
        ("linger = 7", {"idle_close": 7.0}, ["`linger` is deprecated: use `idle_close`"]),
        (
            "max_channels = 2",
            {},
            ["`max_channels` is deprecated: use `max_connections`"],
        ),  # the value of the deprecated key is ignored
        (
            "linger = 7\nidle_close = 5",
            {"idle_close": 5.0},
            ["`linger` is deprecated: use `idle_close`"],
        ),
        ("share = 'alike'", {"share": "alike"}, []),
    ],
)
def test_deprecated_settings_are_read_with_a_warning(
    tmp_path: Path, where: str, text: str, settings: dict[str, Any], warnings: list[str]
) -> None:
    file = read(tmp_path, where + text)
    if where:
        assert file.servers["a"][0].settings == settings
        assert file.settings.relay == RelaySettings()
    else:
        assert file.settings.relay == RelaySettings(**settings)
    line = where.count("\n") + 1
    assert file.warnings == tuple(f"{file.path}:{line}: {one}" for one in warnings)


def test_a_server_may_have_settings_of_its_own(tmp_path: Path) -> None:
    plain = (
        "idle_close = 9\n[servers.a]\ncommand = 'x'\n[servers.b]\nreplicas = [{url = 'http://b'}]"
    )
    settings = (
        "era = 'handshake'\nmax_connections = 2\nidle_close = 5\ncall_timeout = 6\ncollect = 1\n"
    )
    own = plain.replace("'x'\n", f"'x'\n{settings}")
    before, file = read(tmp_path, plain), read(tmp_path, own + "\nshare = 'session'")
    assert file.settings == before.settings
    [a], [b] = file.servers["a"], file.servers["b"]
    assert a.settings == {
        "era": "handshake",
        "max_connections": 2,
        "idle_close": 5.0,
        "call_timeout": 6.0,
        "collect": 1.0,
    }
    assert b.settings == {"share": "session"}
    # Settings do not change the identity of a server.
    assert [before.servers[name][0].digest for name in "ab"] == [a.digest, b.digest]


def test_settings_of_a_server_may_contain_variables(tmp_path: Path) -> None:
    file = read(tmp_path, "[servers.a]\ncommand = 'x'\nmax_connections = '${PAGE}'")
    assert file.servers["a"][0].settings == {"max_connections": 7}


@pytest.mark.parametrize("spelling", ["share = 'session'", "upstream = 'per-session'"])
def test_a_replica_may_have_settings_of_its_own(tmp_path: Path, spelling: str) -> None:
    file = read(tmp_path, f"[servers.a]\nreplicas = [{{url = 'http://a', {spelling}}}]")
    assert file.servers["a"][0].settings == {"share": "session"}
    assert len(file.warnings) == spelling.startswith("upstream")
    with pytest.raises(ConfigError, match="`max_connections` must not be negative"):
        read(tmp_path, "[servers.a]\nreplicas = [{url = 'http://a', max_connections = -1}]")


WRONG = [
    ("serch = true", 1, "unknown setting 'serch': did you mean 'search'?"),
    ("\n\npageSize = 3", 3, "unknown setting 'pageSize': did you mean 'page_size'?"),
    ("xyzzy = 1", 1, "unknown setting 'xyzzy': expected one of "),
    ("page_size = 'ten'", 1, "`page_size` must be an integer, not a string"),
    ("search = 1", 1, "`search` must be true or false, not a number"),
    ("deadline = -1", 1, "`deadline` must not be negative"),
    ("name = 'x'\nupstream = 'sharedd'", 2, '`upstream` must be "shared" or "per-session"'),
    ("share = 'shared'", 1, '`share` must be "all" or "alike" or "session"'),
    (
        "[servers.a]\ncommand = 'x'\nshare = 'some'",
        3,
        '`share` must be "all" or "alike" or "session"',
    ),
    ("[servers.a]\ncommand = 'x'\nupstream = 'all'", 3, '`upstream` must be "shared" or "per-sess'),
    ("[servers.a]\ncommand = 'x'\nidle_close = -1", 3, "`idle_close` must not be negative"),
    ("[servers.a]\ncommand = 'x'\nmax_parked = 1", 3, "unknown key 'max_parked'"),
    ("include = 'all'", 1, '`include` must be "discovered"'),
    ("path = 'mcp'", 1, "invalid `path` 'mcp': expected a URL path such as /mcp"),
    ("name = 'x'\npath = '/'", 2, "invalid `path` '/': expected a URL path such as /mcp"),
    ("path = '/mcp/'", 1, "invalid `path` '/mcp/': expected a URL path such as /mcp"),
    ("path = '/a b'", 1, "expected a URL path such as /mcp"),
    ("path = '/a?b'", 1, "expected a URL path such as /mcp"),
    ("path = '/a#b'", 1, "expected a URL path such as /mcp"),
    ("path = ''", 1, "expected a URL path such as /mcp"),
    ("listen = 1.5", 1, "`listen` must be a string or an integer, not a number"),
    ("record = 3", 1, "`record` must be a string or true or false, not a number"),
    ("name = ['x']", 1, "`name` must be a string, not a list"),
    ("admin_token = {}", 1, "`admin_token` must be a string, not a map"),
    ("deadline = true", 1, "`deadline` must be a number, not true or false"),
    ("instructions = 3", 1, "`instructions` must be a string, not a number"),
    ("call_timeout = -0.5", 1, "`call_timeout` must not be negative"),
    ("lock_policy = 3", 1, '`lock_policy` must be "refuse" or "warn" or "ask"'),
    ("allowed_hosts = ['${A}', '${B}']", 1, "`allowed_hosts`: environment variables not set: A"),
    ("name = '${A} ${B}'", 1, "`name`: environment variables not set: A, B"),
    ("relay = 3", 1, "unknown setting 'relay': expected one of admin_token, all"),
    ("view = 'x'", 1, "unknown setting 'view': did you mean 'views'?"),
    ("admin_token = '${NOWHERE}'", 1, "`admin_token`: environment variables not set: NOWHERE"),
    ("token = 'a b'", 1, "`token` must consist of ASCII"),
    ("token = ''", 1, "must consist of ASCII characters without spaces"),
    ("name = 'x'\nadmin_token = 'ä'", 2, "must consist of ASCII characters without spaces"),
    ("servers = 3", 1, "`servers` must be a map of names, not a number"),
    ("views = []", 1, "`views` must be a map of names, not a list"),
    ("clients = 'x'", 1, "`clients` must be a map of names, not a string"),
    ("[servers.a]\ncomand = 'x'", 2, "Server \"a\": unknown key 'comand': did you mean 'com"),
    ("\n[servers.a]\nlazy = true", 2, 'Server "a": missing `command`'),
    ("[servers.a]\ncommand = 'x'\n[servers.b]\ncommand = 3", 3, 'Server "b": Expected `str`'),
    ("[servers]\na = 3", 2, 'Server "a": expected an entry with `command` or `url`'),
    ("[servers.a]\nreplicas = []", 2, "`replicas` must be a list of at least one entry"),
    ("[servers.a]\nreplicas = {}", 2, "`replicas` must be a list of at least one entry"),
    (
        "[servers.a]\nreplicas = [{url = 'x'}, 3]",
        2,
        'Server "a": expected an entry with `command` or',
    ),
    ("\n[servers.a]\nreplicas = [{}]", 2, 'Server "a": missing `command`'),
    (
        "\n[servers.a]\nreplicas = [{command = 'x'}, {url = 3}]",
        2,
        'Server "a#2": Expected `str`',
    ),
    ("[servers.a]\nreplicas = [{ ulr = 'x' }]", 2, "unknown key 'ulr': did you mean 'url'?"),
    ("[servers.'a/b']\ncommand = 'x'", 1, "invalid server name 'a/b': expected 1 to 100 letters"),
    ("[servers.notes]\ncommand = 'x'\n[views.v]\nservers = ['note']", 4, "mean 'notes'?"),
    ("[views.v]\nalow = []", 2, "View \"v\": unknown key 'alow': did you mean 'allow"),
    ("[views.v]\nallow = 'x'", 2, "`allow` must be a list of strings, not a string"),
    ("[views.v]\nrename = ['x']", 2, "`rename` must be a map of strings, not a list"),
    ("[views]\nv = 3", 2, "`v` must be a map with servers, allow, deny, hide, rename"),
    ("[views.v]\nrename = { a = '' }", 1, "View \"v\": cannot rename 'a' to an empty name"),
    ("[views.v]\nservers = ['x']", 2, "unknown server 'x'"),
    ("[views.v]\nrename = { a = 'c', b = 'c' }", 1, "'a' and 'b' cannot both be renamed to 'c'"),
    ("[clients.a]", 1, 'Client "a": missing `token` or `token_env`'),
    ("[clients.a]\ntoken = ''", 1, 'Client "a": missing `token` or `token_env`'),
    ("[clients.a]\ntoken_env = 'EMPTY'", 1, 'Client "a": missing `token` or `token_env`'),
    (
        "[clients.a]\nname = 'x'",
        2,
        "Client \"a\": unknown key 'name': expected one of token, token_e",
    ),
    ("[clients.a]\ntoken = 'a b'", 2, "must consist of ASCII characters without spaces"),
    (
        "token = 'x'\n[clients.a]\ntoken = 'x'",
        2,
        'Client "a": the token must differ from the `token` of the gateway',
    ),
    (f"[clients.{UNNAMED}]\ntoken = 'x'", 1, f"invalid client name '{UNNAMED}'"),
    ("[clients.a]\ntoken_env = 'NOWHERE'", 2, "the environment variable NOWHERE is not set"),
    ("[clients.a]\ntoken = 'x'\nview = 'v'", 3, "unknown view 'v'"),
    (
        "[clients.a]\ntoken = 'x'\n[clients.b]\ntoken = 'x'",
        3,
        'Client "b": the token must differ from that of client "a"',
    ),
    ("name = ", 1, "not valid TOML"),
]


@pytest.mark.parametrize(("text", "line", "words"), WRONG)
def test_a_gateway_file_error_has_the_path_and_line_of_the_mistake(
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
def test_errors_in_json_and_yaml_gateway_files_have_a_line_number(
    tmp_path: Path, ending: str, text: str
) -> None:
    with pytest.raises(ConfigError, match="did you mean 'servers'") as caught:
        read(tmp_path, text, ending)
    assert caught.value.line == 3


def test_error_messages_do_not_repeat_values_that_may_be_secrets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "[clients.a]\ntoken = ['s3cret']")
    assert "s3cret" not in str(caught.value)


def test_the_reason_attribute_of_an_error_does_not_contain_the_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "serch = true")
    assert caught.value.args[0] == "unknown setting 'serch': did you mean 'search'?"


def test_a_missing_gateway_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="file not found") as caught:
        read_gateway_file(tmp_path / "none.toml")
    assert caught.value.path == str(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("ending", "text", "words"),
    [
        ("yaml", "1: x", "unknown setting '1': expected one of "),
        ("yaml", "name: 2026-11-17", "`name` must be a string, not a date"),
        ("json", '{"page_size": null}', "`page_size` must be an integer, not null"),
        ("json", '{"servers": null}', "`servers` must be a map of names, not null"),
    ],
)
def test_errors_describe_values_of_unexpected_types_by_their_type(
    tmp_path: Path, ending: str, text: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, ending)
    assert words in str(caught.value)
