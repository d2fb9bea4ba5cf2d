"""Files: every format keeps what is not fixed, to the byte."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import zstandard
from pyarrow import parquet

import truetune
from tests.fixing import chat, fixed
from truetune.demo import TOKENIZER
from truetune.errors import DataError, UsageError
from truetune.fixing.fix_file import fix_data_file
from truetune.settings.run_spec import RunSpec

GOOD = (
    '{"messages": [{"role": "user", "content": "Open?"}, {"role": "assistant", "content":'
    ' "Yes\\u00e9."}], "n": 1.0}'
)
ODD = (
    '{ "n":1e5 ,"messages" : [ {"content":"Open'
    ' \\/?","role":"human"},{"role":"bot","content":"Yes."}]}'
)
MADE = (
    '{ "n":1e5 ,"messages" : [ {"content":"Open'
    ' \\/?","role":"user"},{"role":"assistant","content":"Yes."}]}'
)
GONE = '{"messages": []}'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last", [True, False])
def test_lines(tmp_path: Path, end: str, mark: str, last: bool) -> None:
    data = tmp_path / "a.jsonl"
    parts = [f" {GOOD} ", "", "   ", ODD, GOOD, "", ODD]
    data.write_bytes((mark + end.join(parts) + (end if last else "")).encode())
    done = fixed(data)
    assert done.body == data.read_bytes().replace(ODD.encode(), MADE.encode())
    assert [(change["row"], change["line"], change["path"]) for change in done.changes] == [
        (1, 4, "messages[0].role"),
        (1, 4, "messages[1].role"),
        (3, 7, "messages[0].role"),
        (3, 7, "messages[1].role"),
    ]
    assert (done.changes[0]["before"], done.changes[0]["after"]) == ("human", "user")
    assert (done.fixed.changed_rows, done.fixed.rows, done.fixed.failed()) == (2, 4, False)


@pytest.mark.parametrize(
    "layout",
    [
        "[{odd}, {good},{gone}]", "[\n  {odd},\n  {good}\n]\n", '{{"version": "1", "data": [{good},\n{odd}], "x": 2}}',
        "{odd}\n{good}\n{odd}", "\ufeff[{odd}\r\n,{good}]  \n", "[{odd}]",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_json(tmp_path: Path, layout: str, name: str) -> None:
    if name == "a.jsonl" and not layout.lstrip("\ufeff").startswith("["):
        return
    data = tmp_path / name
    data.write_bytes(layout.format(odd=ODD, good=GOOD, gone=GOOD).encode())
    assert fixed(data).body == layout.format(odd=MADE, good=GOOD, gone=GOOD).encode()


@pytest.mark.parametrize(
    ("layout", "after"),
    [
        ("[{gone}, {good}]", "[{good}]"),
        ("[{good}, {gone}]", "[{good}]"),
        ("[\n {good},\n {gone},\n {odd}\n]\n", "[\n {good},\n {odd}\n]\n"),
        ("[{gone},{gone},{good} ,{gone},{odd}]", "[{good},{odd}]"),
        ('{{"data": [{gone}, {good}, {gone}], "x": 1}}', '{{"data": [{good}], "x": 1}}'),
    ],
)
def test_rows_go_with_their_comma(tmp_path: Path, layout: str, after: str) -> None:
    data = tmp_path / "a.json"
    parts = {"good": GOOD, "gone": GONE, "odd": MADE}
    data.write_text(layout.format(**parts), encoding="utf-8")
    done = fixed(data, unsafe=True)
    assert done.body.decode() == after.format(**parts)
    json.loads(done.body)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_cells(tmp_path: Path, name: str) -> None:
    between = "\t" if name.endswith("tsv") else ","
    messages = json.dumps(chat()["messages"]).replace('"assistant"', '"bot"')
    quoted = '"' + messages.replace('"', '""') + '"'
    lines = [
        between.join(["id", "note", "messages"]),
        between.join(
            ["1.0", 'an "odd" cell', '"' + json.dumps(chat()["messages"]).replace('"', '""') + '"']
        ),
        "",
        between.join(['"007"', f'"two\nlines{between} and ""quotes"""', quoted]),
        between.join(["", '""', quoted]),
    ]
    data = tmp_path / name
    data.write_bytes("\r\n".join(lines).encode())
    done = fixed(data)
    assert done.body == data.read_bytes().replace(b'""bot""', b'""assistant""')
    assert done.fixed.changed_rows == 2


