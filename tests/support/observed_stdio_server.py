"""A stdio server without any library that logs every message it receives.

Run as `python observed_stdio_server.py LOG NAME OPTIONS`; `observed_servers.py` describes the
options and reads the log.
"""

import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

META = "io.modelcontextprotocol/"
STATELESS = "2026-07-28"
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
TOOLS = (
    *("pid", "hold", "pause", "ask", "sample", "folders", "speak", "level"),
    *("grow", "touch", "subscribed", "die"),
)


class Server:
    """A server that reads messages until standard input ends."""

    def __init__(self, log: str, name: str, options: dict[str, Any]) -> None:
        self.name, self.options = name, options
        self._log = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._writing = threading.Lock()
        self._inbox: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._waiting: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._declared: dict[str, Any] = {}
        self._grown: list[str] = []
        self._uris: list[str] = []
        self._level = "none"
        self._lists = 0
        self.record("start")

    def record(self, event: str, message: Any = None) -> None:
        line = {"at": time.monotonic(), "server": self.name, "pid": os.getpid(), "event": event}
        os.write(self._log, json.dumps({**line, "message": message}).encode() + b"\n")

    def exit(self, code: int) -> None:
        self.record("end", code)
        os._exit(code)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.exit(0))
        self._take_exclusive()
        if self.options.get("crash"):
            sys.stderr.write("cannot start: the database is missing\n")
            self.exit(1)
        threading.Thread(target=self._read, daemon=True).start()
        if gate := self.options.get("gate"):
            _wait_for(gate)
        while True:
            self._receive(self._inbox.get())

    def _take_exclusive(self) -> None:
        """Acquire the lock and the port, which only one process can own."""
        try:
            if path := self.options.get("lock"):
                self._file = os.open(path, os.O_CREAT | os.O_RDWR)
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if port := self.options.get("port"):
                self._socket = socket.create_server(("127.0.0.1", port))
        except OSError as exc:
            sys.stderr.write(f"already in use: {exc}\n")
            self.exit(1)

    def _read(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            self.record("received", message)
            self._inbox.put(message)
        self.exit(0)

    # Messages

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._writing:
            while data:
                data = data[os.write(1, data) :]

    def answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        if self._is_stateless(request):
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        self.send({"id": request["id"], "result": result})

    def answer_text(self, request: dict[str, Any], text: str) -> None:
        self.answer(request, {"content": [{"type": "text", "text": text}]})

    def refuse(self, request: dict[str, Any], message: str = "Method not found") -> None:
        self.send({"id": request["id"], "error": {"code": -32601, "message": message}})

    def request(self, method: str, params: Any, then: Callable[[dict[str, Any]], None]) -> None:
        request_id = f"{method} {len(self._waiting)}"
        self._waiting[request_id] = then
        message = {"id": request_id, "method": method}
        self.send(message if params is None else {**message, "params": params})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"method": f"notifications/{method}", "params": params or {}})

    @staticmethod
    def _is_stateless(message: dict[str, Any]) -> bool:
        return f"{META}protocolVersion" in message.get("params", {}).get("_meta", {})

    def _receive(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method is None:
            self._waiting.pop(str(message["id"]), lambda _: None)(message)
            return
        faulty = self._is_faulty_for(message)
        if method in self.options.get("exits_on", ()) and faulty and self._applies("exits_while"):
            self.exit(3)
        silent = self.options.get("silent", ())
        if (method in silent or "*" in silent) and faulty and self._applies("silent_while"):
            return
        if "id" not in message:
            self._notified(method)
        elif method == "initialize":
            self._initialize(message)
        elif method == "server/discover":
            self._discover(message)
        elif method == "ping":
            self.answer(message, {})
        elif self.options.get("refuses_all") and faulty:
            self.refuse(message, "this server refuses all requests except initialize")
        else:
            self._dispatch(method, message)

    def _is_faulty_for(self, message: dict[str, Any]) -> bool:
        """Return True if the faults in the options apply to messages of this era."""
        era = "stateless" if self._is_stateless(message) else "handshake"
        return self.options.get("fault_era", era) == era  # type: ignore[no-any-return]

    def _applies(self, option: str) -> bool:
        """Return True if the option is missing or names an existing path."""
        path = self.options.get(option)
        return path is None or os.path.exists(path)

    def _initialize(self, message: dict[str, Any]) -> None:
        params = message["params"]
        if "handshake" not in self.options.get("eras", ["handshake"]):
            self.refuse(message)
            return
        self._declared = params.get("capabilities", {})
        required = self.options.get("requires")
        if required is not None and required not in self._declared:
            sys.stderr.write(f"this client has no {required}\n")
            self.exit(3)
        if self.options.get("exits_for") in self._declared:
            self.exit(3)
        revision = self.options.get("settles_on", params["protocolVersion"])
        self.answer(
            message,
            {
                "protocolVersion": revision,
                "capabilities": {
                    "tools": {"listChanged": True},
                    "prompts": {},
                    "resources": {"subscribe": True},
                    "logging": {},
                },
                "serverInfo": {"name": self.name, "version": "1"},
            },
        )
        if self.options.get("announces"):
            threading.Thread(target=self._announce, daemon=True).start()

    def _discover(self, message: dict[str, Any]) -> None:
        if "stateless" not in self.options.get("eras", ["handshake"]):
            self.refuse(message)
            return
        capabilities: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
        self.answer(message, {"supportedVersions": [STATELESS], "capabilities": capabilities})

    def _announce(self) -> None:
        """Announce changes of the tool list a thousand times per second."""
        while True:
            self.notify("tools/list_changed")
            time.sleep(0.001)

    def _notified(self, method: str) -> None:
        if method == "notifications/initialized" and self.options.get("asks_roots"):
            self.request("roots/list", None, self._take_roots)

    def _take_roots(self, response: dict[str, Any]) -> None:
        self._roots = _uris(response)

    def _dispatch(self, method: str, message: dict[str, Any]) -> None:
        if method in LISTS:
            self.answer(message, {LISTS[method]: list(self._items(method, message))})
        elif method == "tools/call":
            self._call(message)
        elif method == "resources/read":
            uri = message["params"]["uri"]
            self.answer(message, {"contents": [{"uri": uri, "text": f"text of {self.name}"}]})
        elif method == "prompts/get":
            content = {"type": "text", "text": f"hello from {self.name}"}
            self.answer(message, {"messages": [{"role": "user", "content": content}]})
        elif method == "resources/subscribe":
            self._uris.append(message["params"]["uri"])
            self.answer(message, {})
        elif method == "resources/unsubscribe":
            self._uris.remove(message["params"]["uri"])
            self.answer(message, {})
        elif method == "logging/setLevel":
            self._level = message["params"]["level"]
            self.answer(message, {})
        else:
            self.refuse(message)

    def _items(self, method: str, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if method == "prompts/list":
            yield {"name": "hello"}
        elif method == "resources/list":
            yield {"uri": f"note://{self.name}", "name": "note"}
        elif method == "resources/templates/list":
            yield {"uriTemplate": f"page://{self.name}/{{n}}", "name": "page"}
        else:
            for name in self._tool_names(message):
                yield {"name": name, "inputSchema": {"type": "object"}}

    def _tool_names(self, message: dict[str, Any]) -> list[str]:
        self._lists += 1
        declared = self._declared
        if self._is_stateless(message):
            declared = message["params"]["_meta"].get(f"{META}clientCapabilities", {})
        varying = self.options.get("varying", {})
        more = [name for capability, name in varying.items() if capability in declared]
        changing = [f"tool_{self._lists}"] if self.options.get("changing_lists") else []
        return [*self.options.get("tools", TOOLS), *more, *changing, *self._grown]

    # Tools

    def _call(self, message: dict[str, Any]) -> None:
        name, arguments = message["params"]["name"], message["params"].get("arguments", {})
        tool = getattr(self, f"_tool_{name}", None)
        if tool is None:
            self.answer_text(message, f"{name} of {self.name} {os.getpid()}")
        else:
            tool(message, arguments)

    def _tool_pid(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.answer_text(message, str(os.getpid()))

    def _tool_hold(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        def wait() -> None:
            _wait_for(arguments["until"])
            self.answer_text(message, str(os.getpid()))

        threading.Thread(target=wait, daemon=True).start()

    def _tool_pause(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        time.sleep(arguments["seconds"])
        self.answer_text(message, str(os.getpid()))

    def _tool_ask(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        schema = {"type": "object", "properties": {"value": {"type": "string"}}}
        params = {"message": f"{self.name} asks", "requestedSchema": schema}

        def then(response: dict[str, Any]) -> None:
            self.answer_text(message, json.dumps(response.get("result", response.get("error"))))

        self.request("elicitation/create", params, then)

    def _tool_sample(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        content = {"type": "text", "text": "what?"}
        params = {"messages": [{"role": "user", "content": content}], "maxTokens": 10}

        def then(response: dict[str, Any]) -> None:
            self.answer_text(message, json.dumps(response.get("result", response.get("error"))))

        self.request("sampling/createMessage", params, then)

    def _tool_folders(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        """Answer with the roots of the first `roots/list` result, as many servers do."""
        if hasattr(self, "_roots"):
            self.answer_text(message, self._roots)
            return

        def then(response: dict[str, Any]) -> None:
            self._take_roots(response)
            self.answer_text(message, self._roots)

        self.request("roots/list", None, then)

    def _tool_speak(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.notify("message", {"level": "info", "data": arguments["text"]})
        self.answer_text(message, str(os.getpid()))

    def _tool_level(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.answer_text(message, self._level)

    def _tool_grow(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        self._grown.append(arguments["tool"])
        self.answer_text(message, str(os.getpid()))
        self.notify("tools/list_changed")

    def _tool_touch(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        if arguments["uri"] in self._uris:
            self.notify("resources/updated", {"uri": arguments["uri"]})
        self.answer_text(message, str(os.getpid()))

    def _tool_subscribed(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.answer_text(message, " ".join(self._uris))

    def _tool_die(self, message: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.exit(3)


def _uris(response: dict[str, Any]) -> str:
    return " ".join(root["uri"] for root in response.get("result", {}).get("roots", ()))


def _wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.005)


if __name__ == "__main__":
    Server(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).run()
