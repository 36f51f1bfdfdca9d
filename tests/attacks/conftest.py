"""Attacks use the servers and raw clients of other tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

for folder in ("client", "gateway", "server", "server/http", "chaos"):
    if (place := str(TESTS / folder)) not in sys.path:
        sys.path.append(place)
