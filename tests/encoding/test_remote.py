"""Data that a URI names, and encoded data in a store: the same rows, whole or not there."""

from __future__ import annotations

import gzip
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import fs, parquet

import truetune
from truetune.checks.reports import DataReport
from truetune.data import remote_path
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.remote_path import RemotePath, parse_data_path
from truetune.data.split_lines_into_stretches import read_stretch, scan_and_cut_lines
from truetune.demo import TOKENIZER
from truetune.encoding import encode_data_set as run_module
from truetune.encoding.encode_data_set import Encoded
from truetune.encoding.encoded_folder_in_object_store import EncodedFolderInStore
from truetune.encoding.encoded_folder_on_disk import encoded_folder_at, open_whole_encoded_folder
from truetune.errors import DataError, UsageError
from truetune.render.template_probes import alternating_chat

At = Callable[[str], str]
ROWS = [
    {"messages": alternating_chat(f"question {i}", f"answer {i} " * (i % 9 + 1))}
    for i in range(120)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture(scope="module")
def s3() -> Iterator[Callable[[str], str]]:
    """A server on this machine, and the URI of a path in it; a user and a secret stand in it."""
    server_module = pytest.importorskip(
        "moto.server", reason="moto is not installed: pip install moto[s3] flask-cors"
    )
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    way = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    store, _ = fs.FileSystem.from_uri(f"s3://me:hidden@bucket/?{way}&allow_bucket_creation=true")
    store.create_dir("bucket")
    yield lambda path: f"s3://me:hidden@bucket/{path}?{way}"
    server.stop()


@pytest.fixture(params=["file", "s3"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> At:
    """The URI of a path in a store that is this test's own."""
    if request.param == "file":
        return lambda path: f"file://{tmp_path}/store/{path}"
    uri = request.getfixturevalue("s3")
    return lambda path: uri(f"{tmp_path.name}/{path}")


def put(uri: str, body: bytes) -> str:
    RemotePath.from_uri(uri).write(body)
    return uri


def encode(data: Any, out: str | Path, **settings: Any) -> Encoded:
    return truetune.encode(data, TOKENIZER, out, **{"jobs": 1, **settings})


def written(encoded: Encoded) -> list[dict[str, Any]]:
    rows = []
    for shard in encoded.manifest["shards"]:
        body = (encoded.folder / "data" / shard["file"]).read_bytes()
        if shard["file"].endswith(".parquet"):
            rows += parquet.read_table(io.BytesIO(body)).to_pylist()
        else:
            rows += arrow.ipc.open_stream(body).read_all().to_pylist()
    return [{**row, "file": None} if "file" in row else row for row in rows]


def names(folder: str) -> list[str]:
    """All files of a folder."""
    top = RemotePath.from_uri(folder)
    return sorted(f.path.removeprefix(f"{top.path}/") for f in top.rglob("*") if f.is_file())


def test_names() -> None:
    one = RemotePath.from_uri(
        "s3://me:hidden@bucket/a b/c%20.jsonl.gz?region=eu-west-1&scheme=http"
    )
    assert (str(one), one.name, one.suffixes) == (
        "s3://bucket/a b/c%20.jsonl.gz",
        "c%20.jsonl.gz",
        [".jsonl", ".gz"],
    )
    assert str(one.parent / "d") == "s3://bucket/a b/d"
    assert RemotePath.from_uri("s3://bucket/part-?.jsonl?region=eu-west-1").path == "part-?.jsonl"
    assert parse_data_path("a/b") == Path("a/b")
    for uri in ("hf://datasets/a/b", "https://example.org/a.jsonl", "nosuch://a/b"):
        with pytest.raises(DataError, match=r"download it first|Unrecognized filesystem"):
            parse_data_path(uri)


def test_every_kind_of_file_is_read(at: At, tmp_path: Path) -> None:
    table = arrow.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "a.parquet")
    with arrow.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES))
    (tmp_path / "c.csv").write_text("prompt,completion\nq,a\n")
    (tmp_path / "unnamed").write_bytes(LINES)
    for path in [path for path in tmp_path.iterdir() if path.is_file()]:
        uri = put(at(f"data/{path.name}"), path.read_bytes())
        here, there = list(read_conversations([str(path)])), list(read_conversations([uri]))
        assert [row.origin.file for row in there] == [str(RemotePath.from_uri(uri))] * len(here)
        assert [(r.messages, r.prompt, r.origin.line) for r in there] == [
            (r.messages, r.prompt, r.origin.line) for r in here
        ]


