"""Demo server: `python -m fairlead.demo`, or `fairlead serve fairlead.demo`."""

from .notebook import server

__all__ = ["server"]
