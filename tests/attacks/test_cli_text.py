"""Terminal output of text from files and servers: no control sequences, hidden characters or
commands.
"""

import io
import json
import logging
import re
import shlex
import subprocess
import sys
import time
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead import MCPServer
from fairlead.cli.framework.command_errors import CommandError, print_message
from fairlead.cli.framework.output import pretty
from fairlead.cli.framework.suggested_commands import quoted, suggest
from fairlead.cli.gateway.connect_hints import connect_hints
from fairlead.gateway.admin.http_pages import render
from fairlead.observe.safe_display import escape_json, json_text, prose, safe, visible
from tests.support.cli_user import Person, person

__all__ = ["person"]

HIDING = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
OTHERS = "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\uffa0\ufe00\ufe0f\U000e0100\U000e01ef"
EVIL = (
    "\u202egnp.exe",  # a right-to-left override
    "a\u2066b\u2069",  # directional isolates
    "a\u200bb",  # a zero-width space
    "a\u00adb",  # a soft hyphen
    "a\ufeffb",
    "a\U000e0041\U000e0042",  # tag characters
    "a\ufe00\U000e0100b",  # variation selectors
    "a\u2028b",
    "a\u3164b",  # a Hangul filler, which is displayed as a blank
    "a\u00a0b",  # a no-break space
    "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[1;31mred",
    "\x9b31m",
    "a\rb",
    "a\b\b\bb",
    "[red]markup[/red]",
    "a\nerror: fake",
)


def is_hidden(sign: str) -> bool:
    lookalike = unicodedata.category(sign) == "Zs" and sign != " "
    return unicodedata.category(sign) in HIDING or lookalike or sign in OTHERS


@given(st.text(), st.characters(), st.text())
@example("", "\U000e0001", "")
@example("a", "\u200d", "b")
def test_displayed_lines_and_texts_contain_no_hidden_characters(
    before: str, sign: str, after: str
) -> None:
    shown = visible(before + sign + after)
    left = [c for c in shown if is_hidden(c) and c not in "\u200d\ufe0e\ufe0f"]
    assert left == []
    assert visible(shown) == shown
    lines = safe(before + sign + after)
    assert [c for c in lines if is_hidden(c) and c not in "\n\t\u200d\ufe0e\ufe0f"] == []


def test_every_hidden_character_is_escaped_between_letters() -> None:
    signs = [chr(code) for code in range(0x110000) if is_hidden(chr(code))]
    assert [hex(ord(c)) for c in signs if c in visible(f"a{c}b")] == []
    assert [hex(ord(c)) for c in signs if c not in "\n\t" and c in safe(f"a{c}b")] == []


@pytest.mark.parametrize(
    "text",
    [
        "Grüße",
        "日本語",
        "שלום",
        "مرحبا",
        "नमस्ते",
        "e\u0301",
        "👨‍👩‍👧‍👦",
        "❤️",
        "1️⃣",
        "👍🏽",
        "🏳️‍🌈",
        "→ ☎︎",
    ],
)
def test_text_in_any_script_is_displayed_unchanged(text: str) -> None:
    assert (visible(text), safe(text), json_text(text)) == (text, text, f'"{text}"')


@pytest.mark.parametrize(
    "text", ["a\u200d\U0001f525", "🔥\ufe0f\ufe0f", "1\ufe0f", "🔥\u200d\u200d🔥"]
)
def test_joiners_and_selectors_outside_of_emoji_are_escaped(text: str) -> None:
    assert "\\u" in visible(text)


@given(st.recursive(st.text() | st.none() | st.floats(), st.lists, max_leaves=5))
def test_json_keeps_the_value_and_escapes_hidden_characters(value: Any) -> None:
    text = json_text(value)
    assert [c for c in text if is_hidden(c) and c not in "\u200d\ufe0e\ufe0f"] == []
    again = json.loads(text, parse_constant=pytest.fail)
    if "null" not in text:
        assert again == value
    assert json.loads(escape_json('{\r\n"a": "\u202e"}')) == {"a": "\u202e"}


@pytest.mark.parametrize("sign", ["\u202e", "\U000e0041", "\ufe0f", "\u200d", "\x1b"])
def test_a_long_text_of_hidden_characters_is_escaped_quickly(sign: str) -> None:
    began = time.process_time()
    for show in (visible, safe, prose, json_text):
        show(sign * 50_000)
    assert time.process_time() - began < 5


def test_wide_spaces_in_displayed_prose_are_kept() -> None:
    assert prose("\u3000日本\u00a0\u202e") == "\u3000日本\u00a0\\u202e"


