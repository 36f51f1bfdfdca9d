"""Record the lines that a child process of a test executes.

This file is copied into the environment of a workspace, and imported by a `.pth` file during a
recording. A process that outlives the test that started it is counted for every test of the file,
because it probably belongs to a shared fixture.
"""

import atexit
import os
import sys


def _start() -> None:
    if os.environ.pop("MUTANTS_MAIN", None) is not None:
        return  # the process of pytest itself, which has its own recorder
    current = os.path.join(sys.prefix, "current_test")
    place = os.path.join(sys.prefix, "recording")
    try:
        with open(place) as file:
            output, sources = file.read().split("\n")
        with open(current) as file:
            test = file.read()
    except OSError:
        return
    import coverage

    recording = coverage.Coverage(
        data_file=os.path.join(output, "child.coverage"),
        data_suffix=True,
        config_file=False,
        include=[sources + "/*"],
    )
    recording.start()
    recording.switch_context(test)
    owner = os.getpid()

    def finish() -> None:
        if os.getpid() != owner:
            return
        recording.stop()
        recording.save()
        with open(current) as file:
            if file.read() != test:
                with open(recording.get_data().data_filename() + ".shared", "w"):
                    pass

    atexit.register(finish)


_start()
