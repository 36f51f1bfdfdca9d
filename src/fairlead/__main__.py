"""Entry point of `python -m fairlead`, which is equivalent to `fairlead`."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
