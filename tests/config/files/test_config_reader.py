"""Tests of reading configuration files."""

import os
from pathlib import Path

import pytest

from fairlead.config.files.config_reader import MAX_SIZE, ConfigReader, _why, read_file, stamp_of
from fairlead.errors import ConfigError
from fairlead.limits import CONFIG_FILE_BYTES


def why(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        read_file(str(path))
    assert (refused.value.path, refused.value.line) == (str(path), 1)
    return str(refused.value.args[0])


def test_reading_a_missing_file_returns_no_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    assert read_file(str(path)) == b"content"
    for missing in (tmp_path / "b", path / "below", tmp_path / ("x" * 300)):
        assert read_file(str(missing)) is None
    assert read_file("a\0b") is None


def test_paths_that_are_not_files_are_rejected(tmp_path: Path) -> None:
    assert why(tmp_path) == "expected a file, but the path is a directory"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert why(pipe) == "expected a file, but the path is not a regular file"
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert why(loop) == "a symbolic link that points to itself"


def test_the_size_of_a_configuration_file_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(MAX_SIZE))
    assert len(read_file(str(path)) or b"") == MAX_SIZE
    hits = CONFIG_FILE_BYTES.hits
    path.write_bytes(bytes(MAX_SIZE + 1))
    assert why(path) == "larger than 4 MiB"
    assert CONFIG_FILE_BYTES.hits == hits + 1


def test_a_file_stamp_changes_with_the_content_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert stamp_of(str(path)) == stamp_of("a\0b") == (0, 0, 0)
    path.write_bytes(b"1")
    first = stamp_of(str(path))
    path.write_bytes(b"12")
    assert first[1:] == (1, path.stat().st_ino)
    assert stamp_of(str(path)) != first


def test_each_configuration_file_is_read_once_and_its_problems_are_collected(
    tmp_path: Path,
) -> None:
    good, bad, gone = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json"
    good.write_text('{"a": 1, "a": 2}')
    bad.write_text('{\n"a": }')
    files = ConfigReader()
    document = files.document(str(good))
    assert document is not None
    assert document.data == {"a": 2}, "as other programs read it"
    good.write_text("{}")
    assert files.document(str(good)) is document
    assert files.document(str(bad)) is files.document(str(gone)) is None
    assert files.document(str(bad)) is None
    assert (files.read, files.unreadable) == ([str(good), str(bad)], [str(bad)])
    assert [(one.path, one.line, one.harmless) for one in files.problems] == [(str(bad), 2, False)]
    assert str(files.problems[0]).startswith(f"{bad}:2: not valid JSON: ")
    files.problem("x", 3, "odd", harmless=True)
    assert files.problems[-1].harmless


def test_each_file_is_read_once_and_requested_paths_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_bytes(b"1")
    (tmp_path / "a").mkdir()
    files = ConfigReader()
    assert files.content(str(path)) == b"1"
    path.write_bytes(b"2")
    assert files.content(str(path)) == b"1"
    assert files.content(str(tmp_path)) is None
    assert files.names_in(str(tmp_path)) == ["a", "b"]
    assert files.names_in(str(path)) == files.names_in("x\0") == []
    files.document(str(tmp_path / "c"))
    assert files.looked_for == [
        str(tmp_path / "c"),
        str(path),
        str(tmp_path),
        str(tmp_path),
        str(path),
        "x\0",
    ]


def test_reading_files_leaves_no_descriptors_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"content")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        read_file(str(path))
        why(tmp_path)
    assert len(os.listdir("/proc/self/fd")) < before + 20


def test_the_message_for_an_os_error_without_text_names_the_exception_type() -> None:
    assert _why(OSError(13, "no")) == "cannot be read: no"
    assert _why(PermissionError()) == "cannot be read: PermissionError"
