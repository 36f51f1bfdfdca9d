"""The tests on the testing page, which must pass."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
PROGRAM = """
from fairlead import MCPServer
server = MCPServer("s")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b
"""


def page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile("\n".join(blocks), str(PAGE), "exec", dont_inherit=True), names)
    return names


def test_all_tests_on_the_testing_page_are_run_by_this_module() -> None:
    tests = {name for name in page() if name.startswith("test_")}
    others = {"test_prices", "test_the_program", "test_tea_costs_less_than_cake"}
    assert tests == {*ASYNCHRONOUS, *others}


ASYNCHRONOUS = [
    "test_the_price_of_two_cakes",
    "test_prices_in_both_eras",
    "test_unknown_item_is_an_error_result",
    "test_an_order_needs_the_user",
    "test_slow_tool_times_out",
    "test_call_to_a_busy_server_is_repeated",
]


@pytest.mark.parametrize("name", ASYNCHRONOUS)
async def test_each_test_on_the_testing_page_passes(name: str) -> None:
    test = page()[name]
    assert inspect.iscoroutinefunction(test)
    await test()


def test_the_fixture_on_the_testing_page_works_with_a_plugin(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    config = "".join(text for kind, text in blocks if kind == "toml")
    # The plugins reject options of each other.
    (tmp_path / "pyproject.toml").write_text(config.replace("asyncio_mode", "# asyncio_mode"))
    file = tmp_path / "test_page.py"
    file.write_text("\n".join(text for kind, text in blocks if kind == "python"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file.name]
    done = subprocess.run(
        [*command, "-k", "costs_less or in_both_eras"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_synchronous_test_on_the_testing_page_runs_without_a_plugin() -> None:
    page()["test_prices"]()


async def test_the_snapshot_example_detects_a_removed_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, file = page(), tmp_path / "tools.json"
    check, server = names["check_snapshot"], names["server"]
    await check(server, file)
    await check(server, file)
    assert '"name": "price"' in file.read_text()
    server.remove_tool("slow")
    with pytest.raises(AssertionError, match="UPDATE=1 accepts it"):
        await check(server, file)
    monkeypatch.setenv("UPDATE", "1")
    await check(server, file)
    monkeypatch.delenv("UPDATE")
    await check(server, file)


async def test_the_process_example_on_the_testing_page_passes(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(PROGRAM)
    await page()["test_the_program"](file)
