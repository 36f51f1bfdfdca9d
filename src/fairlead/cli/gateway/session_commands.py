"""`fairlead session`: who is connected to a gateway, and an end of it."""

from collections.abc import Sequence

from ..framework.admin_client import ADMIN_TOKEN, URL, ask_admin
from ..framework.errors import USAGE, CommandError, print_message
from ..framework.output import as_json, pluralize, visible, write
from ..framework.parser import JSON, Parser, option

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    options = Parser(
        "session",
        "Show which clients are connected to a gateway, and end sessions. A client may come back,\n"
        "with a new one.",
        option("action", choices=("list", "end"), metavar="ACTION", help="what to do"),
        option("numbers", metavar="ID", nargs="*", type=int, help="as `list` shows them"),
        JSON,
        URL,
        ADMIN_TOKEN,
        usage="(list | end ID ...) [options]",
        examples="  fairlead session list\n"
        "  fairlead session end 3\n"
        "  fairlead session list --url http://127.0.0.1:9000 --json",
    ).parse_args(argv)
    if options.action == "end":
        if not options.numbers:
            raise CommandError(
                "Which one? `fairlead session end ID`",
                hint="`fairlead session list` shows them",
                code=USAGE,
            )
        ended = [ask_admin(options, "DELETE", f"/admin/sessions/{n}") for n in options.numbers]
        for one in () if as_json(options, ended) else ended:
            print_message("ended", str(one["ended"]), "32")
        return 0
    found = ask_admin(options, "GET", "/admin/sessions")
    if as_json(options, found):
        return 0
    for one in found:
        client = visible(one["client"] or "somebody")
        whom = f" as {visible(one['principal'])}" if one.get("principal") else ""
        watched = len(one["subscriptions"])
        watches = f", watches {pluralize(watched, 'resource')}" if watched else ""
        write(
            f"#{one['id']} {client}{whom}: {one['protocol_version'] or 'no handshake'} over "
            f"{one['transport']}{watches}"
        )
    if not found:
        print_message("note", "nobody is connected; requests that stand alone are no sessions")
    return 0
