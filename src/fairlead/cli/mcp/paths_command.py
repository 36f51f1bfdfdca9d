"""`fairlead paths`: shows the paths of Fairlead's files on this machine."""

import os
from collections.abc import Sequence

from ...config.edit.config_file import ConfigFile
from ...config.paths import local_host_paths
from ...config.trust import Trust
from ..framework.output import as_json, visible, write
from ..framework.parser import JSON, Parser

__all__ = ["run"]


def run(argv: Sequence[str]) -> int:
    options = Parser(
        "paths",
        "Show the paths of Fairlead's files: your settings, the project's settings, caches and "
        "private data. FAIRLEAD_HOME moves all of them except the project's settings.",
        JSON,
        examples="  fairlead paths\n  FAIRLEAD_HOME=/tmp/try fairlead paths",
    ).parse_args(argv)
    machine = local_host_paths()
    places = {
        "config": machine.own_config[0],
        "servers": str(ConfigFile.of_user(machine).path),
        "gateway": machine.join(machine.own_config[0], "gateway.toml"),
        "project": str(ConfigFile.of_nearest_project(machine).path),
        "cache": machine.own_cache,
        "tools": machine.join(machine.own_cache, "tools"),
        "eras": machine.join(machine.own_cache, "eras.json"),
        "data": machine.own_data,
        "approvals": str(Trust.of(machine).path),
        "logins": machine.join(machine.own_data, "auth"),
        "tapes": machine.join(machine.own_data, "tapes"),
    }
    if as_json(options, {**places, "FAIRLEAD_HOME": machine.variable("FAIRLEAD_HOME") or None}):
        return 0
    for name, path in places.items():
        there = "" if os.path.lexists(path) else "  (does not exist)"
        write(f"{name.ljust(9)}  {visible(path)}{there}")
    return 0
