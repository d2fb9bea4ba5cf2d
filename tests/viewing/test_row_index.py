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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from truetune.data import json_stream_window
from truetune.data.find_data_files import DataFile, file_kind, find_data_files_of_paths, open_raw
from truetune.data.read_file_records import Record, read_records
from truetune.errors import DataError
from truetune.viewing.row_index import RowIndex

LINE = st.one_of(
    st.builds(lambda text: json.dumps({"text": text}, ensure_ascii=False), st.text(st.characters(codec="utf-8"))),
    st.sampled_from(["", "  ", "\t", ' {"text": "a"}', '{"text":\r"b"}', '{"text": "c"}\r', "broken", '{"te', "[1]"]),
)  # fmt: skip
ROWS = [{"text": f"row {i} " + "x" * (i % 7), "n": str(i)} for i in range(60)]


def whole(paths: list[str]) -> list[tuple[str, int, Any, str]]:
    found = []
    for source in find_data_files_of_paths(paths):
        with open_raw(source.path) as raw:
            found += [(str(source.path), *told(record)) for record in read_records(source, raw)]
    return found


def told(record: Record) -> tuple[int, Any, str]:
    return record.line, record.row, str(record.error)


def indexed(paths: list[str], **options: Any) -> RowIndex:
    row_index = RowIndex(find_data_files_of_paths(paths), **options)
    row_index.index()
    return row_index


