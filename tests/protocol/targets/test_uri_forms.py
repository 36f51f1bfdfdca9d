"""Tests of the forms of URIs that servers may treat as equal."""

import contextlib
import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, ValidationError

from fairlead.protocol.targets.uri_forms import normalize_uri, uri_forms
from tests.support.examples import examples

pytestmark = pytest.mark.slow  # part of `make test-all`


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("file:///etc/passwd", "file:///etc/passwd"),
        ("file:/etc/passwd", "file:///etc/passwd"),
        ("file:etc/passwd", "file:///etc/passwd"),
        ("file://localhost/etc/passwd", "file:///etc/passwd"),
        ("FILE://LocalHost:80/etc/passwd", "file:///etc/passwd"),
        ("file://user@127.0.0.1/etc/passwd", "file:///etc/passwd"),
        ("file:///%65tc/passwd", "file:///etc/passwd"),
        ("file:///%2565tc/passwd", "file:///etc/passwd"),
        ("file:///%25252565tc/passwd", "file:///etc/passwd"),
        ("file:///%%36%35tc/passwd", "file:///etc/passwd"),
        ("file:///etc%2fpasswd", "file:///etc/passwd"),
        ("file:////etc//passwd", "file:///etc/passwd"),
        ("file:///x/../etc/./passwd", "file:///etc/passwd"),
        ("file:///x/%2e%2E/etc/passwd", "file:///etc/passwd"),
        ("file:///x/..%5c..\\etc\\passwd", "file:///etc/passwd"),
        ("file:///../../etc/passwd", "file:///etc/passwd"),
        ("file:///etc./passwd. ", "file:///etc/passwd"),
        ("\tfile:///et\nc/pass\u200bwd\x00", "file:///etc/passwd"),
        ("file:///x/．．／etc/ｐasswd", "file:///etc/passwd"),
        ("file:///cafe\u0301", "file:///caf\u00e9"),
        ("HTTPS://me:pw@Example.COM.:443/a/../b?q=A#B", "https://example.com/b?q=A#B"),
        ("http://example.com:8080/a", "http://example.com:8080/a"),
        ("db://Table?where=a/../b", "db://table?where=a/../b"),
        ("dir://host/a/", "dir://host/a/"),
        ("dir://host/a/..", "dir://host/"),
        ("urn:isbn:123", "urn:isbn:123"),
        ("ui://app/{view}", "ui://app/{view}"),
        ("", ""),
    ],
)
def test_a_uri_has_one_normal_form(uri: str, normal: str) -> None:
    assert normalize_uri(uri) == normal
    assert normalize_uri(normal) == normal


odd_hosts = st.lists(
    st.sampled_from(
        [
            "secret",
            ".",
            "internal",
            "@",
            ":",
            "80",
            "%20",
            "%2e",
            "\u00fc",
            "xn--bcher-kva",
            "\\",
            "/",
            "\u3002",
            "\uff0e",
            "127.1",
            "0x7f",
            "2130706433",
            "[::1]",
            "[0::1]",
            "S",
            "?q",
            "#f",
            "\u00df",
        ]
    ),
    min_size=1,
    max_size=6,
).map("".join)


odd_starts = st.sampled_from(
    [
        "http://",
        "https://",
        "ws://",
        "http:/",
        "http:",
        "HTTP:\\\\",
        " http://",
        "\x02http:///",
        "ftp://",
    ]
)


@settings(max_examples=examples(1500))
@given(odd_starts, odd_hosts, st.sampled_from(["", "/", "/x", ":080/x", ":443", "?a"]))
def test_result_of_a_url_parser_is_a_form_of_the_url(start: str, host: str, end: str) -> None:
    uri = start + host + end
    forms = uri_forms(uri)
    if forms is None:
        return
    with contextlib.suppress(ValidationError):
        # user names are ignored
        parsed = re.sub(r"^([^:/]+:)//[^/?#]*@", r"\1//", str(AnyUrl(uri)))
        canonical = re.sub(r"(//[^/?#:]*[^/?#:.])\.(?=[/?#:])", r"\1", parsed)
        assert unquote(canonical) in map(unquote, forms)
    with contextlib.suppress(ValueError):
        split = urlsplit(uri)
        if split.scheme and split.hostname and split.hostname.isascii() and split.port != 0:
            name = split.hostname.removesuffix(".")
            if re.fullmatch(r"[a-z][a-z0-9.-]*[a-z]", name):
                assert any(form.startswith(f"{split.scheme}://{name}") for form in forms)


@pytest.mark.parametrize(
    "uri",
    [
        "http://example.com/",
        "https://api.example.com/v1/items",
        "file:///docs/a.txt",
        "file:///c:/docs/a.txt",
        "users://42/profile",
        "urn:isbn:123",
    ],
)
def test_a_plain_uri_has_one_form(uri: str) -> None:
    assert uri_forms(uri) == (uri,)
