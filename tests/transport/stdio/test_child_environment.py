"""The environment variables of child processes."""

import os

import pytest

from fairlead.transport.stdio.child_environment import child_environment, withhold


@pytest.mark.covers("DEC-17")
def test_a_child_process_inherits_the_selected_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in ("PATH", "LC_ALL", "MY_TOKEN", "FAIRLEAD_STATE_KEYS", "OTEL_EXPORTER"):
        monkeypatch.setenv(name, name.lower())
    utf8 = {"PYTHONUTF8": "1"}
    assert child_environment() == utf8 | {
        "PATH": "path",
        "LC_ALL": "lc_all",
        "MY_TOKEN": "my_token",
    }
    assert child_environment(inherit="safe") == utf8 | {"PATH": "path", "LC_ALL": "lc_all"}
    assert child_environment(inherit=["MY_TOKEN"]) == utf8 | {"MY_TOKEN": "my_token"}
    assert child_environment({"PYTHONUTF8": "0", "PATH": "/x"}, inherit=[]) == {
        "PYTHONUTF8": "0",
        "PATH": "/x",
    }


def test_variables_with_secrets_of_this_process_are_inherited_by_name_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.transport.stdio.child_environment._withheld", set())
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in {"USER": "ada", "ALICE": "secret", "BOB": "secrets", "EVE": "ada"}.items():
        monkeypatch.setenv(name, value)
    withhold(["secret", "ada"])
    utf8 = {"PYTHONUTF8": "1"}
    assert child_environment() == utf8 | {"USER": "ada", "BOB": "secrets"}
    assert child_environment(inherit=["ALICE"]) == utf8 | {"ALICE": "secret"}
    assert child_environment({"TOKEN": "secret"}, inherit=[]) == utf8 | {"TOKEN": "secret"}
