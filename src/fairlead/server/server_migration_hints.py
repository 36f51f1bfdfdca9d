"""Attributes and arguments of other libraries, and what to use instead of them.

The names are those of FastMCP and of the official SDK, in their current and earlier versions.
"""

__all__ = [
    "CONTEXT_HINTS",
    "ELICIT_KEYWORDS",
    "HTTP_KEYWORDS",
    "LOG_KEYWORDS",
    "MOUNT_KEYWORDS",
    "PROMPT_KEYWORDS",
    "RESOURCE_KEYWORDS",
    "RUN_KEYWORDS",
    "SAMPLE_KEYWORDS",
    "SERVER_HINTS",
    "SERVER_KEYWORDS",
    "TOOL_KEYWORDS",
]

_CLIENT = "connect a client: `async with MCPClient.connect(server) as client`"
_APP = "use `server.create_http_app()`, an ASGI application"
_HTTP = "use `await server.run_http(port=8080)`"
_INTERCEPTORS = "pass `interceptors=[...]` to `MCPServer`, see `fairlead.interceptor`"
_NO_TASKS = "tasks are not supported"

SERVER_HINTS = {
    "add_completion_handler": "use `@server.completion(reference, argument)`",
    "add_middleware": _INTERCEPTORS,
    "add_prompt": "use `server.prompt()(function)`, or `server.register_prompt(name, ...)`",
    "add_provider": "use `server.mount(other, prefix=...)`",
    "add_resource": "use `server.register_resource(uri, name, ...)`",
    "add_resource_fn": "use `server.resource(uri)(function)`",
    "add_template": "use `server.register_resource_template(uri_template, name, function)`",
    "add_tool": "use `server.tool()(function)`, or `server.register_tool(name, schema, function)`",
    "add_transform": _INTERCEPTORS,
    "call_tool": f"use `await server.registry.execute(name, arguments)`, or {_CLIENT}",
    "custom_route": (
        "add the route to a Starlette or FastAPI application, and mount "
        "`server.create_http_app()` in it"
    ),
    "disable": "use `server.remove_tool(name)`, `remove_resource(uri)` or `remove_prompt(name)`",
    "docket": _NO_TASKS,
    "enable": "use `server.tool()(function)` to register a tool while the server runs",
    "get_context": "add a parameter that is annotated with `Context` to the function",
    "get_prompt": _CLIENT,
    "get_prompts": _CLIENT,
    "get_resource": _CLIENT,
    "get_resource_template": _CLIENT,
    "get_resource_templates": _CLIENT,
    "get_resources": _CLIENT,
    "get_tasks": _NO_TASKS,
    "get_tool": f"use `server.registry.list_tools()`, or {_CLIENT}",
    "get_tools": f"use `server.registry.list_tools()`, or {_CLIENT}",
    "http_app": _APP,
    "import_server": "use `server.mount(other, prefix=...)`",
    "instructions": "use `server.config.instructions`",
    "lifespan": "pass `lifespan=` to `MCPServer`; `server.state` is the value that it yields",
    "list_prompts": _CLIENT,
    "list_resource_templates": _CLIENT,
    "list_resources": _CLIENT,
    "list_tools": f"use `server.registry.list_tools()`, or {_CLIENT}",
    "local_provider": "use `server.registry`",
    "middleware": _INTERCEPTORS,
    "read_resource": f"use `await ctx.read_resource(uri)` in a function, or {_CLIENT}",
    "render_prompt": _CLIENT,
    "request_context": "add a parameter that is annotated with `Context` to the function",
    "run_async": f"use `await server.run_stdio()`; for HTTP, {_HTTP}",
    "run_http_async": _HTTP,
    "run_sse_async": f"{_HTTP}, which also serves HTTP+SSE",
    "run_stdio_async": "use `await server.run_stdio()`",
    "run_streamable_http_async": _HTTP,
    "session_manager": "use `async with app.running()` of `app = server.create_http_app()`",
    "settings": "use `server.config`; options of HTTP are arguments of `create_http_app`",
    "sse_app": f"{_APP} that also serves HTTP+SSE",
    "streamable_http_app": _APP,
    "title": "use `server.config.title`",
    "transforms": _INTERCEPTORS,
    "version": "use `server.config.version`",
    "wrap_transform": _INTERCEPTORS,
}

