"""Owners of the tasks that a server runs for authenticated clients.

The server knows the gateway but not its clients, so it would show each client the tasks of all.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct

from ..interceptor import Answer, Exchange
from ..limits import OWNED_TASKS
from ..protocol.caller import Principal
from ..protocol.json_edit import encoded, items_of, members_of
from ..protocol.own_errors import own_error
from ..relay.request_params import with_members
from ..wire.error_codes import INVALID_PARAMS
from ..wire.json import read_json

__all__ = ["TaskOwners"]

Forward = Callable[[Exchange], Awaitable[Answer]]


class _Task(Struct, rename="camel"):
    task_id: str = ""


class _Created(_Task):
    """The result of a call that created a task.

    The stateless era has `taskId` in the result itself, the handshake era in its member `task`.
    """

    task: _Task = msgspec.field(default_factory=_Task)


class TaskOwners:
    """The principals that created the tasks of one server."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, Principal] = OrderedDict()

    async def answer(self, exchange: Exchange, forward: Forward) -> Answer:
        """Forward a request of an authenticated client; tasks of other principals are unknown.

        Raises:
            RpcError: The request names a task of another principal.
        """
        principal, method = exchange.caller.principal, exchange.method
        if method == "tasks/list":
            return self._own_tasks(await forward(exchange), principal)
        if method == "subscriptions/listen":
            return await forward(self._listening(exchange, principal))
        if method.startswith("tasks/"):
            task = read_json(exchange.message.params, _Task, _Task()).task_id
            if not self._owns(principal, task):
                raise own_error(INVALID_PARAMS, f"Task not found: {task}")
            # Encoded again, so that the server reads the id that was checked.
            return await forward(with_members(exchange, taskId=task))
        answer = await forward(exchange)
        if method == "tools/call" and answer is not None and b'"taskId"' in bytes(answer):
            self._created(answer, principal)
        return answer

    def _owns(self, principal: Principal, task: str) -> bool:
        return self._owners.get(task) == principal

    def _created(self, answer: bytes | Raw, principal: Principal) -> None:
        found = read_json(answer, _Created, _Created())
        task = found.task_id or found.task.task_id
        # A server may choose the id of an existing task; it remains with its owner.
        if task and self._owners.setdefault(task, principal) == principal:
            self._owners.move_to_end(task)
            if len(self._owners) > OWNED_TASKS.value:
                self._owners.popitem(last=False)

    def _own_tasks(self, answer: Answer, principal: Principal) -> Answer:
        members = members_of(answer) or {}
        own = [
            task
            for task in items_of(members.get("tasks")) or ()
            if self._owns(principal, read_json(task, _Task, _Task()).task_id)
        ]
        return encoded({**members, "tasks": own})

    def _listening(self, exchange: Exchange, principal: Principal) -> Exchange:
        """Return a listen request without the ids of other principals' tasks."""
        params = read_json(exchange.message.params, dict[str, Raw], {})
        wanted = read_json(params.get("notifications"), dict[str, Raw], {})
        if "taskIds" not in wanted:
            return exchange
        given = read_json(wanted["taskIds"], list[str], [])
        own = [task for task in given if self._owns(principal, task)]
        return with_members(exchange, notifications={**wanted, "taskIds": own})
