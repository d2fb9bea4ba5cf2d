"""Encoded data is found again when nothing has changed, made again when anything has, and never half there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

import truetune
from truetune.demo import TOKENIZER
from truetune.encoding import cache_key, encode_in_processes
from truetune.encoding import encode_data_set as run_module
from truetune.encoding.encode_data_set import Encoded
from truetune.encoding.encoded_folder_on_disk import open_whole_encoded_folder
from truetune.encoding.proved_tokenizer_engines import EnginesDiffer
from truetune.errors import DataError, UsageError
from truetune.render.template_probes import alternating_chat

ROOT = Path(__file__).parents[2]
ANEW = "all is made again without shortcuts; please report this"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with data, a tokenizer, and no encoded data."""
    shutil.copytree(TOKENIZER, tmp_path / "tokenizer")
    write(tmp_path / "a.jsonl", 60)
    return tmp_path


def write(path: Path, rows: int, answer: str = "answer") -> None:
    lines = (
        json.dumps({"messages": alternating_chat(f"question {i}", f"{answer} {i}")}) + "\n"
        for i in range(rows)
    )
    path.write_text("".join(lines))


def encode(world: Path, **settings: Any) -> Encoded:
    place = {"cache": world / "cache"} if "out" not in settings else {"out": settings.pop("out")}
    settings = {"jobs": 1, "data": world / "a.jsonl", **settings}
    return truetune.encode(tokenizer=world / "tokenizer", **place, **settings)


def edited(name: str, **values: Any) -> Callable[[Path], None]:
    def edit(world: Path) -> None:
        path = world / "tokenizer" / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return edit


def flipped(world: Path) -> None:
    path = world / "a.jsonl"
    path.write_text(path.read_text().replace("question 30", "question 31"))


def template(world: Path) -> None:
    path = world / "tokenizer" / "chat_template.jinja"
    path.write_text(path.read_text() + "{# #}")


INPUTS: dict[str, Callable[[Path], None]] = {
    "one byte of a row": flipped,
    "a row more": lambda world: write(world / "a.jsonl", 61),
    "tokenizer.json": edited("tokenizer.json", normalizer={"type": "Lowercase"}),
    "tokenizer_config.json": edited("tokenizer_config.json", model_max_length=7),
    "generation_config.json": edited("generation_config.json", eos_token_id=[0]),
    "the template's text": template,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "learn": {"learn": "last"},
    "reasoning": {"learn": {"reasoning": False}},
    "history": {"history": "single"},
    "max_length": {"max_length": 100},
    "overflow": {"max_length": 100, "overflow": "split"},
    "packing": {"max_length": 100, "packing": "best-fit"},
    "content_specials": {"content_specials": "keep"},
    "on_error": {"on_error": "skip"},
    "file_format": {"file_format": "arrow"},
    "loss_weights": {"loss_weights": True},
    "trainer": {"trainer": "axolotl"},
    "template_kwargs": {"template_kwargs": {"x": 1}},
    "map": {"map": {"messages": "messages"}},
    "format": {"format": "messages"},
    "append_eos": {"append_eos": True},
    "the data's name": {"data": "b.jsonl"},
}


def test_nothing_changed_and_it_is_found_again(world: Path) -> None:
    first, second = encode(world), encode(world)
    assert (first.reused, second.reused) == (False, True)
    assert first.manifest == second.manifest
    edit = edited("config.json", note="read by nothing")
    (world / "tokenizer" / "README.md").write_text("new")
    assert encode(world, fail_on="info", select=["TOK001"], eval_data="elsewhere.jsonl").reused
    edit(world)
    assert not encode(world).reused


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_changed_and_it_is_made_anew(world: Path, name: str) -> None:
    first = encode(world)
    INPUTS[name](world)
    again = encode(world)
    assert (again.reused, again.folder == first.folder) == (False, False)
    assert encode(world).reused


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_changed_and_it_is_made_anew(world: Path, name: str) -> None:
    shutil.copy(world / "a.jsonl", world / "b.jsonl")
    encode(world)
    settings = {
        key: world / value if key == "data" else value for key, value in SETTINGS[name].items()
    }
    again = encode(world, **settings)
    assert not again.reused
    assert encode(world, **settings).reused
    assert encode(world).reused


