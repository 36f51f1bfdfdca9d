"""Tests of loading user-defined interceptors by their Python path."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ConfigError
from fairlead.policy.load_interceptor import load_interceptor

CODE = """
async def plain(exchange, proceed): return await proceed(exchange)
async def alone(exchange): return None
def factory(word="none"):
    async def made(exchange, proceed): return word
    return made
def sync_made():
    return lambda exchange, proceed: None
class Made:
    def __init__(self, word="none"): self.word = word
    async def __call__(self, exchange, proceed): return self.word
class Sync:
    def __call__(self, exchange, proceed): return None
class Outer:
    ready = Made("inner")
number = 5
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(CODE)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("factory", None, "none"),
        ("factory", {"word": "given"}, "given"),
        ("Made", {}, "none"),
        ("Made", {"word": "given"}, "given"),
        ("Outer.ready", None, "inner"),
    ],
)
async def test_an_interceptor_factory_is_called_with_the_options(
    code: Path, name: str, options: Any, word: str
) -> None:
    made: Any = load_interceptor(f"mine.py:{name}", options, folder=str(code))
    assert await made(None, None) == word


def test_an_async_function_is_used_unchanged(code: Path) -> None:
    found: Any = load_interceptor(f"{code}/mine.py:plain")
    assert found.__name__ == "plain"
    assert sys.modules[found.__module__].plain is found


@pytest.mark.parametrize(
    ("target", "options", "why"),
    [
        (
            "mine.py",
            None,
            r"invalid interceptor 'mine\.py': expected module:attribute or path\.py:attribute",
        ),
        (":plain", None, "invalid interceptor"),
        ("mine.py:", None, "invalid interceptor"),
        ("mine.py:a-b", None, "invalid interceptor"),
        ("mine.py:missing", None, r"mine\.py has no attribute missing"),
        ("mine.py:Outer.missing", None, r"mine\.py has no attribute Outer\.missing"),
        ("none.py:x", None, r"file .*none\.py does not exist"),
        ("no_such_module_here:x", None, "cannot be imported: ModuleNotFoundError"),
        ("broken.py:x", None, r"broken\.py cannot be imported: ZeroDivisionError"),
        ("ends.py:x", None, r"ends\.py cannot be imported: SystemExit: 3"),
        ("mine.py:Made", {"other": 1}, "mine.py:Made cannot be created: TypeError"),
        ("mine.py:plain", {"word": 1}, "mine.py:plain takes no options: it is not a class"),
        ("mine.py:alone", None, "it must accept `exchange` and `proceed`"),
        ("mine.py:number", None, r"is not an interceptor: expected `async \(exchange, proceed\)`"),
        ("mine.py:sync_made", None, "is not an interceptor: expected `async"),
        ("mine.py:Sync", None, "is not an interceptor: expected `async"),
    ],
)
def test_an_interceptor_that_cannot_be_loaded_is_rejected_with_the_reason(
    code: Path, target: str, options: Any, why: str
) -> None:
    (code / "broken.py").write_text("1 / 0")
    (code / "ends.py").write_text("raise SystemExit(3)")
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=why):
        load_interceptor(target, options, folder=str(code))
    left = {name for name in set(sys.modules) - before if name.startswith("fairlead_inter")}
    assert not left or target.startswith("mine")
