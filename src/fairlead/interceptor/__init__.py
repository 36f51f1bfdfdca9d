"""One exchange at a time, and what may stand around its handler."""

from .chain import Interceptor, Proceed, chain
from .exchange import Answer, Edge, Exchange, Handler

__all__ = ["Answer", "Edge", "Exchange", "Handler", "Interceptor", "Proceed", "chain"]