def test_another_encoder_makes_it_anew(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode(world)
    monkeypatch.setattr(cache_key, "VERSION", cache_key.VERSION + 1)
    assert not encode(world).reused
    monkeypatch.setattr(cache_key, "LIBRARIES", (*cache_key.LIBRARIES, "numpy"))
    assert not encode(world).reused


def test_a_template_with_a_clock_is_made_anew_each_day(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world / "tokenizer" / "chat_template.jinja"
    path.write_text("{{ strftime_now('%Y') }}" + path.read_text())
    encode(world)
    assert encode(world).reused

    class Tomorrow(cache_key.datetime.date):
        @classmethod
        def today(cls) -> Tomorrow:
            return cls(2099, 1, 1)

    monkeypatch.setattr(cache_key.datetime, "date", Tomorrow)
    assert not encode(world).reused


def test_a_folder_is_written_over_only_by_what_is_whole(world: Path) -> None:
    first = encode(world, out=world / "out")
    second = encode(world, out=world / "out", max_length=100, packing="best-fit")
    assert (second.reused, second.folder) == (False, first.folder)
    assert open_whole_encoded_folder(world / "out") == (world / "out", second.manifest)
    with pytest.raises(DataError):
        encode(world, out=world / "out", max_length=3, overflow="error")
    assert open_whole_encoded_folder(world / "out")[1] == second.manifest
    assert encode(world, out=world / "out", max_length=100, packing="best-fit").reused


def test_every_flipped_byte_is_found_and_left_as_it_is(world: Path) -> None:
    """Who changed a shard may want it: it is named, and not replaced. One that is gone is made again."""
    encoded = encode(world, out=world / "out")
    (path,) = (world / "out" / "data").iterdir()
    whole = path.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 7)):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        path.write_bytes(changed)
        for settings in ({}, {"max_length": 100}):
            with pytest.raises(
                UsageError, match="is not as truetune wrote it: its contents have changed"
            ) as caught:
                encode(world, out=world / "out", **settings)
            assert str(path) in str(caught.value)
            assert path.read_bytes() == changed
    path.unlink()
    assert "No such file" in encode(world, out=world / "out").notices[0]
    assert path.read_bytes() == whole
    assert encode(world, out=world / "out").manifest["counts"] == encoded.manifest["counts"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_length": 64, "packing": "best-fit"},
        {"file_format": "arrow"},
        {"trainer": "llama-factory"},
    ],
)
def test_the_replay_finds_a_row_that_encodes_otherwise(
    world: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a change of a library that its version does not tell: every byte is as it was written."""
    monkeypatch.setattr(run_module, "VERIFIED_ROWS", 600)
    encoded = encode(world, out=world / "out", **settings)
    assert encode(world, out=world / "out", **settings).reused
    (entry,) = encoded.manifest["shards"]
    path = world / "out" / "data" / entry["file"]
    table = (
        parquet.read_table(path)
        if path.suffix == ".parquet"
        else arrow.ipc.open_stream(path.read_bytes()).read_all()
    )
    labels = table["labels"].to_pylist()
    place = next(i for i, label in enumerate(labels[0]) if label != -100)
    labels[0][place] += 1
    at = table.column_names.index("labels")
    table = table.set_column(
        at, table.schema.field("labels"), arrow.array(labels, table.schema.field("labels").type)
    )
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with arrow.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    entry["digest"] = hashlib.blake2b(path.read_bytes(), digest_size=20).hexdigest()
    encoded.manifest["files"][f"data/{entry['file']}"] = [path.stat().st_size, entry["digest"]]
    (world / "out" / "manifest.json").write_text(json.dumps(encoded.manifest))
    with pytest.raises(
        DataError, match=r"a\.jsonl:\d+: encodes otherwise than what was written(.|\n)*again:"
    ):
        encode(world, out=world / "out", **settings)


def test_a_run_that_is_interrupted_goes_on(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 700)
    encoded = encode_in_processes.encode_shard
    done: list[int] = []

    def counted(maker: Any, task: Any, folder: Any) -> Any:
        if len(done) == 4:
            done.append(-1)
            raise KeyboardInterrupt
        done.append(task.number)
        return encoded(maker, task, folder)

    monkeypatch.setattr(encode_in_processes, "encode_shard", counted)
    with pytest.raises(KeyboardInterrupt):
        encode(world, out=world / "out")
    with pytest.raises(DataError, match="holds no whole encoded data"):
        open_whole_encoded_folder(world / "out")
    whole = encode(world, out=world / "out")
    assert done == [0, 1, 2, 3, -1, *range(4, len(whole.manifest["shards"]))]
    assert whole.counts["encoded"] == 60
    done[:] = [0] * 3
    with pytest.raises(KeyboardInterrupt):
        encode(world, out=world / "out", learn="last")
    done[:] = []
    with pytest.raises(KeyboardInterrupt):
        encode(world, out=world / "out", history="single")
    assert done[0] == 0, "what was left by other settings is not used"


def test_engines_that_differ_begin_again_with_tokenizers(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 700)
    encoded = encode_in_processes.encode_shard

    def differing(maker: Any, task: Any, folder: Any) -> Any:
        if task.number == 3 and not maker.encoder._engine_is_final:
            raise EnginesDiffer("fast and slow encode 'x' differently")
        return encoded(maker, task, folder)

    monkeypatch.setattr(encode_in_processes, "encode_shard", differing)
    found = encode(world, out=world / "out")
    assert found.notices == ("fast and slow encode 'x' differently: " + ANEW,)
    assert found.counts["encoded"] == 60
    assert encode(world, out=world / "out").reused


def test_processes_that_share_a_cache_encode_once(world: Path) -> None:
    code = (
        "import sys, truetune\n"
        "e = truetune.encode(sys.argv[1], sys.argv[2], cache=sys.argv[3], jobs=1)\n"
        "print(e.reused, e.counts['encoded'])"
    )
    command = [
        sys.executable,
        "-c",
        code,
        str(world / "a.jsonl"),
        str(world / "tokenizer"),
        str(world / "cache"),
    ]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = sorted(process.communicate()[0].split() for process in running)
    assert answers == [["False", "60"], ["True", "60"], ["True", "60"], ["True", "60"]]


@pytest.mark.slow
def test_killed_at_every_file_operation(tmp_path: Path) -> None:
    """More than sixty runs are killed, each with a template process of its own."""
    write(tmp_path / "a.jsonl", 6)
    command = [
        sys.executable,
        "-m",
        "tests.encoding.kills",
        str(tmp_path / "a.jsonl"),
        str(TOKENIZER),
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["points"] > 60
    assert set(result["found"]) == {"nothing", "old", "new"}


def test_ctrl_c_ends_the_workers_and_keeps_their_shards(world: Path) -> None:
    write(world / "a.jsonl", 60_000, answer="a long answer that takes its time " * 8)
    command = [
        sys.executable,
        "-m",
        "truetune",
        "encode",
        "a.jsonl",
        "-t",
        "tokenizer",
        "-o",
        "out",
        "-j",
        "2",
    ]
    running = subprocess.Popen(
        command, cwd=world, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    data = world / "out" / ".work" / "data"
    while not (data.is_dir() and any(data.glob("*.json"))) and running.poll() is None:
        os.sched_yield()
    os.killpg(running.pid, signal.SIGINT)
    _, told = running.communicate()
    assert running.returncode == 130
    assert "Traceback" not in told
    assert any(data.glob("*.json"))
    assert not (world / "out" / "manifest.json").exists()


def test_a_full_disk_is_one_line(world: Path) -> None:
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "from truetune.cli import main\n"
        "main()"
    )
    write(world / "a.jsonl", 600)
    arguments = ["encode", "a.jsonl", "-t", "tokenizer", "-o", "out", "-j", "1", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=world,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(Path("out", ".work", "data")) in done.stderr
    assert (
        "can't be written: File too large; make room there, or name another folder with -o."
        in done.stderr
    )
    assert (
        truetune.encode(world / "a.jsonl", world / "tokenizer", world / "out", jobs=1).counts[
            "encoded"
        ]
        == 600
    )


def _processes_of(session: int) -> list[int]:
    """The processes of a session, that are no zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc")
def test_no_worker_outlives_a_killed_parent(world: Path) -> None:
    write(world / "a.jsonl", 60_000, answer="a long answer that takes its time " * 8)
    command = [
        sys.executable,
        "-m",
        "truetune",
        "encode",
        "a.jsonl",
        "-t",
        "tokenizer",
        "-o",
        "out",
        "-j",
        "2",
    ]
    running = subprocess.Popen(
        command, cwd=world, stderr=subprocess.DEVNULL, start_new_session=True
    )
    data = world / "out" / ".work" / "data"
    while not any(data.glob("*.json")) and running.poll() is None:
        os.sched_yield()
    assert len(_processes_of(running.pid)) >= 3
    running.kill()
    running.wait()
    deadline = time.monotonic() + 5
    while _processes_of(running.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _processes_of(running.pid) == []


@pytest.mark.parametrize(
    "source", ["../../precious.txt", "absolute", "data/../../../precious.txt", "zz"]
)
def test_a_crafted_publication_moves_nothing_from_elsewhere(tmp_path: Path, source: str) -> None:
    """A folder that somebody else made may hold a `.work/` whose records name any file of this machine."""
    precious, work = tmp_path / "precious.txt", tmp_path / "out" / ".work"
    precious.write_bytes(b"precious")
    (work / "data").mkdir(parents=True)
    (work / "manifest.json").write_bytes(b'{"x":1}')
    (work / "owner.json").write_bytes(
        b'{"truetune": "encode, unfinished", "format": 2, "key": "' + b"a" * 40 + b'"}'
    )
    named = {"data/precious.txt": b"precious", "manifest.json": b'{"x":1}'}
    new = {
        name: [len(body), hashlib.blake2b(body, digest_size=20).hexdigest()]
        for name, body in named.items()
    }
    sources = {
        "data/precious.txt": str(precious) if source == "absolute" else source,
        "manifest.json": "manifest.json",
    }
    publication = {"format": 2, "old": {}, "new": new, "sources": sources}
    (work / "publish.json").write_text(json.dumps(publication))
    write(tmp_path / "a.jsonl", 3)
    with suppress(UsageError):
        truetune.encode(
            data=str(tmp_path / "a.jsonl"),
            tokenizer=str(TOKENIZER),
            out=str(tmp_path / "out"),
            jobs=1,
        )
    assert precious.read_bytes() == b"precious"
    assert not (tmp_path / "out" / "data" / "precious.txt").exists()
