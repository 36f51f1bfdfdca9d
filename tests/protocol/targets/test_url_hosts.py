"""Tests of hosts and ports of URLs: equal spellings and malformed ones."""

import pytest

from fairlead.protocol.targets.url_hosts import (
    host_forms,
    place_forms,
    plain_port,
    without_final_dot,
)


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
def test_forms_of_a_host_are_complete_and_in_order(
    host: str, forms: tuple[str, ...] | None
) -> None:
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
def test_names_have_forms_in_ascii_and_in_unicode(host: str, forms: set[str]) -> None:
    found = host_forms(host)
    assert found is not None
    assert set(found) == forms
    assert found[0] == min(forms, key=lambda form: (not form.isascii(), form))


@pytest.mark.parametrize("host", ["xn--" + "a" * 60, "xn--\u00fc", "ü" * 64, "xn--999999999"])
def test_labels_that_are_too_long_or_not_encoded_are_malformed(host: str) -> None:
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
def test_forms_of_a_host_with_a_port_are_complete_and_in_order(
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
def test_leading_zeros_and_the_default_port_are_removed(
    digits: str | None, default: str, port: str
) -> None:
    assert plain_port(digits, default) == port


@pytest.mark.parametrize(
    ("host", "expected"), [("a", "a"), ("a.", "a"), ("a..", "a.."), (".", ""), ("", "")]
)
def test_the_final_dot_of_a_host_is_removed(host: str, expected: str) -> None:
    assert without_final_dot(host) == expected
