"""Any rows, in any kind of file and any packing, are read the same; a cut file is never a short one."""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import DataError

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def jsonl(rows: list[Any], path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def json_array(rows: list[Any], path: Path) -> None:
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")


def json_object(rows: list[Any], path: Path) -> None:
    path.write_text(json.dumps({"version": "1", "columns": ["a"], "data": rows, "note": {"a": []}}))


def json_lines(rows: list[Any], path: Path) -> None:
    """What many hub data sets call .json."""
    jsonl(rows, path)


def json_objects(rows: list[Any], path: Path) -> None:
    path.write_text("\n".join(json.dumps(row, indent=2) for row in rows))


def parquet_file(rows: list[Any], path: Path) -> None:
    parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=2)


def feather_file(rows: list[Any], path: Path) -> None:
    feather.write_feather(arrow.Table.from_pylist(rows), str(path), chunksize=2)


def arrow_stream(rows: list[Any], path: Path) -> None:
    table = arrow.Table.from_pylist(rows)
    with arrow.OSFile(str(path), "wb") as sink, arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def delimited(rows: list[Any], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow(
                cell if isinstance(cell := row[name], str) else json.dumps(cell) for name in rows[0]
            )


WRITE: list[tuple[str, Callable[[list[Any], Path], None]]] = [
    (".jsonl", jsonl),
    (".json", json_array),
    (".json", json_object),
    (".json", json_lines),
    (".json", json_objects),
    (".parquet", parquet_file),
    (".feather", feather_file),
    (".arrow", arrow_stream),
    (".csv", delimited),
    (".tsv", delimited),
]
TEXT = st.text(st.characters(codec="utf-8"))
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": TEXT}
)
ROW = st.fixed_dictionaries({"messages": st.lists(MESSAGE, min_size=1, max_size=4), "id": TEXT})


def bodies(rows: list[Conversation]) -> list[Any]:
    return [
        (row.origin.row, row.format, row.messages, row.tools, row.unused, row.problems)
        for row in rows
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=7))
def test_every_kind_in_every_packing_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("kinds")
    wanted = [
        (i, "messages", row["messages"], None, ("id",) if row["id"] else (), ())
        for i, row in enumerate(rows)
    ]
    for suffix, write in WRITE:
        plain = folder / f"{write.__name__}{suffix}"
        write(rows, plain)
        for packed, pack in PACK.items():
            path = folder / f"{plain.name}{packed}"
            path.write_bytes(pack(plain.read_bytes()))
            assert bodies(list(read_conversations([str(path)]))) == wanted, path.name
            if write is delimited:
                continue
            nameless = folder / f"nameless{packed}"
            nameless.write_bytes(path.read_bytes())
            assert bodies(list(read_conversations([str(nameless)]))) == wanted, path.name


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text('\n{"text": "a\\nb"}\n\n  {"text": "c"} \r\n{"text": "d"}')
    array = tmp_path / "a.json"
    array.write_text('[\n\n{"text":\n "a"}, {"text": "b"},\n{"text": "c"}]\n')
    assert [row.origin.line for row in read_conversations([str(lines)])] == [2, 4, 5]
    assert [row.origin.line for row in read_conversations([str(array)])] == [3, 4, 5]


def test_lines_hold_across_chunks_of_a_large_array(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [{"id": i, "text": "é" * (i * 7919 % 40_000)} for i in range(150)]
    path.write_text(
        "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]",
        encoding="utf-8",
    )
    found = list(read_conversations([str(path)]))
    assert [row.text for row in found] == [row["text"] for row in rows]
    assert [row.origin.line for row in found] == list(range(2, 152))


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst"])
def test_a_cut_packed_file_is_an_error(tmp_path: Path, packed: str) -> None:
    noise = random.Random(0)
    rows = [{"text": f"{noise.getrandbits(256):x}"} for _ in range(3_000)]
    path = tmp_path / f"a.jsonl{packed}"
    whole = PACK[packed]("".join(json.dumps(row) + "\n" for row in rows).encode())
    for share in (0.3, 0.6, 0.999):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DataError, match=r"a\.jsonl.*(is the file whole\?|not JSON)"):
            list(read_conversations([str(path)]))
    path.write_bytes(whole + whole)
    assert sum(1 for _ in read_conversations([str(path)])) == 6_000
    path.write_bytes(b"none of these")
    with pytest.raises(DataError, match=r"a\.jsonl"):
        list(read_conversations([str(path)]))


