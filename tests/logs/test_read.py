"""Every kind of log becomes one RunLog; what is broken is read as far as it goes, and noted."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetune.checks.diagnose_log import diagnose
from truetune.errors import DataError
from truetune.logs.canonical_metric_names import canonical_metric_name
from truetune.logs.read_run_log import is_folder_of_run_log, read_run
from truetune.logs.read_tensorboard_events import crc32c_checksums, mask_checksum, read_event_file
from truetune.logs.run_log import RunLog
from truetune.logs.run_log_builder import RunLogBuilder

STATE = {
    "max_steps": 6,
    "best_metric": 1.5,
    "train_batch_size": 8,
    "log_history": [
        {"step": 2, "loss": 2.0, "learning_rate": 1e-4, "epoch": 0.5},
        {"step": 4, "loss": "1.8", "learning_rate": 5e-5, "epoch": 1.0},
        {"step": 4, "eval_loss": 1.9, "eval_runtime": 3.0},
        {"step": 4, "train_runtime": 9.0, "train_loss": 1.9},
    ],
}


def state(folder: Path, text: str | None = None, name: str = "trainer_state.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(STATE) if text is None else text, encoding="utf-8")
    return path


def test_trainer_state(tmp_path: Path) -> None:
    log = read_run(state(tmp_path).parent)
    assert log.format == "transformers"
    assert log.curve("loss").step.tolist() == [2, 4]
    assert log.curve("loss").value.tolist() == [2.0, 1.8]
    assert log.curve("eval_loss").value.tolist() == [1.9]
    assert (
        log.fact_as_number("max_steps"),
        log.fact_as_number("train_loss"),
        log.epochs_at_end,
    ) == (6, 1.9, 1.0)
    assert log.notes == ()


def test_the_newest_checkpoint_is_taken_and_an_older_one_where_it_is_cut_off(
    tmp_path: Path,
) -> None:
    state(tmp_path / "checkpoint-2", json.dumps({"log_history": STATE["log_history"][:1]}))  # type: ignore[index]
    state(tmp_path / "checkpoint-10")
    assert read_run(tmp_path).curve("loss").value.tolist() == [2.0, 1.8]
    assert read_run(tmp_path).checkpoints == (2, 10)
    state(tmp_path / "checkpoint-10", json.dumps(STATE)[:100])
    log = read_run(tmp_path)
    assert log.curve("loss").value.tolist() == [2.0]
    assert "checkpoint-10" in log.notes[0]
    assert read_run(tmp_path / "checkpoint-2").curve("loss").value.tolist() == [2.0]


def test_the_vocabulary_stands_beside(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-4")
    (tmp_path / "checkpoint-4" / "config.json").write_text('{"text_config": {"vocab_size": 77}}')
    assert read_run(tmp_path).fact_as_number("vocab_size") == 77


LLAMA_FACTORY = {
    "current_steps": 5,
    "total_steps": 20,
    "loss": 1.5,
    "lr": 1e-4,
    "epoch": 0.5,
    "elapsed_time": "0:01:02",
}
SWIFT = {
    "loss": 1.5,
    "learning_rate": 1e-4,
    "epoch": 0.5,
    "global_step/max_steps": "5/20",
    "percentage": "25%",
}


@pytest.mark.parametrize("record", [LLAMA_FACTORY, SWIFT], ids=["llama-factory", "ms-swift"])
def test_jsonl(record: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "trainer_log.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    log = read_run(tmp_path)
    assert {name: curve.value.tolist() for name, curve in log.curves.items()} == {
        "loss": [1.5],
        "learning_rate": [1e-4],
        "epoch": [0.5],
    }
    assert log.curve("loss").step.tolist() == [5]
    assert log.planned_steps == 20
    assert log.notes == ()


def test_csv_of_lightning_and_of_an_export(tmp_path: Path) -> None:
    table = "epoch,lr-AdamW,step,train_loss_step,val_loss\n0,0.1,9,2.5,\n0,,19,,2.4\n,,29,2.3,\n"
    (tmp_path / "metrics.csv").write_text(table, encoding="utf-8")
    log = read_run(tmp_path)
    assert log.curve("loss").step.tolist() == [9, 29]
    assert log.curve("eval_loss").value.tolist() == [2.4]
    assert log.curve("learning_rate").value.tolist() == [0.1]
    export = tmp_path / "export.csv"
    export.write_text(
        '"Step","run-7 - train/loss","run-7 - train/loss__MIN"\n1,2.0,1.0\n2,1.9,1.0\n',
        encoding="utf-8",
    )
    assert read_run(export).curve("loss").value.tolist() == [2.0, 1.9]
    assert set(read_run(export).curves) == {"loss"}


@pytest.fixture
def cells_of_the_default_size() -> Iterator[None]:
    """The reader of data raises csv's limit for the whole process."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("cells_of_the_default_size")
