"""Terminal and JSON output of a gateway while it starts and runs."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from ...gateway import Gateway
from ...protocol.targets.list_kind import ListKind
from ...redaction.redact_text import redact
from ...transport import timeouts
from ...transport.background_tasks import BackgroundTasks
from ...upstream.status_events import StatusEvent
from ..framework.command_errors import event_time, print_event, print_message, styled
from ..framework.listen_address import NetworkExposure
from ..framework.output import brief_error, first_line, pluralize, pretty, safe, visible, write
from ..framework.suggested_commands import started_command, suggest, suggest_any
from .choose_servers import ChosenServers, SkippedServer
from .connect_hints import connect_hints

__all__ = ["Screen"]

# Seconds to wait for slow servers before the state of all servers is printed.
READY_LIMIT = 10.0
PLACEHOLDER = "TOKEN"  # displayed instead of a token that the user chose

Row = dict[str, Any]


class Screen:
    """Output of the initial state and of later changes, as lines or as one JSON object."""

    def __init__(
        self,
        gateway: Gateway,
        url: str,
        *,
        token: str | None,
        login_url: str | None = None,
        json: bool,
        exposure: NetworkExposure | None = None,
    ) -> None:
        """Create the output.

        `token` is shown in hints; None if there are no tokens. `login_url` is the URL of the
        gateway for clients that log in.
        """
        self._gateway = gateway
        self._url = url
        self._token = token
        self._login_url = login_url
        self._exposure = exposure
        self._json = json
        self._told: Sequence[SkippedServer] = ()
        self._said: dict[str, str] = {}  # last line of each server
        self._file: str | None = None  # path of the gateway file, until its folder is explained
        self._waiting = BackgroundTasks()

    def opened(self, wanted: ChosenServers) -> None:
        """Report that the endpoint is listening; servers may still be connecting."""
        self._file = None if wanted.file is None else wanted.file.path
        if self._json:
            return
        page = self._url.rpartition("/")[0] + "/" if self._url.startswith("http") else ""
        _tell("gateway", f"{visible(self._gateway.settings.name)} at {self._url}", "32")
        if page:
            _tell("status", page)
        if wanted.demo:
            _tell("demo", "no server is configured, so two demo servers are used: notebook, which")
            _tell("", "is stateless, and harbour, which supports only the handshake era.")
            add = suggest("mcp", "add", "NAME", "--", "COMMAND")
            _tell("", f"{add} adds your own servers at any time")
        if self._token not in (None, PLACEHOLDER):
            _tell("token", f"{self._token} (generated; set FAIRLEAD_TOKEN to it for the following)")
        has_token = self._token is not None
        if self._login_url is not None:
            _tell("log in", suggest_any(*started_command(), "login", self._login_url))
        url = self._login_url or self._url
        for program, text in connect_hints(url, has_token=has_token):
            _tell("connect", f"{program}: {text.splitlines()[0]}", "36")
        more = [*started_command(), "connect-hints", *(["--token"] if has_token else [])]
        if url.startswith("http"):
            _tell("connect", f"other programs: {suggest_any(*more, url)}", "36")
        _tell("stop", "Ctrl-C or SIGTERM", "36")
        if self._exposure is not None:
            self._exposure.show()
        for problem in wanted.problems:
            self.warned(problem)
        self._leave_out(wanted)

    async def settle(self, wanted: ChosenServers) -> None:
        """Wait briefly until all servers are connected or have failed, and print the state."""
        with contextlib.suppress(TimeoutError):
            async with timeouts.timeout(READY_LIMIT):
                for member in list(self._gateway.members.values()):
                    await member.listed.wait()
        if self._json:
            write(pretty(self._report(wanted)))
        elif wanted.file is None and any(row["error"] for row in self._rows()):
            _tell("help", f"{suggest('doctor')} suggests fixes for the servers that failed")
        sys.stdout.flush()

    def _explain_folder(self) -> None:
        """Explain relative paths if the gateway was started in another folder than its file's."""
        if self._file is None:
            return
        here, folder = os.getcwd(), os.path.dirname(os.path.abspath(self._file))
        self._file = None
        if os.path.realpath(folder) != os.path.realpath(here):
            _tell("help", f"relative paths apply to the current folder, {here}; if the servers are")
            _tell("", f"in {folder}, start the gateway there, or set `cwd` of the servers")

    def happened(self, event: StatusEvent) -> None:
        """Report a status change of a server."""
        if self._json or event.kind == "connecting":
            return
        for name in event.names:
            member = self._gateway.members.get(name.partition("#")[0])
            if event.kind == "connected" and member is not None and not member.listed.is_set():
                self._waiting.start(self._once(member.listed, name, event))
            else:
                self._say(name, event)

    async def _once(self, listed: asyncio.Event, name: str, event: StatusEvent) -> None:
        """Report a server as connected once its lists are available."""
        await listed.wait()
        self._say(name, event)

    def _say(self, name: str, event: StatusEvent) -> None:
        news = self._news(name, event)
        # A failed attempt is reported by the attempt and by the server's state.
        if self._said.get(name) != news:
            self._said[name] = news
            _tell(name, news, _COLOURS.get(event.kind, "2"), event_time(sys.stdout))
            if "No such file or directory" in (event.error or ""):
                self._explain_folder()

    def close(self) -> None:
        for task in self._waiting:
            task.cancel()

    def changed(self, wanted: ChosenServers) -> None:
        """Report servers that the changed configuration files leave out."""
        if not self._json:
            self._leave_out(wanted)

    def failed(self, reason: str) -> None:
        print_event("warning", f"the change is ignored: {safe(reason)}")

    def warned(self, problem: str) -> None:
        print_message("warning", safe(problem))

    def _leave_out(self, wanted: ChosenServers) -> None:
        for one in wanted.left_out:
            if one not in self._told:
                hint = f"; run `{one.hint}` to review and approve it" if one.hint else ""
                print_message("skipped", visible(f"{one.name}: {one.reason}{hint}"))
        self._told = wanted.left_out

    def _news(self, name: str, event: StatusEvent) -> str:
        upstream = self._gateway.upstreams.get(name)
        if event.kind != "connected" or upstream is None or upstream.client is None:
            why = f": {brief_error(redact(event.error))}" if event.error else ""
            if upstream is not None and upstream.state == "suspended":
                why += f"; to connect it: {suggest('mcp', 'reconnect', operands=[name])}"
            return f"{event.kind}{why}"
        tools = pluralize(len(upstream.lists.items.get(ListKind.TOOLS, ())), "tool")
        return f"connected ({upstream.client.protocol_version}, {tools})"

    def _rows(self) -> list[Row]:
        rows: list[Row] = self._gateway.status()["servers"]
        for row in rows:
            row["error"] = None if row["error"] is None else first_line(redact(row["error"]))
        return rows

    def _report(self, wanted: ChosenServers) -> dict[str, Any]:
        facts = ("name", "server", "status", "transport", "revision", "era", "tools", "source")
        return {
            "name": self._gateway.settings.name,
            "url": self._url,
            "pid": os.getpid(),
            "demo": wanted.demo,
            **({} if self._token in (None, PLACEHOLDER) else {"token": self._token}),
            **({} if self._exposure is None else {"warnings": [self._exposure.warning]}),
            "servers": [
                {key: row[key] for key in (*facts, "path", "error")} for row in self._rows()
            ],
            "left_out": [
                {"name": one.name, "reason": one.reason, "hint": one.hint or None}
                for one in wanted.left_out
            ],
        }


_COLOURS = {"connected": "32", "failed": "31", "reconnecting": "33"}


def _tell(label: str, text: str, colour: str = "36", time: str = "") -> None:
    start = styled(visible(label) + ":", colour) if label else " " * 5
    sys.stdout.write(f"{time}{start} {safe(text)}\n")
    sys.stdout.flush()