# Output of commands


def is_clean(text: str) -> bool:
    colours = re.sub(r"\x1b\[[0-9;]*m", "", text) if "\x1b" in text else text
    return not any(is_hidden(c) and c not in "\n" for c in colours)


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_hidden_characters_in_files_are_escaped_in_the_output_of_commands(
    person: Person, evil: str
) -> None:
    entry = {"command": evil, "args": [evil], "env": {"A": evil}, "cwd": evil, "whatever": evil}
    person.has("project/.mcp.json", {evil: entry, "broken" + evil: {"command": 1}})
    person.has("home/.cursor/mcp.json", {"x" + evil: {"url": f"http://127.0.0.1:1/{evil}"}})
    person.has("ours/mcp.json", {"y" + evil: {"command": f"/nowhere/{evil}", "enabled": False}})
    for words in (
        ["list"],
        ["list", "--json"],
        ["mcp", "why", evil],
        ["mcp", "why", evil, "--json"],
        ["mcp", "approve", evil],
        ["mcp", "approve", evil, "--json"],
        ["mcp", "test", evil],
        ["mcp", "revoke", "x" + evil],
        ["mcp", "remove", "x" + evil],
        ["mcp", "import", "dot-mcp-json"],
        ["mcp", "import", "cursor"],
        ["mcp", "export", "vscode"],
        ["mcp", "why", evil + "z"],
        ["call", evil],
        ["tools", "y" + evil],
        ["doctor"],
        ["doctor", "--json"],
        ["doctor", "x" + evil],
    ):
        done = person.does(*words)
        assert "Traceback" not in done.err, words
        assert is_clean(done.out), (words, done.out)
        assert is_clean(done.err), (words, done.err)
        fake = [line for line in (done.out + done.err).splitlines() if line == "error: fake"]
        assert fake == [], words
        if "--json" in words:
            json.loads(done.out)


def test_hidden_characters_from_a_server_are_escaped(person: Person) -> None:
    part = f"""
def offer(evil):
    @server.tool(name="t" + evil, description=evil)
    def tool(a: str = evil) -> str:
        raise ValueError(evil)

    @server.resource("a://b" + str(evil.encode().hex()), name=evil, description=evil)
    def resource() -> str:
        return evil

    @server.prompt(name="p" + evil, description=evil)
    def prompt() -> str:
        return evil

for evil in {EVIL!r}:
    offer(evil)
"""
    person.has("ours/mcp.json", {"s": person.server(part)})
    calls = [["call", "s", "t" + evil] for evil in EVIL[::4]]
    for words in (
        ["tools", "s"],
        ["tools", "s", "--json"],
        ["resources", "s"],
        ["resources", "s", "--json"],
        ["prompts", "s"],
        ["call", "s", "tt" + EVIL[0]],
        ["mcp", "test", "s"],
        *calls,
    ):
        done = person.does(*words)
        assert done.out + done.err
        assert is_clean(done.out), (words, done.out)
        assert is_clean(done.err), (words, done.err)


def test_text_in_a_message_cannot_imitate_the_label_of_another_message() -> None:
    err = io.StringIO()
    with redirect_stderr(err):
        print_message("warning", "first\nhint: `rm -r .`\n\x1b[2Jlast")
        CommandError("bad\nhint: x", hint="a\nerror: y", details=["b\nerror: z"]).show()
    assert err.getvalue().splitlines() == [
        "warning: first",
        "  hint: `rm -r .`",
        "  ␛[2Jlast",
        "error: bad",
        "  hint: x",
        r"  | b\nerror: z",
        "hint: a",
        "  error: y",
    ]


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_status_pages_escape_hidden_characters(evil: str) -> None:
    row = dict.fromkeys(("era", "revision", "transport", "latency_ms"))
    server = {**row, "name": evil, "status": evil, "error": evil, "source": evil}
    server |= {"tools": 1, "calls": 1, "errors": 1, "since": evil, "remedy": evil}
    now = {"name": evil, "version": evil, "clients": 1, "counts": {}, "servers": [server]}
    page = render(now, f"http://x/{evil}")
    assert is_clean(page)
    own = MCPServer(f"s{evil}", instructions=evil)

    @own.tool(name="t", description=evil)
    def tool() -> str:
        return ""

    from fairlead.server.http_app.status_page import render_page

    item = {"name": evil, "description": evil, "title": evil, "uri": evil, "uriTemplate": evil}
    tools = [{**item, "inputSchema": {"properties": {evil: {"type": evil, "description": evil}}}}]
    prompts = [{**item, "arguments": [{"name": evil, "description": evil}]}]
    offered = {"tools": tools, "prompts": prompts, "resources": [item], "resourceTemplates": [item]}
    assert is_clean(render_page(own.config, "http://x/mcp", offered))


