"""Logs of containers and services, whose lines all begin with what the container's log put in front of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.logs.read_run_log import read_run
from truetune.logs.strip_container_log_prefixes import strip_shared_prefixes
from truetune.report.lines_on_passed_and_unjudged_checks import describe_unjudged_and_passed_checks
from truetune.settings.run_spec import RunSpec

LINES = (
    "INFO loading model",
    " 10%|█         | 6/60 [00:10<01:30,  1.67s/it]",
    "{'loss': 2.31, 'learning_rate': 2e-05, 'epoch': 0.1}",
    " 20%|██        | 12/60 [00:20<01:20,  1.67s/it]",
    "",
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 12, in main',
    "    model(**batch)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
)
STAMP = "2026-11-26T22:33:16.123456789Z"


@pytest.mark.parametrize(
    "prefix",
    [
        "axolotl-legal  | ",
        "trainer.1.x7k2m@gpu01    | ",
        "22:33:16 train.1 | ",
        "[pod/train-0/pytorch] ",
        f"[pod/train-0/pytorch] {STAMP} ",
        f"{STAMP} stderr F ",
        f"{STAMP} ",
        f"axolotl-legal  | {STAMP} ",
        "Nov 26 22:33:16 gpu01 train.sh[4121]: ",
        "2026-11-26T22:33:16+0000 gpu01 python[4121]: ",
        "Nov 26 22:33:16 ",
        "[2026-11-26 22:33:16] ",
        "[rank3]: ",
        "[default0]:",
    ],
)
def test_prefix_of_all_lines_is_taken_off(tmp_path: Path, prefix: str) -> None:
    file = tmp_path / "train.log"
    file.write_text("".join(f"{prefix}{line}".rstrip() + "\n" for line in LINES))
    _assert_is_read(file, line=9)


def test_lines_of_supervisord_and_records_of_docker_are_read(tmp_path: Path) -> None:
    supervised = tmp_path / "supervisord.log"
    header = "2026-11-26 22:33:16,123 DEBG 'train' stderr output:"
    supervised.write_text("".join(f"{header}\n{line}\n" for line in LINES))
    _assert_is_read(supervised, line=18)
    stored = tmp_path / "0f3a-json.log"
    records = [{"log": f"{line}\n", "stream": "stderr", "time": STAMP} for line in LINES]
    stored.write_text("".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records))
    _assert_is_read(stored, line=9)


def test_tracebacks_of_two_containers_are_not_woven_together(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    texts = [f"{name}  | {line}\n" for line in LINES for name in ("trainer-a", "trainer-b")]
    file.write_text("".join(texts))
    output = read_run(file).output
    assert output is not None
    assert output.failure is not None
    assert output.failure.processes == 2
    assert [frame.file for frame in output.failure.raised.frames] == ["/app/train.py"]


@pytest.mark.parametrize(
    "lines",
    [
        ["step 1 | loss 2.0", "step 2 | loss 1.9", "step 3 | loss 1.8"],
        ["Step 1 | loss:2.0 lr:2e-5", "Step 2 | loss:1.9 lr:2e-5", "Step 3 | loss:1.8 lr:2e-5"],
        ["loss | 2.0", "lr | 1e-5", "norm | 3.0"],
        ["{'loss': 2.0}", "{'loss': 1.9}", "{'loss': 1.8}"],
        ["app  | one", "two", "three", "four", "five"],
        ["10%|█  | 6/60 [00:10<01:30]", "20%|██ | 12/60 [00:20<01:20]", "end", "end"],
    ],
)
def test_beginnings_of_a_programs_own_lines_stay(lines: list[str]) -> None:
    pieces = [(line, number) for number, line in enumerate(lines, 1)]
    assert list(strip_shared_prefixes(pieces)) == pieces


def _assert_is_read(file: Path, *, line: int) -> None:
    log = read_run(file)
    assert log.curve("loss")
    assert log.output is not None
    assert log.output.total == 60
    assert log.output.failure is not None
    assert log.output.failure.raised.line == line
    assert "CUDA out of memory" in log.output.failure.raised.text


def test_log_of_a_folder_that_holds_nothing_known_is_told(tmp_path: Path) -> None:
    texts = "hello\nnothing of a run\nis here\n"
    for name in ("train.log", "console.txt", "notes.txt"):
        (tmp_path / name).write_text(texts)
    (tmp_path / "train.py").write_text("print(1)\n")
    report = check_paths([str(tmp_path)], RunSpec())
    told = {Path(part.place or part.what).name for part in report.not_judged if part.always_told}
    assert "train.log" in told
    assert "notes.txt" not in told
    lines = list(describe_unjudged_and_passed_checks(report, verbose=False))
    assert any("train.log" in line for line in lines)
