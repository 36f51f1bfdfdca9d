"""Exits of second processes during their start."""

import pytest

from fairlead.protocol.caller import Caller
from fairlead.upstream.connection.start_exits import StartExits
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime


def caller(capabilities: str) -> Caller:
    return exchange(capabilities=capabilities.encode()).caller


PLAIN, ROOTS, SAMPLING = caller("{}"), caller('{"roots":{}}'), caller('{"sampling":{}}')


@pytest.mark.parametrize(
    ("exits", "single"),
    [
        ([PLAIN], True),
        ([ROOTS], False),
        ([ROOTS, ROOTS], False),
        ([ROOTS, caller('{"roots":{"listChanged":true}}')], False),
        ([ROOTS, SAMPLING], True),
        ([ROOTS, PLAIN], True),
    ],
)
def test_a_server_cannot_run_twice_if_second_processes_exit_for_all_capabilities(
    exits: list[Caller], single: bool
) -> None:
    known = StartExits()
    assert [known.count(one) for one in exits][-1] is single


def test_an_exit_is_recorded_for_clients_with_the_same_capabilities_only() -> None:
    known = StartExits()
    assert not known.concern(ROOTS)
    known.count(ROOTS)
    assert known.concern(ROOTS)
    assert not known.concern(SAMPLING)


def test_recorded_exits_are_forgotten_once_a_second_process_runs() -> None:
    known = StartExits()
    known.count(ROOTS)
    assert not known.has_run_twice
    known.second_opened()
    assert known.has_run_twice
    assert not known.concern(ROOTS)
    assert not known.count(SAMPLING)


def test_another_process_is_tried_after_five_minutes(virtual_time: VirtualTime) -> None:
    known = StartExits()
    known.count(ROOTS)
    virtual_time.now += 299
    assert known.concern(ROOTS)
    virtual_time.now += 1
    assert not known.concern(ROOTS)
    assert not known.count(SAMPLING)  # the first exit is too old to count