def seen(row_index: RowIndex, start: int, count: int) -> list[tuple[str, int, Any, str]]:
    return [(str(source.path), *told(record)) for source, record in row_index.records(start, count)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(LINE, max_size=9), min_size=1, max_size=3),
    st.integers(1, 60),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_lines_by_number_are_those_of_a_full_read(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[str]],
    size: int,
    mark: bool,
    packed: bool,
    data: Any,
) -> None:
    folder, paths = tmp_path_factory.mktemp("s"), []
    for i, lines in enumerate(files):
        body = ("\ufeff" * mark + '{"text": "first"}\n' + "\n".join(lines)).encode()
        path = folder / f"{i}.jsonl{'.gz' * packed}"
        path.write_bytes(gzip.compress(body) if packed else body)
        paths.append(str(path))
    expected, row_index = whole(paths), indexed(paths, stretch=size)
    assert row_index.total == row_index.indexed == len(expected)
    for _ in range(4):
        start, count = data.draw(st.integers(0, len(expected) + 2)), data.draw(st.integers(0, 9))
        assert seen(row_index, start, count) == expected[start : start + count]
    row_index.close()


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
    | st.text(st.sampled_from('a"\\\r\n\t,[]{}é\u2028\ufeff𝄞')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
OBJECT = st.dictionaries(st.sampled_from(["text", "a", "é"]), VALUE, max_size=3)
BETWEEN = st.sampled_from([",", ", ", ",\n", "\r\n,\n\n", " ,,\t", "\n"])
TAIL = st.sampled_from(
    ["", "\n", "]", "]\n", "}", "]}", ", 1}", '{"te', '"', "\udcff", "]\n[]", ',"b":[{}]}']
)
FIELD = st.sampled_from(["\ufeff", "\ufeffa", "", '"']) | st.text(
    st.sampled_from('a",\r\n é'), max_size=4
)


@st.composite
def json_text(draw: st.DrawFn) -> str:
    """An array, an object that holds one, or rows one after the other, with an end of any kind."""
    rows = draw(st.lists(OBJECT, min_size=1, max_size=12))
    begin = draw(st.sampled_from(["[", " [\n", '{"n": [1], "data": [', ""]))
    text = "".join(
        json.dumps(row, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        + draw(BETWEEN)
        for row in rows
    )
    return begin + text + draw(TAIL)


@st.composite
def csv_text(draw: st.DrawFn) -> str:
    """Quotes, line breaks and blank lines where they may stand, and a tail that may be broken."""
    text, rows = io.StringIO(), draw(st.lists(st.tuples(FIELD, FIELD), max_size=12))
    ends = draw(st.sampled_from(["\n", "\r\n"]))
    csv.writer(
        text, lineterminator=ends, quoting=draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
    ).writerows([("x", "y"), *rows])
    return text.getvalue() + draw(
        st.sampled_from(["", "\n", "\n\na,b\n", "\n \n", '"', "a,b,c\n", "\udcff\n"])
    )


def until_it_breaks(path: Path) -> tuple[list[Any], list[Any]]:
    """The rows of a file, and what ends them."""
    found: list[Any] = []
    with open_raw(path) as raw:
        try:
            found.extend(
                (str(path), *told(record))
                for record in read_records(DataFile(path, file_kind(path)), raw)
            )
        except DataError as error:
            return found, [(str(path), 0, None, str(error))]
    return found, []


@settings(max_examples=80, deadline=None)
@given(st.booleans(), st.sampled_from([1, 9, 60]), st.booleans(), st.booleans(), st.data())
def test_rows_of_json_and_csv_are_those_of_a_full_read(
    tmp_path_factory: pytest.TempPathFactory,
    table: bool,
    size: int,
    mark: bool,
    packed: bool,
    data: Any,
) -> None:
    text = "\ufeff" * mark + data.draw(csv_text() if table else json_text())
    body = text.encode("utf-8", "surrogateescape")
    path = tmp_path_factory.mktemp("s") / f"a.{'csv' if table else 'json'}{'.gz' * packed}"
    path.write_bytes(gzip.compress(body) if packed else body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream_window, "CHUNK_CHARACTERS", data.draw(st.integers(5, 99)))
        expected, why = until_it_breaks(path)
        row_index = indexed([str(path)], stretch=size, kept=1)
        assert row_index.total == len(expected) + len(why)
        for start in data.draw(st.lists(st.integers(0, len(expected)), min_size=1, max_size=5)):
            assert seen(row_index, start, 3) == (expected + why)[start : start + 3]
        row_index.close()


class Counted(type(Path())):  # type: ignore[misc]
    """A file whose bytes are counted as they are read."""

    read = 0

    def open(self, *arguments: Any, **more: Any) -> Any:
        counted = type(self)

        class Reads(io.FileIO):
            def readinto(self, into: Any) -> int | None:
                size = super().readinto(into)
                counted.read += size or 0
                return size

        return io.BufferedReader(Reads(str(self)))


@pytest.mark.parametrize("name", ["a.json", "data.csv", "array.jsonl"])
def test_a_row_far_on_costs_the_part_that_holds_it(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, [{"text": f"row {i} " + "x" * 80} for i in range(10_000)])
    row_index = RowIndex(
        [DataFile(Counted(tmp_path / name), file_kind(tmp_path / name))], stretch=4000
    )
    row_index.index()
    for start in (9_990, 300, 5_000, 9_990):
        Counted.read = 0
        found = row_index.records(start, 2)
        assert [record.row["text"].split()[1] for _, record in found] == [
            str(start),
            str(start + 1),
        ]
        assert Counted.read < 50_000
    row_index.close()


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """Rows in the form that the name says."""
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    packers: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.compress,
    }
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
    expected, row_index = whole(paths), indexed(paths, stretch=200, kept=8)
    assert row_index.total == len(ROWS)
    for start in (59, 0, 30, 31, 33, 24, 58, 7, 6):
        assert seen(row_index, start, 4) == expected[start : start + 4], start
    assert seen(row_index, 60, 4) == seen(row_index, 10**9, 4) == []
    row_index.close()


def test_several_files_are_one_after_the_other(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.jsonl.gz", "c.json", "data.csv"):
        write(tmp_path / name, ROWS)
    paths = [str(tmp_path / "*")]
    expected, row_index = whole(paths), indexed(paths, stretch=300)
    assert row_index.total == 240
    assert seen(row_index, 0, 240) == expected
    assert seen(row_index, 58, 4) == expected[58:62]
    row_index.close()


def test_a_file_that_breaks_off_ends_with_a_row_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ROWS)[:-40])
    body = gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode())
    (tmp_path / "b.jsonl.gz").write_bytes(body[:-20])
    (tmp_path / "c.parquet").write_bytes(b"PAR1 is all there is")
    (tmp_path / "d.jsonl").write_text('{"text": "whole"}\n')
    row_index = indexed([str(tmp_path / "*")])
    assert row_index.total is not None
    found = seen(row_index, 0, row_index.total)
    errors = [(Path(file).name, error) for file, _, _, error in found if error != "None"]
    assert [name for name, _ in errors] == ["a.json", "b.jsonl.gz", "c.parquet"]
    assert found[-1][2] == {"text": "whole"}
    row_index.close()


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n')
    row_index = indexed([str(path)])
    assert row_index.changed_files() == []
    path.write_text('{"text": "b"}\n{"text": "c"}\n')
    assert row_index.changed_files() == [str(path)]
    path.unlink()
    assert row_index.changed_files() == [str(path)]
    row_index.close()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    line, rows = json.dumps({"text": "y" * 180}) + "\n", 200_000
    (tmp_path / "a.jsonl").write_text(line * rows)
    assert os.path.getsize(tmp_path / "a.jsonl") > 35 << 20
    tracemalloc.start()
    row_index = indexed([str(tmp_path / "a.jsonl")])
    for start in range(0, rows, rows // 40):
        assert len(row_index.records(start, 20)) == 20
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert row_index.total == rows
    assert peak < 6 << 20, peak
    row_index.close()


def test_packed_lines_beyond_what_is_kept_of_them(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"{i} {'z' * 380}"}) + "\n" for i in range(30_000)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode(), 1))
    row_index = indexed([str(tmp_path / "a.jsonl.gz")])
    for start in (29_990, 29_700, 3, 15_000, 14_000, 0):
        assert [record.row for _, record in row_index.records(start, 5)] == [
            json.loads(line) for line in lines[start : start + 5]
        ]
    row_index.close()