_SESSION = (
    "calls without a handshake have no session; keep values in `ctx.state`, which the lifespan of "
    "the server yields, by a key such as `ctx.principal`"
)
_CHANGED = "clients are notified when a {} is registered or removed"

CONTEXT_HINTS = {
    "client_capabilities": "use `ctx.can(capability)`, as in `ctx.can('sampling.tools')`",
    "client_extension_settings": "use `ctx.can(capability)`",
    "client_supports_extension": "use `ctx.can(capability)`",
    "close_sse_stream": "use `ctx.close_stream()`",
    "create_message": "use `await ctx.sample(messages)`",
    "critical": "use `await ctx.log('critical', data)`",
    "delete_state": _SESSION,
    "disable_components": "use `server.remove_tool(name)`, or a view of a gateway",
    "enable_components": "use `server.tool()(function)`, or a view of a gateway",
    "fastmcp": "use the variable of the server, such as `server`",
    "get_http_request": "use `ctx.exchange.transport.headers`",
    "get_prompt": _CLIENT,
    "get_state": _SESSION,
    "headers": "use `ctx.exchange.transport.headers`",
    "input_responses": "`ctx.elicit`, `ctx.sample` and `ctx.roots` return the responses",
    "is_background_task": _NO_TASKS,
    "lifespan_context": "use `ctx.state`",
    "list_prompts": _CLIENT,
    "list_resources": _CLIENT,
    "list_roots": "use `await ctx.roots()`",
    "mcp_server": "use the variable of the server, such as `server`",
    "notice": "use `await ctx.log('notice', data)`",
    "notify_prompts_changed": _CHANGED.format("prompt"),
    "notify_resource_updated": "use `server.resource_updated(uri)`",
    "notify_resources_changed": _CHANGED.format("resource"),
    "notify_tools_changed": _CHANGED.format("tool"),
    "origin_request_id": "use `ctx.request_id`",
    "report_progress": "use `await ctx.progress(progress, total, message)`",
    "request_context": (
        "use `ctx.state` for the value of the lifespan, `ctx.meta` for the metadata and "
        "`ctx.exchange` for the request"
    ),
    "request_state": "use `await ctx.step(name, function)`, which runs once per call",
    "send_notification": "use `ctx.progress`, `ctx.log` or `server.resource_updated(uri)`",
    "session": (
        "use `ctx.elicit`, `ctx.sample`, `ctx.roots`, `ctx.log` and `ctx.progress`; the client is "
        "`ctx.client`, and its principal `ctx.principal`"
    ),
    "session_id": _SESSION,
    "set_state": _SESSION,
    "task_id": _NO_TASKS,
    "transport": "use `ctx.exchange.transport.transport_type`",
}

# Keyword arguments

_HTTP_OPTION = "pass it to `server.create_http_app()` or `server.run_http()`"
_DUPLICATES = (
    "a second entry with the same name is always an error; call `server.remove_tool(name)` first, "
    "or use `server.registry.register(..., replace=True)`"
)
_SELECTED = "select the entries that clients see with a view of a gateway"
_NO_TAGS = "tags are supported for functions in modules only: `@mcp_tool(tags=[...])`"
_NOT_ENABLED = "register it when it becomes available, or remove it with `server.remove_{}(...)`"

SERVER_KEYWORDS = {
    "auth_server_provider": "use `auth=ServerAuth(issuer=..., public_url=...)`",
    "client_log_level": "use `log_level=`",
    "debug": "use `log_level='DEBUG'` for messages to clients, and `logging` for the program",
    "dependencies": "install the packages in the environment that runs the server",
    "event_store": _HTTP_OPTION,
    "exclude_tags": _SELECTED,
    "include_tags": _SELECTED,
    "json_response": (
        "not needed: a response is JSON unless the server sends other messages before it"
    ),
    "list_page_size": "use `page_size=`",
    "mask_error_details": "raise `MCPToolError` to choose the message that clients see",
    "message_path": f"use `sse_path=`; {_HTTP_OPTION}",
    "middleware": "use `interceptors=[...]`, see `fairlead.interceptor`",
    "mount_path": f"use `path=`; {_HTTP_OPTION}",
    "on_duplicate": _DUPLICATES,
    "on_duplicate_prompts": _DUPLICATES,
    "on_duplicate_resources": _DUPLICATES,
    "on_duplicate_tools": _DUPLICATES,
    "providers": "use `server.mount(other, prefix=...)`",
    "request_state_security": "set the environment variable FAIRLEAD_STATE_KEYS",
    "session_state_store": _SESSION,
    "sse_path": _HTTP_OPTION,
    "stateless_http": "use `sessions=False`; pass it to `create_http_app()` or `run_http()`",
    "streamable_http_path": f"use `path=`; {_HTTP_OPTION}",
    "strict_input_validation": (
        "arguments are always validated; numbers and booleans that are sent as strings are "
        "converted"
    ),
    "tags": _NO_TAGS,
    "tasks": _NO_TASKS,
    "timeout": "use `default_tool_timeout=`, in seconds",
    "token_verifier": "use `auth=ServerAuth(..., verify=function)`",
    "tool_serializer": "return a string, or content blocks",
    "tools": "use `server.tool()(function)` for each function",
    "transforms": "use `interceptors=[...]`, see `fairlead.interceptor`",
    "warn_on_duplicate_prompts": _DUPLICATES,
    "warn_on_duplicate_resources": _DUPLICATES,
    "warn_on_duplicate_tools": _DUPLICATES,
}

