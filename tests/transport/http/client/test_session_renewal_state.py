"""State of a session that is restored in a new one."""

from msgspec import UNSET, Raw

from fairlead.transport.http.client.session_renewal import RestorableState
from fairlead.wire import Notification, Request

HELLO = Request(1, "initialize", Raw(b'{"protocolVersion":"2025-11-25"}'))


def asked(state: RestorableState, method: str, params: bytes | None) -> None:
    state.succeeded(Request(2, method, UNSET if params is None else Raw(params)))


def rest(state: RestorableState) -> list[tuple[str, object]]:
    return [(one.method, one.params) for one in state.rest()]


def test_an_empty_session_state_restores_no_requests() -> None:
    assert RestorableState().introduction() is None
    assert list(RestorableState().rest()) == []


def test_requests_that_restore_a_session_have_new_ids() -> None:
    state = RestorableState(HELLO)
    assert state.introduction() == Request("renewal-1", "initialize", HELLO.params)
    assert state.introduction() == Request("renewal-2", "initialize", HELLO.params)


def test_the_current_log_level_and_subscriptions_are_restored() -> None:
    state = RestorableState(HELLO)
    assert rest(state) == []
    state.initialized = True
    assert list(state.rest()) == [Notification("notifications/initialized")]
    asked(state, "logging/setLevel", b'{"level":"info"}')
    asked(state, "logging/setLevel", b'{"level":"error"}')
    for uri in (b"a:1", b"a:2", b"a:3"):
        asked(state, "resources/subscribe", b'{"uri":"%b"}' % uri)
    asked(state, "resources/unsubscribe", b'{"uri":"a:2"}')
    asked(state, "resources/unsubscribe", b'{"uri":"a:9"}')
    asked(state, "resources/subscribe", None)
    asked(state, "tools/list", b'{"uri":"a:4"}')
    assert rest(state) == [
        ("notifications/initialized", UNSET),
        ("logging/setLevel", Raw(b'{"level":"error"}')),
        ("resources/subscribe", Raw(b'{"uri":"a:1"}')),
        ("resources/subscribe", Raw(b'{"uri":"a:3"}')),
    ]
