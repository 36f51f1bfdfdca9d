"""Several instances of one of our servers over HTTP, each with its own state.

The first argument is the program with the server; each further argument is the `answers` setting of
one instance. The URLs are printed to stdout on one line.
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
