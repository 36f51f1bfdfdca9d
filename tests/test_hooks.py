"""Tests that optional hooks are declared with a default instead of looked up with `getattr`."""

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "fairlead"

# Attributes that may be missing on objects of other programs and libraries; "*" is a computed
# name. Hooks of our own classes are declared in a base class instead: `InterceptorBase`,
# `ReplyPathBase`, `SharedStream` (channels), `EndpointHandler`.
FOREIGN = {
    "keyword_arguments.py": {"_is_protocol"},  # typing
    # optional methods of interceptors that are not derived from this class
    "interceptor/interceptor_base.py": {"*"},
    # Optional methods of channels that are not derived from this class.
    "transport/channel.py": {"*"},
    "policy/load_interceptor.py": {"*"},  # names in a user's module
    "server/context/context.py": {"close"},  # awaitables of a user's function
    "server/features/tool_modules.py": {"*"},  # functions in a user's module
    "server/features/text_arguments.py": {"description", "title"},  # annotations
    # pydantic, and values that a user's function returns
    "server/schema/foreign_types.py": {"BaseModel", "hint_for_data"},
    "server/schema/object_fields.py": {"_name"},  # typing
    "server/schema/output_schema_builder.py": {"_fields"},  # named tuples
    "server/results/encode_result.py": {"content", "role"},  # messages of other libraries
    "server/results/media.py": {"save"},  # images of Pillow, figures
    "server/results/pydantic_output.py": {"*"},  # pydantic
    "server/results/output_schema.py": {"*"},  # attributes of user classes
    "server/schema/annotations.py": {"*", "metadata", "pattern"},  # annotations
    "server/execution/handler_errors.py": {"*"},  # an attribute that marks logged exceptions
    "server/http_app/request_drain.py": {"cycle", "scope"},  # uvicorn
    "server/http_app/uvicorn_runner.py": {"servers"},  # uvicorn
    "transport/http/server/guarded_protocol.py": {"handshake_initiated"},  # uvicorn
    "client/mcp_transport/channel_transport.py": {"code"},  # exceptions raised by user code
    "manager/tools/provider_adapters.py": {"*"},  # tool calls from the packages of model providers
    "protocol/schema/schema_validator.py": {"name"},  # jsonschema-rs
    "protocol/schema/validation.py": {"errors"},  # pydantic
    "config/files/duplicate_keys.py": {"value"},  # pyyaml
    "config/files/formats.py": {"problem", "problem_mark"},  # pyyaml
    "config/files/source_locations.py": {"value"},  # pyyaml
    "cli/client/simple_commands.py": {"stray"},  # argparse
    "cli/command_group.py": {"*"},  # a Fairlead module, by the name of its command
    "cli/serve/load_server.py": {"*"},  # names in a user's module
    "cli/tap/tap_pump.py": {"strerror"},  # exceptions
}


def looked_for(file: Path) -> Iterator[str]:
    """Return the names of attributes that a file treats as optional, except those of modules and of
    Python itself.
    """
    tree = ast.parse(file.read_text())
    modules = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("hasattr"), args=[of, name]):
                pass
            case ast.Call(func=ast.Name("getattr"), args=[of, name, _]):
                pass
            case _:
                continue
        if isinstance(of, ast.Name) and of.id in modules:
            continue
        said = str(name.value) if isinstance(name, ast.Constant) else "*"
        if not said.startswith("__"):
            yield said


def test_attributes_with_a_default_are_looked_up_only_on_foreign_objects() -> None:
    found = {
        file.relative_to(SOURCE).as_posix(): names
        for file in sorted(SOURCE.rglob("*.py"))
        if (names := set(looked_for(file)))
    }
    assert found == FOREIGN


def test_the_hook_check_finds_getattr_with_a_default_and_hasattr(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "import os\n"
        "a = getattr(os, 'O_BINARY', 0), getattr(b, '__name__', None), getattr(b, 'sure')\n"
        "c = getattr(b.channel, 'hook', None), hasattr(b, 'other'), hasattr(b, name)\n"
    )
    assert sorted(looked_for(file)) == ["*", "hook", "other"]
