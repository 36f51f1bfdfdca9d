"""Tests of the targets of messages, the names of targets, and patterns that match them."""

import msgspec
import pytest
from msgspec import UNSET, Raw

from fairlead.limits import TARGETS
from fairlead.protocol.caller import ParamsHead, read_params_head, target_of
from fairlead.protocol.targets.targets import Patterns, Target, TargetKind, targets_of

UNREADABLE = Target("other", "", "", unclear=True)


def plain(kind: TargetKind, name: str) -> Target:
    return Target(kind, name, name)


@pytest.mark.parametrize(
    ("method", "params", "targets"),
    [
        ("tools/call", b'{"name":"a"}', (plain("tool", "a"),)),
        ("tools/call", b'{"name":"a","uri":"x:y"}', (plain("tool", "a"),)),
        ("tools/call", b'{"uri":"x:y"}', (plain("resource", "x:y"),)),
        ("prompts/get", b'{"name":"a"}', (plain("prompt", "a"),)),
        ("resources/read", b'{"name":"a","uri":"x:y"}', (plain("resource", "x:y"),)),
        ("resources/read", b'{"name":"a"}', (plain("other", "a"),)),
        ("vendor/x", b'{"name":"a"}', (plain("other", "a"),)),
        ("vendor/x", b'{"name":"a","uri":"x:y"}', (plain("other", "a"), plain("resource", "x:y"))),
        ("ping", b"{}", ()),
        ("completion/complete", b'{"ref":{"name":"a"}}', (plain("prompt", "a"),)),
        ("completion/complete", b'{"ref":{"uri":"x:y"}}', (plain("resource", "x:y"),)),
        ("completion/complete", b'{"ref":{}}', ()),
        ("completion/complete", b'{"ref":5}', (UNREADABLE,)),
        ("completion/complete", b"{}", (UNREADABLE,)),
        (
            "completion/complete",
            b'{"ref":{"name":"a","name":"b"}}',
            (plain("prompt", "b"), UNREADABLE),
        ),
        ("subscriptions/listen", b"{}", ()),
        ("subscriptions/listen", b'{"ref":5,"notifications":{"a":1,"a":2}}', (UNREADABLE,)),
        (
            "subscriptions/listen",
            b'{"notifications":{"resourceSubscriptions":["x:y","x:y"]}}',
            (plain("resource", "x:y"),),
        ),
    ],
)
def test_targets_are_read_from_the_params_of_each_method(
    method: str, params: bytes, targets: tuple[Target, ...]
) -> None:
    raw = Raw(params)
    assert targets_of(method, read_params_head(raw), raw) == targets


@pytest.mark.parametrize("method", ["tools/call", "completion/complete", "subscriptions/listen"])
def test_a_message_without_params_has_no_targets(method: str) -> None:
    assert targets_of(method, ParamsHead(), UNSET) == ()


@pytest.mark.parametrize(
    ("method", "head", "target"),
    [
        ("tools/call", ParamsHead(name="a"), "a"),
        ("tools/call", ParamsHead(uri="x:y"), "x:y"),
        ("tools/call", ParamsHead(name="a", uri="x:y"), "a"),
        ("resources/read", ParamsHead(name="a", uri="x:y"), "x:y"),
        ("resources/read", ParamsHead(name="a"), "a"),
        ("ping", ParamsHead(), None),
    ],
)
def test_the_target_of_a_message_is_the_name_or_uri_in_its_params(
    method: str, head: ParamsHead, target: str | None
) -> None:
    assert target_of(method, head) == target


@pytest.mark.parametrize(("uri", "limit"), [("a:{}", 1000), ("a:%20{}", 100)])
def test_a_message_has_a_limited_number_of_targets(uri: str, limit: int) -> None:
    hits = TARGETS.hits
    for number, refused in ((limit, False), (limit + 1, True)):
        uris = [uri.format(one) for one in range(number)]
        raw = Raw(msgspec.json.encode({"notifications": {"resourceSubscriptions": uris}}))
        found = targets_of("subscriptions/listen", ParamsHead(), raw)
        first = plain("resource", uris[0])
        assert len(found) == (2 if refused else number)
        assert found[0] == first
        assert (found[-1] == UNREADABLE) is refused
    assert TARGETS.hits == hits + 1


def test_targets_with_long_names_are_not_cached() -> None:
    for length, same in ((256, True), (257, False)):
        head = ParamsHead(name="a" * length)
        [one], [other] = (targets_of("tools/call", head, UNSET) for _ in range(2))
        assert one == other
        assert (one is other) is same