PACK: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    ".gz": (gzip.compress, gzip.decompress),
    ".bz2": (bz2.compress, bz2.decompress),
    ".xz": (lzma.compress, lzma.decompress),
    ".zst": (
        zstandard.compress,
        lambda body: zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)).read(),
    ),
}


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("kind", [".jsonl", ".json"])
def test_packed_files_stay_packed(tmp_path: Path, suffix: str, kind: str) -> None:
    pack, unpack = PACK[suffix]
    body = f"{ODD}\n{GOOD}\n" if kind == ".jsonl" else f"[{ODD}, {GOOD}]"
    data = tmp_path / f"a{kind}{suffix}"
    data.write_bytes(pack(body.encode()))
    done = fixed(data)
    assert unpack(done.body).decode() == body.replace(ODD, MADE)
    first = done.body
    assert fixed(data).body == first, "the same file each time"


def _table(rows: list[dict[str, Any]]) -> Any:
    return arrow.Table.from_pylist(rows).replace_schema_metadata({"mine": "kept"})


@pytest.mark.parametrize("codec", ["zstd", "NONE"])
def test_parquet(tmp_path: Path, codec: str) -> None:
    rows = [{**chat(str(i)), "id": i, "weight": 0.1 * i} for i in range(1300)]
    for i in (3, 600, 1299):
        rows[i]["messages"][1]["role"] = "bot"
    rows[700]["messages"] = []
    data = tmp_path / "a.parquet"
    parquet.write_table(_table(rows), data, row_group_size=500, compression=codec)
    done = fixed(data, unsafe=True)
    before, after = parquet.ParquetFile(data), parquet.ParquetFile(done.path)
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    assert (
        after.metadata.row_group(0).column(0).compression
        == before.metadata.row_group(0).column(0).compression
    )
    wanted = [row for i, row in enumerate(rows) if i != 700]
    for i in (3, 600, 1298):
        wanted[i]["messages"][1]["role"] = "assistant"
    assert after.read().to_pylist() == wanted
    assert (done.fixed.changed_rows, done.fixed.dropped_rows) == (3, 1)
    assert {change["row"] for change in done.changes} == {3, 600, 700, 1299}


@pytest.mark.parametrize("make", [arrow.ipc.new_file, arrow.ipc.new_stream])
def test_arrow(tmp_path: Path, make: Any) -> None:
    rows = [chat(), chat("When?"), chat("Where?")]
    rows[1]["messages"][1]["role"] = "gpt"
    table = _table(rows)
    data = tmp_path / "a.arrow"
    with data.open("wb") as file, make(file, table.schema) as writer:
        writer.write_table(table)
    opened = (arrow.ipc.open_file if make is arrow.ipc.new_file else arrow.ipc.open_stream)(
        fixed(data).path
    )
    rows[1]["messages"][1]["role"] = "assistant"
    found = opened.read_all()
    assert found.to_pylist() == rows
    assert found.schema.metadata == {b"mine": b"kept"}