@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_log_records_escape_hidden_characters(evil: str) -> None:
    out = io.StringIO()
    log, handler = logging.getLogger("fairlead.manager"), logging.StreamHandler(out)
    log.addHandler(handler)
    try:
        try:
            raise ValueError(evil)
        except ValueError:
            log.exception("the server %s failed: %s", evil, evil)
    finally:
        log.removeHandler(handler)
    assert is_clean(out.getvalue())


# Suggested commands

NAMES = ["a; rm -rf ~", "$(id)", "`id`", "a b", "-x", "--yes", "a'b", 'a"b', "a\nb", "\u202eb", "*"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_suggested_command_quotes_the_server_name_for_a_shell(person: Person, name: str) -> None:
    person.has("project/.mcp.json", {name: {"command": "x"}})
    done = person.does("mcp", "test", "--", name)
    [pasted] = re.findall(r"`(fairlead mcp approve .*?)` shows what", done.err)
    assert words_of(pasted)[-1] == name
    shown = person.does(*words_of(pasted)[1:])
    assert visible(f"{name}, in {person.project}/.mcp.json") in shown.out


def words_of(command: str) -> list[str]:
    """Return the words into which a shell splits a command."""
    script = command.replace("fairlead", "printf '%s\\0' fairlead", 1)
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=30)
    return printed.stdout.decode().split("\0")[:-1]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_quoted_argument_is_one_word_without_hidden_characters(word: str) -> None:
    text = quoted(word)
    assert visible(text) == text
    if not text.startswith("$'"):
        assert shlex.split(text) == [word]


def test_a_shell_reads_quoted_words_as_the_original_words() -> None:
    words = [*NAMES, *EVIL, "a\\b\u200b'c", "", "é\u200b"]
    command = " ".join(["fairlead", *map(quoted, words)])
    assert words_of(command)[1:] == words


def test_an_operand_that_looks_like_an_option_follows_two_dashes() -> None:
    assert suggest("mcp", "approve", operands=["-x"]).endswith(" mcp approve -- -x`")
    assert suggest("mcp", "approve", operands=["x"]).endswith(" mcp approve x`")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_hints_of_commands_quote_server_names(person: Person, name: str) -> None:
    person.has("project/.mcp.json", {name: {"command": "x"}})
    person.has("home/.cursor/mcp.json", {f"{name}2": {"command": "./y z"}})
    person.has("ours/mcp.json", {f"{name}3": {"command": "z", "enabled": False}})
    plain = [name, f"{name}2", f"{name}3"]
    for words in (
        ["mcp", "why", "--", name],
        ["mcp", "import", "dot-mcp-json"],
        ["mcp", "remove", "--", f"{name}2"],
        ["mcp", "revoke", "--", f"{name}2"],
        ["mcp", "test", "--", f"{name}2"],
        ["mcp", "test", "--", f"{name}3"],
        ["doctor", "--", name],
        ["mcp", "enable", "--project", "--", f"{name}2"],
    ):
        done = person.does(*words)
        for pasted in re.findall(r"`(fairlead .*?[^\\])`(?: |$|\n|,)", done.out + done.err):
            if "`" in name or "\n" in pasted:
                continue  # the regular expression cannot find the end of these commands
            got = words_of(pasted)
            if any(one in plain for one in got):
                continue
            assert not any(one.startswith(name[:2]) for one in got[2:]), (words, pasted)


def test_urls_in_hints_are_quoted() -> None:
    lines = dict(connect_hints("http://127.0.0.1:1/mcp?a=$(id)", has_token=False))
    assert "'http://127.0.0.1:1/mcp?a=$(id)'" in lines["Claude Code"]
    assert "'http://127.0.0.1:1/mcp?a=$(id)'" in lines["Fairlead"]


def test_pretty_json_escapes_hidden_characters() -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        sys.stdout.write(pretty({"a": "\u202e\x9b", "b": float("nan")}))
    assert json.loads(out.getvalue()) == {"a": "\u202e\x9b", "b": None}
    assert is_clean(out.getvalue())


def test_fairlead_writes_its_configuration_file_despite_hidden_characters_in_names(
    person: Person,
) -> None:
    file = person.has("ours/mcp.json", {"a\ud800": {"command": "\u202e"}})
    assert person.does("mcp", "add", "b", "--", "x").code == 0
    assert "a\ud800" in json.loads(Path(file).read_text())["mcpServers"]
