"""Rows by their number are the rows that a full read gives, whatever the file."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from truetune.data.files import open_raw, resolve
from truetune.data.records import Record, records
from truetune.viewing.shelf import Shelf

LINE = st.one_of(
    st.builds(lambda text: json.dumps({"text": text}, ensure_ascii=False), st.text(st.characters(codec="utf-8"))),
    st.sampled_from(["", "  ", "\t", ' {"text": "a"}', '{"text":\r"b"}', '{"text": "c"}\r', "broken", '{"te', "[1]"]),
)  # fmt: skip
ROWS = [{"text": f"row {i} " + "x" * (i % 7), "n": str(i)} for i in range(60)]


def whole(paths: list[str]) -> list[tuple[str, int, Any, str]]:
    found = []
    for source in resolve(paths):
        with open_raw(source.path) as raw:
            found += [(str(source.path), *told(record)) for record in records(source, raw)]
    return found


def told(record: Record) -> tuple[int, Any, str]:
    return record.line, record.row, str(record.error)


def indexed(paths: list[str], **options: Any) -> Shelf:
    shelf = Shelf(resolve(paths), **options)
    shelf.index()
    return shelf


def seen(shelf: Shelf, start: int, count: int) -> list[tuple[str, int, Any, str]]:
    return [(str(source.path), *told(record)) for source, record in shelf.records(start, count)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(LINE, max_size=9), min_size=1, max_size=3), st.integers(1, 60), st.booleans(), st.booleans(),
       st.data())  # fmt: skip
def test_lines_by_number_are_those_of_a_full_read(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[str]], size: int, mark: bool, packed: bool, data: Any
) -> None:
    folder, paths = tmp_path_factory.mktemp("s"), []
    for i, lines in enumerate(files):
        body = ("\ufeff" * mark + '{"text": "first"}\n' + "\n".join(lines)).encode()
        path = folder / f"{i}.jsonl{'.gz' * packed}"
        path.write_bytes(gzip.compress(body) if packed else body)
        paths.append(str(path))
    expected, shelf = whole(paths), indexed(paths, stretch=size)
    assert shelf.total == shelf.indexed == len(expected)
    for _ in range(4):
        start, count = data.draw(st.integers(0, len(expected) + 2)), data.draw(st.integers(0, 9))
        assert seen(shelf, start, count) == expected[start : start + count]
    shelf.close()


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """Rows in the form that the name says."""
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
    if path.suffix in packers and path.stem.endswith(".jsonl"):
        path.write_bytes(packers[path.suffix](lines))
    elif path.name == "array.jsonl" or path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    elif path.name.startswith("data.csv"):
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
        body = text.getvalue().encode()
        path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    elif path.suffix == ".parquet":
        parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=7)
    else:
        table = arrow.Table.from_pylist(rows)
        kind = arrow.ipc.new_stream if path.stem == "stream" else arrow.ipc.new_file
        with kind(path, table.schema) as sink:
            sink.write_table(table, max_chunksize=9)


@pytest.mark.parametrize(
    "name",
    ["a.jsonl.gz", "a.jsonl.bz2", "a.jsonl.xz", "a.jsonl.zst", "array.jsonl", "a.json", "data.csv", "data.csv.gz",
     "a.parquet", "stream.arrow", "file.arrow"],
)  # fmt: skip
def test_every_kind_of_file_forwards_and_back(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, ROWS)
    paths = [str(tmp_path / name)]
    expected, shelf = whole(paths), indexed(paths, stretch=200, kept=8)
    assert shelf.total == len(ROWS)
    for start in (59, 0, 30, 31, 33, 24, 58, 7, 6):
        assert seen(shelf, start, 4) == expected[start : start + 4], start
    assert seen(shelf, 60, 4) == seen(shelf, 10**9, 4) == []
    shelf.close()


def test_several_files_are_one_after_the_other(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.jsonl.gz", "c.json", "data.csv"):
        write(tmp_path / name, ROWS)
    paths = [str(tmp_path / "*")]
    expected, shelf = whole(paths), indexed(paths, stretch=300)
    assert shelf.total == 240
    assert seen(shelf, 0, 240) == expected
    assert seen(shelf, 58, 4) == expected[58:62]
    shelf.close()


def test_a_file_that_breaks_off_ends_with_a_row_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS)[:-40])
    body = gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode())
    (tmp_path / "b.jsonl.gz").write_bytes(body[:-20])
    (tmp_path / "c.parquet").write_bytes(b"PAR1 is all there is")
    (tmp_path / "d.jsonl").write_text('{"text": "whole"}\n')
    shelf = indexed([str(tmp_path / "*")])
    assert shelf.total is not None
    found = seen(shelf, 0, shelf.total)
    errors = [(Path(file).name, error) for file, _, _, error in found if error != "None"]
    assert [name for name, _ in errors] == ["a.json", "b.jsonl.gz", "c.parquet"]
    assert found[-1][2] == {"text": "whole"}
    shelf.close()


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n')
    shelf = indexed([str(path)])
    assert shelf.changed() == []
    path.write_text('{"text": "b"}\n{"text": "c"}\n')
    assert shelf.changed() == [str(path)]
    path.unlink()
    assert shelf.changed() == [str(path)]
    shelf.close()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    line, rows = json.dumps({"text": "y" * 180}) + "\n", 200_000
    (tmp_path / "a.jsonl").write_text(line * rows)
    assert os.path.getsize(tmp_path / "a.jsonl") > 35 << 20
    tracemalloc.start()
    shelf = indexed([str(tmp_path / "a.jsonl")])
    for start in range(0, rows, rows // 40):
        assert len(shelf.records(start, 20)) == 20
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shelf.total == rows
    assert peak < 6 << 20, peak
    shelf.close()


def test_packed_lines_beyond_what_is_kept_of_them(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"{i} {'z' * 380}"}) + "\n" for i in range(30_000)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode(), 1))
    shelf = indexed([str(tmp_path / "a.jsonl.gz")])
    for start in (29_990, 29_700, 3, 15_000, 14_000, 0):
        assert [record.row for _, record in shelf.records(start, 5)] == [
            json.loads(line) for line in lines[start : start + 5]
        ]
    shelf.close()
