"""Tapes played again: as a server, or to one."""

from .replay_against import Compared, Report, play_against
from .script import Cue, load
from .tape_server import TapeServer
from .timing import Pace

__all__ = ["Compared", "Cue", "Pace", "Report", "TapeServer", "load", "play_against"]