def test_a_folder_and_a_glob_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.jsonl", "a.jsonl", "deep/er/c.jsonl"):
        jsonl([{"text": name}], tmp_path / name)
    (tmp_path / "README.md").write_text("what these are")
    (tmp_path / "dataset_info.json").write_text("{}")
    assert [row.text for row in read_conversations([str(tmp_path)])] == ["a.jsonl", "b.jsonl"]
    assert [row.text for row in read_conversations([f"{tmp_path}/**/*.jsonl"])] == [
        "a.jsonl",
        "b.jsonl",
        "deep/er/c.jsonl",
    ]
    with pytest.raises(
        DataError, match=r"no data file in this folder.*there are some below: name .*er$"
    ):
        list(read_conversations([str(tmp_path / "deep")]))


def test_an_array_that_is_called_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\ufeff [{"text": "a"},\n{"text": "b"}]', encoding="utf-8")
    assert [(row.text, row.origin.line) for row in read_conversations([str(path)])] == [
        ("a", 1),
        ("b", 2),
    ]


def test_a_datasets_folder_without_train_asks_which(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["sft", "eval"]}')
    with pytest.raises(DataError, match="its splits are sft, eval; name one of these folders"):
        list(read_conversations([str(tmp_path)]))
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(DataError, match=r"dataset_dict\.json: not as `datasets` saves it"):
        list(read_conversations([str(tmp_path)]))


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet", ".arrow"])
def test_progress_grows_to_the_size(tmp_path: Path, suffix: str) -> None:
    kind = f".{suffix.split('.')[1]}"
    write = next(write for known, write in WRITE if known == kind)
    plain = tmp_path / f"plain{kind}"
    write([{"text": f"row {i}"} for i in range(1_000)], plain)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACK[suffix.removeprefix(kind)](plain.read_bytes()))
    size = path.stat().st_size
    told: list[tuple[int, int, int]] = []
    assert (
        sum(
            1
            for _ in read_conversations(
                [str(path), str(path)], progress=lambda *at: told.append(at)
            )
        )
        == 2_000
    )
    assert [rows for rows, _, _ in told] == [256, 512, 768, 1000, 1024, 1280, 1536, 1792, 2000]
    assert told[3][1:] == (size, 2 * size)
    assert told[-1][1:] == (2 * size, 2 * size)
    assert all(done <= total for _, done, total in told)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_progress_never_goes_back_in_a_file_of_many_columns(tmp_path: Path) -> None:
    noise = random.Random(0)
    rows = [{"text": noise.randbytes(400).hex(), "id": str(i)} for i in range(3_000)]
    path = tmp_path / "a.parquet"
    parquet.write_table(
        arrow.Table.from_pylist(rows), path, compression="none", use_dictionary=False
    )
    told: list[int] = []
    assert (
        sum(
            1
            for _ in read_conversations(
                [str(path)], progress=lambda rows, done, total: told.append(done)
            )
        )
        == 3_000
    )
    assert told == sorted(told)


def test_null_filled_structs_lose_only_what_no_row_said(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    rows = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}],
         "tools": [{"name": "f", "parameters": {"content": {"type": "string"}}}]},
        {"messages": [{"role": "user", "content": "q", "name": "bo"}, {"role": "assistant", "content": "b"}],
         "tools": [{"name": "g", "parameters": {"other": {"type": "string"}}}]},
    ]  # fmt: skip
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.Table.from_pylist(rows), path)
    found = list(read_conversations([str(path)]))
    assert [row.messages for row in found] == [row["messages"] for row in rows]
    assert [row.tools for row in found] == [row["tools"] for row in rows]
    assert [row.problems for row in found] == [(), ()]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(WRITE),
    st.sampled_from(sorted(PACK)),
    st.floats(0, 1),
    st.integers(0, 255),
    st.sampled_from("fct"),
)
def test_a_damaged_file_is_read_or_is_a_data_error(
    tmp_path_factory: pytest.TempPathFactory,
    kind: Any,
    packed: str,
    at: float,
    byte: int,
    damage: str,
) -> None:
    suffix, write = kind
    path = tmp_path_factory.mktemp("damaged") / f"a{suffix}"
    write([{"text": f"é {i}"} for i in range(30)], path)
    whole = path.read_bytes()
    place = int(at * (len(whole) - 1))
    damaged = {
        "f": whole[:place] + bytes([byte]) + whole[place + 1 :],
        "c": whole[:place],
        "t": whole[:place] + whole[place + 1 + byte % 7 :],
    }[damage]
    packed_path = path.with_name(path.name + packed)
    packed_path.write_bytes(PACK[packed](damaged))
    with contextlib.suppress(DataError):
        list(read_conversations([str(packed_path)]))
