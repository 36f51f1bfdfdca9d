"""A web server that is not an MCP server, with or without TLS."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

__all__ = ["web_server"]


class _Web(BaseHTTPRequestHandler):
    """A web site without an MCP endpoint, which requires OAuth at one path."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b"<!doctype html><title>Welcome</title>"
        self.send_response({"/oauth": 401, "/missing": 404}.get(self.path, 200))
        metadata = "https://auth.example/.well-known/oauth-protected-resource"
        if self.path == "/oauth":
            self.send_header("WWW-Authenticate", f'Bearer resource_metadata="{metadata}"')
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, *args: object) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *args: object) -> None:
        pass  # failed handshakes are expected


@contextmanager
def web_server(tls: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Yield HOST:PORT of a web server; `tls` contains its certificate and key files."""
    with _Quiet(("127.0.0.1", 0), _Web) as web:
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*tls)
            web.socket = context.wrap_socket(web.socket, server_side=True)
        thread = Thread(target=web.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{web.server_port}"
        finally:
            web.shutdown()
            thread.join()
