"""Cached request heads and similar heads, which the fast path must treat like ASGI."""

import asyncio
import contextlib
import json
import random
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from tests.support.http_server import Web, make_server, serving
from tests.support.raw_http_client import ADD, Got, Line, line_to, request

FLUSH = b"\x00" * 20_000  # invalid data that completes an open request and ends the connection
GOOD = request(ADD)
HEAD, _, BODY = GOOD.partition(b"\r\n\r\n")
HEAD += b"\r\n\r\n"


@contextlib.asynccontextmanager
async def both_ways(**options: Any) -> AsyncIterator[tuple[Web, Web]]:
    async with (
        serving(make_server(), fast_path=True, **options) as lane,
        serving(make_server(), fast_path=False, **options) as asgi,
    ):
        yield lane, asgi


async def send(line: Line, pieces: Iterable[bytes]) -> None:
    """Send each chunk in its own write, so that the server in this loop reads them separately."""
    for piece in pieces:
        if line.writer.is_closing():  # the server has closed the connection
            break
        line.send(piece)
        for _ in range(4):
            await asyncio.sleep(0)


async def heard(web: Web, pieces: list[bytes], known: bytes = GOOD) -> list[tuple[int, Any]]:
    """Return the responses to chunks that follow a request whose head is cached."""
    async with line_to(web) as line:
        for _ in range(2):
            line.send(known)
            assert (await line.answer()).status == 200
        await send(line, [*pieces, FLUSH])
        answers = []
        with contextlib.suppress(ConnectionError):
            while (got := await line.answer()).status:
                answers.append((got.status, said(got)))
        if len(answers) > 1 and answers[-1][0] == 400:
            # The server may omit the error that ended the connection after a response.
            del answers[-1]
        return answers


def said(got: Got) -> Any:
    if got.fields.get("content-type") != "application/json":
        return got.body
    return json.loads(re.sub(rb'correlation_id\\":\\"[0-9a-f]+', b"", got.body) or b"null")


async def assert_same(webs: tuple[Web, Web], what: Any, pieces: list[bytes]) -> list[Any]:
    quick, usual = [await heard(web, pieces) for web in webs]
    assert quick == usual, (what, pieces)
    return quick


def nearly() -> dict[str, bytes]:
    """Return variants of the cached request that differ in one detail."""

    def changed(old: bytes, new: bytes) -> bytes:
        assert old in HEAD, old
        return HEAD.replace(old, new, 1) + BODY

    length = b"Content-Length: %d" % len(BODY)
    return {
        "other case": changed(b"Content-Type", b"content-type"),
        "upper case": HEAD.upper() + BODY,
        "blank before": changed(b"Host: ", b"Host:    "),
        "blank behind": changed(b"application/json\r", b"application/json  \r"),
        "blank in the line": changed(b"POST /mcp", b"POST  /mcp"),
        "tab": changed(b"Host: ", b"Host:\t"),
        "bare LF": HEAD.replace(b"\r\n", b"\n") + BODY,
        "bare LF at the end": HEAD[:-4] + b"\n\n" + BODY,
        "folded": changed(b"Host: localhost", b"Host:\r\n localhost"),
        "folded length": changed(length, b"Content-Length:\r\n %d" % len(BODY)),
        "shorter": changed(length, b"Content-Length: %d" % (len(BODY) - 1)),
        "longer": changed(length, b"Content-Length: %d" % (len(BODY) + 1)),
        "zero in front": changed(length, b"Content-Length: 0%d" % len(BODY)),
        "plus": changed(length, b"Content-Length: +%d" % len(BODY)),
        "no length": changed(length + b"\r\n", b""),
        "two lengths": changed(length, length + b"\r\n" + length),
        "other length before": changed(length, b"Content-Length: 1\r\n" + length),
        "list": changed(length, length + b", %d" % len(BODY)),
        "chunked too": changed(length, length + b"\r\nTransfer-Encoding: chunked"),
        "chunked": changed(length, b"Transfer-Encoding: chunked"),
        "other coding": changed(length, length + b"\r\nTransfer-Encoding: identity"),
        "NUL in a value": changed(b"localhost", b"local\0host"),
        "NUL in a name": changed(b"Host", b"Ho\0st"),
        "NUL in front": b"\0" + GOOD,
        "NUL behind": GOOD + b"\0",
        "lines in front": b"\r\n\r\n" + GOOD,
        "line in front": b"\r\n" + GOOD,
        "line behind": GOOD + b"\r\n",
        "two": GOOD + GOOD,
        "two and a half": GOOD + GOOD + HEAD,
        "last one": changed(b"Host", b"Connection: close\r\nHost") + GOOD,
        "old": changed(b"HTTP/1.1", b"HTTP/1.0"),
        "new": changed(b"HTTP/1.1", b"HTTP/2.0"),
        "other method": changed(b"POST", b"PUT"),
        "other path": changed(b"/mcp", b"/MCP"),
        "other host": changed(b"localhost", b"evil.example"),
        "two hosts": changed(b"Host: localhost", b"Host: localhost\r\nHost: localhost"),
        "no host": changed(b"Host: localhost\r\n", b""),
        "a page": changed(b"Host", b"Origin: http://evil.example\r\nHost"),
        "other name": changed(b"Mcp-Name: add", b"Mcp-Name: sub"),
        "two names": changed(b"Mcp-Name: add", b"Mcp-Name: sub\r\nMcp-Name: add"),
        "head only": HEAD,
        "head in the body": HEAD + BODY[:-1] + b"\r\n\r\n",
        "upgrade": changed(b"Host", b"Connection: upgrade\r\nUpgrade: h2c\r\nHost"),
        "expects": changed(b"Host", b"Expect: 100-continue\r\nHost"),
    }


