"""Tests of `fairlead call`: arguments, results and failures."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.cli_process import (
    DEMO,
    fairlead,
    interrupt,
    on_terminal,
    run_by,
    server_file,
    signpost,
)
from tests.support.stdio_programs import program

ECHO = """
    from typing import Any

    def echo(**arguments: Any) -> str:
        import json
        return json.dumps(arguments)

    server.register_tool("echo", {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "flag": {"type": "boolean"},
            "list": {"type": "array"},
            "text": {"type": "string"},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
    }, echo)
"""
SCRIPT = """
from fairlead import MCPServer

server = MCPServer("sums")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


def test_the_server_may_be_the_path_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(SCRIPT)
    done = fairlead("call", str(script), "add", "a=1", "b=2")
    assert (done.returncode, done.stdout) == (0, "3\n")
    missing = fairlead("call", str(tmp_path / "none.py"), "add", "a=1", "b=2")
    assert (missing.returncode, "File not found: " in missing.stderr) == (2, True)


def test_call_writes_the_text_of_a_result_to_stdout() -> None:
    done = fairlead("call", "convert_units", "value=1", "from_unit=nmi", "to_unit=km", *DEMO)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 nmi = 1.852 km\n", "")


def test_call_arguments_are_converted_to_the_types_in_the_schema(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("words\nof a file")
    words = ["count=5", "ratio=1e3", "flag=true", "list=[1, 2]", "text=5", "maybe=null"]
    words += ["other=5", "exact:=5", f"file=@{tmp_path / 'words.txt'}"]
    done = fairlead("call", "echo", *words, *run_by(server_file(tmp_path, ECHO)))
    assert json.loads(done.stdout) == {
        "count": 5,
        "ratio": 1000.0,
        "flag": True,
        "list": [1, 2],
        "text": "5",
        "maybe": None,
        "other": "5",
        "exact": 5,
        "file": "words\nof a file",
    }


def test_the_args_option_passes_all_tool_arguments_as_json(tmp_path: Path) -> None:
    server = run_by(server_file(tmp_path, ECHO))
    (tmp_path / "args.json").write_text('{"a": 1, "b": 2}')
    for args, stdin in (
        ('{"a": 1, "b": 2}', ""),
        (f"@{tmp_path / 'args.json'}", ""),
        ("-", '{"a": 1, "b": 2}'),
    ):
        done = fairlead("call", "echo", "--args", args, "b:=3", *server, input=stdin)
        assert json.loads(done.stdout) == {"a": 1, "b": 3}, done.stderr


def test_call_accepts_options_between_tool_arguments() -> None:
    done = fairlead("call", "roll_dice", "sides=6", "--json", "seed=1", "--timeout", "9", *DEMO)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["content"][0]["type"] == "text"


@pytest.mark.covers("CMD-05")
def test_the_json_option_prints_the_whole_tool_result() -> None:
    done = fairlead("call", "roll_dice", "sides=1", "--json", *DEMO)
    result = json.loads(done.stdout)
    assert (done.returncode, result["isError"]) == (1, True)


def test_progress_and_log_messages_are_written_to_stderr() -> None:
    done = fairlead("call", "count_slowly", "to=2", "pause=0", *DEMO)
    assert (done.returncode, done.stdout) == (0, "Counted to 2.\n")
    assert done.stderr == (
        "info: counting to 2\nprogress: 1/2 at 1\nprogress: 2/2 at 2\ninfo: done\n"
    )


def test_progress_overwrites_a_single_line_on_a_terminal() -> None:
    shown = on_terminal("call", "count_slowly", "to=2", "pause=0", *DEMO)
    assert "\r\x1b[Kprogress: 1/2 at 1\r\x1b[Kprogress: 2/2 at 2\r\x1b[K" in shown
    assert "counting to 2" in shown
    assert "Counted to 2." in shown


def test_call_summarises_content_that_is_not_text(tmp_path: Path) -> None:
    file = server_file(
        tmp_path,
        """
        from msgspec import Raw
        @server.tool()
        def show() -> list[Any]:
            return [
                Raw(b'{"type":"image","mimeType":"image/png","data":"AAAA"}'),
                "words",
                Raw(b'{"type":"resource","resource":{"uri":"a:b","mimeType":"text/css","text":"c"}}'),
            ]
        """.replace("list[Any]", "list"),
    )
    done = fairlead("call", "show", *run_by(file))
    assert done.stdout == (
        "[image: image/png, 3 bytes]\nwords\n[resource: a:b, text/css, 1 byte]\n"
    ), done.stderr


def test_structured_content_is_shown_if_there_is_no_text_content(tmp_path: Path) -> None:
    file = server_file(
        tmp_path,
        """
        from msgspec import Raw
        from fairlead.protocol.types.tools import CallToolResult
        @server.tool()
        def measure() -> CallToolResult:
            return CallToolResult(content=[], structured_content=Raw(b'{"metres":5}'))
        """,
    )
    done = fairlead("call", "measure", *run_by(file))
    assert (done.stdout, done.stderr) == ('{\n  "metres": 5\n}\n', "")


def test_control_characters_are_escaped_only_on_a_terminal(tmp_path: Path) -> None:
    file = server_file(
        tmp_path, "@server.tool()\n" + r"def t() -> str: return '\x1b[2Jgone\r\nnext'" + "\n"
    )
    assert (
        fairlead("call", "t", *run_by(file)).stdout == "\x1b[2Jgone\nnext\n"
    )  # text mode reads \r\n as \n
    shown = on_terminal("call", "t", *run_by(file))
    assert "␛[2Jgone" in shown
    assert "\x1b[2J" not in shown


# Failures


@pytest.mark.covers("CMD-05")
def test_a_failing_tool_causes_exit_code_1() -> None:
    done = fairlead("call", "convert_units", "value=1", "from_unit=parsec", "to_unit=m", *DEMO)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: Unknown unit 'parsec'\nhint: Use one of m, km")


def test_the_error_names_the_arguments_that_the_server_rejected() -> None:
    done = fairlead("call", "roll_dice", "sides=1", "colour=red", *DEMO)
    assert done.returncode == 1
    assert "sides" in done.stderr
    assert "colour" in done.stderr


def test_call_shows_a_tool_error_without_structured_content(tmp_path: Path) -> None:
    file = server_file(
        tmp_path,
        """
        from msgspec import Raw
        from fairlead.protocol.types.tools import CallToolResult
        @server.tool()
        def fail() -> CallToolResult:
            text = Raw(b'{"type":"text","text":"It broke\\\\nhere"}')
            return CallToolResult(content=[text], is_error=True)
        """,
    )
    done = fairlead("call", "fail", *run_by(file))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: It broke\n  | here\n")


def test_an_unknown_tool_suggests_similar_names() -> None:
    done = fairlead("call", "role_dice", *DEMO)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("error: Unknown tool 'role_dice'\nhint: did you mean 'roll_dice'?\n")


def test_a_json_rpc_error_causes_exit_code_1(tmp_path: Path) -> None:
    file = server_file(
        tmp_path, "@server.tool()\nasync def no() -> None: raise RpcError(-32099, 'not today')\n"
    )
    done = fairlead("call", "no", *run_by(file))
    assert done.returncode == 1
    assert done.stderr == "error: The server returned an error: not today (code -32099)\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "required: TOOL"),
        (("add", "a", "--"), "Invalid tool argument 'a': expected key=value"),
        (("add", "=1"), "Invalid tool argument '=1': expected key=value"),
        (("add", "a=1", "a=2"), "Duplicate argument a"),
        (("add", "a:={"), "Invalid JSON in a"),
        (("add", "a=@no/such/file"), "Cannot read no/such/file"),
        (("add", "--args", "[]"), "--args must be a JSON object"),
        (("add", "--args", "{"), "Invalid JSON in --args"),
        (("add", "--timeout", "soon"), "'soon' is not a number of seconds"),
        (("add", "--timeout", "0"), "'0' is not a number of seconds"),
        (("add", "--frobnicate"), "unrecognized arguments: --frobnicate"),
        (("add", "a=1"), "Missing server: pass a configured name, a URL, or a command after `--`"),
        (
            ("add", "a=1", "--"),
            "Missing server: pass a configured name, a URL, or a command after `--`",
        ),
    ],
)
@pytest.mark.covers("CMD-05")
def test_invalid_usage_causes_exit_code_2(args: tuple[str, ...], words: str) -> None:
    done = fairlead("call", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert words.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_value_of_the_wrong_type_is_invalid_usage() -> None:
    done = fairlead("call", "roll_dice", "sides=many", *DEMO)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: Invalid value 'many' for sides: expected integer 2..1000\n"
        "hint: `sides:=JSON` sends any JSON value unchanged\n"
    )


