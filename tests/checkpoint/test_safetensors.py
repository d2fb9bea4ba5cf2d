"""Headers of safetensors files: those of the real library are read, hostile ones are refused."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truetune.checkpoint.read_and_check_safetensors_header import (
    BrokenFile,
    read_safetensors_header,
)


def write(path: Path, header: Any, body: bytes = b"", *, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)
    return path


def entry(shape: list[int], start: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_a_real_file(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "a.safetensors"
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "b": np.ones((2, 3), np.float32),
        "a": np.zeros((0, 4), np.float16),
        "c": np.array(3, np.int64),
    }
    save_file(arrays, path, metadata={"format": "np"})
    header = read_safetensors_header(path)
    assert {t.name: (t.shape, t.value_count, t.whole) for t in header.tensors} == {
        "a": ((0, 4), 0, True),
        "b": ((2, 3), 6, True),
        "c": ((), 1, True),
    }
    assert (header.metadata, header.faults) == ({"format": "np"}, ())


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"[1]", "not a JSON object"),
        (b'{"a": 1', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}, "a": {}}', "twice"),
        ({"a": {"dtype": "F32", "shape": [1]}}, "lacks"),
        ({"a": [1]}, "lacks"),
        ({"a": entry([-1], 0, 4)}, "shape"),
        ({"a": entry([True], 0, 4)}, "shape"),
        ({"a": entry([1] * 17, 0, 4)}, "shape"),
        ({"a": entry([1], 4, 0)}, "does not fit"),
        ({"a": entry([2], 0, 4)}, "does not fit"),
        ({"a": entry([1 << 62, 1 << 62], 0, 4)}, "does not fit"),
        ({"a": entry([1], -4, 0)}, "shape"),
    ],
)
def test_a_header_that_lies(header: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenFile, match=said):
        read_safetensors_header(write(tmp_path / "a.safetensors", header, bytes(4)))


def test_lengths_are_compared_with_the_file(tmp_path: Path) -> None:
    for length in (1 << 63, 33 << 20, 100):
        with pytest.raises(BrokenFile, match="header should have"):
            read_safetensors_header(write(tmp_path / "a.safetensors", {}, length=length))
    (tmp_path / "b").write_bytes(b"abc")
    with pytest.raises(BrokenFile, match="too short"):
        read_safetensors_header(tmp_path / "b")
    (tmp_path / "c").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    )
    with pytest.raises(BrokenFile, match="git lfs pull"):
        read_safetensors_header(tmp_path / "c")


def test_what_does_not_fit_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    cut = read_safetensors_header(
        write(path, {"a": entry([1], 0, 4), "b": entry([4], 4, 20)}, bytes(10))
    )
    assert [tensor.whole for tensor in cut.tensors] == [True, False]
    assert "cut off" in cut.faults[0]
    over = read_safetensors_header(
        write(path, {"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, bytes(8))
    )
    assert "overlap" in over.faults[0]
    more = read_safetensors_header(write(path, {"a": entry([1], 0, 4)}, bytes(9)))
    assert "5 bytes at its end" in more.faults[0]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_nothing_else_is_raised(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, length: int
) -> None:
    path = tmp_path_factory.mktemp("h") / "a.safetensors"
    path.write_bytes(struct.pack("<Q", length) + body)
    with contextlib.suppress(BrokenFile):
        read_safetensors_header(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "F4", "??"]) | json_values,
        "shape": json_values,
        "data_offsets": json_values,
    }
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=5), entries | json_values, max_size=4))
def test_no_json_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any]
) -> None:
    path = write(tmp_path_factory.mktemp("h") / "a.safetensors", header, bytes(16))
    with contextlib.suppress(BrokenFile):
        for tensor in read_safetensors_header(path).tensors:
            assert tensor.size >= 0
            assert not tensor.whole or tensor.start + tensor.size <= path.stat().st_size
