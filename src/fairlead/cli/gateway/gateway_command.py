"""`fairlead gateway` and `fairlead up`: serve many servers on one endpoint."""

import os
from argparse import Namespace
from collections.abc import Callable, Sequence

from msgspec import structs

from ...config.paths import local_host_paths
from ...gateway import GatewaySettings
from ...gateway.clients.admission import ClientAccess
from ...gateway.gateway_file import GatewayFile
from ...gateway.operations.observability import Observability
from ...observe.log_filter import follow_secrets
from ...observe.metrics import Metrics
from ...policy.hold_desk import HoldDesk
from ...policy.rules.gateway_actions import gateway_actions
from ...policy.rules.ruleset import RuleSet
from ...policy.tool_lock.lock_file import LockFileWatcher
from ...recording.journal import Journal
from ...redaction.redact_messages import Redactor
from ..framework.admin_client import TOKEN as ADMIN_TOKEN
from ..framework.command_errors import UsageError
from ..framework.output import visible
from ..framework.parser import JOURNAL, Parser, option, read_pairs
from ..framework.server_lookup import require_project
from ..framework.suggested_commands import suggest
from .choose_servers import ChosenServers, OwnAddress, discovered_servers, servers_of_file
from .run_gateway import (
    GatewayPlan,
    add_gateway_options,
    endpoint_of,
    log_to_stderr,
    serve_plan,
    with_public_host,
)
from .tape_options import require_tape, tape_control_for, tape_place

__all__ = ["run", "run_up"]

_FILE = "gateway.toml"
_EXAMPLE = """\
  [servers.notes]
  command = "python"
  args = ["notes.py"]

  [servers.search]
  url = "https://example.com/mcp"\
"""


