"""Tasks: requests that outlive their answer.

There are two designs that share little but the word. `Core…` is that of 2025-11-25, where the
requester decides, both sides can have tasks and `tasks/result` waits for the end. The rest is the
extension `io.modelcontextprotocol/tasks` of the stateless revisions, where the server decides and
everything is flat.
"""

from typing import Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Cursor, EmptyResult, PaginatedParams

__all__ = [
    "CancelTaskResult",
    "CoreTask",
    "CoreTaskPayload",
    "CoreTaskResult",
    "CoreTaskStatusParams",
    "CreateCoreTaskResult",
    "CreateTaskResult",
    "DetailedTask",
    "ListCoreTasksParams",
    "ListCoreTasksResult",
    "Task",
    "TaskParams",
    "TaskResult",
    "TaskStatus",
    "TaskStatusParams",
    "UpdateTaskParams",
    "UpdateTaskResult",
]

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Names a task to look at, wait for or cancel, in both designs."""

    task_id: str
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class CoreTask(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a task stands (2025-11-25). `ttl` of `None` means: kept without limit."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl: int | None
    poll_interval: int | UnsetType = UNSET
    status_message: str | UnsetType = UNSET


class CoreTaskResult(CoreTask, frozen=True, kw_only=True, rename="camel"):
    """Answers `tasks/get` and `tasks/cancel` (2025-11-25)."""

    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


CoreTaskStatusParams = CoreTaskResult  # `notifications/tasks/status` tells the same
CoreTaskPayload: TypeAlias = (
    Raw  # `tasks/result` gives whatever the request itself would have given
)
ListCoreTasksParams = PaginatedParams


class CreateCoreTaskResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Answers at once a request that runs as a task (2025-11-25)."""

    task: CoreTask
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ListCoreTasksResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """One page of tasks, each a `CoreTask` (2025-11-25)."""

    tasks: list[Raw]
    next_cursor: Cursor | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class Task(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a task of the extension stands. `ttl_ms` of `None` means: kept without limit."""

    task_id: str
    status: TaskStatus
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | UnsetType = UNSET
    status_message: str | UnsetType = UNSET


class CreateTaskResult(Task, frozen=True, kw_only=True, rename="camel"):
    """Answers a request that the server has made a task."""

    result_type: Literal["task"] = "task"
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class DetailedTask(Task, frozen=True, kw_only=True, rename="camel"):
    """A task with what its status brings: questions, a result or an error.

    `input_requests` belongs to the status `input_required`, `result` to `completed` and `error` (a
    JSON-RPC error object) to `failed`.
    """

    input_requests: dict[str, Raw] | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class TaskResult(DetailedTask, frozen=True, kw_only=True, rename="camel"):
    """Answers `tasks/get` of the extension."""

    result_type: str | UnsetType = UNSET


TaskStatusParams = DetailedTask  # `notifications/tasks` tells the same


class UpdateTaskParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Answers questions of a task, all or some of them."""

    task_id: str
    input_responses: dict[str, Raw]
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


UpdateTaskResult = EmptyResult
CancelTaskResult = EmptyResult  # received; whether it stops is seen by `tasks/get`
