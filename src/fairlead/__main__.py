"""`python -m fairlead` is the same as `fairlead`."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
