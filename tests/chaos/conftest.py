"""Tests here use the servers and clients of the tests that they make life hard for."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]

for folder in ("server/http", "transport/http", "gateway"):
    if (place := str(TESTS / folder)) not in sys.path:
        sys.path.append(place)
