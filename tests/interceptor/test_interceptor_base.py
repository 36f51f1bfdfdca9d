"""Tests of interceptor hooks, in subclasses of the base class and in other classes."""

import re
from typing import Any, ClassVar

import pytest
from msgspec import Raw

from fairlead.interceptor import (
    After,
    Answer,
    Exchange,
    ExtraMembers,
    Interceptor,
    InterceptorBase,
    MalformedFrame,
    Proceed,
    SyncInterceptor,
    extra_members_hook,
    hooks_of,
    malformed_frame_hook,
    overrides,
)
from fairlead.policy.interceptor_failures import with_failure_policy

HOOKS = [
    InterceptorBase.passes,
    InterceptorBase.on_malformed,
    InterceptorBase.extra_members,
    InterceptorBase.shown,
    InterceptorBase.views_changed,
    InterceptorBase.close,
]
NOTHING: Any = None


async def plain(exchange: Exchange, proceed: Proceed) -> Answer:
    return await proceed(exchange)


class OnlyCalled:
    """Interceptor without hooks."""

    __slots__ = ()

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)


class Found(OnlyCalled):
    """Hooks in a class that is not derived from the base class."""

    waits = False
    pure = True
    also = frozenset({"tools/list"})

    def __init__(self) -> None:
        self.heard: list[Any] = []

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    def passes(self, exchange: Exchange) -> bool:
        return True

    def on_malformed(self, frame: MalformedFrame) -> None:
        self.heard.append(frame)

    def extra_members(self, exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
        return {**members, "found": Raw(b"1")}

    def close(self) -> None:
        self.heard.append("close")


class Declared(InterceptorBase):
    waits: ClassVar = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    def passes(self, exchange: Exchange) -> bool:
        return True


class Halves(SyncInterceptor):
    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        return exchange, None

    def passes(self, exchange: Exchange) -> bool:
        return True


def flags(one: Interceptor) -> tuple[bool, bool, frozenset[str]]:
    hooks = hooks_of(one)
    return hooks.waits, hooks.pure, hooks.also


@pytest.mark.parametrize("one", [plain, OnlyCalled(), InterceptorBase()])
def test_the_default_hooks_of_an_interceptor_do_nothing(one: Interceptor) -> None:
    hooks = hooks_of(one)
    assert flags(one) == (True, False, frozenset())
    assert [hook.__name__ for hook in HOOKS if overrides(hooks, hook)] == []
    assert hooks.passes(NOTHING) is False
    assert hooks.extra_members(NOTHING, {"a": Raw(b"1")}) == {"a": Raw(b"1")}
    assert hooks.shown(NOTHING, Raw(b"{}")) == Raw(b"{}")
    hooks.on_malformed(NOTHING)
    hooks.views_changed()
    hooks.close()


async def test_an_interceptor_base_forwards_requests() -> None:
    async def proceed(exchange: Exchange) -> Answer:
        return b"{}"

    assert await InterceptorBase()(NOTHING, proceed) == b"{}"


def test_hooks_of_a_class_without_the_base_class_are_found() -> None:
    one = Found()
    hooks = hooks_of(one)
    assert flags(one) == (False, True, frozenset({"tools/list"}))
    assert [hook.__name__ for hook in HOOKS if overrides(hooks, hook)] == [
        "passes",
        "on_malformed",
        "extra_members",
        "close",
    ]
    hooks.close()
    assert one.heard == ["close"]


def test_hooks_set_on_an_object_or_a_function_are_found() -> None:
    async def function(exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    function.waits = False  # type: ignore[attr-defined]
    assert hooks_of(function).waits is False
    one = Declared()
    one.on_malformed = NOTHING  # type: ignore[method-assign]
    assert overrides(one, InterceptorBase.on_malformed)


def test_an_interceptor_derived_from_the_base_class_provides_its_own_hooks() -> None:
    one = Declared()
    assert hooks_of(one) is one
    assert (one.waits, overrides(one, InterceptorBase.passes)) == (False, True)


def test_interceptor_flags_are_not_inherited_by_a_class_that_overrides_call() -> None:
    class Derived(Declared):
        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            return b"{}"

    class FoundAgain(Found):
        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            return b"{}"

    for one in (Derived(), FoundAgain()):
        hooks = hooks_of(one)
        assert (hooks.waits, overrides(hooks, InterceptorBase.passes)) == (True, False)


def test_interceptor_flags_are_not_inherited_if_another_base_class_defines_call() -> None:
    class Both(OnlyCalled, Declared):  # type: ignore[misc]
        pass

    class Same(Declared):
        pass

    assert [(one.waits, one.passes(NOTHING)) for one in (Both(), Same())] == [
        (True, False),
        (False, True),
    ]


def test_the_passes_hook_is_not_inherited_by_a_class_that_overrides_before() -> None:
    class Derived(Halves):
        def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
            return exchange, None

    one = Derived()
    assert (one.waits, overrides(one, InterceptorBase.passes)) == (False, False)
    assert overrides(Halves(), InterceptorBase.passes)


def test_a_combined_hook_is_none_if_no_interceptor_defines_it() -> None:
    one = Found()
    assert malformed_frame_hook([plain, OnlyCalled(), Declared()]) is None
    assert extra_members_hook([plain, OnlyCalled(), Declared()]) is None
    tell, change = malformed_frame_hook([plain, one]), extra_members_hook([plain, one])
    assert tell is not None
    assert change is not None
    tell(NOTHING)
    assert one.heard == [None]
    assert change(NOTHING, {}) == {"found": Raw(b"1")}


def test_a_failure_policy_keeps_the_hooks_of_its_interceptor() -> None:
    one, bare = with_failure_policy(Found()), with_failure_policy(plain)
    assert (hooks_of(one).waits, hooks_of(bare).waits) == (False, True)
    assert malformed_frame_hook([one]) is not None
    assert malformed_frame_hook([bare]) is None


def test_the_base_class_lists_every_hook() -> None:
    names = [name for name in vars(InterceptorBase) if not name.startswith("_")]
    text = InterceptorBase.__doc__ or ""
    listed = re.findall(r"^    \* `(\w+)", text, re.MULTILINE)
    assert sorted(listed) == sorted([*names, "__call__"])
