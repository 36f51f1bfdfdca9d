"""Tests of the entries of single exchanges for every outcome, and of output files."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor.direct_edge import NullReplyPath
from fairlead.protocol.caller import ANONYMOUS
from fairlead.recording.tape import TapeReader, TapeWriter, decode_entry, output_file
from fairlead.recording.tape import tape_interceptor as recording
from fairlead.recording.tape.tape_interceptor import Recorder
from fairlead.wire import Notification
from tests.support.single_exchange import DOWN, UP, exchange


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(TapeWriter(tmp_path / "one"), server_of=lambda exchange: "red")


def entries(recorder: Recorder) -> list[Any]:
    assert not recorder._under_way
    assert not recorder._alone
    recorder.tape.close()
    return list(TapeReader(recorder.tape.path))


@pytest.mark.parametrize(
    ("outcome", "said", "did"),
    [
        (b'{"n":1}', {"id": 1, "result": {"n": 1}}, None),
        (Raw(b'{"n":1}'), {"id": 1, "result": {"n": 1}}, None),
        (None, {"id": 1, "result": {}}, None),
        (RpcError(5, "no", 7), {"id": 1, "error": {"code": 5, "message": "no", "data": 7}}, None),
        (
            RpcError(5, "no", raw=b'{"code":5,"message":"no","x":1}'),
            {"id": 1, "error": {"code": 5, "message": "no", "x": 1}},
            None,
        ),
        (
            ZeroDivisionError("a"),
            {"id": 1, "error": {"code": -32603, "message": "Internal error"}},
            ["failed: ZeroDivisionError('a')"],
        ),
        (
            asyncio.CancelledError("enough"),
            {
                "method": "notifications/cancelled",
                "params": {"requestId": 1, "reason": "enough"},
            },
            None,
        ),
        (
            asyncio.CancelledError(5),
            {"method": "notifications/cancelled", "params": {"requestId": 1}},
            None,
        ),
        (
            asyncio.CancelledError(),
            {"method": "notifications/cancelled", "params": {"requestId": 1}},
            None,
        ),
        (KeyboardInterrupt(), None, None),
    ],
    ids=[
        *("bytes", "raw", "nothing", "refused", "raw error", "failed"),
        *("cancelled", "odd reason", "no reason", "interrupted"),
    ],
)
def test_a_request_is_recorded_with_its_outcome(
    recorder: Recorder, outcome: Any, said: Any, did: list[str] | None
) -> None:
    passed, after = recorder.before(exchange("tools/call", {"name": "x"}, address="10.0.0.1"))
    assert after is not None
    assert after(outcome) is outcome
    asked, *rest = entries(recorder)
    assert decode_entry(asked)["method"] == "tools/call"
    assert (asked.dir, asked.session, asked.server) == (UP, "r1", "red")
    assert asked.transport == {"type": "http", "peer_address": "10.0.0.1"}
    assert passed.did == (did or [])
    if said is None:
        assert rest == []
        return
    (end,) = rest
    assert {**decode_entry(end), "jsonrpc": "2.0"} == {"jsonrpc": "2.0", **said}
    assert (end.dir, end.session, end.did) == (UP if "method" in said else DOWN, "r1", did)
    assert not end.stopped


@pytest.mark.parametrize(
    ("outcome", "drops", "stopped"),
    [
        (None, None, False),
        (RpcError(5, "no"), None, True),
        (None, True, True),
        (None, False, False),
    ],
)
def test_a_notification_that_was_not_forwarded_is_marked_as_stopped(
    recorder: Recorder, outcome: Any, drops: bool | None, stopped: bool
) -> None:
    told, after = recorder.before(exchange("notifications/x", {"n": 1}, request=False))
    assert after is not None
    if drops is not None:
        (told.drop if drops else told.note)("dropped: no")
    assert after(outcome) is outcome
    (entry,) = entries(recorder)
    assert (entry.stopped, entry.did) == (stopped, None if drops is None else ["dropped: no"])


@pytest.mark.parametrize("stopped", [True, False])
def test_a_response_is_marked_as_stopped_if_the_cancellation_was_forwarded(
    recorder: Recorder, stopped: bool
) -> None:
    asked = exchange("tools/call", {})
    _, after = recorder.before(asked)
    gone = exchange("notifications/cancelled", {"requestId": 1}, request=False)
    gone.edge = asked.edge
    _, told = recorder.before(gone)
    assert told is not None
    assert after is not None
    told(RpcError(5, "no") if stopped else None)
    after(b"{}")
    found = entries(recorder)
    assert [entry.stopped for entry in found] == [False, stopped, not stopped]


def test_a_response_is_not_marked_as_stopped_by_the_cancellation_of_another_request(
    recorder: Recorder,
) -> None:
    asked = exchange("tools/call", {})
    _, after = recorder.before(asked)
    assert after is not None
    for params in ({"requestId": 2}, {"requestId": None}, {}, None):
        gone = exchange("notifications/cancelled", params, request=False)
        gone.edge = asked.edge
        recorder.before(gone)
    after(b"{}")
    assert not entries(recorder)[-1].stopped


def test_a_request_that_passes_the_recorder_twice_is_recorded_once(recorder: Recorder) -> None:
    asked = exchange("tools/call", {})
    passed, after = recorder.before(asked)
    again, inner = recorder.before(passed)
    assert (again, inner) == (passed, None)
    assert after is not None
    after(b"{}")
    assert len(entries(recorder)) == 2


def test_each_stateless_request_is_recorded_as_its_own_session(recorder: Recorder) -> None:
    for _ in range(2):
        _, after = recorder.before(exchange("x", {}))
        assert after is not None
        after(b"{}")
    assert [entry.session for entry in entries(recorder)] == ["r1", "r1", "r2", "r2"]


def test_a_failed_write_leaves_no_pending_request_in_the_recorder(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(recorder.tape, "write", fails)
    with pytest.raises(ZeroDivisionError):
        recorder.before(exchange("x", {}))
    assert (recorder._under_way, recorder._alone) == ({}, {})


def test_a_recorder_around_other_interceptors_records_each_direction_once(
    recorder: Recorder,
) -> None:
    first, between, last = recorder.around(["others"])  # type: ignore[list-item]
    assert between == "others"
    down = exchange("roots/list", {}, way=DOWN)
    up = exchange("tools/call", {})
    one: Any = first
    other: Any = last
    assert one.before(down) == (down, None)
    assert other.before(up) == (up, None)
    for recorded in (one.before(up), other.before(down)):
        assert recorded[1] is not None
        recorded[1](b"{}")
    assert [entry.dir for entry in entries(recorder)] == [UP, DOWN, DOWN, UP]


@pytest.mark.parametrize(
    ("params", "found"),
    [
        (b'{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}', 7),
        (b'{"_meta":{"io.modelcontextprotocol/subscriptionId":"a"}}', "a"),
        (b'{"_meta":{"io.modelcontextprotocol/subscriptionId":[]}}', None),
        (b'{"_meta":5,"io.modelcontextprotocol/subscriptionId":1}', None),
        (b'["io.modelcontextprotocol/subscriptionId"]', None),
        (b"{}", None),
    ],
)
def test_the_subscription_id_of_a_notification_is_read_from_its_meta(
    params: bytes, found: Any
) -> None:
    assert recording._subscription(Notification("x", Raw(params))) == found
    assert recording._subscription(Notification("x")) is None


def test_the_session_id_is_not_recorded_with_the_transport() -> None:
    context = exchange(address="10.0.0.1").transport
    given = msgspec.structs.replace(
        context, headers={"Mcp-Session-Id": "secret", "accept": "x"}, cookies={"a": "b"}
    )
    assert recording._plain(given, "ada") == {
        "type": "http",
        "peer_address": "10.0.0.1",
        "headers": {"accept": "x"},
        "cookies": {"a": "b"},
        "principal": "ada",
    }
    assert "principal" not in recording._plain(context, ANONYMOUS)
    assert NullReplyPath(ANONYMOUS).carrier is None


# Existing files


@pytest.mark.parametrize("overwrite", [True, False])
def test_an_existing_output_file_is_overwritten_only_on_request(
    tmp_path: Path, overwrite: bool
) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"old")
    if overwrite:
        with output_file.open_output(place, overwrite=True) as stream:
            stream.write(b"new")
        assert place.read_bytes() == b"new"
    else:
        began = False
        with pytest.raises(FileExistsError, match="the file already exists"):
            with output_file.open_output(place, overwrite=False):
                began = True
        assert (began, place.read_bytes()) == (False, b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="the path is a directory"):
        output_file.check_not_existing(tmp_path / "folder", overwrite=overwrite)


def test_an_output_file_that_another_process_creates_is_not_overwritten(
    tmp_path: Path,
) -> None:
    place = tmp_path / "file"
    with (
        pytest.raises(FileExistsError),
        output_file.open_output(place, overwrite=False) as stream,
    ):
        stream.write(b"new")
        place.write_bytes(b"another")
    assert place.read_bytes() == b"another"
