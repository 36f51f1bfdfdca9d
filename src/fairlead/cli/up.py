"""`fairlead up`: everything that is configured on this machine, on one endpoint."""

import os
from argparse import Namespace
from collections.abc import Sequence

from ..gateway import GatewaySettings
from ..gateway.journal import Journal
from ..gateway.observing import Observing
from ..gateway.taping import Taping
from ..observe.redactor import Redactor
from ..transport.http.settings import HttpSettings
from .admin_calling import TOKEN as ADMIN_TOKEN
from .gateway_recording import Record, taping
from .gateway_running import (
    Plan,
    add_gateway_options,
    endpoint_of,
    log_if_asked,
    require_project,
    run_gateway,
)
from .gateway_servers import Address, Wanted, discovered
from .usage import Parser, read_pairs

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    parser = Parser(
        "up",
        "Serve every server that programs on this machine have configured, as one, at\n"
        "http://127.0.0.1:8765/mcp, and follow their files. Servers of project files are left\n"
        "out until they are approved. With none there are two demo servers.",
        usage="[options]",
        examples="  fairlead up\n  fairlead up --port 0 --json\n  fairlead up --search\n"
        "  fairlead up --record monday\n"
        f"  {ADMIN_TOKEN}=... fairlead up --journal",
    )
    add_gateway_options(parser)
    parser.add_argument(
        "--admin-token",
        metavar="TOKEN",
        help="have an admin API, for those who know this (`fairlead mcp reload`, `fairlead "
        f"session` and others); better in the environment, as {ADMIN_TOKEN}",
    )
    parser.add_argument(
        "--journal", action="store_true", help="let `fairlead watch` show what passes"
    )
    options = parser.parse_args(argv)
    log_if_asked(options)
    require_project(options)
    inputs = read_pairs(options.input, "--input")

    def read(address: Address) -> Wanted:
        return discovered(options.project, address, inputs, or_demo=True)

    endpoint = endpoint_of(options)
    record = Record.of(options, "up")
    admin = options.admin_token or os.environ.get(ADMIN_TOKEN) or None
    secrets = [endpoint.token, admin]
    tapes = taping("fairlead", record, admin=admin is not None, secrets=secrets)
    return run_gateway(
        Plan(
            settings=GatewaySettings(
                name="fairlead", search=bool(options.search), admin_token=admin
            ),
            http=HttpSettings(
                auth_token=endpoint.token,
                allowed_hosts=endpoint.hosts,
                allowed_origins=endpoint.origins,
                session_store=endpoint.session_store(),
            ),
            endpoint=endpoint,
            project=options.project,
            read=read,
            observing=_observing(options, tapes, secrets),
            record=record,
            json=options.json,
        )
    )


def _observing(
    options: Namespace, tapes: Taping | None, secrets: Sequence[str | None]
) -> Observing:
    if not options.journal:
        return Observing(tapes=tapes)
    redactor = Redactor(values=[secret for secret in secrets if secret is not None])
    return Observing(journal=Journal(redactor=redactor), tapes=tapes, redactor=redactor)
