"""Tests of resources with fixed URIs and URI templates."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from fairlead import Context
from fairlead.server.features.resource_registry import (
    CacheHints,
    Resources,
    file_resource,
)


def resources_of(**functions: Any) -> Resources:
    found = Resources(10)
    for uri, function in functions.items():
        register(found, function, uri)
    return found


def register(resources: Resources, function: Any, uri: str, **facts: Any) -> None:
    about = {"name": "n", "title": None, "description": None, "mime_type": None, "cache": None}
    template = "{" in uri
    resources.register(function, uri, **{**about, "is_template": template, **facts})


@pytest.mark.parametrize(
    ("hints", "members"),
    [
        (CacheHints(), b'"ttlMs":0,"cacheScope":"private"'),
        (CacheHints(1.5, "public"), b'"ttlMs":1500,"cacheScope":"public"'),
        (CacheHints(0.0004), b'"ttlMs":0,"cacheScope":"private"'),
        (CacheHints(0.0006), b'"ttlMs":1,"cacheScope":"private"'),
    ],
    ids=["none", "public", "rounded down", "rounded up"],
)
def test_cache_hints_are_members_of_a_resource_result(hints: CacheHints, members: bytes) -> None:
    assert hints.members() == members


def test_invalid_cache_hints_are_rejected() -> None:
    CacheHints(0, "public")
    with pytest.raises(ValueError, match=r"^cache_ttl must be 0 or more seconds, not -0.1$"):
        CacheHints(-0.1)
    with pytest.raises(ValueError, match="^cache_scope must be 'private' or 'public', not 'all'$"):
        CacheHints(0, "all")


def test_resources_and_templates_have_separate_lists() -> None:
    resources = Resources(10)
    assert len(resources) == 0
    register(resources, lambda: "", "r://1", title="T", description="D", mime_type="a/b")
    register(resources, lambda: "", "r://2")
    register(resources, lambda a: a, "r://{a}/x", title="T", description="D", mime_type="a/b")
    assert len(resources) == 3
    (one, two), (template,) = resources.fixed.entries(), resources.templates.entries()
    for entry in (one, template):
        about = entry.definition
        assert (about.name, about.title, about.description) == ("n", "T", "D")
        assert entry.definition.mime_type == "a/b"
        assert (entry.asynchronous, entry.cache, entry.home) == (False, None, None)
    assert (two.definition.title, two.definition.description) == (UNSET, UNSET)
    assert two.definition.mime_type == "text/plain"
    assert (one.definition.uri, template.definition.uri_template) == ("r://1", "r://{a}/x")
    assert (one.template, template.template is not None) == (None, True)


@pytest.mark.parametrize(
    ("uri", "function", "problem"),
    [
        ("r://1", lambda a: a, "'r://1' has no variable for a"),
        ("r://{a}", lambda a, b, c: a, "'r://{a}' has no variable for b, c"),
        ("r://{a}/{b}/{c}", lambda b: b, "'r://{a}/{b}/{c}': the function has no parameter a, c"),
        ("r://{a}", lambda: "", "'r://{a}': the function has no parameter a"),
    ],
    ids=["fixed", "missing", "unused", "no parameter"],
)
def test_variables_of_a_uri_template_must_match_the_parameters_of_the_function(
    uri: str, function: Any, problem: str
) -> None:
    resources = Resources(10)
    with pytest.raises(TypeError) as refused:
        register(resources, function, uri)
    assert str(refused.value) == problem
    assert len(resources) == 0


def test_a_template_function_may_have_optional_parameters_besides_the_variables() -> None:
    resources = Resources(10)
    register(resources, lambda a, b="x": a, "r://{a}")
    register(resources, lambda **every: str(every), "s://{a}/{b}")
    register(resources, lambda b="x": b, "t://1")

    def asking(a: str, ctx: Context) -> str:
        return a

    register(resources, asking, "u://{a}")
    assert len(resources) == 4
    with pytest.raises(ValueError, match="already"):
        register(resources, lambda a: a, "r://{a}")


def test_the_most_specific_matching_resource_or_template_is_used() -> None:
    resources = Resources(10)
    for uri in ("r://{a}", "r://{a}/{b}", "r://{a}/fixed", "r://x"):
        register(resources, lambda **every: str(every), uri) if "{" in uri else register(
            resources, lambda: "", uri
        )

    def found(uri: str) -> Any:
        entry = resources.find(uri)
        if entry is None:
            return None
        definition: Any = entry[0].definition
        return getattr(definition, "uri", None) or definition.uri_template, entry[1]

    assert found("r://x") == ("r://x", {})
    assert found("r://y") == ("r://{a}", {"a": "y"})
    assert found("r://y/fixed") == ("r://{a}/fixed", {"a": "y"})
    assert found("r://y/z") == ("r://{a}/{b}", {"a": "y", "b": "z"})
    assert found("other://y") is None


def test_the_error_for_an_unknown_resource_contains_its_uri() -> None:
    error = Resources(100).not_found("r://1", -32002)
    assert (error.code, error.message, error.data) == (
        -32002,
        "Resource not found: r://1; resources/list returns the available resources",
        {"uri": "r://1"},
    )


@pytest.mark.parametrize(
    ("name", "data", "kind", "content"),
    [
        ("a.txt", b"text", "text/plain", "text"),
        ("b.png", b"a\0b", "image/png", b"a\0b"),
        ("c.txt", b"\xff", "text/plain", b"\xff"),
        ("d", b"", "application/octet-stream", ""),
    ],
    ids=["text", "zero byte", "not UTF-8", "empty"],
)
def test_a_file_resource_is_read_as_text_if_it_is_utf8(
    tmp_path: Path, name: str, data: bytes, kind: str, content: Any
) -> None:
    (tmp_path / name).write_bytes(data)
    uri, entry = file_resource(str(tmp_path / name))
    definition: Any = entry.definition
    assert uri == definition.uri == (tmp_path / name).as_uri()
    assert (definition.name, definition.mime_type, definition.size) == (name, kind, len(data))
    assert entry.asynchronous is False
    assert entry.provider() == content


def test_directories_and_missing_files_cannot_be_file_resources(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a file$"):
        file_resource(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="No such file"):
        file_resource(str(tmp_path / "missing"))