def test_a_column_has_room_for_its_type_alone(tmp_path: Path) -> None:
    """Arguments in a column of text can't become an object."""
    calls = [{"function": {"name": "f", "arguments": '{"day": "Monday"}'}}]
    messages = [
        {"role": "user", "content": "Open?", "tool_calls": None},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "assistant", "content": "Yes.", "tool_calls": None},
    ]
    data = tmp_path / "a.parquet"
    parquet.write_table(_table([{"messages": messages}, chat()]), data)
    done = fixed(data, TOKENIZER)
    assert done.fixed.changed_rows == 0
    assert parquet.read_table(done.path).to_pylist() == parquet.read_table(data).to_pylist()
    left = [left for left in done.fixed.left if left.rule == "tool-arguments-double-encoded"]
    assert [("no room for it" in entry.why, entry.rows) for entry in left] == [(True, 1)]


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("a.jsonl", b"", "holds no row"),
        ("a.jsonl", b"\n \n", "holds no row"),
        ("a.jsonl", b"no json\n", "not JSON"),
        ("a.json", b"[]", "holds no row"),
        ("a.json", b'[{"messages": [', "not JSON"),
        ("a.csv", b"messages\n", "holds no row"),
        ("a.parquet", b"PAR1", "not a Parquet"),
    ],
)
def test_what_can_not_be_read_leaves_nothing(
    tmp_path: Path, name: str, body: bytes, said: str
) -> None:
    data = tmp_path / name
    data.write_bytes(body)
    with pytest.raises(DataError, match=said):
        fixed(data)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_lines_that_hold_no_row_stay_or_go(tmp_path: Path) -> None:
    data = tmp_path / "a.jsonl"
    data.write_bytes(f"{{broken\n{ODD}\n[1]\nnull\n{GOOD}\n\xff\n".encode("latin-1"))
    done = fixed(data)
    assert done.body == data.read_bytes().replace(ODD.encode(), MADE.encode())
    assert [(left.rule, left.rows) for left in done.fixed.left] == [("malformed-rows", 4)]
    assert fixed(data, unsafe=True).body == f"{MADE}\n{GOOD}\n".encode()


@pytest.mark.parametrize("name", ["b.json", "b.jsonl.gz", "b.parquet", "b"])
def test_the_format_of_the_output_is_that_of_the_data(tmp_path: Path, name: str) -> None:
    data = tmp_path / "a.jsonl"
    data.write_text(ODD, encoding="utf-8")
    with pytest.raises(UsageError, match="has the format of"):
        fix_data_file(RunSpec(data=(str(data),)), str(tmp_path / name))


def test_one_file_is_fixed_at_a_time(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(ODD, encoding="utf-8")
    with pytest.raises(UsageError, match="2 files; fix takes one"):
        fix_data_file(RunSpec(data=(str(tmp_path),)), str(tmp_path / "c.jsonl"))


def test_the_output_is_known_as_our_own_until_it_is_changed(tmp_path: Path) -> None:
    data = tmp_path / "a.jsonl"
    data.write_text(f"{ODD}\n", encoding="utf-8")
    done = fixed(data)
    assert fixed(data).body == done.body
    done.path.write_bytes(done.body + b"\n")
    with pytest.raises(UsageError, match="unchanged since"):
        fixed(data)
    done.path.unlink()
    Path(f"{done.path}.changes.jsonl").write_text("mine")
    with pytest.raises(UsageError, match="a record of changes that truetune wrote"):
        fixed(data)


def test_an_interrupted_fix_leaves_nothing(tmp_path: Path) -> None:
    data = tmp_path / "a.jsonl"
    data.write_text(f"{ODD}\n" * 600, encoding="utf-8")

    def interrupt(rows: int, done: int, total: int) -> None:
        if rows >= 512:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fix_data_file(RunSpec(data=(str(data),)), str(tmp_path / "b.jsonl"), progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_check_of_what_was_fixed_is_silent(tmp_path: Path) -> None:
    data = tmp_path / "a.jsonl"
    data.write_text(f"{ODD}\n{GOOD}\n", encoding="utf-8")
    done = fixed(data, TOKENIZER)
    assert "turn-roles-unknown-to-template" in {
        f.rule for f in truetune.check(data, TOKENIZER).findings
    }
    assert "turn-roles-unknown-to-template" not in {
        f.rule for f in truetune.check(done.path, TOKENIZER).findings
    }


def test_rows_of_csv_are_read_as_csv(tmp_path: Path) -> None:
    """The fixed cells are those that the reader of CSV gives."""
    data = tmp_path / "a.csv"
    with data.open("w", newline="") as file:
        csv.writer(file).writerows(
            [["prompt", "completion"], ['q, "x"\n', "a\ud83d".encode(errors="replace").decode()]]
        )
    done = fixed(data, TOKENIZER, unsafe=True, select=("plain-string-pair-skips-template",))
    (row,) = csv.DictReader(io.StringIO(done.body.decode()))
    assert row["prompt"] in ('q, "x"\n', '[{"role": "user", "content": "q, \\"x\\""}]')