def test_folders_and_patterns(at: At) -> None:
    for name in ("d/b.jsonl", "d/a.jsonl", "d/deep/c.jsonl", "d/notes.txt"):
        put(at(name), LINES)

    def found(path: str) -> list[str]:
        return [
            str(source.path).rpartition("/d/")[2] for source in find_data_files_of_paths([at(path)])
        ]

    assert found("d") == found("d/") == found("d/[ab].jsonl") == ["a.jsonl", "b.jsonl"]
    assert found("d/**/*.jsonl") == ["a.jsonl", "b.jsonl", "deep/c.jsonl"]
    assert found("d/d*/c.jsonl") == ["deep/c.jsonl"]
    for path, message in (
        ("d/x*", "no file fits"),
        ("d/x.jsonl", "no such file or folder"),
        ("e", "no such file"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            found(path)
        assert "hidden" not in str(caught.value)


def test_a_stretch_fetches_its_own_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []

    class Counted(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            body = super().read(-1 if size is None else size)
            fetched.append(len(body))
            return body

    class Files(fs.FSSpecHandler):
        def open_input_file(self, path: str) -> Any:
            return arrow.PythonFile(Counted(path), mode="r")

    local = pytest.importorskip("fsspec.implementations.local").LocalFileSystem()
    monkeypatch.setattr(
        remote_path, "_open_filesystem", lambda top: (fs.PyFileSystem(Files(local)), "/")
    )
    monkeypatch.setattr(remote_path, "BUFFER_BYTES", 1000)
    (tmp_path / "a.jsonl").write_bytes(LINES * 20)
    (source,) = find_data_files_of_paths([f"store://x{tmp_path}/a.jsonl"])
    stretches = scan_and_cut_lines(source, 20_000).stretches
    assert sum(fetched) < len(LINES) * 20 + 1000 * (len(stretches) + 2)
    for stretch in stretches:
        fetched.clear()
        assert len(list(read_stretch(source, stretch, 0))) == stretch.rows
        assert sum(fetched) <= stretch.stop - stretch.start + 2000, (
            "a buffer at its end, and the first row"
        )


@pytest.mark.parametrize(
    "settings", [{}, {"packing": "best-fit", "max_length": 64}, {"trainer": "llama-factory"}]
)
def test_a_store_holds_what_a_disk_holds(
    at: At, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 3000)
    monkeypatch.setattr(run_module, "PACKED_BYTES_PER_TOKEN", 30)
    monkeypatch.setattr(run_module, "STREAMED_ROWS", 50)
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES))
    data = [
        put(at(f"in/{name}"), (tmp_path / name).read_bytes()) for name in ("a.jsonl", "b.jsonl.gz")
    ]
    here = encode([tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"], tmp_path / "out", **settings)
    there = encode(data, at("out"), jobs=2, **settings)
    assert (here.counts, here.manifest["ledger"]) == (there.counts, there.manifest["ledger"])
    assert written(here) == written(there)
    assert len(there.manifest["shards"]) > 5
    assert open_whole_encoded_folder(at("out"))[1] == there.manifest
    monkeypatch.setattr(run_module, "VERIFIED_ROWS", 60)
    assert encode(data, at("out"), **settings).reused
    if at("").startswith("file"):
        assert len(there.dataset()) == there.counts["packs"]


def test_other_settings_take_its_place(at: At) -> None:
    data = put(at("a.jsonl"), LINES)
    first = encode(data, at("out"), max_length=40, packing="best-fit", trainer="llama-factory")
    assert {name.partition("/")[0] for name in names(at("out"))} == {
        "data",
        "origins",
        "manifest.json",
        "dropped.jsonl",
        "rejected.jsonl",
    }
    assert (
        first.counts["dropped"]
        == len((first.folder / "dropped.jsonl").read_text().splitlines())
        > 0
    )
    second = encode(data, at("out"))
    assert names(at("out")) == [
        f"data/{second.manifest['shards'][0]['file']}",
        "dropped.jsonl",
        "manifest.json",
        "rejected.jsonl",
    ]
    assert (second.folder / "dropped.jsonl").read_bytes() == b""
    with pytest.raises(DataError, match="longer than max_length"):
        encode(data, at("out"), max_length=20, overflow="error")
    assert open_whole_encoded_folder(at("out"))[1] == second.manifest


def test_damage_is_found(at: At) -> None:
    data = put(at("a.jsonl"), LINES)
    encoded = encode(data, at("out"))
    path = encoded.folder / "data" / encoded.manifest["shards"][0]["file"]
    whole = path.read_bytes()
    put(at(f"out/data/{path.name}"), whole[:-9] + b"x" + whole[-8:])
    with pytest.raises(UsageError, match="is not as truetune wrote it: its contents have changed"):
        encode(data, at("out"))
    path.remove()
    assert "No such file" in encode(data, at("out")).notices[0]
    with pytest.raises(DataError, match="holds no whole encoded data"):
        open_whole_encoded_folder(at("nothing"))


def test_what_is_not_ours_is_left_alone(at: At) -> None:
    put(at("mine/thesis.txt"), b"precious")
    with pytest.raises(UsageError, match=r"mine/thesis\.txt: truetune did not write it"):
        encode(put(at("a.jsonl"), LINES), at("mine"))


def test_killed_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is being written stands there: a file:// store is no object store, and shows it."""

    class Killed(BaseException):
        pass

    write, remove = RemotePath.write, RemotePath.remove
    left = 0

    def counted(work: Callable[..., None]) -> Callable[..., None]:
        def killing(self: RemotePath, body: bytes = b"") -> None:
            nonlocal left
            left -= 1
            if left == 0:
                if work is write:
                    write(self, memoryview(body)[: len(body) // 2])
                raise Killed
            work(self, *([body] if work is write else []))

        return killing

    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 5000)
    monkeypatch.setattr(RemotePath, "write", counted(write))
    monkeypatch.setattr(RemotePath, "remove", counted(remove))
    (tmp_path / "a.jsonl").write_bytes(LINES)
    wanted, found, point = None, set(), 0
    while True:
        point += 1
        out = f"file://{tmp_path}/{point}"
        old = encode(tmp_path / "a.jsonl", out, max_length=4096).manifest
        left = point
        try:
            encode(tmp_path / "a.jsonl", out, max_length=64)
        except Killed:
            pass
        else:
            break
        left = 0
        entry = encoded_folder_at(out)
        there = entry.manifest()
        assert there is None or entry.find_missing_file(there) is None
        found.add("nothing" if there is None else "old" if there == old else "new")
        new = encode(tmp_path / "a.jsonl", out, max_length=64).manifest
        wanted = wanted or (new, names(out))
        assert wanted == (new, names(out))
    assert point > 12
    assert found == {"nothing", "old", "new"}


def test_a_second_run_that_ends_first(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    data = put(at("a.jsonl"), LINES)
    publish = EncodedFolderInStore.publish

    def overtaken(self: EncodedFolderInStore, *arguments: Any) -> dict[str, Any]:
        monkeypatch.setattr(EncodedFolderInStore, "publish", publish)
        other = encode(data, at("out"), max_length=other_length)
        assert not other.reused
        return publish(self, *arguments)

    other_length = 40
    monkeypatch.setattr(EncodedFolderInStore, "publish", overtaken)
    assert encode(data, at("out"), max_length=40).counts["dropped"] > 0
    assert encode(data, at("out"), max_length=40).reused
    other_length = 41
    monkeypatch.setattr(EncodedFolderInStore, "publish", overtaken)
    with pytest.raises(FileNotFoundError):
        encode(data, at("out"), max_length=42)
    assert encode(data, at("out"), max_length=41).reused


def test_check_reads_it_too(at: At) -> None:
    report = truetune.check(put(at("a.jsonl"), LINES), TOKENIZER)
    assert isinstance(report, DataReport)
    assert (report.ledger.total, report.failed()) == (
        encode(at("a.jsonl"), at("out")).ledger.total,
        False,
    )
