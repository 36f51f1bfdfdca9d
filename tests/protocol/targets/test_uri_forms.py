"""Tests of the forms of a URI that servers may treat as equal."""

import contextlib
import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, ValidationError

from fairlead.protocol.targets.uri_forms import (
    host_forms,
    normalize_uri,
    place_forms,
    plain_port,
    uri_forms,
    without_final_dot,
)
from tests.support.examples import examples

pytestmark = pytest.mark.slow  # runs with `make test-all`


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
def test_uri_forms_include_the_result_of_a_url_parser(start: str, host: str, end: str) -> None:
    uri = start + host + end
    forms = uri_forms(uri)
    if forms is None:
        return
    with contextlib.suppress(ValidationError):
        # the comparison ignores user names
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
def test_a_plain_uri_has_only_itself_as_a_form(uri: str) -> None:
    assert uri_forms(uri) == (uri,)


@pytest.mark.parametrize(
    ("host", "forms"),
    [
        ("example.com", ("example.com",)),
        ("example.com.", ("example.com",)),
        ("example.com..", ("example.com..",)),
        ("a\u3002b\uff0ec\uff61d", ("a.b.c.d",)),
        ("", None),
        ("a..b", ("a..b",)),
        ("a b", None),
        ("a/b", None),
        ("a%62", None),
        ("127.0.0.1", ("127.0.0.1",)),
        ("127.1", ("127.0.0.1",)),
        ("127.0.1", ("127.0.0.1",)),
        ("2130706433", ("127.0.0.1",)),
        ("0x7f.1", ("127.0.0.1",)),
        ("0x", ("0.0.0.0",)),
        ("0177.0.0.1", ("127.0.0.1", "177.0.0.1")),
        ("010.0.0.1", ("8.0.0.1", "10.0.0.1")),
        ("08.0.0.1", None),
        ("255.255.255.255", ("255.255.255.255",)),
        ("256.0.0.1", None),
        ("1.2.3.256", None),
        ("1.2.3.255", ("1.2.3.255",)),
        ("1.2.65535", ("1.2.255.255",)),
        ("1.2.65536", None),
        ("1.16777215", ("1.255.255.255",)),
        ("1.16777216", None),
        ("4294967295", ("255.255.255.255",)),
        ("4294967296", None),
        ("1.2.3.4.5", None),
        ("a.1", None),
        ("1.a", ("1.a",)),
        ("0" * 63 + "1", ("0.0.0.1",)),
        ("0" * 64 + "1", None),
        ("[::1]", ("[::1]",)),
        ("[0:0:0:0:0:0:0:1]", ("[::1]",)),
        ("[fe80::1%eth0]", ("[fe80::1]",)),
        ("[::x]", None),
        ("[::1", None),
        (
            "[::ffff:10.0.0.1]",
            ("10.0.0.1", "[::ffff:a00:1]", "[::ffff:10.0.0.1]"),
        ),
        ("a" * 253, ("a" * 253,)),
        ("a" * 254, None),
    ],
)
def test_all_forms_of_a_host_are_listed_in_order(host: str, forms: tuple[str, ...] | None) -> None:
    assert host_forms(host) == forms


@pytest.mark.parametrize(
    ("host", "forms"),
    [
        ("bücher.de", {"xn--bcher-kva.de", "bücher.de"}),
        ("xn--bcher-kva.de", {"xn--bcher-kva.de", "bücher.de"}),
        ("straße.de", {"strasse.de", "straße.de", "xn--strae-oqa.de"}),
        ("ü.ä", {"xn--tda.xn--4ca", "ü.ä"}),
    ],
)
def test_host_names_have_forms_in_ascii_and_in_unicode(host: str, forms: set[str]) -> None:
    found = host_forms(host)
    assert found is not None
    assert set(found) == forms
    assert found[0] == min(forms, key=lambda form: (not form.isascii(), form))


@pytest.mark.parametrize("host", ["xn--" + "a" * 60, "xn--\u00fc", "ü" * 64, "xn--999999999"])
def test_host_labels_that_are_too_long_or_not_encoded_are_malformed(host: str) -> None:
    assert host_forms(host) is None


@pytest.mark.parametrize(
    ("place", "forms"),
    [
        ("Example.COM", ("example.com",)),
        ("example.com:80", ("example.com",)),
        ("example.com:080", ("example.com",)),
        ("example.com:", ("example.com",)),
        ("example.com:443", ("example.com:443",)),
        ("example.com:0", ("example.com:0",)),
        ("example.com:65535", ("example.com:65535",)),
        ("example.com:65536", None),
        ("example.com:100000", None),
        ("example.com:00000443", ("example.com:443",)),
        ("127.1:81", ("127.0.0.1:81",)),
        ("[::ffff:1.2.3.4]:81", ("1.2.3.4:81", "[::ffff:102:304]:81", "[::ffff:1.2.3.4]:81")),
        ("a b", None),
        ("\U00100000.Com.:80", ("\U00100000.com",)),
        ("\U0010ffff:99999", ("\U0010ffff:99999",)),
    ],
)
def test_all_forms_of_a_host_with_a_port_are_listed_in_order(
    place: str, forms: tuple[str, ...] | None
) -> None:
    assert place_forms(place, "80") == forms


@pytest.mark.parametrize(
    ("digits", "default", "port"),
    [
        (None, "", ""),
        ("", "", ""),
        ("80", "80", ""),
        ("80", "", ":80"),
        ("0080", "80", ""),
        ("000", "", ":0"),
        ("81", "80", ":81"),
    ],
)
def test_leading_zeros_and_the_default_port_are_removed_from_a_port(
    digits: str | None, default: str, port: str
) -> None:
    assert plain_port(digits, default) == port


@pytest.mark.parametrize(
    ("host", "expected"), [("a", "a"), ("a.", "a"), ("a..", "a.."), (".", ""), ("", "")]
)
def test_the_final_dot_of_a_host_is_removed(host: str, expected: str) -> None:
    assert without_final_dot(host) == expected
