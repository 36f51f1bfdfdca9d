"""Tests of names and URIs in the normalised forms that policies compare."""

import posixpath
import time
import unicodedata
from collections.abc import Callable
from fnmatch import fnmatchcase
from urllib.parse import unquote, urljoin, urlparse

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from fairlead.limits import TARGET_FORMS, TARGET_LENGTH, TARGETS
from fairlead.protocol.caller import read_params_head
from fairlead.protocol.targets.name_forms import name_forms, normalize_name
from fairlead.protocol.targets.targets import Patterns, Target, targets_of
from fairlead.protocol.targets.uri_forms import normalize_uri, uri_forms
from tests.support.examples import examples

pytestmark = pytest.mark.slow  # runs only with `make test-all`


def resource(uri: str) -> Target:
    return Target("resource", uri, uri)


def denied(pattern: str, uri: str) -> bool:
    return Patterns([pattern]).deny(resource(uri))


def allowed(pattern: str, uri: str) -> bool:
    return Patterns([pattern]).allow(resource(uri))


# Single URIs


@pytest.mark.parametrize(
    "uri",
    [
        "file:///docs/a%2fb/../../etc/passwd",  # the dots are resolved before decoding
        "file:///docs//../etc/passwd",  # the empty segment is removed first
        "file:///docs/?/../../etc/passwd",  # `?` is treated as part of the path
        "file:///docs/a／b/../../etc/passwd",
        "file://elsewhere/etc/passwd",  # some servers ignore the host
        "file://etc/passwd",  # some servers treat the host as a folder
        "file:///etc/passwd?x",
        "file:///etc/passwd#x",
        "file:///etc/passwd/",
        "file:///etc/passwd%00.txt",
        "FILE:///ETC/PASSWD",
    ],
)
def test_a_deny_pattern_applies_to_every_interpretation_of_a_uri(uri: str) -> None:
    assert denied("file:///etc/passwd", uri)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///docs/../etc/passwd.txt",
        "file:///docs/%2e%2e/etc/passwd.txt",
        "file:///docs/a%2fb/../../etc/passwd.txt",
        "file:///docs//../etc/passwd.txt",
        "file:///docs/?/../../etc/passwd.txt",
        "file:///docs/../etc/passwd?.txt",
        "file:///docs/..\\etc\\passwd.txt",
        "file:///docs/．．/etc/passwd.txt",
        "FILE:///docs/a.txt",
        "file:///%64ocs/a.txt",
    ],
)
def test_an_allow_pattern_must_match_every_interpretation_of_a_uri(uri: str) -> None:
    assert not allowed("file:///docs/*.txt", uri)
    assert allowed("file:///docs/*.txt", "file:///docs/b/a.txt")


def test_an_allowed_extension_does_not_match_uris_that_servers_may_truncate() -> None:
    assert not allowed("file:///*.txt", "file:///etc/passwd?.txt")
    assert not allowed("file:///*.txt", "file:///etc/passwd#.txt")
    assert not allowed("file:///*.txt", "file:///etc/passwd%00.txt")


@pytest.mark.parametrize(
    ("pattern", "uri"),
    [
        ("file:///my%20docs/*", "file:///my%20docs/a%2Bb"),
        ("db://*", "db://table?where=a/../b%20c"),
        ("db://table?where=*", "db://table?where=a"),
        ("db://table?where=%41*", "db://table?where=%41b"),
        ("x://host//a/*", "x://host//a/b"),
        ("http://Host:80/*", "http://Host:80/a?b#c"),
        ("file://server/share/*", "file://server/share/a"),
        ("file:///docs/*", "file:///docs/"),
        ("dir://host/a/", "dir://host/a/"),
        ("note:[abc]*", "note:a%20b"),
        ("file:///docs/100%2525", "file:///docs/100%2525"),
        ("file:///a[*]b", "file:///a*b"),
    ],
)
def test_a_uri_spelled_like_its_allow_pattern_is_allowed(pattern: str, uri: str) -> None:
    assert allowed(pattern, uri)
    assert denied(pattern, uri)


def test_escaped_wildcards_in_a_pattern_are_literal() -> None:
    assert denied("file:///a%2Ab", "file:///a*b")
    assert not denied("file:///a%2Ab", "file:///acb")
    assert not denied("file:///a%3Fb", "file:///acb")


