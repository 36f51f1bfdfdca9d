"""Interceptors of your own, found by their Python path."""

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
async def test_what_is_named_is_made_with_its_options(
    code: Path, name: str, options: Any, word: str
) -> None:
    made: Any = load_interceptor(f"mine.py:{name}", options, folder=str(code))
    assert await made(None, None) == word


def test_a_function_is_an_interceptor_as_it_is(code: Path) -> None:
    found: Any = load_interceptor(f"{code}/mine.py:plain")
    assert found.__name__ == "plain"
    assert sys.modules[found.__module__].plain is found


@pytest.mark.parametrize(
    ("target", "options", "why"),
    [
        ("mine.py", None, r"'mine\.py' is not written module:attribute or path\.py:attribute"),
        (":plain", None, "is not written"),
        ("mine.py:", None, "is not written"),
        ("mine.py:a-b", None, "is not written"),
        ("mine.py:missing", None, r"mine\.py has no missing"),
        ("mine.py:Outer.missing", None, r"mine\.py has no Outer\.missing"),
        ("none.py:x", None, r"there is no file .*none\.py"),
        ("no_such_module_here:x", None, "cannot be imported: ModuleNotFoundError"),
        ("broken.py:x", None, r"broken\.py cannot be imported: ZeroDivisionError"),
        ("ends.py:x", None, r"ends\.py cannot be imported: SystemExit: 3"),
        ("mine.py:Made", {"other": 1}, "mine.py:Made cannot be made: TypeError"),
        ("mine.py:plain", {"word": 1}, "mine.py:plain takes no options: it is there already"),
        ("mine.py:alone", None, "it takes an exchange, and how to proceed"),
        ("mine.py:number", None, r"is no interceptor: `async \(exchange, proceed\)` is expected"),
        ("mine.py:sync_made", None, "is no interceptor: `async"),
        ("mine.py:Sync", None, "is no interceptor: `async"),
    ],
)
def test_what_is_no_interceptor_is_refused_with_the_reason(
    code: Path, target: str, options: Any, why: str
) -> None:
    (code / "broken.py").write_text("1 / 0")
    (code / "ends.py").write_text("raise SystemExit(3)")
    before = set(sys.modules)
    with pytest.raises(ConfigError, match=why):
        load_interceptor(target, options, folder=str(code))
    left = {name for name in set(sys.modules) - before if name.startswith("fairlead_inter")}
    assert not left or target.startswith("mine")