def test_a_table_with_an_endless_cell_is_read_so_far(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,2.0\n2," + "9" * 200_000 + "\n", encoding="utf-8")
    assert read_run(path).curve("loss").step.tolist() == [1]
    assert "the rest is left out" in read_run(path).notes[0]


def test_printed_output(tmp_path: Path) -> None:
    lines = [
        "loading model",
        (
            " 10%|#| 1/10 [00:01<00:09]\r{'loss': '2.5', 'grad_norm': 'nan', 'learning_rate':"
            " '1e-05', 'epoch': '0.1'}"
        ),
        "{'loss': 2.4, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.2}",
        "{'__import__': 'os'} {'a': [1, 2]}",
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    log = read_run(path)
    assert log.curve("loss").value.tolist() == [2.5, 2.4]
    assert np.isnan(log.curve("grad_norm").value).all()
    assert (log.is_numbered, log.notes) == (True, ())
    path.write_text(
        "Step 1 | loss:2.5 lr:1e-05 tokens_per_second_per_gpu:100\nStep 2 | loss:2.4 lr:2e-05\n",
        encoding="utf-8",
    )
    assert read_run(path).curve("learning_rate").value.tolist() == [1e-5, 2e-5]
    assert read_run(path).curve("tokens_per_second").step.tolist() == [1]


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = (
        '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": NaN}\n{"step": "3", "loss": "1.5", "note":'
        ' "hello"}\n'
    )
    path.write_bytes(good.encode() + b'[1]\n\xff\xfe{"step"\n' + b'{"step": 4, "lo')
    log = read_run(path)
    assert log.curve("loss").step.tolist() == [1, 2, 3]
    assert log.notes == (
        "values of 'note' that are no numbers",
        "log.jsonl: lines that are no records",
        "log.jsonl: lines that are no UTF-8",
        "log.jsonl: lines that are no JSON (2 times)",
    )


def test_resumed_logs_have_parts_and_the_later_one_holds(tmp_path: Path) -> None:
    steps = [*range(1, 11), *range(7, 15)]
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(json.dumps({"step": s, "loss": i}) + "\n" for i, s in enumerate(steps)),
        encoding="utf-8",
    )
    log = read_run(path)
    assert [part["loss"].step[0] for part in log.parts] == [1, 7]
    assert log.curve("loss").step.tolist() == list(range(1, 15))
    assert log.curve("loss").value.tolist() == [0, 1, 2, 3, 4, 5, *range(10, 18)]


def test_steps_out_of_order_are_sorted(tmp_path: Path) -> None:
    steps = np.random.default_rng(0).permutation(400) + 1
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(json.dumps({"step": int(s), "loss": int(s)}) + "\n" for s in steps),
        encoding="utf-8",
    )
    log = read_run(path)
    assert log.curve("loss").value.tolist() == list(range(1, 401))
    assert len(log.parts) == 1
    assert "out of order" in log.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("trainer_state.json", "{", "no JSON"),
        ("trainer_state.json", '{"log_history": 3}', "a list of records was expected"),
        ("log.jsonl", "", "no record of a run"),
        ("weights.bin", "", "not known as a log"),
    ],
)
def test_what_is_no_log_is_named(name: str, text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        read_run(state(tmp_path, text, name))


def test_an_empty_folder_and_one_of_data_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text('{"messages": []}\n')
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    assert not is_folder_of_run_log(tmp_path)
    with pytest.raises(DataError, match="looked for trainer_state"):
        read_run(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        read_run(tmp_path / "away")


@pytest.mark.parametrize(
    "history", ["[]", '[{"step": 1, "loss": 2.0}]', '[{"step": 1, "loss": Infinity}, 3]']
)
def test_nearly_empty_histories_are_read(history: str, tmp_path: Path) -> None:

    state(tmp_path, f'{{"log_history": {history}}}')
    report = diagnose(tmp_path)
    assert report.subjects[0].kind == "run log"


def event(step: int, tag: str, value: float, tensor: bool = False) -> bytes:
    """One record of an event file, written by hand."""

    def field(number: int, kind: int, content: bytes) -> bytes:
        size = bytes([len(content)]) if kind == 2 else b""
        return bytes([number << 3 | kind]) + size + content

    number = struct.pack("<f", value)
    scalar = field(8, 2, b"\x08\x01" + field(5, 2, number)) if tensor else field(2, 5, number)
    summary = field(1, 2, field(1, 2, tag.encode()) + scalar)
    body = (
        field(1, 1, struct.pack("<d", 1e9 + step)) + b"\x10" + bytes([step]) + field(5, 2, summary)
    )
    size = struct.pack("<Q", len(body))

    def check(raw: bytes) -> bytes:
        return struct.pack(
            "<I", mask_checksum(crc32c_checksums(np.frombuffer(raw, np.uint8)[None])[0])
        )

    return size + check(size) + body + check(body)


def read_bytes(raw: bytes, folder: Path) -> RunLog:
    path = folder / "events.out.tfevents.1.host.1.0"
    path.write_bytes(raw)
    log_builder = RunLogBuilder(str(path), "TensorBoard")
    read_event_file(path, log_builder)
    return log_builder.build()


def test_event_files(tmp_path: Path) -> None:
    assert crc32c_checksums(np.frombuffer(b"123456789", np.uint8)[None]) == [0xE3069283]  # RFC 3720
    raw = [event(step, "train/loss", 2 - step / 10, tensor=step % 2 == 0) for step in range(1, 6)]
    log = read_bytes(b"".join(raw), tmp_path)
    assert log.curve("loss").step.tolist() == [1, 2, 3, 4, 5]
    assert np.allclose(log.curve("loss").value, [1.9, 1.8, 1.7, 1.6, 1.5])
    assert log.curve("wall_time").value.tolist() == [1e9 + step for step in range(1, 6)]
    assert log.notes == ()


def test_an_event_file_that_is_cut_or_damaged_is_read_so_far(tmp_path: Path) -> None:
    raw = b"".join(event(step, "loss", step) for step in range(1, 6))
    size = len(raw) // 5
    cut = read_bytes(raw[: 3 * size + 9], tmp_path)
    assert cut.curve("loss").step.tolist() == [1, 2, 3]
    assert cut.notes == (
        "events.out.tfevents.1.host.1.0: ends within a record, 9 bytes are left out",
    )
    wrong = bytearray(raw)
    wrong[2 * size + 20] ^= 1
    damaged = read_bytes(bytes(wrong), tmp_path)
    assert damaged.curve("loss").step.tolist() == [1, 2, 4, 5]
    assert "wrong checksum" in damaged.notes[0]
    wrong[3 * size] ^= 1
    assert "the rest is left out" in " ".join(read_bytes(bytes(wrong), tmp_path).notes)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_events_raise_nothing(raw: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        read_bytes(event(1, "loss", 1.0) + raw, Path(folder))


def test_tensorboard_writes_what_is_read(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(
        str(tmp_path / "runs" / "one")
    )
    for step in range(1, 30):
        writer.add_scalar("train/loss", 1 / step, step)
        writer.add_scalar("eval/loss", 2 / step, step, new_style=True)
    writer.add_histogram("weights", np.zeros(1000), 3)
    writer.add_text("args", "x" * 5000)
    writer.close()
    log = read_run(tmp_path)
    assert is_folder_of_run_log(tmp_path)
    assert np.allclose(log.curve("loss").value, [1 / step for step in range(1, 30)])
    assert np.allclose(log.curve("eval_loss").value, [2 / step for step in range(1, 30)])
    assert log.notes == ()


def test_an_offline_run_of_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", project="p", dir=str(tmp_path), config={"max_grad_norm": 0.5})
    for step in range(1, 2_000):
        run.log(
            {"train/loss": 2 / step, "train/global_step": step, "train/grad_norm": float("nan")}
        )
    run.finish()
    wandb.teardown()
    log = read_run(tmp_path)
    assert log.format == "W&B"
    assert np.allclose(log.curve("loss").value, 2 / np.arange(1, 2_000))
    assert np.isnan(log.curve("grad_norm").value).all()
    assert log.fact_as_number("max_grad_norm") == 0.5
    assert log.notes == ()
    path = next(tmp_path.rglob("*.wandb"))
    path.write_bytes(path.read_bytes()[:40_000])
    cut = read_run(path)
    assert 10 < cut.curve("loss").step.size < 1_999
    assert "left out" in cut.notes[0]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("train/loss", "loss"),
        ("eval/loss", "eval_loss"),
        ("val_loss", "eval_loss"),
        ("train/rewards/chosen", "rewards/chosen"),
        ("eval/rewards/chosen", "eval_rewards/chosen"),
        ("lr-AdamW/pg1", "learning_rate"),
        ("my/metric", "my/metric"),
    ],
)
def test_names(name: str, ours: str) -> None:
    assert canonical_metric_name(name) == ours


def test_the_mean_of_a_run_is_no_loss(tmp_path: Path) -> None:
    """transformers writes it to TensorBoard and W&B as train/train_loss at the last step."""
    raw = [event(step, "train/loss", 2 - step / 10) for step in range(1, 6)]
    log = read_bytes(b"".join([*raw, event(5, "train/train_loss", 1.7)]), tmp_path)
    assert np.allclose(log.curve("loss").value, [1.9, 1.8, 1.7, 1.6, 1.5])
    assert log.fact_as_number("train_loss") == pytest.approx(1.7)
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"_step": 1, "train/loss": 2.0}\n{"_step": 2, "train/train_loss": 9,'
        ' "train/train_runtime": 3}\n'
    )
    assert read_run(path).curve("loss").value.tolist() == [2.0]
    path.write_text('{"step": 1, "train/train_loss": 2.0}\n{"step": 2, "train/train_loss": 1.5}\n')
    assert read_run(path).curve("loss").value.tolist() == [2.0, 1.5]


def test_a_folder_whose_own_state_is_older_than_its_checkpoints(tmp_path: Path) -> None:
    first, last = {"step": 20, "loss": 3.0}, {"step": 50, "loss": 1.0}
    state(tmp_path, json.dumps({"global_step": 20, "log_history": [first]}))
    state(tmp_path / "checkpoint-50", json.dumps({"global_step": 50, "log_history": [first, last]}))
    assert read_run(tmp_path).last_step == 50


def test_what_stands_twice_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n' * 3)
    assert read_run(path).notes == (
        "losses at a step that has another: the last is taken (2 times)",
    )
    table = tmp_path / "log.csv"
    table.write_text("step,loss,loss\n1,2.0,3.0\n")
    assert "columns of one name" in read_run(table).notes[0]


def test_endless_words_and_records_take_no_time(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("step 1 | loss:2.5\nstep 2 | " + "a" * 500_000 + "\n")
    assert read_run(path).curve("loss").value.tolist() == [2.5]


def test_the_last_records_without_a_bar_behind_them_go_on_at_the_pace_of_the_others(
    tmp_path: Path,
) -> None:
    lines = [
        text
        for step in range(20, 181, 20)
        for text in (
            *(f"{{'loss': 2.0, 'epoch': {n / 62:.2f}}}" for n in range(step - 15, step + 1, 5)),
            f" {step // 2}%|# | {step}/186 [03:58<32:58, 11.92s/it]",
        )
    ]
    lines += ["{'loss': 1.9, 'epoch': 2.98}", "{'train_runtime': 2237.75, 'epoch': 3.0}"]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    log = read_run(path)
    assert log.curve("loss").step.tolist() == list(range(5, 186, 5))
    assert not log.notes
    path.write_text("\n".join([*lines[:-1], *lines[-2:-1] * 3]), encoding="utf-8")
    assert read_run(path).last_step == 186


def test_the_losses_that_a_notebook_shows_as_html(tmp_path: Path) -> None:
    rows = "".join(f"<tr>\n<td>{n}</td>\n<td>{3 - n / 100}</td>\n</tr>" for n in range(1, 61))
    page = (
        "<div>\n<progress value='60' max='60'></progress>\n [60/60 07:48, Epoch 0/1]\n</div>\n"
        '<table border="1" class="dataframe">\n<thead><tr style="text-align: left;"><th>Step</th>'
        f"<th>Training Loss</th></tr></thead><tbody>{rows}</tbody></table><p>"
    )
    banner = "Num examples = {rows} | Num Epochs = 1 | Total steps = 60\nTotal batch size (2 x 4 x 1) = 8\n"
    path = tmp_path / "run.ipynb"

    def write(examples: str) -> None:
        outputs: list[dict[str, object]] = [
            {"output_type": "stream", "text": [banner.format(rows=examples)]},
            {"output_type": "display_data", "data": {"text/html": page.splitlines(keepends=True)}},
            {
                "output_type": "execute_result",
                "data": {"text/plain": ["{'train_runtime': 481.2,\n", " 'train_loss': 2.7}"]},
            },
        ]
        path.write_text(json.dumps({"cells": [{"outputs": outputs}]}), encoding="utf-8")

    write("9,812")
    log = read_run(path)
    assert log.curve("loss").step.tolist() == list(range(1, 61))
    assert log.fact_as_number("train_runtime") == 481.2
    assert log.output is not None
    assert log.output.done == 60
    assert "saw only 480 of 9,812 rows, 4.9%" in " ".join(
        f.message for f in diagnose(path).findings
    )
    write("512")
    assert not diagnose(path).findings


def test_a_saved_report_on_a_log_without_records_is_no_log(tmp_path: Path) -> None:
    """What a check says of a file that holds no record is no record itself."""
    empty = tmp_path / "eval.log"
    empty.write_text("The evaluation has begun.\n")
    with pytest.raises(DataError) as refused:
        read_run(empty)
    saved = tmp_path / "out1.txt"
    saved.write_text(f"folder of Python sources .\n\nnot judged: {refused.value}\n")
    with pytest.raises(DataError, match="no record of a run"):
        read_run(saved)
