"""A relay on stdin and stdout. The arguments are the era of the server and its entry as JSON."""

import asyncio
import json
import sys

from fairlead.gateway import Relay

if __name__ == "__main__":
    era, entry = sys.argv[1:]
    asyncio.run(Relay(json.loads(entry), era=era).run_stdio())
