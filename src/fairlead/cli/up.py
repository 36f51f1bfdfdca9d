"""`fairlead up`: everything that is configured on this machine, on one endpoint."""

from collections.abc import Sequence

from ..gateway import GatewaySettings
from ..gateway.observing import Observing
from ..transport.http.settings import HttpSettings
from .gateway_recording import Record, taping
from .gateway_running import Plan, add_gateway_options, endpoint_of, log_if_asked, run_gateway
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
        "  fairlead up --record monday",
    )
    add_gateway_options(parser)
    options = parser.parse_args(argv)
    log_if_asked(options)
    inputs = read_pairs(options.input, "--input")

    def read(address: Address) -> Wanted:
        return discovered(options.project, address, inputs, or_demo=True)

    endpoint = endpoint_of(options)
    record = Record.of(options, "up")
    tapes = taping("fairlead", record, admin=False, secrets=[endpoint.token])
    return run_gateway(
        Plan(
            settings=GatewaySettings(name="fairlead", search=bool(options.search)),
            http=HttpSettings(
                auth_token=endpoint.token,
                allowed_hosts=endpoint.hosts,
                allowed_origins=endpoint.origins,
            ),
            endpoint=endpoint,
            project=options.project,
            read=read,
            observing=Observing(tapes=tapes),
            record=record,
            json=options.json,
        )
    )