async def test_a_head_similar_to_a_cached_head_has_the_same_outcome_on_both_http_paths() -> None:
    async with both_ways() as webs:
        for what, data in nearly().items():
            await assert_same(webs, what, [data])
            await assert_same(webs, what, [data, GOOD])


async def test_a_request_with_a_cached_head_may_arrive_in_two_chunks() -> None:
    async with both_ways() as webs:
        [expected] = await heard(webs[1], [GOOD])
        for cut in range(1, len(GOOD)):
            pieces = [GOOD[:cut], GOOD[cut:]]
            assert await heard(webs[0], pieces) == [expected], cut
            if cut % 4:
                continue
            # The second chunk alone is not a request, although it completed the request above.
            again = [*pieces, GOOD[cut:]]
            answers = await heard(webs[0], again)
            assert [status for status, _ in answers] == [200] or answers[1:] == [], (cut, answers)


async def test_a_chunk_from_the_middle_of_a_head_is_not_accepted_as_a_request() -> None:
    """Part of a request is not valid at the start of a request."""
    async with both_ways() as webs:
        for name in (b"Host", b"Mcp-Name", b"Content-Type", b"Accept", b"Content-Length"):
            cut = HEAD.index(name)
            rest = GOOD[cut:]
            answers = await assert_same(webs, name, [GOOD[:cut], rest, rest])
            # the server rejected the repeated second chunk and closed the connection
            assert [status for status, _ in answers] == [200], name


async def test_line_breaks_at_the_end_of_a_body_are_not_part_of_the_next_head() -> None:
    """Blank lines may precede a request, but here they belong to the previous body."""
    first = request(ADD, body=BODY + b"\r\n")
    wrong = request(ADD, body=BODY + b"  ").replace(b"Mcp-Name: add", b"Mcp-Name: sub")
    async with both_ways() as webs:
        pieces = [first[:-2], b"\r\n" + wrong, b"\r\n" + wrong]
        answers = await assert_same(webs, "tail", pieces)
        assert [status for status, _ in answers] == [200, 400, 400][: len(answers)]


@pytest.mark.parametrize("seed", range(4))
async def test_a_mutated_request_has_the_same_outcome_on_both_http_paths(seed: int) -> None:
    dice = random.Random(seed)
    alphabet = [b"\r", b"\n", b"\0", b" ", b"\t", b":", b",", b"0", b"9", b"a", b"\xff", b"\r\n"]
    async with both_ways() as webs:
        for _ in range(60):
            data = GOOD
            for _ in range(dice.choice((1, 1, 2, 3))):
                at = dice.randrange(len(data))
                new = dice.choice([*alphabet, b"", data[at : at + dice.randrange(1, 40)]])
                data = data[:at] + new + data[at + dice.choice((0, 1, len(new))) :]
            pieces = [data, GOOD] if dice.random() < 0.5 else [data]
            if dice.random() < 0.5:
                cut = dice.randrange(1, len(data))
                pieces[:1] = [data[:cut], data[cut:]]
            await assert_same(webs, seed, pieces)
