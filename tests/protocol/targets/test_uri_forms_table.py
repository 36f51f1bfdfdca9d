"""Tests of the order of the forms of a URI, and of its normal form."""

import pytest

from fairlead.limits import TARGET_FORMS, TARGET_LENGTH
from fairlead.protocol.targets.uri_forms import is_plain_uri, normalize_uri, uri_forms


@pytest.mark.parametrize(
    ("uri", "others", "normal"),
    [
        ("file:///a", [], "file:///a"),
        ("file:///%61b", ["file:///ab"], "file:///ab"),
        ("file:///a%252fb", ["file:///a%2fb", "file:///a/b"], "file:///a/b"),
        ("file:///x/../a", ["file:///a"], "file:///a"),
        ("file:///a//b", ["file:///a/b"], "file:///a/b"),
        ("file:///a/", ["file:///a"], "file:///a/"),
        ("file:///a/.", ["file:///a/", "file:///a"], "file:///a/"),
        ("file:///a?x", ["file:///a"], "file:///a?x"),
        ("file:///a?b/../c", ["file:///a", "file:///c"], "file:///a?b/../c"),
        ("file:///a#f", ["file:///a"], "file:///a#f"),
        ("file:///a\\b", ["file:///a/b"], "file:///a/b"),
        ("file:///a?b\\c", ["file:///a?b/c", "file:///a"], "file:///a?b/c"),
        ("file:///a\x00b", ["file:///ab", "file:///a"], "file:///ab"),
        ("file://host/a", ["file:///a", "file:///host/a"], "file://host/a"),
        ("file://localhost/a", ["file:///a"], "file:///a"),
        ("file://u@h/a", ["file://h/a", "file:///a", "file:///h/a"], "file://h/a"),
        ("file:a", ["file:///a"], "file:///a"),
        ("file:", ["file:///"], "file:///"),
        ("file:///C|/x", ["file:///C:/x"], "file:///C:/x"),
        (
            "file://C:/x",
            ["file://c/x", "file:///x", "file:///c/x", "file:///C:/x"],
            "file://c/x",
        ),
        ("file:///a::$DATA", ["file:///a"], "file:///a"),
        ("file:///?/x/a", ["file:///x/a", "file:///"], "file:///x/a"),
        ("FILE:///a", ["file:///a"], "file:///a"),
        ("http://H/a", ["http://h/a"], "http://h/a"),
        ("http://h:80", ["http://h/"], "http://h/"),
        ("http:h/a", ["http://h/a"], "http://h/a"),
        ("http:///h/a", ["http://h/a"], "http://h/a"),
        ("https://u:p@h/a", ["https://h/a"], "https://h/a"),
        ("http://u%2fv@h/a", ["http://h/a", "http://u/v@h/a"], "http://u/v@h/a"),
        ("http://h%41/a", ["http://ha/a"], "http://ha/a"),
        ("ftp://127.1/", ["ftp://127.0.0.1/"], "ftp://127.0.0.1/"),
        ("x://H./a", ["x://h/a"], "x://h/a"),
        ("x://h:/a", ["x://h/a"], "x://h/a"),
        ("x://[0::1]/a", ["x://[::1]/a"], "x://[::1]/a"),
        ("x://u\\v@h/a", ["x://h/a", "x://u/v@h/a"], "x://u/v@h/a"),
        ("x:a", [], "x:a"),
        ("A:b", ["a:b"], "a:b"),
        ("note:a b", [], "note:a b"),
        (" note:ab", ["note:ab"], "note:ab"),
        ("x:a.", ["x:a"], "x:a"),
        ("x:a. /b", ["x:a/b"], "x:a/b"),
        ("x:..", ["x:"], "x:"),
        ("db://t?q=..", ["db://t"], "db://t?q=.."),
        ("x://h/a/..", ["x://h/"], "x://h/"),
        ("x:a\tb", ["x:ab"], "x:ab"),
        ("x:a\u00adb", ["x:ab"], "x:ab"),
        ("x:ａ", ["x:a"], "x:a"),
        ("", [], ""),
    ],
)
def test_all_forms_of_a_uri_are_listed_in_order(uri: str, others: list[str], normal: str) -> None:
    assert uri_forms(uri) == (uri, *others)
    assert normalize_uri(uri) == normal


@pytest.mark.parametrize(
    "uri", ["http://h:x/a", "http:", "http://a b/", "https://h:65536/", "x:a" + "\u0301" * 31]
)
def test_a_uri_with_a_malformed_host_or_too_many_marks_has_no_forms(uri: str) -> None:
    assert uri_forms(uri) is None
    assert normalize_uri(uri) == uri


@pytest.mark.parametrize("start", ["x:/%61", "x:/a"])
def test_forms_of_a_long_uri_are_computed_but_not_cached(start: str) -> None:
    for length in (256, 257, 1000):
        tail = "b" * (length - len(start))
        forms = tuple(dict.fromkeys([start + tail, "x:/a" + tail]))
        assert uri_forms(start + tail) == forms
        assert normalize_uri(start + tail) == "x:/a" + tail


def test_a_uri_over_the_length_limit_has_no_forms() -> None:
    at_limit = "x:/%61" + "b" * (TARGET_LENGTH.value - len("x:/%61"))
    hits = TARGET_LENGTH.hits
    assert normalize_uri(at_limit) == "x:/a" + at_limit[len("x:/%61") :]
    assert TARGET_LENGTH.hits == hits
    assert normalize_uri(at_limit + "b") == at_limit + "b"
    assert uri_forms(at_limit + "b") is None
    assert TARGET_LENGTH.hits == hits + 2


def test_a_uri_with_too_many_forms_is_rejected_and_counted() -> None:
    hits = TARGET_FORMS.hits
    assert uri_forms("file:///" + "%2525/../a\\b//c%2f．/" * 8 + "?x/../y#z/..") is None
    assert TARGET_FORMS.hits == hits + 1


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("file:///a/b.txt", True),
        ("file:///a/", False),
        ("file:///a$b", False),
        ("http://h/", True),
        ("http://h", False),
        ("http://xn--a/", False),
        ("note:a", True),
        ("x://h/a$b", True),
        ("X:a", False),
        ("x:a%20", False),
    ],
)
def test_a_plain_uri_has_one_form(uri: str, plain: bool) -> None:
    assert is_plain_uri(uri) is plain
