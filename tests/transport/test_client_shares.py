"""Tests of the fair distribution of a limited number of items among clients."""

import pytest

from fairlead.limits import Limit
from fairlead.transport.client_shares import ClientShares, NoShareLeft


class Shares(ClientShares[str]):
    """Shares of strings: `busy` items are in use, and `times` has the last use of idle items."""

    def __init__(self, total: int, per_client: int) -> None:
        self.busy: set[str] = set()
        self.times: dict[str, float] = {}
        self.limit = Limit(total, "items", "client", "refused")
        super().__init__(
            total,
            per_client,
            self.limit,
            is_idle=lambda item: item not in self.busy,
            used=lambda item: self.times.get(item, 0.0),
        )

    def give(self, client: str, *items: str) -> "Shares":
        for item in items:
            self.add(client, item)
        return self


def test_no_item_is_evicted_below_both_limits() -> None:
    shares = Shares(3, 2).give("a", "a1").give("b", "b1")
    assert shares.make_room("a") is None
    assert shares.limit.hits == 0
    assert (len(shares), shares.count("a"), shares.count("c")) == (2, 1, 0)


def test_a_client_at_its_own_limit_loses_its_least_recently_used_item() -> None:
    shares = Shares(9, 2).give("a", "a1", "a2").give("b", "b1")
    assert shares.make_room("a") == "a1"
    shares.touch("a1")
    assert shares.make_room("a") == "a2"
    assert shares.limit.hits == 2
    assert shares.make_room("b") is None


def test_items_in_use_are_not_evicted_at_the_limit_of_a_client() -> None:
    shares = Shares(9, 2).give("a", "a1", "a2")
    shares.busy = {"a1"}
    assert shares.make_room("a") == "a2"
    shares.busy = {"a1", "a2"}
    with pytest.raises(NoShareLeft):
        shares.make_room("a")


def test_at_the_total_limit_the_client_with_the_most_items_loses_an_item() -> None:
    shares = Shares(4, 9).give("a", "a1", "a2", "a3").give("b", "b1")
    assert shares.make_room("c") == "a1"
    assert shares.make_room("b") == "a1"
    assert shares.make_room("a") == "a1", "client a has the most items"


def test_a_busy_item_of_a_client_above_its_fair_share_is_evicted_for_a_client_below() -> None:
    shares = Shares(4, 9).give("a", "a1", "a2", "a3").give("b", "b1")
    shares.busy = {"a1", "a2", "a3", "b1"}
    assert shares.make_room("c") == "a1", "three of four items exceed a third"
    with pytest.raises(NoShareLeft):
        shares.make_room("a")


def test_a_client_with_its_fair_share_keeps_its_busy_items() -> None:
    shares = Shares(4, 9).give("a", "a1", "a2").give("b", "b1", "b2")
    shares.busy = {"a1", "a2", "b1", "b2"}
    assert shares.make_room("c") in ("a1", "b1"), "two of four items exceed a third"
    shares = Shares(2, 9).give("a", "a1").give("b", "b1")
    shares.busy = {"a1", "b1"}
    with pytest.raises(NoShareLeft):
        shares.make_room("c")


def test_among_clients_with_equally_many_items_the_longest_idle_one_is_evicted() -> None:
    shares = Shares(4, 9).give("a", "a1", "a2").give("b", "b1", "b2")
    shares.times = {"a1": 5.0, "b1": 3.0}
    assert shares.make_room("c") == "b1"
    shares.busy = {"b1"}
    assert shares.make_room("c") == "a1"


def test_a_client_that_would_hold_the_most_items_loses_its_own_item() -> None:
    shares = Shares(3, 9).give("a", "a1", "a2").give("b", "b1")
    assert shares.make_room("b") == "b1"
    shares = Shares(4, 9).give("a", "a1", "a2", "a3").give("b", "b1")
    assert shares.make_room("b") == "a1"


def test_with_a_limit_of_zero_no_item_is_accepted() -> None:
    shares = Shares(0, 9)
    assert shares.largest() is None
    with pytest.raises(NoShareLeft):
        shares.make_room("a")


def test_a_discarded_item_is_no_longer_counted() -> None:
    shares = Shares(3, 9).give("a", "a1", "a2").give("b", "b1")
    shares.discard("a1")
    shares.discard("a1")
    shares.discard("unknown")
    shares.touch("unknown")
    assert (len(shares), shares.count("a"), shares.count("b")) == (2, 1, 1)
    assert shares.largest() in ("a2", "b1")
    shares.discard("a2")
    assert (shares.count("a"), shares.largest()) == (0, "b1")
    shares.discard("b1")
    assert (len(shares), shares.largest()) == (0, None)
    assert shares.give("a", "a3").largest() == "a3"


def test_the_largest_holder_is_updated_when_items_are_discarded() -> None:
    shares = Shares(9, 9).give("a", "a1", "a2", "a3").give("b", "b1", "b2")
    assert shares.largest() == "a1"
    shares.discard("a1")
    shares.discard("a2")
    assert shares.largest() == "b1"


@pytest.mark.parametrize(("busy", "found"), [(31, "a31"), (32, None)])
def test_a_search_examines_32_items_and_the_next_search_continues_after_them(
    busy: int, found: str | None
) -> None:
    items = [f"a{number:02}" for number in range(40)]
    shares = Shares(99, 40).give("a", *items)
    shares.busy = set(items[:busy])
    if found:
        assert shares.make_room("a") == found
    else:
        with pytest.raises(NoShareLeft):
            shares.make_room("a")
        assert shares.make_room("a") == "a32"


def test_items_count_as_in_use_by_default() -> None:
    limit = Limit(1, "items", "client", "refused")
    shares = ClientShares[str](1, 1, limit)
    shares.add("a", "a1")
    with pytest.raises(NoShareLeft):
        shares.make_room("a")