TOOL_KEYWORDS = {
    "auth": "use `scopes=`",
    "enabled": _NOT_ENABLED.format("tool"),
    "exclude_args": "only parameters annotated with `Context` are hidden from the schema",
    "icons": "use `server.register_tool(name, {'inputSchema': ..., 'icons': [...]}, function)`",
    "run_in_thread": "plain functions run in threads, unless `inline=True` is given",
    "serializer": "return a string, or content blocks",
    "structured_output": "use `output_schema=True` or `output_schema=False`",
    "tags": _NO_TAGS,
    "task": _NO_TASKS,
    "timeout_seconds": "use `timeout=`, in seconds",
    "version": "use `meta={'version': ...}`",
}

# Keyword arguments of methods of `Context`.

ELICIT_KEYWORDS = {
    "response_description": "use a dataclass or pydantic model with a description as `answer`",
    "response_title": "use a dataclass or pydantic model with a title as `answer`",
    "response_type": "use `answer=`",
    "schema": "use `answer=`",
}

LOG_KEYWORDS = {
    "extra": "use a dict as data, as in `await ctx.info({'text': 'packing', 'item': 3})`",
    "logger_name": "use `await ctx.log(level, data, logger=...)`",
    "message": "use `data=`",
}

SAMPLE_KEYWORDS = {
    "model_preferences": "use `modelPreferences=`, as on the wire",
    "result_type": "use `tools=` with one tool, and read the arguments of its call",
    "stop_sequences": "use `stopSequences=`, as on the wire",
    "system_prompt": "use `systemPrompt=`, as on the wire",
    "tool_choice": "use `toolChoice=`, as on the wire",
}

RESOURCE_KEYWORDS = {
    "auth": "use `scopes=`",
    "enabled": _NOT_ENABLED.format("resource"),
    "tags": _NO_TAGS,
    "task": _NO_TASKS,
}

PROMPT_KEYWORDS = {
    "auth": "use `scopes=`",
    "enabled": _NOT_ENABLED.format("prompt"),
    "tags": _NO_TAGS,
    "task": _NO_TASKS,
}

MOUNT_KEYWORDS = {
    "as_proxy": "a mounted server always keeps its own lifespan and interceptors",
    "namespace": "use `prefix=`",
    "tool_names": "use the view of a gateway to rename tools",
}

HTTP_KEYWORDS = {
    "host_origin_protection": "use `allowed_hosts=[...]` and `allowed_origins=[...]`",
    "json_response": SERVER_KEYWORDS["json_response"],
    "message_path": "use `sse_path=`",
    "middleware": "wrap the ASGI application that `create_http_app()` returns",
    "mount_path": "use `path=`",
    "stateless_http": "use `sessions=False`",
    "streamable_http_path": "use `path=`",
    "transport": "one application serves all transports over HTTP",
    "transport_security": "use `allowed_hosts=[...]` and `allowed_origins=[...]`",
}

_RUN = "`MCPServer(name, transport='http', port=8080)`, or `await server.run_http(port=8080)`"

RUN_KEYWORDS = {
    "host": f"use {_RUN}",
    "mount_path": "use `await server.run_http(path=...)`",
    "path": "use `await server.run_http(path=...)`",
    "port": f"use {_RUN}",
    "show_banner": "no banner is shown",
    "transport": f"use {_RUN}; for stdio, use `server.run()`",
}
