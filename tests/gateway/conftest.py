"""Tests of the gateway use the web client, and the rough servers, of other tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

for folder in ("server/http", "chaos"):
    if (place := str(TESTS / folder)) not in sys.path:
        sys.path.append(place)
