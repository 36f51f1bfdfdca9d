"""A server of ours over HTTP, several times, each with a state of its own.

Arguments: how each of them answers. The program that makes it comes first. The addresses go to
stdout in one line.
"""

import asyncio
import runpy
import sys

from listening import end_with_stdin


async def main(program: str, *answers: str) -> None:
    addresses: list[asyncio.Future[str]] = []
    running = []
    for answer in answers:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        addresses.append(address)
        server = runpy.run_path(program)["server"]
        serving = server.run_http(port=0, answers=answer, started=address.set_result)
        running.append(asyncio.create_task(serving))
    print(*await asyncio.gather(*addresses), flush=True)
    await asyncio.gather(*running)


if __name__ == "__main__":
    end_with_stdin()
    asyncio.run(main(*sys.argv[1:]))
