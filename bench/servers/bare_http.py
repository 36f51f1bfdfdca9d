"""Minimal HTTP server: the cost of uvicorn (httptools, uvloop) with a trivial application.

A raw ASGI application that decodes the body with msgspec, awaits the function and encodes the
response, without headers, checks or sessions. Clients are measured against it, too, so it answers
their opening requests.
"""

import sys
from typing import Any

import msgspec
import uvicorn
from bare import FIXED, TOOLS, CallResult, Response, as_result, decode, encode

JSON = (b"content-type", b"application/json")


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["method"] != "POST":
        await answer(send, 200 if scope["method"] == "DELETE" else 405, b"")
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    request = decode(body)
    result: CallResult | msgspec.Raw
    if request.id is None:
        await answer(send, 202, b"")
        return
    if request.method == "tools/call":
        result = as_result(await TOOLS[request.params.name](**request.params.arguments))
    else:
        result = FIXED[request.method]
    await answer(send, 200, encode(Response(request.id, result)))


async def answer(send: Any, status: int, body: bytes) -> None:
    headers = [JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        app,
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
    )