FORMS = """write tool arguments as a=1, or as JSON: --args '{"a": 1}'"""


@pytest.mark.parametrize(
    ("args", "sentence", "hint"),
    [
        (("1", "2"), "Invalid tool argument '1': expected key=value", FORMS),
        (("a: 1",), "Invalid tool argument 'a: 1': expected key=value", FORMS),
        (
            ('{"a": 1}',),
            "Invalid tool argument '{\"a\": 1}'",
            """a JSON object must follow --args: --args '{"a": 1}'\n""",
        ),
        (("--a", "1"), "Unrecognized arguments: --a 1\n", FORMS),
        (("--a=1",), "Unrecognized arguments: --a=1\n", FORMS),
        (("--args", "a=1"), "Invalid JSON in --args", FORMS),
        (("--args", "{a: 1}"), "Invalid JSON in --args", FORMS),
        (("--answer", "yes"), "Invalid --answer 'yes'", "for example --answer confirm=true\n"),
    ],
)
def test_the_hint_for_an_argument_in_a_wrong_form_shows_the_correct_forms(
    args: tuple[str, ...], sentence: str, hint: str
) -> None:
    done = fairlead("call", "add", *args, *DEMO)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {sentence}")
    assert f"\nhint: {hint}" in done.stderr


def test_the_hint_for_a_prompt_argument_in_a_wrong_form_shows_the_correct_form() -> None:
    done = fairlead("prompt", "greet", "Ada", *DEMO)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Invalid prompt argument 'Ada': expected key=value" in done.stderr
    assert "\nhint: for example name=Ada; " in done.stderr


