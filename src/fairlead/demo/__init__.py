"""A small server to play with: `python -m fairlead.demo`, or `fairlead serve fairlead.demo`."""

from .notebook import server

__all__ = ["server"]