def test_an_unclear_uri_is_denied_and_never_allowed() -> None:
    long = "x:" + "a" * TARGET_LENGTH.value
    odd = "file:///" + "%2525/../a\\b//c%2f．/" * 8 + "?x/../y#z/.."
    marks = "x:a" + "\u0301" * 31
    before = TARGET_LENGTH.hits, TARGET_FORMS.hits
    for uri in (long, odd, marks):
        assert uri_forms(uri) is None
        assert denied("y:*", uri)
        assert not allowed("[fx]*", uri)
        assert allowed("*", uri)
    assert TARGET_LENGTH.hits > before[0]
    assert TARGET_FORMS.hits > before[1]


@pytest.mark.parametrize(
    "part",
    [
        "%25",
        "%%32%35",
        "../",
        "//",
        "\\..\\",
        "．／",
        "%2f..",
        "a.",
        " .",
        "?/..",
        "\u0301",
        "@:",
        "a:$",
        "\u00fc.",
    ],
)
def test_normalising_a_uri_of_the_maximum_length_takes_less_than_half_a_second(part: str) -> None:
    uri = "file:///" + part * (TARGET_LENGTH.value // len(part))
    began = time.process_time()
    normalize_uri(uri[: TARGET_LENGTH.value])
    uri_forms(uri[: TARGET_LENGTH.value])
    url = "http://" + part * (TARGET_LENGTH.value // len(part))
    uri_forms(url)
    Patterns(["http://*.*.*.b/*"]).allow(resource(url))
    assert time.process_time() - began < 0.5


# Generated URIs, compared with how known servers resolve them

Reading = Callable[[str], str]
READINGS: list[Reading] = [
    lambda uri: posixpath.normpath(unquote(urlparse(uri).path)),
    lambda uri: posixpath.normpath(urlparse(uri).path),
    lambda uri: unquote(posixpath.normpath(urlparse(uri).path)),
    lambda uri: posixpath.normpath(unquote(posixpath.normpath(urlparse(uri).path))),
    lambda uri: posixpath.normpath(unquote(unquote(urlparse(uri).path))),
    lambda uri: posixpath.normpath(unquote(urlparse(urljoin("http://h/", uri)).path)),
    lambda uri: posixpath.normpath(unquote(uri.removeprefix("file://"))),
    lambda uri: posixpath.normpath(uri.removeprefix("file://")),
    lambda uri: posixpath.normpath(unquote(urlparse(uri).path).replace("\\", "/")),
    lambda uri: posixpath.normpath(unicodedata.normalize("NFKC", unquote(urlparse(uri).path))),
    lambda uri: posixpath.normpath(urlparse(unquote(uri)).path),
]
pieces = st.sampled_from(
    [
        *"/.?#．／~@:\\",
        "//",
        "..",
        "%2e",
        "%2E.",
        "%2f",
        "%252f",
        "%5c",
        "%65tc",
        "%3f",
        "%00",
        "%20",
    ]
)
words = st.sampled_from(["docs", "etc", "passwd", "x", "/etc/passwd"])
uris = st.lists(st.one_of(pieces, words), max_size=9).map(
    lambda several: "file:///" + "".join(several)
)


@settings(max_examples=examples(1500))
@given(uris)
def test_a_uri_that_a_server_reads_as_a_denied_path_is_denied(uri: str) -> None:
    for read in READINGS:
        path = "/" + read(uri).lstrip("/")
        if path.startswith("/etc/"):
            assert denied("file:///etc/*", uri), path
        if path == "/etc/passwd":
            assert denied("file:///etc/passwd", uri), path


@settings(max_examples=examples(1500))
@given(st.one_of(uris, uris.map(lambda uri: uri.replace("file:///", "file:///docs/"))))
def test_an_allowed_uri_stays_in_the_allowed_folder(uri: str) -> None:
    if not allowed("file:///docs/*", uri):
        return
    assert fnmatchcase(uri, "file:///docs/*")
    for read in READINGS:
        path = "/" + read(uri).lstrip("/")
        assert path == "/docs" or path.startswith("/docs/"), path


@settings(max_examples=examples(500))
@given(st.one_of(uris, st.text(max_size=40), st.text("%2ef5./\\?#:@ａ", max_size=30)))
def test_normalising_a_uri_a_second_time_has_no_effect(text: str) -> None:
    assert normalize_uri(normalize_uri(text)) == normalize_uri(text)
    assert normalize_name(normalize_name(text)) == normalize_name(text)
    forms = uri_forms(text)
    assert forms is None or (forms[0] == text and normalize_uri(text) in forms)


@st.composite
def spellings(draw: st.DrawFn) -> str:
    """Generate a spelling of `file:///etc/secrets/key`."""
    path = ""
    for segment in ("etc", "secrets", "key"):
        path += draw(st.sampled_from(["/", "//", "/./", "/x/../", "/a/b/../../", "\\", "/.\\"]))
        path += segment
    rounds = draw(st.integers(0, 3))
    for _ in range(rounds):
        encoded = draw(st.lists(st.booleans(), min_size=len(path), max_size=len(path)))
        path = "".join(
            f"%{ord(one):02{draw(st.sampled_from('xX'))}}" if now or one == "%" else one
            for one, now in zip(path, encoded, strict=True)
        )
    start = draw(st.sampled_from(["file://", "FILE://", "file://localhost", "file:", "file://h"]))
    if start == "file:" and not path.startswith("/"):
        start = "file://"
    return start + path + draw(st.sampled_from(["", "?a=b", "#c", " ", ".", "\u200b"]))


@settings(max_examples=examples(500))
@given(spellings())
def test_every_spelling_of_a_denied_path_is_denied(uri: str) -> None:
    assert denied("file:///etc/secrets/*", uri)
    assert denied("file:///etc/secrets/key", uri)


texts = st.text("ab*?[]!-/.%2Fe:", max_size=12)


@settings(max_examples=examples(1000))
@given(st.lists(texts, max_size=3), texts)
def test_an_allow_pattern_must_match_the_text_as_sent(patterns: list[str], text: str) -> None:
    as_sent = any(fnmatchcase(text, pattern) for pattern in patterns)
    for target in (resource(text), Target("tool", text, text)):
        assert as_sent or not Patterns(patterns).allow(target)
        assert not as_sent or Patterns(patterns).deny(target)


# Names


@pytest.mark.parametrize(
    "name",
    [
        "erase",
        "ERASE",
        "Erase",
        "ｅｒａｓｅ",
        "e\u200brase",
        " erase",
        "erase\n",
        "erase\x00",
        "\ufefferase",
        "er\xadase",
        "𝐞𝐫𝐚𝐬𝐞",
        "erase\U000e0041",
    ],
)
def test_a_deny_pattern_applies_to_every_spelling_of_a_name(name: str) -> None:
    assert Patterns(["erase"]).deny(Target("tool", name, name))
    assert Patterns(["er*"]).deny(Target("tool", name, name))
    assert Patterns(["ERASE"]).deny(Target("prompt", name, name))
    assert Patterns(["erase"]).allow(Target("tool", name, name)) is (name == "erase")


def test_names_with_similar_looking_letters_are_different() -> None:
    cyrillic = "er\u0430se"
    assert name_forms(cyrillic) == (cyrillic,)
    assert not Patterns(["erase"]).deny(Target("tool", cyrillic, cyrillic))


ERASE = Target("tool", "erase", "wipe", "notes", "notes_erase_12345678", ("notes_erase",))


@pytest.mark.parametrize("name", ["erase", "wipe", "notes_erase_12345678", "notes_erase"])
def test_a_deny_pattern_matches_every_name_of_a_target(name: str) -> None:
    assert Patterns([name]).deny(ERASE)
    assert Patterns([name.upper()]).deny(ERASE)


def test_an_allow_pattern_matches_only_names_that_the_operator_controls() -> None:
    assert Patterns(["wipe"]).allow(ERASE)
    assert Patterns(["notes_erase_12345678"]).allow(ERASE)
    # A server could choose a tool name that equals a tool name of another server,
    # directly or in its merged form.
    assert not Patterns(["erase"]).allow(ERASE)
    assert not Patterns(["notes_erase"]).allow(ERASE)


def test_the_target_key_is_the_same_for_every_spelling_of_an_item() -> None:
    other = Target("tool", "ERASE", "ERASE", "notes", "notes_ERASE")
    assert ERASE.key == other.key
    assert ERASE.key != Target("tool", "erase", "erase", "other").key
    assert resource("file:///a/../b").key == resource("FILE:/b").key


# Messages


def named(method: str, params: object) -> list[tuple[str, str, bool]]:
    raw = Raw(params if isinstance(params, bytes) else msgspec.json.encode(params))
    return [(t.kind, t.own, t.unclear) for t in targets_of(method, read_params_head(raw), raw)]


@pytest.mark.parametrize(
    ("method", "params", "kinds"),
    [
        ("tools/call", {"name": "a", "uri": "x:y"}, [("tool", "a")]),
        ("prompts/get", {"name": "a"}, [("prompt", "a")]),
        ("resources/read", {"uri": "x:y", "name": "a"}, [("resource", "x:y")]),
        ("notifications/resources/updated", {"uri": "x:y"}, [("resource", "x:y")]),
        ("vendor/read", {"uri": "x:y", "name": "a"}, [("other", "a"), ("resource", "x:y")]),
        ("vendor/read", {"uri": "x:y"}, [("resource", "x:y")]),
        ("completion/complete", {"ref": {"name": "a"}}, [("prompt", "a")]),
        ("completion/complete", {"ref": {"uri": "x:{y}"}}, [("resource", "x:{y}")]),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "a", "uri": "x:y"}},
            [("prompt", "a"), ("resource", "x:y")],
        ),
        (
            "subscriptions/listen",
            {"notifications": {"resourceSubscriptions": ["x:y", "x:z", "x:y"]}},
            [("resource", "x:y"), ("resource", "x:z")],
        ),
        ("subscriptions/listen", {"notifications": {}}, []),
        *((method, {}, []) for method in ("tools/call", "prompts/get", "resources/read", "ping")),
    ],
)
def test_targets_are_read_from_the_params_of_a_message(
    method: str, params: dict[str, object], kinds: list[tuple[str, str]]
) -> None:
    assert named(method, params) == [(*one, False) for one in kinds]