RENAMED = Target("tool", "erase", "wipe", "notes", "notes_erase", ("notes.erase", "wipe"))


def test_the_names_and_forms_of_a_target_contain_no_duplicates() -> None:
    assert RENAMED.names == ("wipe", "erase", "notes_erase", "notes.erase")
    assert plain("tool", "a").names == ("a",)
    assert RENAMED.granted_names == ("wipe", "notes_erase")
    assert Target("tool", "own", "shown").granted_names == ("shown", "own")
    assert Target("tool", "own", "shown", merged="shown").granted_names == ("shown",)
    assert Target("tool", "ａ", "b").forms == ("b", "ａ", "a")
    assert Target("tool", "a", "a", unclear=True).forms is None
    assert plain("tool", "a" + "\u0301" * 31).forms is None


@pytest.mark.parametrize(
    ("target", "key"),
    [
        (Target("tool", "Ａ", "x", "s"), ("s", "tool", "a")),
        (Target("prompt", " B ", "x"), (None, "prompt", "b")),
        (Target("resource", "X:%41", "y"), (None, "resource", "x:A")),
        (Target("tool", "x:%41", "y"), (None, "tool", "x:%41")),
    ],
)
def test_the_key_of_a_target_is_the_same_for_every_spelling(
    target: Target, key: tuple[str | None, str, str]
) -> None:
    assert target.key == key


def test_deny_matches_any_form_of_a_target_and_allow_requires_all_forms() -> None:
    target = Target("resource", "x:%61", "x:%61")
    assert target.any_form("x:a".__eq__)
    assert not target.any_form("x:b".__eq__)
    assert not target.every_form("x:a".__eq__)
    assert target.every_form(["x:a", "x:%61"].__contains__)
    assert RENAMED.every_form("notes_erase".__eq__)
    assert not RENAMED.every_form("erase".__eq__)
    assert UNREADABLE.any_form(lambda _: False)
    assert not UNREADABLE.every_form(lambda _: True)


@pytest.mark.parametrize(
    ("patterns", "target", "denied", "allowed"),
    [
        ([], plain("tool", "a"), False, False),
        (["*"], plain("tool", "a"), True, True),
        (["*"], UNREADABLE, True, True),
        (["b", "a"], plain("tool", "a"), True, True),
        (["b"], plain("tool", "a"), False, False),
        (["A"], plain("tool", "a"), True, False),
        (["a"], UNREADABLE, True, False),
        (["?"], plain("tool", "ａ"), True, True),
        (["ａ"], plain("tool", "ａ"), True, True),
        (["a"], plain("tool", "ａ"), True, False),
        (["ss*"], plain("tool", "ßa"), True, False),
        (["x:%61"], plain("tool", "x:a"), False, False),
        (["x:%61"], plain("resource", "x:a"), True, False),
        (["x:%61"], plain("resource", "x:%61"), True, True),
        (["x:%61*"], plain("resource", "x:%61b"), True, True),
        (["x:[ab]c"], plain("resource", "x:bc"), True, True),
        (["x:[!ab]c"], plain("resource", "x:bc"), False, False),
        (["x:a?b"], plain("resource", "x:a?b"), True, True),
        (["x:a?b"], plain("resource", "x:acb"), True, True),
        (["x://h/*"], plain("resource", "x://h/a"), True, True),
        (["x://h/*"], plain("resource", "x://h/a/.."), True, True),
        (["x://h/d/*"], plain("resource", "x://h/d/.."), True, False),
        (["x://*.h/a"], plain("resource", "x://b.h/a"), True, True),
        (["x://*.h/a"], plain("resource", "x://b/.h/a"), True, False),
        (["x://h*"], plain("resource", "x://h/a"), True, True),
        (["*/a"], plain("resource", "x://h/a"), True, True),
        (["file:///d/*"], plain("resource", "file:///d/"), True, True),
        (["file:///d/*"], plain("resource", "file:///d"), False, False),
    ],
)
def test_deny_patterns_match_any_spelling_and_allow_patterns_the_exact_one(
    patterns: list[str], target: Target, denied: bool, allowed: bool
) -> None:
    several = Patterns(patterns)
    assert (several.deny(target), several.allow(target)) == (denied, allowed)
    assert bool(several) is bool(patterns)


def test_allow_patterns_are_compared_with_the_given_names_only() -> None:
    assert Patterns(["erase"]).allow(RENAMED, ("erase",))
    assert not Patterns(["wipe"]).allow(RENAMED, ("erase",))
    assert not Patterns(["wipe"]).allow(RENAMED, ())
