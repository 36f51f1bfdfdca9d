"""Variants of a server's lists: their assignment to clients, and the limit on their number."""

from typing import Any

import pytest
from msgspec import Raw

from fairlead.limits import LIST_VARIANTS
from fairlead.protocol.caller import ANONYMOUS, Caller, principal_from
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream.list_variants import DEFAULT_VARIANT, ListVariants, VariantKey, variant_key
from tests.support.catalog_items import resources, tools

TOOLS, RESOURCES = ListKind.TOOLS, ListKind.RESOURCES
DEFAULT = {TOOLS: tools("a")}


def key(number: int) -> VariantKey:
    return True, b"%d" % number


def caller(capabilities: bytes, *, stateless: bool = True, **about: Any) -> Caller:
    revision = NEWEST if stateless else NEWEST_HANDSHAKE
    return Caller(revision, stateless, about.get("principal", ANONYMOUS), capabilities)


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        (b"{}", None),
        (b'{"experimental":{"x":{}}}', None),
        (b"no JSON", None),
        (b'{"sampling":{}}', b'{"sampling":{}}'),
        (b'{"roots":{"listChanged":true},"sampling":{}}', b'{"roots":{},"sampling":{}}'),
        (b'{"elicitation":{}}', b'{"elicitation":{"form":{}}}'),
    ],
)
def test_the_key_of_a_list_variant_contains_era_and_capabilities(
    capabilities: bytes, declared: bytes | None
) -> None:
    for stateless in (True, False):
        expected = None if declared is None else (stateless, declared)
        assert variant_key(caller(capabilities, stateless=stateless)) == expected


def test_the_key_of_a_list_variant_does_not_contain_the_principal() -> None:
    mine = caller(b'{"sampling":{}}', principal=principal_from("ada"))
    assert variant_key(mine) == variant_key(caller(b'{"sampling":{}}'))


def test_equal_lists_are_stored_as_one_list_variant() -> None:
    variants = ListVariants()
    assert not variants
    assert variants.add({TOOLS: tools("a")}, DEFAULT) == (DEFAULT_VARIANT, None)
    assert variants.add({TOOLS: tools("a"), RESOURCES: []}, DEFAULT) == (DEFAULT_VARIANT, None)
    assert not variants
    first, dropped = variants.add({TOOLS: tools("a", "b")}, DEFAULT)
    # the order of tools is significant
    second, dropped_then = variants.add({TOOLS: tools("b", "a")}, DEFAULT)
    assert (dropped, dropped_then) == (None, None)
    assert len({DEFAULT_VARIANT, first, second}) == 3
    assert variants.add({TOOLS: tools("a", "b"), RESOURCES: []}, DEFAULT) == (first, None)
    assert variants


def test_list_variant_ids_are_unique_across_servers() -> None:
    numbers = [ListVariants().add({TOOLS: tools("b")}, DEFAULT)[0] for _ in range(3)]
    assert len({DEFAULT_VARIANT, *numbers}) == 4


def test_a_list_variant_does_not_change_if_the_original_list_is_modified() -> None:
    variants, items = ListVariants(), tools("b")
    number, _ = variants.add({TOOLS: items}, DEFAULT)
    items.append(Raw(b"{}"))
    assert variants.add({TOOLS: tools("b")}, DEFAULT) == (number, None)


def test_a_key_has_the_most_recently_assigned_list_variant() -> None:
    variants = ListVariants()
    assert variants.of_key(key(1)) is None
    variants.assign(key(1), DEFAULT_VARIANT, 0)
    assert (variants.of_key(key(1)), variants.of_key(key(2))) == (DEFAULT_VARIANT, None)
    number, _ = variants.add({TOOLS: tools("b")}, DEFAULT)
    variants.assign(key(1), number, 0)
    assert variants.of_key(key(1)) == number


