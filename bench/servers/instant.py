"""The server behind the relays: it answers as soon as it can, and shows them in full.

What the server takes of a call is the same for every relay, and hides how much they differ. So this
one has no event loop: it reads what there is, answers each line, and writes all answers at once.
"""

import os
import sys

import msgspec
from bare import FIXED, CallResult, Request, Response, Text

decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode
CHUNK = 1 << 15


def answer(line: bytes) -> bytes:
    """The line that answers this one, if it asks for something."""
    request = decode(line)
    if request.id is None:
        return b""
    if request.method == "tools/call":
        result: CallResult | msgspec.Raw = CallResult([Text(request.params.arguments["text"])])
    else:
        result = FIXED[request.method]
    return encode(Response(request.id, result)) + b"\n"


def main() -> None:
    source, sink = sys.stdin.fileno(), sys.stdout.fileno()
    rest = b""
    while data := os.read(source, CHUNK):
        *lines, rest = (rest + data).split(b"\n")
        answers = memoryview(b"".join([answer(line) for line in lines if line]))
        while answers:
            answers = answers[os.write(sink, answers) :]


if __name__ == "__main__":
    main()
