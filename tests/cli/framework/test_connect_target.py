"""Tests of the server given on a command line."""

import pytest

from fairlead.cli.framework.connect_target import name_of_command


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("weather-server --verbose", "weather-server"),
        ("/opt/bin/weather-server notes", "weather-server"),
        ("python old/weather.py", "weather.py"),
        ("/opt/venv/bin/python3.12 -u weather.py --key k", "weather.py"),
        ("python -m weather", "weather"),
        ("uv run weather.py", "weather.py"),
        ("npx -y @scope/weather", "weather"),
        ("python -c print('secret')", "python"),
        ("sh -c KEY=secret&&weather", "sh"),
        ("python", "python"),
    ],
)
def test_a_command_is_named_after_its_script_or_package(command: str, name: str) -> None:
    assert name_of_command(command.split()) == name
