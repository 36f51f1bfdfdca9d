"""Attributes and arguments of other libraries, and what to use instead of them.

The names are those of FastMCP and of the official SDK.
"""

__all__ = ["CALLED_HINTS", "CALL_HINTS", "CLIENT_HINTS", "CLIENT_KEYWORDS", "RESULT_HINTS"]

CLIENT_HINTS = {
    "call_tool_mcp": "use `await client.call_tool(name, arguments)`",
    "complete_mcp": "use `await client.complete(...)`",
    "get_prompt_mcp": "use `await client.get_prompt(name, arguments)`",
    "initialize_result": "use `client.server`",
    "is_connected": "use `client.connected`, which is not a method",
    "list_prompts_mcp": "use `await client.list_prompts()`",
    "list_resource_templates_mcp": "use `await client.list_resource_templates()`",
    "list_resources_mcp": "use `await client.list_resources()`",
    "list_templates": "use `await client.list_resource_templates()`",
    "list_tools_mcp": "use `await client.list_tools()`",
    "new": "use another `async with MCPClient.connect(target)`",
    "read_resource_mcp": "use `await client.read_resource(uri)`",
    "send_ping": "use `await client.ping()`",
    "send_request": "use `await client.request(method, params)`",
    "send_roots_list_changed": "use `await client.roots_changed()`",
    "server_capabilities": "use `client.server['capabilities']`",
    "server_info": "use `client.server['serverInfo']`",
    "set_elicitation_callback": "set `client.on_elicit`, or pass `on_elicit=` to `connect`",
    "set_logging_level": "use `await client.set_log_level(level)`",
    "set_roots": "set `client.on_roots`, or pass `on_roots=` to `connect`",
    "set_sampling_callback": "set `client.on_sample`, or pass `on_sample=` to `connect`",
    "subscribe_resource": "use `await client.subscribe(uri)`",
    "unsubscribe_resource": "use `await client.unsubscribe(uri)`",
}

# Keyword arguments of `call_tool`.
CALL_HINTS = {
    "meta": "use `client.request('tools/call', params)` with `_meta` in `params`",
    "progress_callback": "use `on_progress=`",
    "progress_handler": "use `on_progress=`",
    "raise_on_error": "check `result.is_error`, or use `result.raise_for_error()`",
    "read_timeout_seconds": "use `timeout=`, in seconds",
}

_TYPED = "for typed results, use `await client.call(name, arguments)`"

RESULT_HINTS = {
    "contents": "use `result['contents']`; for objects, use `await client.read(uri)`",
    "content": f"use `result['content']`, or `result.text`; {_TYPED}",
    "isError": "use `result.is_error`",
    "description": "use `result.get('description')`",
    "messages": "use `result['messages']`; for objects, use `await client.prompt(name)`",
    "meta": "use `result['_meta']`",
    "structuredContent": "use `result['structuredContent']`, or `result.data`",
    "structured_content": f"use `result['structuredContent']`, or `result.data`; {_TYPED}",
}

# Attributes of the objects that `client.call` returns.
CALLED_HINTS = {
    "isError": "use `result.is_error`",
    "meta": "use `result.result['_meta']`",
    "structuredContent": "use `result.structured`, or `result.data`",
    "structured_content": "use `result.structured`, or `result.data`",
}

_TIMEOUT = "use `config=MCPClientConfig(timeout_seconds=...)`"
_IDENTITY = "use `config=MCPClientConfig(name=..., version=...)`"

# Keyword arguments of clients, managers and functions that connect.
CLIENT_KEYWORDS = {
    "auto_initialize": "a connection is always initialized when it is opened",
    "client_info": _IDENTITY,
    "elicitation_callback": "use `on_elicit=`",
    "elicitation_handler": "use `on_elicit=`",
    "init_timeout": _TIMEOUT,
    "list_roots_callback": "use `on_roots=`",
    "log_handler": "use `on_log=`",
    "logging_callback": "use `on_log=`",
    "message_handler": "use `on_notification=`",
    "name": _IDENTITY,
    "progress_handler": "use `on_progress=` of `call_tool`",
    "read_timeout_seconds": _TIMEOUT,
    "roots": "use `on_roots=`, a function that returns the folders",
    "sampling_callback": "use `on_sample=`",
    "sampling_capabilities": "use `sample_tools=True` if `on_sample` supports tools",
    "sampling_handler": "use `on_sample=`",
    "servers": "use `await manager.connect_servers({...})`",
    "timeout": _TIMEOUT,
    "transport": "pass a path, URL, command, entry or server object as the first argument",
}