@pytest.mark.covers("CMD-05")
def test_a_server_that_exits_at_once_causes_exit_code_3() -> None:
    dying = "import sys; print('no configuration found', file=sys.stderr); sys.exit(7)"
    done = fairlead("call", "add", "--", sys.executable, "-c", dying)
    assert (done.returncode, done.stdout) == (3, "")
    assert "exited with code 7" in done.stderr
    assert "  | no configuration found\n" in done.stderr
    assert done.stderr.count("no configuration found") == 2  # command and stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_not_a_server_causes_exit_code_3() -> None:
    done = fairlead("call", "add", "--", sys.executable, "-c", "")
    assert done.returncode == 3
    assert "exited with code 0" in done.stderr
    assert "check that it calls `server.run()`" in done.stderr


def test_a_server_that_exits_during_the_call_causes_exit_code_3(tmp_path: Path) -> None:
    file = server_file(
        tmp_path,
        """
        @server.tool()
        def die() -> None:
            sys.stderr.write("out of memory\\n")
            sys.stderr.flush()
            os._exit(9)
        """,
    )
    done = fairlead("call", "die", *run_by(file))
    assert (done.returncode, done.stdout) == (3, "")
    assert "exited with code 9" in done.stderr
    assert "  | out of memory\n" in done.stderr


@pytest.mark.covers("CMD-05")
def test_a_server_that_never_responds_causes_exit_code_4() -> None:
    silent = "import sys; sys.stdin.read()"
    done = fairlead("call", "add", "--timeout", "0.3", "--", sys.executable, "-c", silent)
    assert (done.returncode, done.stdout) == (4, "")
    assert "300ms" in done.stderr
    assert "--timeout" in done.stderr


def test_a_tool_that_never_responds_causes_exit_code_4(tmp_path: Path) -> None:
    file = server_file(
        tmp_path, "@server.tool()\nasync def hang() -> None: await asyncio.Event().wait()\n"
    )
    done = fairlead("call", "hang", "--timeout", "2", *run_by(file))
    assert (done.returncode, done.stdout) == (4, "")
    assert "Request timeout after 2000ms" in done.stderr


