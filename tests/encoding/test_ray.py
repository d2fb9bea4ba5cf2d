"""The engine ray on two workers of this machine: what the local engine writes, whatever happens to a worker."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyarrow import parquet

import truetune
from truetune.cli import truetune_group
from truetune.data.remote_path import RemotePath
from truetune.demo import TOKENIZER
from truetune.encoding import encode_data_set as run_module
from truetune.encoding import encode_on_ray
from truetune.encoding.encode_data_set import Encoded
from truetune.encoding.encoded_folder_on_disk import DiskStore, EncodedFolderOnDisk
from truetune.encoding.proved_tokenizer_engines import EnginesDiffer
from truetune.encoding.render_and_encode_in_two_threads import describe_wrong_shortcut
from truetune.errors import DataError
from truetune.render.template_probes import alternating_chat, load_tokenizer_and_template_of_run
from truetune.settings.run_spec import RunSpec

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install truetune[ray]")
ROWS = [
    {"messages": alternating_chat(f"question {i}", f"answer {i} " * (i % 9 + 1))}
    for i in range(200)
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield
    ray.shutdown()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 3000)
    monkeypatch.setattr(run_module, "PACKED_BYTES_PER_TOKEN", 30)
    monkeypatch.setattr(run_module, "STREAMED_ROWS", 50)
    (tmp_path / "a.jsonl").write_text(LINES)
    return tmp_path / "a.jsonl"


def encode(data: Any, out: Any, **settings: Any) -> Encoded:
    return truetune.encode(data, TOKENIZER, out, **{"engine": "ray", **settings})


def written(encoded: Encoded) -> list[tuple[Any, ...]]:
    """The rows, in an order of their own."""
    tables = [
        parquet.read_table(encoded.folder / "data" / shard["file"])
        for shard in encoded.manifest["shards"]
    ]
    return sorted(tuple(map(str, row.values())) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("settings", [{}, {"packing": "best-fit", "max_length": 64}])
def test_it_writes_what_the_local_engine_writes(
    data: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """A file that is read from the middle, and one that can only be read from its start."""
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    both = [data, tmp_path / "b.jsonl.gz"]
    here = encode(both, tmp_path / "here", engine="local", jobs=1, **settings)
    there = encode(both, tmp_path / "there", **settings)
    assert written(here) == written(there)
    assert len(there.manifest["shards"]) > 10
    for manifest in (here.manifest, there.manifest):
        del manifest["engines"]
        for shard in manifest["shards"]:
            del shard["engine"]
    assert here.manifest == there.manifest
    assert encode(both, tmp_path / "there", engine="local", **settings).reused
    assert encode(both, tmp_path / "here", **settings).reused


def test_uris(data: Path, tmp_path: Path) -> None:
    there = encode(f"file://{data}", f"file://{tmp_path}/there", jobs=1)
    here = encode(data, tmp_path / "here", engine="local")
    assert there.counts == here.counts
    assert str(there.folder) == f"file://{tmp_path}/there"
    assert isinstance(there.folder, RemotePath)


def test_relative_paths(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert encode("a.jsonl", "out").counts["encoded"] == 200


@pytest.mark.parametrize("place", ["{}/out", "file://{}/out"])
def test_it_goes_on_where_it_was_stopped(data: Path, tmp_path: Path, place: str) -> None:
    out = place.format(tmp_path)

    def stop(what: str, done: int, total: int, rows: int, tokens: int) -> None:
        if rows > 100:
            raise KeyboardInterrupt

    spec = RunSpec(data=(str(data),), tokenizer=str(TOKENIZER))
    with pytest.raises(KeyboardInterrupt):
        run_module.encode(spec, out, engine="ray", progress=stop)
    done = {path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    whole = encode(data, out)
    assert whole.counts["encoded"] == 200
    after = {path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    assert len(done & after) > 3, (
        "a shard whose worker was stopped between it and its record is made again"
    )
    assert done != after


def test_a_broken_row_is_an_error_as_on_one_machine(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data.write_text(LINES + "broken\n")
    with pytest.raises(DataError) as there:
        encode(data, tmp_path / "out")
    with pytest.raises(DataError) as here:
        encode(data, tmp_path / "out", engine="local")
    assert (type(there.value), str(there.value)) == (type(here.value), str(here.value))
    assert "a.jsonl:201: not JSON" in str(there.value)
    with pytest.raises(DataError, match=r"a\.jsonl:201: not JSON"):
        truetune_group.main(
            [
                "encode",
                str(data),
                "-t",
                str(TOKENIZER),
                "-o",
                str(tmp_path / "o"),
                "--engine",
                "ray",
            ],
            standalone_mode=False,
        )
    encoded = encode(data, tmp_path / "out", on_error="skip")
    assert (encoded.counts["encoded"], encoded.counts["rejected"]) == (200, 1)


class Ill(NamedTuple):
    """A folder; the worker that writes this name first does not live on, or finds that the engines differ."""

    folder: DiskStore
    name: str
    dies: bool

    def write(self, name: str, body: Any) -> None:
        mark = (
            self.folder.path.parents[2] / "ill"
        )  # beside the output: in it, a file of others is refused
        if name == self.name and not mark.exists():
            mark.touch()
            if self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
            raise EnginesDiffer("fast and slow encode 'x' differently")
        self.folder.write(name, body)


@pytest.mark.parametrize("dies", [True, False])
def test_workers_that_fall_ill(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    store = EncodedFolderOnDisk.store
    stores = [lambda entry: Ill(store(entry), "00003.parquet", dies)]
    monkeypatch.setattr(
        EncodedFolderOnDisk, "store", lambda entry: (stores.pop() if stores else store)(entry)
    )
    encoded = encode(data, tmp_path / "out")
    assert encoded.counts["encoded"] == 200
    wanted = (
        ()
        if dies
        else (describe_wrong_shortcut(EnginesDiffer("fast and slow encode 'x' differently")),)
    )
    assert encoded.notices == wanted
    assert dies or encoded.manifest["engines"][0].startswith("tokenizers")
    assert encode(data, tmp_path / "out", engine="local").reused


def test_workers_need_no_tokenizer_folder(tmp_path: Path) -> None:
    shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"vocab_size": 7}')
    (tmp_path / "t.jinja").write_text("{{ messages[0].content }}")
    files: dict[str, Any] = {
        "model": str(tmp_path / "model"),
        "template": str(tmp_path / "t.jinja"),
    }
    for more in ({}, files):
        made = load_tokenizer_and_template_of_run(
            RunSpec(tokenizer=str(tmp_path / "tokenizer"), **more)
        )
        again = encode_on_ray.PortableRun.of(made).load_probes()
        assert again.tokenizer.backend.to_str() == made.tokenizer.backend.to_str()
        assert again.template is not None
        assert made.template is not None
        assert (again.template.source, again.stops) == (made.template.source, made.stops)
        assert again.tokenizer.embedding_rows == made.tokenizer.embedding_rows
        assert not again.tokenizer.folder.exists()