def test_a_message_without_params_has_no_targets() -> None:
    for method in ("tools/call", "completion/complete", "subscriptions/listen"):
        assert targets_of(method, read_params_head(UNSET), UNSET) == ()


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", b'{"name":["secret"]}'),
        ("tools/call", b'{"name":["secret"],"uri":"x:y"}'),
        ("prompts/get", b'{"name":null}'),
        ("resources/read", b'{"uri":["a:secret"],"name":"open"}'),
        ("completion/complete", b'{"ref":{"name":"secret","Name":"open"}}'),
        ("completion/complete", b'{"ref":{"name":"secret","name":"open"}}'),
        ("completion/complete", b'{"ref":{"na\\u006de":"secret", "name":"open"}}'),
        ("completion/complete", b'{"ref":{"name":["secret"]}}'),
        ("completion/complete", b'{"ref":"secret"}'),
        (
            "subscriptions/listen",
            b'{"notifications":{"resourceSubscriptions":["a:b"],"resourceSubscriptions":[]}}',
        ),
        ("subscriptions/listen", b'{"notifications":{"resourceSubscriptions":["a:b",5]}}'),
        (
            "subscriptions/listen",
            msgspec.json.encode(
                {"notifications": {"resourceSubscriptions": [f"a:{n}" for n in range(1001)]}}
            ),
        ),
        (
            "subscriptions/listen",
            msgspec.json.encode(
                {"notifications": {"resourceSubscriptions": [f"a:%20{n}" for n in range(101)]}}
            ),
        ),
    ],
)
def test_targets_of_ambiguous_params_are_marked_as_unclear(method: str, params: bytes) -> None:
    assert TARGETS.value == 1000
    assert any(unclear for _, _, unclear in named(method, params))
    raw = Raw(params)
    found = targets_of(method, read_params_head(raw), raw)
    assert any(Patterns(["other"]).deny(one) for one in found)
    assert not all(Patterns(["?*"]).allow(one) for one in found)
