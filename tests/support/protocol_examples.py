"""Examples of every message of every revision: the least it may say, and all it may say.

What a revision does not have is left out of its examples, so that they can be held against its
schema with every object closed.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType

from fairlead.protocol.revisions import Revision
from fairlead.protocol.types import (
    base,
    capabilities,
    completion,
    content,
    elicitation,
    lifecycle,
    logging,
    notifications,
    prompts,
    resources,
    roots,
    sampling,
    subscriptions,
    tasks,
    tools,
)
from fairlead.protocol.types import input_required as inputs
from fairlead.protocol.types.base import encode

__all__ = ["EXTENSION", "Other", "Shapes", "embedded_in", "extension", "messages_of", "others_of"]

V03, V06 = Revision.V2025_03_26, Revision.V2025_06_18
V11, V26 = Revision.V2025_11_25, Revision.V2026_07_28
EXTENSION = "ext-tasks-draft"


class Shapes(NamedTuple):
    """Params and results of one method: the least first, all of it last, variants between."""

    params: list[Struct]
    results: list[Struct | Raw] = []  # noqa: RUF012 (never changed)


class Other(NamedTuple):
    """Something else that the schema of a revision defines, and an example of it."""

    definition: str
    value: Any


def messages_of(revision: Revision) -> dict[str, Shapes]:
    """Examples for every method of the core of a revision."""
    make = _Maker(revision)
    found = make.features() | make.changes()
    if revision.stateless:
        return found | make.stateless()
    found |= make.handshake() | make.asked_of_clients()
    return found | make.core_tasks() if revision.core_tasks else found


def embedded_in(revision: Revision) -> dict[str, Shapes]:
    """Examples for the questions that a stateless revision embeds in results."""
    return _Maker(revision).asked_of_clients()


def extension() -> dict[str, Shapes]:
    """Examples for every method of the tasks extension."""
    return _Maker(V26).extension_tasks()


def others_of(revision: Revision) -> list[Other]:
    """Examples of shapes that are neither params nor the ordinary result of a method."""
    return list(_Maker(revision).others())


class _Maker:
    """Makes examples for one revision."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision

    def since(self, revision: Revision, value: Any) -> Any:
        return value if self.revision >= revision else UNSET

    def only(self, revision: Revision, value: Any) -> Any:
        return value if self.revision is revision else UNSET

    # Parts that many messages share.

    def asking(self, full: bool = False) -> Raw | UnsetType:
        """The `_meta` of a request."""
        progress = {"progressToken": "p1"} if full else {}
        if not self.revision.stateless:
            return encode(progress) if full else UNSET
        key = "io.modelcontextprotocol/"
        meta: dict[str, Any] = {
            f"{key}protocolVersion": str(self.revision),
            f"{key}clientCapabilities": self.client_capabilities() if full else {},
        }
        if full:
            meta |= {f"{key}clientInfo": self.implementation(), f"{key}logLevel": "info"}
        return encode(meta | progress)

    def telling(self) -> Raw:
        """The `_meta` of a notification."""
        if self.revision.stateless:
            return encode({"io.modelcontextprotocol/subscriptionId": "L1"})
        return encode({"example.com/note": 1})

    def answering(self, **more: Any) -> Raw:
        """The `_meta` of a result."""
        if self.revision.stateless:
            return encode({"io.modelcontextprotocol/serverInfo": self.implementation(), **more})
        return encode({"example.com/note": 1})

    @property
    def complete(self) -> Any:
        return self.since(V26, "complete")

    def kept(self, full: bool = False) -> dict[str, Any]:
        """What every cacheable result has when stateless; `ttlMs: 0` must be written."""
        return {
            "ttl_ms": self.since(V26, 60_000 if full else 0),
            "cache_scope": self.since(V26, "public" if full else "private"),
            "result_type": self.complete,
        }

    @property
    def meta(self) -> Any:
        """The `_meta` of a part."""
        return self.since(V06, encode({"example.com/part": True}))

    @property
    def icons(self) -> Any:
        icon = base.Icon(src="data:,", mime_type="image/png", sizes=["48x48"], theme="dark")
        return self.since(V11, [icon, base.Icon(src="https://example.com/i.png")])

    @property
    def title(self) -> Any:
        return self.since(V06, "A title")

    @property
    def annotations(self) -> base.Annotations:
        modified = self.since(V06, "2025-01-12T15:00:58Z")
        return base.Annotations(audience=["user"], priority=0.5, last_modified=modified)

    def implementation(self) -> base.Implementation:
        return base.Implementation(
            name="example",
            version="1.0",
            title=self.title,
            description=self.since(V11, "An example"),
            website_url=self.since(V11, "https://example.com"),
            icons=self.icons,
        )

    def client_capabilities(self) -> capabilities.ClientCapabilities:
        on = capabilities.DECLARED
        changes = UNSET if self.revision.stateless else True
        asks = {"sampling": {"createMessage": on}, "elicitation": {"create": on}}
        return capabilities.ClientCapabilities(
            experimental={"example": on},
            extensions=self.since(V26, {"io.modelcontextprotocol/tasks": on}),
            roots=capabilities.ListChangedCapability(list_changed=changes),
            sampling=capabilities.SamplingCapability(
                tools=self.since(V11, on), context=self.since(V11, on)
            ),
            elicitation=self.since(
                V06,
                capabilities.ElicitationCapability(
                    form=self.since(V11, on), url=self.since(V11, on)
                ),
            ),
            tasks=self.only(V11, capabilities.TasksCapability(list_=on, cancel=on, requests=asks)),
        )

    def server_capabilities(self) -> capabilities.ServerCapabilities:
        on = capabilities.DECLARED
        asks = {"tools": {"call": on}}
        return capabilities.ServerCapabilities(
            experimental={"example": on},
            extensions=self.since(V26, {"io.modelcontextprotocol/tasks": on}),
            tools=capabilities.ListChangedCapability(list_changed=True),
            resources=capabilities.ResourcesCapability(subscribe=True, list_changed=False),
            prompts=capabilities.ListChangedCapability(),
            completions=self.since(V03, on),
            logging=on,
            tasks=self.only(V11, capabilities.TasksCapability(list_=on, cancel=on, requests=asks)),
        )

    def blocks(self) -> list[Raw]:
        """Every kind of content block, first with the least, then with everything."""
        return [encode(block) for block in self._blocks()]

    def _blocks(self) -> Iterable[Struct]:
        more = {"annotations": self.annotations, "meta": self.meta}
        text = content.ResourceContents(uri="file:///a", mime_type="text/plain", text="a")
        blob = content.ResourceContents(uri="file:///b", blob="Yg==", meta=self.meta)
        yield content.TextContent(text="")
        yield content.TextContent(text="hello", **more)
        yield content.ImageContent(data="aQ==", mime_type="image/png")
        yield content.ImageContent(data="aQ==", mime_type="image/png", **more)
        yield content.EmbeddedResource(resource=text)
        yield content.EmbeddedResource(resource=blob, **more)
        if self.revision.audio:
            yield content.AudioContent(data="aQ==", mime_type="audio/wav")
            yield content.AudioContent(data="aQ==", mime_type="audio/wav", **more)
        if self.revision.resource_links:
            yield content.ResourceLink(uri="file:///c", name="c")
            yield content.ResourceLink(
                uri="file:///c",
                name="c",
                title="C",
                description="The third",
                mime_type="text/plain",
                size=3,
                icons=self.icons,
                **more,
            )

    def tool(self) -> tools.Tool:
        hints = tools.ToolAnnotations(
            title="Adds",
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=False,
        )
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        return tools.Tool(
            name="add",
            input_schema=encode(schema),
            title=self.title,
            description="Adds numbers",
            output_schema=self.since(V06, encode(schema)),
            annotations=self.since(V03, hints),
            execution=self.only(V11, tools.ToolExecution(task_support="optional")),
            icons=self.icons,
            meta=self.meta,
        )

    @property
    def answers(self) -> Any:
        """The `inputResponses` of a retry."""
        return self.since(
            V26,
            {
                "user": encode(elicitation.ElicitResult(action="decline")),
                "roots": encode(roots.ListRootsResult(roots=[])),
            },
        )

    def retry(self) -> dict[str, Any]:
        return {
            "input_responses": self.answers,
            "request_state": self.since(V26, "opaque"),
            "meta": self.asking(full=True),
        }

    # Messages.

    def paging(self) -> list[Struct]:
        least = base.PaginatedParams(meta=self.asking())
        return [least, base.PaginatedParams(cursor="", meta=self.asking(full=True))]

    def page(self) -> dict[str, Any]:
        return {"next_cursor": "2", "meta": self.answering(), **self.kept(full=True)}

    def features(self) -> dict[str, Shapes]:
        """What a server offers, in every revision."""
        return self._tools() | self._resources() | self._prompts()

    def _tools(self) -> dict[str, Shapes]:
        least = tools.Tool(name="noop", input_schema=Raw(b'{"type":"object"}'))
        structured = Raw(b"null") if self.revision.any_structured_value else Raw(b'{"sum":3}')
        return {
            "tools/list": Shapes(
                self.paging(),
                [
                    tools.ListToolsResult(tools=[], **self.kept()),
                    tools.ListToolsResult(
                        tools=[encode(least), encode(self.tool())], **self.page()
                    ),
                ],
            ),
            "tools/call": Shapes(
                [
                    tools.CallToolParams(name="noop", meta=self.asking()),
                    tools.CallToolParams(
                        name="add",
                        arguments=Raw(b'{"a":1,"b":[null,1.5]}'),
                        task=self.only(V11, base.TaskMetadata(ttl=60_000)),
                        **self.retry(),
                    ),
                ],
                [
                    tools.CallToolResult(content=[], result_type=self.complete),
                    tools.CallToolResult(
                        content=self.blocks(),
                        structured_content=self.since(V06, structured),
                        is_error=False,
                        result_type=self.complete,
                        meta=self.answering(),
                    ),
                ],
            ),
        }

    def _resources(self) -> dict[str, Shapes]:
        named = {
            "name": "a",
            "title": self.title,
            "description": "The first",
            "mime_type": "text/plain",
            "annotations": self.annotations,
            "icons": self.icons,
            "meta": self.meta,
        }
        listed = [
            resources.Resource(uri="file:///a", name="a"),
            resources.Resource(uri="file:///a", size=1, **named),
        ]
        templates = [
            resources.ResourceTemplate(uri_template="file:///{path}", name="a"),
            resources.ResourceTemplate(uri_template="file:///{path}", **named),
        ]
        contents = [
            resources.ResourceContents(uri="file:///a", text=""),
            resources.ResourceContents(
                uri="file:///a", mime_type="image/png", blob="aQ==", meta=self.meta
            ),
        ]
        return {
            "resources/list": Shapes(
                self.paging(),
                [
                    resources.ListResourcesResult(resources=[], **self.kept()),
                    resources.ListResourcesResult(
                        resources=[encode(item) for item in listed], **self.page()
                    ),
                ],
            ),
            "resources/templates/list": Shapes(
                self.paging(),
                [
                    resources.ListResourceTemplatesResult(resource_templates=[], **self.kept()),
                    resources.ListResourceTemplatesResult(
                        resource_templates=[encode(item) for item in templates], **self.page()
                    ),
                ],
            ),
            "resources/read": Shapes(
                [
                    resources.ReadResourceParams(uri="file:///a", meta=self.asking()),
                    resources.ReadResourceParams(uri="file:///a", **self.retry()),
                ],
                [
                    resources.ReadResourceResult(contents=[], **self.kept()),
                    resources.ReadResourceResult(
                        contents=[encode(item) for item in contents],
                        meta=self.answering(),
                        **self.kept(full=True),
                    ),
                ],
            ),
        }

    def _prompts(self) -> dict[str, Shapes]:
        arguments = [
            prompts.PromptArgument(name="who"),
            prompts.PromptArgument(
                name="how", title=self.title, description="In what way", required=True
            ),
        ]
        listed = [
            prompts.Prompt(name="greet"),
            prompts.Prompt(
                name="greet",
                title=self.title,
                description="Says hello",
                arguments=arguments,
                icons=self.icons,
                meta=self.meta,
            ),
        ]
        said = [prompts.PromptMessage(role="user", content=block) for block in self.blocks()]
        by_prompt = completion.PromptReference(name="greet", title=self.title)
        argument = completion.CompletionArgument(name="who", value="a")
        context = completion.CompletionContext(arguments={"how": "kindly"})
        return {
            "prompts/list": Shapes(
                self.paging(),
                [
                    prompts.ListPromptsResult(prompts=[], **self.kept()),
                    prompts.ListPromptsResult(
                        prompts=[encode(item) for item in listed], **self.page()
                    ),
                ],
            ),
            "prompts/get": Shapes(
                [
                    prompts.GetPromptParams(name="greet", meta=self.asking()),
                    prompts.GetPromptParams(name="greet", arguments={"who": "all"}, **self.retry()),
                ],
                [
                    prompts.GetPromptResult(messages=[], result_type=self.complete),
                    prompts.GetPromptResult(
                        messages=[encode(item) for item in said],
                        description="Hello",
                        result_type=self.complete,
                        meta=self.answering(),
                    ),
                ],
            ),
            "completion/complete": Shapes(
                [
                    completion.CompleteParams(
                        ref=completion.ResourceReference(uri="file:///{path}"),
                        argument=argument,
                        meta=self.asking(),
                    ),
                    completion.CompleteParams(
                        ref=by_prompt,
                        argument=argument,
                        context=self.since(V06, context),
                        meta=self.asking(full=True),
                    ),
                ],
                [
                    completion.CompleteResult(
                        completion=completion.Completion(values=[]), result_type=self.complete
                    ),
                    completion.CompleteResult(
                        completion=completion.Completion(values=["all"], total=9, has_more=True),
                        result_type=self.complete,
                        meta=self.answering(),
                    ),
                ],
            ),
        }

    def changes(self) -> dict[str, Shapes]:
        """Notifications that every revision has."""
        told: list[Struct] = [
            notifications.NotificationParams(),
            notifications.NotificationParams(meta=self.telling()),
        ]
        meta = self.telling()
        return {
            "notifications/tools/list_changed": Shapes(told),
            "notifications/prompts/list_changed": Shapes(told),
            "notifications/resources/list_changed": Shapes(told),
            "notifications/resources/updated": Shapes(
                [
                    notifications.ResourceUpdatedParams(uri="file:///a"),
                    notifications.ResourceUpdatedParams(uri="file:///a", meta=meta),
                ]
            ),
            "notifications/message": Shapes(
                [
                    logging.LoggingMessageParams(level="debug", data=Raw(b"null")),
                    logging.LoggingMessageParams(
                        level="emergency", data=Raw(b'{"a":[1]}'), logger="db", meta=meta
                    ),
                ]
            ),
            "notifications/cancelled": Shapes(
                [
                    notifications.CancelledParams(
                        request_id=UNSET if self.revision.core_tasks else 1
                    ),
                    notifications.CancelledParams(request_id="r", reason="late", meta=meta),
                ]
            ),
            "notifications/progress": Shapes(
                [
                    notifications.ProgressParams(progress_token=1, progress=0),
                    notifications.ProgressParams(
                        progress_token="p",
                        progress=0.5,
                        total=2,
                        message=self.since(V03, "half way"),
                        meta=meta,
                    ),
                ]
            ),
        }

    def handshake(self) -> dict[str, Shapes]:
        """What the revisions with a handshake have to themselves."""
        least = base.Implementation(name="", version="")
        version = str(self.revision)
        asked: list[Struct] = [
            base.RequestParams(),
            base.RequestParams(meta=self.asking(full=True)),
        ]
        empty: list[Struct | Raw] = [
            base.EmptyResult(),
            base.EmptyResult(meta=self.answering()),
        ]
        by_uri: list[Struct] = [
            resources.SubscribeParams(uri="file:///a"),
            resources.SubscribeParams(uri="file:///a", meta=self.asking(full=True)),
        ]
        told: list[Struct] = [
            notifications.NotificationParams(),
            notifications.NotificationParams(meta=self.telling()),
        ]
        return {
            "initialize": Shapes(
                [
                    lifecycle.InitializeParams(
                        protocol_version=version, capabilities=Raw(b"{}"), client_info=least
                    ),
                    lifecycle.InitializeParams(
                        protocol_version=version,
                        capabilities=encode(self.client_capabilities()),
                        client_info=self.implementation(),
                        meta=self.asking(full=True),
                    ),
                ],
                [
                    lifecycle.InitializeResult(
                        protocol_version=version, capabilities=Raw(b"{}"), server_info=least
                    ),
                    lifecycle.InitializeResult(
                        protocol_version=version,
                        capabilities=encode(self.server_capabilities()),
                        server_info=self.implementation(),
                        instructions="Ask nicely",
                        meta=self.answering(),
                    ),
                ],
            ),
            "ping": Shapes(asked, empty),
            "resources/subscribe": Shapes(by_uri, empty),
            "resources/unsubscribe": Shapes(by_uri, empty),
            "logging/setLevel": Shapes(
                [
                    logging.SetLevelParams(level="debug"),
                    logging.SetLevelParams(level="alert", meta=self.asking(full=True)),
                ],
                empty,
            ),
            "notifications/initialized": Shapes(told),
            "notifications/roots/list_changed": Shapes(told),
        }

    def asked_of_clients(self) -> dict[str, Shapes]:
        """Roots, sampling and elicitation: requests, or embedded in a stateless revision."""
        embeds = self.revision.stateless
        asking = UNSET if embeds else self.asking(full=True)
        answering = UNSET if embeds else self.answering()
        root = roots.Root(uri="file:///a", name="A", meta=self.meta)
        found = {
            "roots/list": Shapes(
                [
                    base.RequestParams(),
                    base.RequestParams(meta=self.telling() if embeds else asking),
                ],
                [
                    roots.ListRootsResult(roots=[]),
                    roots.ListRootsResult(roots=[encode(root)], meta=answering),
                ],
            ),
            "sampling/createMessage": self._sampling(asking),
        }
        if self.revision.elicitation:
            found["elicitation/create"] = self._elicitation(asking, answering)
        return found

    def _sampling(self, asking: Raw | UnsetType) -> Shapes:
        text = encode(content.TextContent(text="hello"))
        image = encode(content.ImageContent(data="aQ==", mime_type="image/png"))
        use = content.ToolUseContent(id="u1", name="add", input=Raw(b'{"a":1}'), meta=self.meta)
        done = content.ToolResultContent(
            tool_use_id="u1",
            content=self.blocks(),
            structured_content=Raw(b'{"sum":1}'),
            is_error=False,
            meta=self.meta,
        )
        tooled = self.revision.sampling_tools
        messages = [
            sampling.SamplingMessage(role="user", content=text),
            sampling.SamplingMessage(role="assistant", content=image),
        ]
        if tooled:
            messages += [
                sampling.SamplingMessage(role="assistant", content=encode([use])),
                sampling.SamplingMessage(role="user", content=encode(done), meta=self.meta),
            ]
        preferences = sampling.ModelPreferences(
            hints=[sampling.ModelHint(name="small"), sampling.ModelHint()],
            cost_priority=1,
            speed_priority=0.5,
            intelligence_priority=0,
        )
        return Shapes(
            [
                sampling.CreateMessageParams(messages=[], max_tokens=1),
                sampling.CreateMessageParams(
                    messages=[encode(message) for message in messages],
                    max_tokens=100,
                    model_preferences=preferences,
                    system_prompt="Be brief",
                    include_context="none",
                    temperature=0.5,
                    stop_sequences=["."],
                    metadata=Raw(b'{"provider":"x"}'),
                    tools=self.since(V11, [encode(self.tool())]),
                    tool_choice=self.since(V11, sampling.ToolChoice(mode="auto")),
                    task=self.only(V11, base.TaskMetadata()),
                    meta=asking,
                ),
            ],
            [
                sampling.CreateMessageResult(role="assistant", content=text, model="m"),
                sampling.CreateMessageResult(
                    role="assistant",
                    content=encode([content.TextContent(text="a"), use]) if tooled else image,
                    model="m",
                    stop_reason="toolUse" if tooled else "endTurn",
                    meta=self.answering_embedded(),
                ),
            ],
        )

    def answering_embedded(self) -> Raw:
        return encode({"example.com/note": 1})

    def _elicitation(self, asking: Raw | UnsetType, answering: Raw | UnsetType) -> Shapes:
        empty = {"type": "object", "properties": {}}
        form = {
            "type": "object",
            "properties": {
                "mail": {"type": "string", "format": "email", "minLength": 3},
                "sure": {"type": "boolean", "default": False},
                "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["small", "large"]},
            },
            "required": ["sure"],
        }
        task = self.only(V11, base.TaskMetadata(ttl=1))
        params: list[Struct] = [
            elicitation.ElicitParams(message="Sure?", requested_schema=encode(empty))
        ]
        if self.revision.rich_elicitation:
            page = elicitation.ElicitParams(
                message="Sign in",
                mode="url",
                url="https://example.com/sign-in",
                elicitation_id=self.only(V11, "e1"),
                task=task,
                meta=asking,
            )
            params.append(page)
        params.append(
            elicitation.ElicitParams(
                message="Sure?",
                mode=self.since(V11, "form"),
                requested_schema=encode(form),
                task=task,
                meta=asking,
            )
        )
        filled: dict[str, Any] = {"mail": "a@example.com", "sure": True, "many": 3}
        if self.revision.rich_elicitation:
            filled["sizes"] = ["s", "l"]
        return Shapes(
            params,
            [
                elicitation.ElicitResult(action="cancel"),
                elicitation.ElicitResult(action="accept", content=encode(filled), meta=answering),
            ],
        )

    def stateless(self) -> dict[str, Shapes]:
        """What the stateless revisions have to themselves."""
        listen = subscriptions.SubscriptionFilter(
            tools_list_changed=True,
            prompts_list_changed=False,
            resources_list_changed=True,
            resource_subscriptions=["file:///a"],
        )
        nothing = subscriptions.SubscriptionFilter()
        named = {"io.modelcontextprotocol/subscriptionId": "L1"}
        return {
            "server/discover": Shapes(
                [
                    base.RequestParams(meta=self.asking()),
                    base.RequestParams(meta=self.asking(full=True)),
                ],
                [
                    lifecycle.DiscoverResult(
                        supported_versions=[], capabilities=Raw(b"{}"), **self.kept()
                    ),
                    lifecycle.DiscoverResult(
                        supported_versions=[str(self.revision)],
                        capabilities=encode(self.server_capabilities()),
                        instructions="Ask nicely",
                        meta=self.answering(),
                        **self.kept(full=True),
                    ),
                ],
            ),
            "subscriptions/listen": Shapes(
                [
                    subscriptions.ListenParams(notifications=nothing, meta=self.asking()),
                    subscriptions.ListenParams(notifications=listen, meta=self.asking(full=True)),
                ],
                [
                    subscriptions.ListenResult(result_type="complete", meta=encode(named)),
                    subscriptions.ListenResult(
                        result_type="complete", meta=self.answering(**named)
                    ),
                ],
            ),
            "notifications/subscriptions/acknowledged": Shapes(
                [
                    subscriptions.AcknowledgedParams(notifications=nothing),
                    subscriptions.AcknowledgedParams(notifications=listen, meta=self.telling()),
                ]
            ),
        }

    # Tasks.

    def core_task(self) -> dict[str, Any]:
        return {
            "task_id": "t1",
            "created_at": "2025-11-25T10:30:00Z",
            "last_updated_at": "2025-11-25T10:40:00Z",
        }

    def core_tasks(self) -> dict[str, Shapes]:
        """Tasks of 2025-11-25, and what else only that revision has."""
        least = tasks.CoreTaskResult(status="working", ttl=None, **self.core_task())
        full = tasks.CoreTaskResult(
            status="cancelled",
            status_message="as you wished",
            ttl=1000,
            poll_interval=50,
            meta=self.answering(),
            **self.core_task(),
        )
        # The schema lists no `_meta` for these requests, but all requests may have one.
        by_id: list[Struct] = [
            tasks.TaskParams(task_id="t1"),
            tasks.TaskParams(task_id="t1", meta=self.asking(full=True)),
        ]
        listed = tasks.CoreTask(status="working", ttl=None, **self.core_task())
        payload = tools.CallToolResult(content=[], meta=self.answering())
        return {
            "tasks/get": Shapes(by_id, [least, full]),
            "tasks/cancel": Shapes(by_id, [least, full]),
            "tasks/result": Shapes(by_id, [Raw(b"{}"), encode(payload)]),
            "tasks/list": Shapes(
                self.paging(),
                [
                    tasks.ListCoreTasksResult(tasks=[]),
                    tasks.ListCoreTasksResult(
                        tasks=[encode(listed)], next_cursor="2", meta=self.answering()
                    ),
                ],
            ),
            "notifications/tasks/status": Shapes([least, full]),
            "notifications/elicitation/complete": Shapes(
                [
                    notifications.ElicitationCompleteParams(elicitation_id="e1"),
                    notifications.ElicitationCompleteParams(
                        elicitation_id="e1", meta=self.telling()
                    ),
                ]
            ),
        }

    def task(self) -> dict[str, Any]:
        return {
            "task_id": "t1",
            "created_at": "2026-07-28T10:30:00Z",
            "last_updated_at": "2026-07-28T10:40:00Z",
            "ttl_ms": None,
        }

    def questions(self) -> dict[str, Raw]:
        """An `inputRequests` with one of each kind."""
        return {
            method.partition("/")[0]: encode(
                inputs.InputRequest(method=method, params=encode(shapes.params[-1]))
            )
            for method, shapes in self.asked_of_clients().items()
        }

    def states(self) -> list[dict[str, Any]]:
        """Everything a task of the extension can be, with what belongs to it."""
        error = Raw(b'{"code":-32603,"message":"broke"}')
        bounded = {**self.task(), "ttl_ms": 0, "poll_interval_ms": 50, "status_message": "so far"}
        return [
            {"status": "working", **self.task()},
            {"status": "input_required", "input_requests": self.questions(), **bounded},
            {"status": "completed", "result": Raw(b'{"content":[]}'), **bounded},
            {"status": "failed", "error": error, **bounded},
            {"status": "cancelled", **bounded},
        ]

    def extension_tasks(self) -> dict[str, Shapes]:
        """Tasks of the extension."""
        by_id: list[Struct] = [
            tasks.TaskParams(task_id="t1", meta=self.asking()),
            tasks.TaskParams(task_id="t1", meta=self.asking(full=True)),
        ]
        received: list[Struct | Raw] = [
            base.EmptyResult(result_type="complete"),
            base.EmptyResult(result_type="complete", meta=self.answering()),
        ]
        found = [tasks.TaskResult(result_type="complete", **state) for state in self.states()]
        found.append(
            tasks.TaskResult(result_type="complete", meta=self.answering(), **self.states()[-1])
        )
        told: list[Struct] = [tasks.DetailedTask(**state) for state in self.states()]
        told.append(tasks.DetailedTask(meta=self.telling(), **self.states()[-1]))
        return {
            "tasks/get": Shapes(by_id, [*found]),
            "tasks/cancel": Shapes(by_id, received),
            "tasks/update": Shapes(
                [
                    tasks.UpdateTaskParams(task_id="t1", input_responses={}, meta=self.asking()),
                    tasks.UpdateTaskParams(
                        task_id="t1",
                        input_responses=self.answers,
                        meta=self.asking(full=True),
                    ),
                ],
                received,
            ),
            "notifications/tasks": Shapes(told),
        }

    # The rest.

    def others(self) -> Iterable[Other]:
        yield Other("ClientCapabilities", capabilities.ClientCapabilities())
        yield Other("ClientCapabilities", self.client_capabilities())
        yield Other("ServerCapabilities", capabilities.ServerCapabilities())
        yield Other("ServerCapabilities", self.server_capabilities())
        if self.revision.core_tasks:
            yield from self._others_with_core_tasks()
        if self.revision.stateless:
            yield from self._others_of_stateless()

    def _others_with_core_tasks(self) -> Iterable[Other]:
        task = tasks.CoreTask(status="working", ttl=None, **self.core_task())
        yield Other("CreateTaskResult", tasks.CreateCoreTaskResult(task=task))
        yield Other(
            "CreateTaskResult", tasks.CreateCoreTaskResult(task=task, meta=self.answering())
        )
        page = elicitation.ElicitParams(
            message="Sign in", mode="url", url="https://example.com", elicitation_id="e1"
        )
        data = elicitation.UrlElicitationRequiredData(elicitations=[page])
        yield Other("URLElicitationRequiredError", _error(-32042, data))

    def _others_of_stateless(self) -> Iterable[Other]:
        state = inputs.InputRequiredResult(request_state="opaque")
        full = inputs.InputRequiredResult(
            input_requests=self.questions(), request_state="opaque", meta=self.answering()
        )
        for response in ("CallToolResult", "GetPromptResult", "ReadResourceResult"):
            for result in (state, full):
                message = {"jsonrpc": "2.0", "id": 1, "result": result}
                yield Other(f"{response}Response", message)
        yield Other("InputRequiredResult", state)
        yield Other("InputRequiredResult", full)
        version = lifecycle.UnsupportedVersion(supported=["2026-07-28"], requested="1")
        yield Other("UnsupportedProtocolVersionError", _error(-32022, version))
        needed = encode(capabilities.ClientCapabilities(sampling=capabilities.SamplingCapability()))
        missing = capabilities.MissingCapability(required_capabilities=needed)
        yield Other("MissingRequiredClientCapabilityError", _error(-32021, missing))


def _error(code: int, data: Struct) -> dict[str, Any]:
    error = {"code": code, "message": "No", "data": data}
    return {"jsonrpc": "2.0", "id": 1, "error": error}
