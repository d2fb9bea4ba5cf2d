"""Every kind of file and every format becomes the same Conversations; broken input says where and what."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tests import parts
from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import DataError, SpecError

ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"frage {i} é\n日本"},
            {"role": "assistant", "content": f"antwort {i}"},
        ]
    }
    for i in range(7)
]
PAIRS = [{"prompt": f'p {i}, "x"', "completion": f"c\n{i}"} for i in range(5)]


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def all_of(*paths: Path | str, **options: Any) -> list[Conversation]:
    return list(read_conversations([str(path) for path in paths], **options))


def bodies(rows: list[Conversation]) -> list[Any]:
    return [(row.messages, row.prompt, row.completion, row.text) for row in rows]


def test_kinds_of_files_and_compressions(tmp_path: Path) -> None:
    plain = write_jsonl(tmp_path / "a.jsonl", ROWS)
    wanted = bodies(all_of(plain))
    assert [row.origin.line for row in all_of(plain)] == list(range(1, 8))
    (tmp_path / "a.json").write_text(json.dumps(ROWS, indent=1), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps({"version": 1, "data": ROWS}), encoding="utf-8")
    table = arrow.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "a.parquet")
    with (
        arrow.OSFile(str(tmp_path / "a.arrow"), "wb") as sink,
        arrow.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    with (
        arrow.OSFile(str(tmp_path / "s.arrow"), "wb") as sink,
        arrow.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    raw = plain.read_bytes()
    for suffix, pack in (
        ("gz", gzip.compress),
        ("bz2", bz2.compress),
        ("xz", lzma.compress),
        ("zst", zstandard.ZstdCompressor().compress),
    ):
        (tmp_path / f"z.jsonl.{suffix}").write_bytes(pack(raw))
        (tmp_path / f"p.parquet.{suffix}").write_bytes(pack((tmp_path / "a.parquet").read_bytes()))
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + raw)
    (tmp_path / "noname").write_bytes(raw)
    for path in sorted(tmp_path.iterdir()):
        assert bodies(all_of(path)) == wanted, path.name
    assert len(all_of(f"{tmp_path}/z.*")) == 4 * 7
    assert [row.origin.row for row in all_of(plain, plain)] == list(range(14))


def test_csv_keeps_lines_with_line_ends_inside(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["prompt", "completion"])
        writer.writeheader()
        writer.writerows(PAIRS)
    rows = all_of(path)
    assert [(row.prompt, row.completion) for row in rows] == [
        (p["prompt"], p["completion"]) for p in PAIRS
    ]
    assert [row.origin.line for row in rows] == [2, 4, 6, 8, 10]


def test_a_datasets_folder(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}).save_to_disk(tmp_path / "two")
    wanted = [row["messages"] for row in ROWS]
    assert [row.messages for row in all_of(tmp_path / "one")] == wanted
    assert [row.messages for row in all_of(tmp_path / "two")] == wanted


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["text", "id", "x"]), st.text(), min_size=3),
        min_size=1,
        max_size=5,
    )
)
def test_json_and_jsonl_agree_on_any_text(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    write = json.dumps
    (folder / "a.jsonl").write_text("".join(write(row) + "\n" for row in rows))
    (folder / "a.json").write_text(write(rows, indent=2))
    lines, array = all_of(folder / "a.jsonl"), all_of(folder / "a.json")
    assert bodies(lines) == bodies(array)
    assert [row.text for row in lines] == [row["text"] for row in rows]


FORMATS: list[tuple[dict[str, Any], str, list[tuple[str, str]]]] = [
    ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, "sharegpt",
     [("user", "a"), ("assistant", "b")]),
    ({"instruction": "a", "input": "x", "output": "b", "system": "s"}, "alpaca",
     [("system", "s"), ("user", "a\n\nx"), ("assistant", "b")]),
    ({"instruction": "a", "input": "", "output": "b", "history": [["c", "d"]]}, "alpaca",
     [("user", "c"), ("assistant", "d"), ("user", "a"), ("assistant", "b")]),
    ({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]},
     "prompt-completion", [("user", "a"), ("assistant", "b")]),
    ({"messages": json.dumps(ROWS[0]["messages"])}, "messages",
     [(m["role"], m["content"]) for m in ROWS[0]["messages"]]),
    ({"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}],
      "rejected": [{"role": "assistant", "content": "c"}]}, "preference", [("user", "a"), ("assistant", "b")]),
    ({"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
      "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}]}, "preference",
     [("user", "a"), ("assistant", "b")]),
    ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "label": True}, "kto",
     [("user", "a"), ("assistant", "b")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("row", "format", "wanted"), FORMATS, ids=[f"{f}-{i}" for i, (_, f, _) in enumerate(FORMATS)]
)
def test_formats(
    tmp_path: Path, row: dict[str, Any], format: str, wanted: list[tuple[str, str]]
) -> None:
    (found,) = all_of(write_jsonl(tmp_path / "a.jsonl", [row]))
    assert found.format == format
    assert [(m["role"], m["content"]) for m in found.messages] == wanted
    assert found.problems == ()
    if format == "preference":
        assert found.rejected == [{"role": "assistant", "content": "c"}]
        assert found.prompt_messages == 1


def test_tool_calls_of_sharegpt(tmp_path: Path) -> None:
    call = {"name": "f", "arguments": {"a": 1}}
    turns = [
        {"from": "human", "value": "q"},
        {"from": "function_call", "value": json.dumps(call)},
        {"from": "observation", "value": "{}"},
        {"from": "gpt", "value": "done"},
    ]
    (row,) = all_of(
        write_jsonl(tmp_path / "a.jsonl", [{"conversations": turns, "tools": '[{"name": "f"}]'}])
    )
    assert row.messages[1]["tool_calls"] == [{"type": "function", "function": call}]
    assert row.messages[2]["role"] == "tool"
    assert row.tools == [{"name": "f"}]


@pytest.mark.parametrize(
    ("name", "rows", "format"),
    [
        ("llamafactory/alpaca_en_demo.json", 999, "alpaca"),
        ("llamafactory/alpaca_zh_demo.json", 1000, "alpaca"),
        ("llamafactory/dpo_en_demo.json", 300, "preference"),
        ("llamafactory/kto_en_demo.json", 300, "kto"),
        ("llamafactory/glaive_toolcall_en_demo.json", 300, "sharegpt"),
        ("llamafactory/v1_sft_demo.jsonl", 500, "messages"),
        ("llamafactory/v1_dpo_demo.jsonl", 10, "preference"),
        ("llamafactory/reason_tool_use_demo_50.jsonl", 50, "messages"),
        ("llamafactory/c4_demo.jsonl", 300, "text"),
        ("tinker-cookbook/conversations.jsonl", 128, "messages"),
    ],
)
def test_real_data_reads_without_a_problem(name: str, rows: int, format: str) -> None:
    found = all_of(parts.data(name))
    assert len(found) == rows
    assert {row.format for row in found} == {format}
    assert [row.problems for row in found if row.problems] == []


def test_odd_rows_are_kept_with_their_problems(tmp_path: Path) -> None:
    good = {"role": "assistant", "content": "b"}
    rows = [
        {"messages": [{"role": "bot", "content": "a"}, good]},
        {"messages": [{"role": "user", "content": 5}, good]},
        {"messages": [{"role": "user"}, good]},
        {"messages": []},
        {"messages": "none"},
        {"messages": [{"role": "user", "content": "\ud800"}, good]},
        {"messages": [{"role": "user", "content": "a"}, good], "note": "x", "empty": None},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = all_of(path)
    kinds = [[problem.kind for problem in row.problems] for row in found]
    assert kinds == [
        ["unknown-role"],
        ["not-a-string"],
        ["no-content"],
        ["empty"],
        ["not-messages"],
        ["lone-surrogate"],
        [],
    ]
    assert found[5].messages[0]["content"] == "\ufffd"
    assert found[6].unused == ("note",)


def test_a_column_map(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"frage": "a", "antwort": "b", "output": "unused"}])
    (row,) = all_of(path, columns={"question": "frage", "answer": "antwort"})
    assert [m["content"] for m in row.messages] == ["a", "b"]
    with pytest.raises(SpecError, match="did you mean answer"):
        all_of(path, columns={"anser": "antwort"})
    with pytest.raises(DataError, match="there is no column antwrt; did you mean antwort"):
        all_of(path, columns={"answer": "antwrt"})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", r"a\.jsonl: the file holds no row"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a\.jsonl:2: not JSON"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', r"a\.jsonl:2: expected a JSON object .* found list"),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text": "\xff"}\n',
            r"a\.jsonl:2: not UTF-8 \(byte 0xff at byte 24 ",
        ),
        ("a.jsonl", b'{"zzz": "a"}\n', r"a\.jsonl:1: no format fits the columns zzz"),
        ("a.json", b'[{"text": "a"},\n {"text": "b"}', r"a\.json:2: the file ends too early"),
        (
            "a.jsonl",
            b'{"input_ids": [1, 2]}\n',
            r"a\.jsonl:1: the rows are tokenized already \(input_ids\); give the mess",
        ),
        (
            "a.jsonl",
            b'{"position_ids": [1, 2]}\n',
            r"a\.jsonl:1: no format fits the columns position_ids",
        ),
        ("a.json", b"3", r"a\.json:1: expected an array of rows"),
        ("a.json", b'{"a": 1}', r"a\.json:1: no format fits the columns a"),
        ("a.json", b'[{"text": "a"}] []', r"a\.json:1: expected the end of the file, found '\[\]'"),
        ("a.json", b'{"data": [{"text": "a"}]', r"a\.json:1: the file ends too early"),
        (
            "a.json",
            b'{"train": [{"text": "a"}],\n"test": [{"text": "b"}]}',
            r"a\.json:2: two lists of rows, train and",
        ),
        (
            "a.json",
            b'[{"text": "a"},\n {"text" "b"},\n' + b'{"text": "c"},' * 9 + b"]",
            r"a\.json:2: not JSON.*delimiter",
        ),
        (
            "a.json",
            b'[{"text": "a"},\n {"text": "\xff"}]',
            r"a\.json:2: not UTF-8 \(byte 0xff at byte 27 ",
        ),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1: not JSON"),
        ("a.json", b"[" * 100_000, r"a\.json:1: not JSON"),
        ("a.jsonl", b'{"text": "a"} {"text": "b"}\n', r"a\.jsonl:1: not JSON: Extra data"),
        ("a.csv", b"text\na\n1,2\n", r"a\.csv:3: found fields: 2, columns of the header: 1"),
        ("a.csv", b"text,id\na\n", r"a\.csv:2: found fields: 1, columns of the header: 2"),
        ("a.csv", b"text,text\na,b\n", r"a\.csv:1: two columns are called 'text'"),
        ("a.csv", b"text\na\n\xff\n", r"a\.csv:3: not UTF-8 \(byte 0xff at byte 7 "),
        ("a.csv", b'text\na\n"b\nc\n', r"a\.csv:3: not CSV: unexpected end of data"),
        ("a.csv", b"text\n", r"a\.csv: the file holds no row"),
        ("a.arrow", b"\xff\xff\xff\xff", r"a\.arrow: not an Arrow file"),
        ("a.parquet", b"PAR1", r"a\.parquet: not a Parquet file"),
        ("a.jsonl.gz", b"\x1f\x8b\x08\x00", r"a\.jsonl\.gz"),
        ("a.what", b"hello", r"a\.what: unknown kind of file"),
    ],
)
def test_broken_files_say_where(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        all_of(tmp_path / name)


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    with pytest.raises(DataError, match=r"did you mean .*train\.jsonl"):
        all_of(tmp_path / "trian.jsonl")
    with pytest.raises(DataError, match="download it first"):
        all_of("tatsu-lab/alpaca-2.0")
    with pytest.raises(DataError, match="download it first"):
        all_of("hf://tatsu-lab/alpaca")
    with pytest.raises(DataError, match="no file fits"):
        all_of(f"{tmp_path}/*.parquet")


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "json", "csv", "parquet", "arrow"])
def test_memory_is_flat(tmp_path: Path, suffix: str) -> None:
    noise, peaks = random.Random(0), []
    for count in (2_000, 20_000):
        rows = [{"text": noise.randbytes(500).hex()} for _ in range(count)]
        path = tmp_path / f"{count}.{suffix}"
        table = arrow.Table.from_pylist(rows)
        match suffix:
            case "parquet":
                parquet.write_table(table, path, compression="none", use_dictionary=False)
            case "arrow":
                with (
                    arrow.OSFile(str(path), "wb") as sink,
                    arrow.ipc.new_stream(sink, table.schema) as writer,
                ):
                    writer.write_table(table, max_chunksize=1_000)
            case "csv":
                path.write_text("text\n" + "".join(f"{row['text']}\n" for row in rows))
            case "json":
                path.write_text(json.dumps(rows))
            case _:
                text = "".join(json.dumps(row) + "\n" for row in rows).encode()
                path.write_bytes(gzip.compress(text, 1) if suffix.endswith("gz") else text)
        del rows, table
        sum(1 for _ in read_conversations([str(path)]))
        tracemalloc.start()
        assert sum(1 for _ in read_conversations([str(path)])) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.1 + 300_000, peaks