@pytest.mark.parametrize(
    ("compared_with", "current"),
    [(3, [False, True, False]), (None, [True, True, True])],
    ids=["one version", "final"],
)
def test_a_key_is_compared_with_each_list_version_unless_its_variant_is_final(
    compared_with: int | None, current: list[bool]
) -> None:
    variants = ListVariants()
    assert not variants.is_current(key(1), 0)
    variants.assign(key(1), DEFAULT_VARIANT, compared_with)
    assert [variants.is_current(key(1), version) for version in (2, 3, 4)] == current
    assert not variants.is_current(key(2), 3)
    # the assigned variant is used until the comparison
    assert variants.of_key(key(1)) == DEFAULT_VARIANT
    variants.assign(key(1), DEFAULT_VARIANT, 4)
    assert [variants.is_current(key(1), version) for version in (3, 4)] == [False, True]


def test_a_comparison_that_failed_once_is_repeated_for_a_connection_of_a_client() -> None:
    variants = ListVariants()
    for version, current in ((0, [True, False]), (0, [True, True]), (1, [True, False])):
        variants.assign(key(1), DEFAULT_VARIANT, version, failed=True)
        assert [variants.is_current(key(1), version, is_clients=own) for own in (False, True)] == (
            current
        )
    variants.assign(key(1), DEFAULT_VARIANT, 1)
    assert variants.is_current(key(1), 1, is_clients=True)


def test_two_list_variants_are_compared_by_kind_of_list() -> None:
    variants = ListVariants()
    more, _ = variants.add({TOOLS: tools("a", "b")}, DEFAULT)
    other, _ = variants.add({TOOLS: tools("a", "b"), RESOURCES: resources("r:1")}, DEFAULT)
    unknown, _ = ListVariants().add({TOOLS: tools("c")}, DEFAULT)
    cases = {
        (DEFAULT_VARIANT, DEFAULT_VARIANT): set(),
        (more, more): set(),
        (DEFAULT_VARIANT, more): {TOOLS},
        (more, other): {RESOURCES},
        (other, DEFAULT_VARIANT): {TOOLS, RESOURCES},
        (DEFAULT_VARIANT, unknown): set(),  # a dropped variant is treated as the default lists
    }
    for (one, another), kinds in cases.items():
        assert variants.differences(one, another, DEFAULT) == kinds


def test_the_least_recently_used_list_variant_is_dropped() -> None:
    variants, hits = ListVariants(), LIST_VARIANTS.hits
    limit = LIST_VARIANTS.value
    numbers = []
    for number in range(limit):
        added, dropped = variants.add({TOOLS: tools(f"t{number}")}, DEFAULT)
        assert dropped is None
        variants.assign(key(number), added, 0)
        numbers.append(added)
    variants.assign(key(limit), numbers[1], 0)
    variants.assign(key(limit + 1), DEFAULT_VARIANT, 0)
    assert variants.of_key(key(0)) == numbers[0]  # this lookup marks the variant as recently used
    added, dropped = variants.add({TOOLS: tools("one more")}, DEFAULT)
    assert (dropped, added in numbers, LIST_VARIANTS.hits - hits) == (numbers[1], False, 1)
    # Keys of the dropped variant have no variant now.
    assert [variants.of_key(key(number)) for number in (0, 1, limit)] == [numbers[0], None, None]
    assert [variants.is_current(key(number), 0) for number in (0, 1, limit)] == [True, False, False]
    assert variants.of_key(key(limit + 1)) == DEFAULT_VARIANT


def test_the_oldest_keys_are_dropped_at_the_limit() -> None:
    variants, limit = ListVariants(), 4 * LIST_VARIANTS.value
    for number in range(limit):
        variants.assign(key(number), DEFAULT_VARIANT, 0)
    # Assigning an existing key drops no other key.
    variants.assign(key(limit - 1), DEFAULT_VARIANT, 0)
    assert variants.of_key(key(0)) == DEFAULT_VARIANT
    variants.assign(key(limit), DEFAULT_VARIANT, 0)
    assert [variants.of_key(key(number)) for number in (0, 1, limit)] == [None, 0, 0]
    assert [variants.is_current(key(number), 0) for number in (0, 1, limit)] == [False, True, True]
