"""Registration of the tools, resources, prompts and completions of a server."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from ..keyword_arguments import Hints, lazy_hints, named_arguments
from ..protocol.identity.principal_scopes import scope_tuple
from ..protocol.types.tools import ToolAnnotations
from .execution.worker_threads import WorkerThreads
from .features.change_broadcaster import ChangeBroadcaster
from .features.completion_registry import Completer, Completions
from .features.entry_scopes import EntryScopes
from .features.paged_list import PagedList
from .features.prompt_entry import PromptEntry, prompt_from_function, prompt_from_template
from .features.resource_registry import CacheHints, ContentProvider, Resources, file_resource
from .features.tool_entry import (
    describe_function,
    name_of_function,
    tool_from_function,
    tool_from_schema,
)
from .features.tool_registry import MCPToolRegistry
from .results.output_schema import OutputSchema
from .server_config import MCPServerConfig

__all__ = ["Registration", "migration_hints"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Completer)


def migration_hints(name: str) -> Hints:
    """Return a function that loads a table of `server_migration_hints`."""
    return lazy_hints("fairlead.server.server_migration_hints", name)


class Registration:
    """The registration interface of `MCPServer`. Entries can be added and removed at any time."""

    def __init__(
        self, config: MCPServerConfig, registry: MCPToolRegistry, workers: WorkerThreads
    ) -> None:
        self.config = config
        self._workers = workers
        self._cache = CacheHints(config.cache_ttl, config.cache_scope)
        self.changes = ChangeBroadcaster()
        self.resources = Resources(config.page_size)
        self.prompts: PagedList[PromptEntry] = PagedList(
            "prompt", "prompts/list", "prompts", config.page_size
        )
        self.completions = Completions(self.prompts, self.resources, self._workers)
        self.entry_scopes = EntryScopes(lambda: self._tools, self.resources, self.prompts)
        self.resources.fixed.listeners.append(self._resources_changed)
        self.resources.templates.listeners.append(self._resources_changed)
        self.prompts.listeners.append(self._prompts_changed)
        self._use(registry)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def tool_count(self) -> int:
        return len(self._tools)

    @property
    def registry(self) -> MCPToolRegistry:
        """The registry of tools. Assigning another one replaces all tools and notifies clients."""
        return self._registry

    @registry.setter
    def registry(self, registry: MCPToolRegistry) -> None:
        # Another server may use the previous registry, which must not notify clients of this one.
        self._tools.listeners.remove(self._tools_changed)
        self._use(registry)

    def _use(self, registry: MCPToolRegistry) -> None:
        self._registry = registry
        self._tools = registry.listing
        self._tools.listeners.append(self._tools_changed)
        self._tools_changed()

    @property
    def resource_count(self) -> int:
        return len(self.resources.fixed)

    @property
    def prompt_count(self) -> int:
        return len(self.prompts)

    @overload
    def tool(self, name: F) -> F: ...
    @overload
    def tool(
        self,
        name: str | None = None,
        description: str | None = None,
        title: str | None = None,
        output_schema: OutputSchema = None,
        *,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
        timeout: float | None = None,
        inline: bool = False,
        scopes: str | Sequence[str] | None = None,
    ) -> Callable[[F], F]: ...

    @named_arguments(hints=migration_hints("TOOL_KEYWORDS"), unchecked=("name",))
    def tool(
        self,
        name: str | Callable[..., Any] | None = None,
        description: str | None = None,
        title: str | None = None,
        output_schema: OutputSchema = None,
        *,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
        timeout: float | None = None,
        inline: bool = False,
        scopes: str | Sequence[str] | None = None,
    ) -> Any:
        """Register a function as a tool: its type hints become the schema, its docstring the
        description.

        Coroutine functions run on the event loop, plain functions in a thread. `inline=True` calls
        a plain function on the event loop; use it only for functions that are quick and never
        block. `scopes` are those that the access token of a caller must have (see `auth`).
        """

        def register(function: F) -> F:
            entry = tool_from_function(
                function,
                name=name if isinstance(name, str) else None,
                description=description,
                title=title,
                annotations=annotations,
                meta=meta,
                timeout=timeout,
                inline=inline,
                output_schema=output_schema,
            )
            entry.scopes = scope_tuple(scopes)
            self._registry.register(entry, source=function)
            return function

        # Used without parentheses (`@server.tool`), `name` is the decorated function.
        return register if name is None or isinstance(name, str) else register(name)

    @named_arguments(unchecked=("schema", "handler"))
    def register_tool(
        self,
        name: str,
        schema: dict[str, Any],
        handler: Callable[..., Any],
        title: str | None = None,
        output_schema: dict[str, Any] | None = None,
        *,
        scopes: str | Sequence[str] | None = None,
    ) -> None:
        """Register a tool with a given schema: a JSON Schema or a complete tool object."""
        entry = tool_from_schema(name, schema, handler, title, output_schema)
        entry.scopes = scope_tuple(scopes)
        self._registry.register(entry, source=handler)

    def remove_tool(self, name: str) -> None:
        """Remove a tool.

        Raises:
            KeyError: The tool is not registered.
        """
        self._registry.unregister(name)

    @named_arguments(
        hints=migration_hints("RESOURCE_KEYWORDS"), form='@server.resource("scheme://path")'
    )
    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        cache_ttl: float | None = None,
        cache_scope: str | None = None,
        scopes: str | Sequence[str] | None = None,
    ) -> Callable[[F], F]:
        """Register a function as the content provider of a resource.

        A URI with `{variables}` (RFC 6570) is a template. The function receives the variables as
        arguments, converted to the types of its parameters.

        Raises:
            TypeError: The URI is missing.
        """
        cache = self._hints(cache_ttl, cache_scope)

        def register(function: F) -> F:
            self.resources.register(
                function,
                uri,
                name=name or name_of_function(function) or uri,
                title=title,
                description=description or describe_function(function),
                mime_type=mime_type,
                cache=cache,
                is_template="{" in uri,
                scopes=scope_tuple(scopes),
            )
            return function

        return register

    @named_arguments
    def register_resource(
        self,
        uri: str,
        name: str,
        description: str | None = None,
        mime_type: str = "text/plain",
        content_provider: ContentProvider | str | bytes | None = None,
        *,
        title: str | None = None,
        cache_ttl: float | None = None,
        cache_scope: str | None = None,
        scopes: str | Sequence[str] | None = None,
    ) -> None:
        """Register a resource; the provider is a function or the content itself."""
        given = content_provider
        provider: ContentProvider = given if callable(given) else lambda: given or ""
        self.resources.register(
            provider,
            uri,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            cache=self._hints(cache_ttl, cache_scope),
            is_template=False,
            scopes=scope_tuple(scopes),
        )

    @named_arguments
    def register_resource_template(
        self,
        uri_template: str,
        name: str,
        content_provider: ContentProvider,
        description: str | None = None,
        mime_type: str = "text/plain",
        *,
        title: str | None = None,
        cache_ttl: float | None = None,
        cache_scope: str | None = None,
        scopes: str | Sequence[str] | None = None,
    ) -> None:
        """Register a family of resources; the provider takes the variables of the template."""
        self.resources.register(
            content_provider,
            uri_template,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            cache=self._hints(cache_ttl, cache_scope),
            is_template=True,
            scopes=scope_tuple(scopes),
        )

    def register_file_resource(self, path: str) -> str:
        """Register a local file and return its URI.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        uri, entry = file_resource(path)
        self.resources.fixed.add(uri, entry)
        return uri

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a resource template.

        Raises:
            KeyError: The URI is not registered.
        """
        listing = self.resources.templates if "{" in uri else self.resources.fixed
        listing.remove(uri)

    def resource_updated(self, uri: str) -> None:
        """Notify subscribers that a resource has changed. Safe to call from any thread."""
        self.changes.updated(uri)

    def _hints(self, ttl: float | None, scope: str | None) -> CacheHints | None:
        if ttl is None and scope is None:
            return None
        default = self._cache
        return CacheHints(default.ttl if ttl is None else ttl, scope or default.scope)

    @overload
    def prompt(self, name: F) -> F: ...
    @overload
    def prompt(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        scopes: str | Sequence[str] | None = None,
    ) -> Callable[[F], F]: ...

    @named_arguments(hints=migration_hints("PROMPT_KEYWORDS"), unchecked=("name",))
    def prompt(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        scopes: str | Sequence[str] | None = None,
    ) -> Any:
        """Register a function as a prompt. It receives the arguments and returns the messages."""

        def register(function: F) -> F:
            own = name if isinstance(name, str) else None
            entry = prompt_from_function(function, own, description, title)
            entry.scopes = scope_tuple(scopes)
            self.prompts.add(entry.definition.name, entry)
            return function

        # Used without parentheses (`@server.prompt`), `name` is the decorated function.
        return register if name is None or isinstance(name, str) else register(name)

    @named_arguments
    def register_prompt(
        self,
        name: str,
        description: str | None = None,
        arguments: Sequence[Mapping[str, Any]] | None = None,
        template: str | Callable[..., Any] | None = None,
        *,
        title: str | None = None,
        scopes: str | Sequence[str] | None = None,
    ) -> None:
        """Register a prompt: a function, or a template whose `{key}`s are replaced by arguments."""
        entry = prompt_from_template(name, description, arguments, template, title)
        entry.scopes = scope_tuple(scopes)
        self.prompts.add(name, entry)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt.

        Raises:
            KeyError: The prompt is not registered.
        """
        self.prompts.remove(name)

    @named_arguments(form='@server.completion("name of a prompt or URI template", "argument")')
    def completion(self, reference: str, argument: str) -> Callable[[C], C]:
        """Register a function that completes an argument of a prompt or of a URI template.

        The function receives the text typed so far and, if it has a second parameter, a mapping of
        the other arguments that are filled in already. It returns the values, best match first.

        Raises:
            TypeError: The reference or the argument is missing, or the decorated object is not a
                function.
        """

        def register(function: C) -> C:
            self.completions.add(reference, argument, function)
            return function

        return register

    def load_modules(self, *names: str) -> None:
        """Import modules and register their functions that are marked with `mcp_tool`.

        A module that cannot be imported is logged and skipped.
        """
        # Loaded on first use: most servers have no tool modules.
        from .features.tool_modules import load_modules

        load_modules(self._registry, names)

    def _tools_changed(self) -> None:
        self.entry_scopes.entries_changed()
        self.changes.changed("notifications/tools/list_changed")

    def _resources_changed(self) -> None:
        self.entry_scopes.entries_changed()
        self.changes.changed("notifications/resources/list_changed")

    def _prompts_changed(self) -> None:
        self.entry_scopes.entries_changed()
        self.changes.changed("notifications/prompts/list_changed")
