"""`fairlead gateway`: many servers on one endpoint, as a file describes them."""

import os
from argparse import Namespace
from collections.abc import Callable, Sequence

from msgspec import structs

from ..errors import ConfigError
from ..gateway.admission import Admission
from ..gateway.config import GatewayFile
from ..gateway.journal import Journal
from ..gateway.locking import LockFile
from ..gateway.observing import Observing
from ..gateway.pausing import Desk
from ..gateway.rules.ruleset import RuleSet
from ..gateway.rules.wired import wired_actions
from ..manager.places import this_machine
from ..observe.metrics import Metrics
from ..observe.redactor import Redactor
from ..transport.http.settings import HttpSettings
from .failed import USAGE, Failed
from .gateway_recording import Record, require_tape, taping
from .gateway_running import (
    Plan,
    add_gateway_options,
    endpoint_of,
    log_if_asked,
    require_project,
    run_gateway,
)
from .gateway_servers import Address, Wanted, of_file
from .output import safe, visible
from .suggest import suggest
from .usage import Parser, read_pairs

__all__ = ["run"]

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
    log_if_asked(options)
    require_project(options)
    require_tape(options.record)
    path = options.file or _usual()
    inputs = read_pairs(options.input, "--input")

    def read(address: Address) -> Wanted:
        return of_file(path, options.project, address, inputs)[1]

    try:
        file, _ = of_file(path, options.project, Address(), inputs)
        return run_gateway(_plan(options, file, read))
    except ConfigError as exc:
        raise Failed(safe(str(exc)), code=USAGE) from exc


def _plan(options: Namespace, file: GatewayFile, read: Callable[[Address], Wanted]) -> Plan:
    options.tls_cert = options.tls_cert or file.tls_cert
    options.tls_key = options.tls_key or file.tls_key
    endpoint = endpoint_of(options, file.listen)
    admission = Admission(file, names_only=endpoint.token is not None)
    http = HttpSettings(
        auth_token=endpoint.token,
        verify_token=admission.verify if admission.guards else None,
        allowed_hosts=(*file.allowed_hosts, *endpoint.hosts),
        allowed_origins=(*file.allowed_origins, *endpoint.origins),
        session_store=endpoint.session_store(),
    )
    if file.endpoint is not None:
        http.path = file.endpoint
    settings = file.settings
    if options.search is not None:
        settings = structs.replace(settings, search=True)
    record = Record.of(options, "gateway", file.record)
    observing = _observing(file, record, endpoint.token)
    return Plan(
        settings=settings,
        http=http,
        endpoint=endpoint,
        project=options.project,
        read=read,
        views=file.views,
        admission=admission,
        observing=observing,
        rules=_rules(file, observing),
        record=record,
        json=options.json,
    )


def _observing(file: GatewayFile, record: Record | None, token: str | None) -> Observing:
    """What is kept of the traffic; a desk costs nothing while nothing is held."""
    admin = file.settings.admin_token
    secrets = [admin, token, file.token, *(client.token for client in file.clients)]
    redactor = Redactor(values=[secret for secret in secrets if secret is not None])
    return Observing(
        journal=Journal(redactor=redactor) if file.journal else None,
        metrics=Metrics() if file.metrics else None,
        desk=Desk(redactor=redactor),
        tapes=taping(file.settings.name, record, admin=admin is not None, secrets=secrets),
        lock=None if file.lock is None else _lock(file.lock, file.path),
        lock_policy=file.lock_policy,
        redactor=redactor,
    )


def _lock(path: str, file: str) -> LockFile:
    if not os.path.lexists(path):
        raise Failed(
            f"There is no lock file {visible(path)} yet",
            hint=f"{suggest('lock', '--gateway', file)} writes it",
            code=USAGE,
        )
    return LockFile(path)


def _rules(file: GatewayFile, observing: Observing) -> RuleSet | None:
    """What happens to messages."""
    if file.rules is None:
        return None
    actions = wired_actions(observing.desk, observing)
    return RuleSet.of_file(file.rules, actions=actions, known=observing.redactor)


def _usual() -> str:
    """The user's own file."""
    machine = this_machine()
    path = machine.join(machine.own_config[0], _FILE)
    if not os.path.lexists(path):
        raise Failed(
            f"There is no {path}, and no FILE is named",
            hint="`fairlead up` needs none: it serves everything that is configured here",
            code=USAGE,
        )
    return path


def _parser() -> Parser:
    parser = Parser(
        "gateway",
        "Serve many servers as one, at http://127.0.0.1:8765/mcp. The file says which, who may\n"
        "come in, and what each of them gets to see. Its servers follow its changes.",
        usage="[options] [FILE]",
        examples="  fairlead gateway gateway.toml\n"
        "  fairlead gateway gateway.yaml --port 0 --json\n"
        "  FAIRLEAD_AUTH_TOKEN=... fairlead gateway gateway.json --listen 0.0.0.0:8765\n\n"
        f"a file:\n{_EXAMPLE}",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help=f"TOML, JSON or YAML (default: your own {_FILE}; `fairlead paths` says where)",
    )
    add_gateway_options(parser)
    return parser
