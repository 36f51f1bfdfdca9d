"""Server of one tool whose results have a mebibyte and cost almost nothing to build.

Each result has its own number at the start of the text; the rest is built once.
"""

import os

import msgspec
from bare import CACHEABLE, FIXED

SIZE = 1 << 20
_PROSE = "The quick brown fox jumps over the lazy dog and runs along the quiet river bank.\n"
_FILLER = (_PROSE * (SIZE // len(_PROSE) + 1))[: SIZE - 10]
_REST = msgspec.json.encode(_FILLER)[1:] + b'}],"resultType":"complete"}}\n'
_HEAD = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"%010d'
_SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}
_LIST = {"tools": [{"name": "blob", "inputSchema": _SCHEMA}], **CACHEABLE}
_FIXED = {**FIXED, "tools/list": msgspec.json.encode(_LIST)}


class Arguments(msgspec.Struct):
    number: int = 0


class Params(msgspec.Struct):
    arguments: Arguments = msgspec.field(default_factory=Arguments)


class Request(msgspec.Struct):
    method: str
    id: int | None = None
    params: Params = msgspec.field(default_factory=Params)


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def main() -> None:
    decode, rest = msgspec.json.Decoder(Request).decode, b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            request = decode(line)
            if request.id is None:
                continue
            if request.method == "tools/call":
                write(_HEAD % (request.id, request.params.arguments.number) + _REST)
            else:
                result = _FIXED[request.method]
                write(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (request.id, bytes(result)))


if __name__ == "__main__":
    main()
