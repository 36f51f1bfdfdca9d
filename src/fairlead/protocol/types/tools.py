"""Tools: what a server can do for a model."""

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Icon

__all__ = ["CallToolResult", "TaskSupport", "Tool", "ToolAnnotations", "ToolExecution"]

TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]


class ToolAnnotations(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server claims about a tool (from 2025-03-26): trust it as you trust the server."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET  # absent: may change things
    destructive_hint: bool | UnsetType = UNSET  # absent: may destroy things
    idempotent_hint: bool | UnsetType = UNSET  # absent: calling it twice may matter
    open_world_hint: bool | UnsetType = UNSET  # absent: may reach beyond the server


class ToolExecution(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a tool may be called (2025-11-25); without `task_support` it is not run as a task."""

    task_support: TaskSupport | UnsetType = UNSET


class Tool(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something a server can do for a model."""

    name: str
    input_schema: Raw  # JSON Schema; carried as bytes, so that no keyword is lost
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CallToolResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a tool returned; a tool that failed says so with `is_error`."""

    content: list[Raw]
    structured_content: Raw | UnsetType = UNSET  # `null` is a value of its own since 2026-07-28
    is_error: bool | UnsetType = UNSET
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
