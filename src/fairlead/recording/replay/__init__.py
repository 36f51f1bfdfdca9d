"""Replay of tapes: to clients, or against a server."""

from .pace import Pace
from .replay_against import ComparedCall, ReplayReport, replay_tape
from .script import ScriptedCall, load_script
from .tape_server import TapeServer

__all__ = [
    "ComparedCall",
    "Pace",
    "ReplayReport",
    "ScriptedCall",
    "TapeServer",
    "load_script",
    "replay_tape",
]
