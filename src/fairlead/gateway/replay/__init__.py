"""Tapes played again: as a server, or to one."""

from .against import Compared, Report, play_against
from .cues import Cue, load
from .pace import Pace
from .server import TapeServer

__all__ = ["Compared", "Cue", "Pace", "Report", "TapeServer", "load", "play_against"]