def test_a_server_that_prints_only_text_causes_exit_code_3() -> None:
    chatty = "import sys; print('Welcome to the jungle\\n' * 150, flush=True); sys.stdin.read()"
    done = fairlead("call", "add", "--", sys.executable, "-c", chatty)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Welcome to the jungle" in done.stderr
    assert len(done.stderr.splitlines()) < 10


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(5)", 3), ("pass", 4)])
def test_the_error_of_a_failed_call_shows_what_the_server_printed(
    tmp_path: Path, ending: str, code: int
) -> None:
    # Not an `MCPServer`, which redirects the output of `print` to stderr while it serves.
    server = f"""
        def handle(request):
            print("license expired", flush=True)
            {ending}

        serve(handle)
    """
    done = fairlead("call", "t", "--timeout", "2", "--", *program(tmp_path, server))
    assert done.returncode == code
    assert "; the server wrote output that is not JSON-RPC\n  | license expired\n" in done.stderr


def test_lines_on_stdout_that_are_not_messages_cause_a_warning(tmp_path: Path) -> None:
    file = server_file(tmp_path, ECHO, "os.write(1, b'hello\\nworld\\n')")
    done = fairlead("call", "echo", *run_by(file))
    assert (done.returncode, done.stdout) == (0, "{}\n")
    assert done.stderr == ("warning: the server wrote 2 lines to stdout that are not messages\n")


def test_verbose_shows_the_stderr_of_the_server(tmp_path: Path) -> None:
    file = server_file(tmp_path, ECHO, "print('starting', file=sys.stderr)")
    assert fairlead("call", "echo", *run_by(file)).stderr == ""
    assert fairlead("call", "echo", "--verbose", *run_by(file)).stderr == "server: starting\n"


# Ctrl-C


def test_ctrl_c_during_a_call_stops_the_server(tmp_path: Path) -> None:
    with signpost(tmp_path / "called") as post:
        file = server_file(
            tmp_path,
            f"""
            @server.tool()
            async def hang() -> None:
                {post.report}
                await asyncio.Event().wait()
            """,
        )
        assert interrupt(post, "call", "hang", *run_by(file)) == (130, "")


def test_ctrl_c_while_connecting_stops_an_unresponsive_server(tmp_path: Path) -> None:
    with signpost(tmp_path / "started") as post:
        deaf = f"import os, signal; {post.report}; signal.pause()"
        command = ("--", sys.executable, "-c", deaf)
        assert interrupt(post, "call", "hang", *command) == (130, "")


MEDIA = """
    from fairlead.server import Audio, Image

    @server.tool(name="../draw")
    def draw() -> list:
        return [Image(b"a png", format="png"), Audio(b"a wav", format="wav"), "done"]

    @server.tool()
    def odd() -> list:
        return [Image(b"x", format="../../evil"), Image(b"y", format="x-unknown")]
"""


def test_the_save_option_writes_images_and_audio_without_replacing_files(tmp_path: Path) -> None:
    server = run_by(server_file(tmp_path, MEDIA))
    folder = tmp_path / "new" / "media"
    for _ in range(2):
        done = fairlead("call", "../draw", "--save", str(folder), *server)
        assert done.returncode == 0, done.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "draw-1.png": b"a png",
        "draw-2.wav": b"a wav",
        "draw-3.png": b"a png",
        "draw-4.wav": b"a wav",
    }
    assert done.stdout.splitlines() == [
        f"[image: image/png, 5 bytes, saved as {folder / 'draw-3.png'}]",
        f"[audio: audio/wav, 5 bytes, saved as {folder / 'draw-4.wav'}]",
        "done",
    ]


def test_names_of_saved_files_contain_no_text_from_the_server(tmp_path: Path) -> None:
    server = run_by(server_file(tmp_path, MEDIA))
    done = fairlead("call", "odd", "--json", "--save", str(tmp_path / "media"), *server)
    assert done.returncode == 0
    assert sorted(os.listdir(tmp_path / "media")) == ["odd-1.bin", "odd-2.bin"]
    assert "saved: " in done.stderr
    assert json.loads(done.stdout)["content"][0]["type"] == "image"


def test_a_save_folder_that_cannot_be_created_is_an_error_before_the_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server = run_by(server_file(tmp_path, MEDIA))
    done = fairlead("call", "odd", "--save", str(tmp_path / "file" / "x"), *server)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Cannot write to" in done.stderr


def test_the_era_option_selects_the_era_of_the_connection() -> None:
    for era, version in (("handshake", "2025-11-25"), ("stateless", "2026-07-28")):
        done = fairlead("ping", "--era", era, "--json", *DEMO)
        assert json.loads(done.stdout)["protocolVersion"] == version
    assert fairlead("ping", "--era", "other", *DEMO).returncode == 2
