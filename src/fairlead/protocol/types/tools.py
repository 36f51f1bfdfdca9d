"""Tools: a server's functions that a model can call."""

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Icon

__all__ = ["CallToolResult", "TaskSupport", "Tool", "ToolAnnotations", "ToolExecution"]

TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]


class ToolAnnotations(Struct, frozen=True, kw_only=True, rename="camel"):
    """A server's claims about a tool (from 2025-03-26); trust them only as far as the server."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET  # absent: the tool may change data
    destructive_hint: bool | UnsetType = UNSET  # absent: the tool may destroy data
    idempotent_hint: bool | UnsetType = UNSET  # absent: a second call may have another effect
    open_world_hint: bool | UnsetType = UNSET  # absent: the tool may reach other systems


class ToolExecution(Struct, frozen=True, kw_only=True, rename="camel"):
    """Execution options of a tool (2025-11-25); without `task_support`, it is not run as a task."""

    task_support: TaskSupport | UnsetType = UNSET


class Tool(Struct, frozen=True, kw_only=True, rename="camel"):
    """Tool definition: a function that a model can call."""

    name: str
    input_schema: Raw  # JSON Schema; kept as bytes, so that no keyword is lost
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CallToolResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Result of a tool call; `is_error` is set if the tool failed."""

    content: list[Raw]
    structured_content: Raw | UnsetType = UNSET  # since 2026-07-28, `null` is a valid value
    is_error: bool | UnsetType = UNSET
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