def run(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    _begin(options)
    require_tape(options.record)
    path = options.file or _usual()

    def read(address: OwnAddress) -> ChosenServers:
        inputs = read_pairs(options.input, "--input")
        chosen = servers_of_file(path, options.project, address, inputs)
        assert chosen.file is not None
        # Also applied on reload, because the file's settings then replace the gateway's.
        return structs.replace(chosen, file=_with_era(chosen.file, options))

    file = read(OwnAddress()).file
    assert file is not None
    return serve_plan(_plan(options, file, read, "gateway"))


def run_up(argv: Sequence[str]) -> int:
    """Run `fairlead up`: serve all configured servers on one endpoint."""
    parser = Parser(
        "up",
        "Serve all servers that are configured on this machine as one, at\n"
        "http://127.0.0.1:8765/mcp, and apply changes to their files. Servers in project\n"
        "files must be approved first. Without any server, two demo servers are used.",
        option(
            "--admin-token",
            metavar="TOKEN",
            help="enable the admin API with this token (for `fairlead mcp reload`, `fairlead "
            f"session` and others); prefer the environment variable {ADMIN_TOKEN}",
        ),
        JOURNAL,
        usage="[options]",
        examples="  fairlead up\n  fairlead up --port 0 --json\n  fairlead up --search\n"
        f"  fairlead up --record monday\n  {ADMIN_TOKEN}=... fairlead up --journal",
    )
    add_gateway_options(parser)
    options = parser.parse_args(argv)
    _begin(options)
    admin = options.admin_token or os.environ.get(ADMIN_TOKEN) or None
    settings = GatewaySettings(name="fairlead", admin_token=admin)

    def read(address: OwnAddress) -> ChosenServers:
        inputs = read_pairs(options.input, "--input")
        return discovered_servers(options.project, address, inputs, or_demo=True)

    file = _with_era(GatewayFile(path="up", settings=settings, journal=options.journal), options)
    return serve_plan(_plan(options, file, read, "up"))


def _with_era(file: GatewayFile, options: Namespace) -> GatewayFile:
    """Return the gateway file's settings with the era given on the command line."""
    if options.era is None:
        return file
    relay = structs.replace(file.settings.relay, era=options.era)
    return structs.replace(file, settings=structs.replace(file.settings, relay=relay))


def _begin(options: Namespace) -> None:
    log_to_stderr(options)
    require_project(options)


def _plan(
    options: Namespace, file: GatewayFile, read: Callable[[OwnAddress], ChosenServers], tape: str
) -> GatewayPlan:
    """Return the plan for running a gateway. `tape` is the default name for its recordings."""
    options.tls_cert = options.tls_cert or file.tls_cert
    options.tls_key = options.tls_key or file.tls_key
    options.drain = options.drain or file.drain
    options.allow_host = [*file.allowed_hosts, *options.allow_host]
    options.allow_origin = [*file.allowed_origins, *options.allow_origin]
    endpoint = endpoint_of(options, file.listen)
    admission = ClientAccess(file, names_only=endpoint.token is not None)
    if file.auth is not None:
        endpoint = with_public_host(endpoint, file.auth.public_url)
    settings = file.settings
    if options.search:
        settings = structs.replace(settings, search=True)
    place = tape_place(options, tape, file.record)
    observing = _observing(file, endpoint.token, recording=place is not None)
    path = {} if file.endpoint is None else {"path": file.endpoint}
    http = endpoint.settings(
        verify_token=admission.verify if admission.guards else None,
        auth=admission.access(),
        **path,
    )
    return GatewayPlan(
        settings=settings,
        http=http,
        login_url=None if file.auth is None else file.auth.server_auth().client_url("", http.path),
        endpoint=endpoint,
        options=options,
        read=read,
        views=file.views,
        roles=file.role_views,
        admission=admission,
        observing=observing,
        rules=_rules(file, observing),
        tape=place,
        lazy=tape == "up",
    )


def _observing(file: GatewayFile, token: str | None, *, recording: bool) -> Observability:
    """Return the components that observe traffic, as the gateway file enables them.

    The hold desk adds no cost while no message is held.
    """
    admin = file.settings.admin_token
    secrets = file.secrets if token is None else [token, *file.secrets]
    redactor = follow_secrets(Redactor(values=secrets))
    return Observability(
        journal=Journal(redactor=redactor) if file.journal else None,
        metrics=Metrics() if file.metrics else None,
        desk=HoldDesk(redactor=redactor),
        tapes=tape_control_for({"gateway": file.settings.name}, secrets)
        if recording or admin or (file.auth is not None and file.auth.has_admin)
        else None,
        lock=None if file.lock is None else _lock(file.lock, file.path),
        lock_policy=file.lock_policy,
        redactor=redactor,
    )


def _lock(path: str, file: str) -> LockFileWatcher:
    if not os.path.lexists(path):
        raise UsageError(
            f"Lock file not found: {visible(path)}",
            hint=f"{suggest('lock', '--gateway', file)} creates it",
        )
    return LockFileWatcher(path)


def _rules(file: GatewayFile, observing: Observability) -> RuleSet | None:
    if file.rules is None:
        return None
    actions = gateway_actions(observing.desk, observing)
    return RuleSet.of_file(file.rules, actions=actions, known=observing.redactor)


def _usual() -> str:
    """Return the path of the user's gateway file."""
    machine = local_host_paths()
    path = machine.join(machine.own_config[0], _FILE)
    if not os.path.lexists(path):
        raise UsageError(
            f"Missing FILE, and the default {path} does not exist",
            hint="`fairlead up` needs no file: it serves all configured servers",
        )
    return path


def _parser() -> Parser:
    parser = Parser(
        "gateway",
        "Serve many servers as one, at http://127.0.0.1:8765/mcp. The file configures the\n"
        "servers, the clients and their views. Changes to its servers are applied immediately.",
        option(
            "file",
            metavar="FILE",
            nargs="?",
            help=f"a TOML, JSON or YAML file (default: your {_FILE}; see `fairlead paths`)",
        ),
        usage="[options] [FILE]",
        examples="  fairlead gateway gateway.toml\n"
        "  fairlead gateway gateway.yaml --port 0 --json\n"
        "  FAIRLEAD_AUTH_TOKEN=... fairlead gateway gateway.json --listen 0.0.0.0:8765\n\n"
        f"a file:\n{_EXAMPLE}",
    )
    add_gateway_options(parser)
    return parser
