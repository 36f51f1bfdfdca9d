"""The page for callers: every snippet on it runs, one after the other."""

import ast
import re
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "calling.md"


def snippets() -> list[CodeType]:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return [compile(source, f"calling.md[{i}]", "exec", flags) for i, source in enumerate(found)]


async def test_every_snippet_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for code in snippets():
        done = eval(code, names)  # a coroutine where the snippet awaits
        if done is not None:
            await done
    printed = capsys.readouterr().out
    for words in ("add Add two numbers.", "['Buy bread.']", "Say hello to Ada", "said no:"):
        assert words in printed
    assert (
        "{'elicitation': {'form': {}}, 'sampling': {}, 'roots': {'listChanged': True}}" in printed
    )
    assert "-> tools/call add" in printed
