"""What a log alone was said to mean, and what a file or a line beside it disproves."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec

NEVER_FINITE = "".join(
    f"{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': {1e-4 - 1e-6 * step}, 'epoch': {step / 10}}}\n"
    for step in range(1, 21)
)
SCRIPT = """
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments
model = AutoModelForSeq2SeqLM.from_pretrained("{model}")
args = Seq2SeqTrainingArguments("out", {precision})
Seq2SeqTrainer(model, args, train_dataset=rows).train()
"""
BANNER = """***** Running training *****
  Num examples = {rows:,}
  Num Epochs = 3
  Instantaneous batch size per device = 4
  Total train batch size (w. parallel, distributed & accumulation) = 32
  Gradient Accumulation steps = 8
  Total optimization steps = {steps}
"""
SUMMARY = "{'train_runtime': 301.2, 'train_loss': 1.8715, 'epoch': 3.0}\n"
LOSSES = "".join(f"{{'loss': {1.88 - 0.005 * n}, 'epoch': {n + 1}.0}}\n" for n in range(3))
EARLY = "".join(f"{{'loss': 1.8, 'epoch': {share}}}\n" for share in (0.2, 0.4, 0.5))
SERVER = "INFO 03-11 09:14:02 [api_server.py:1043] vLLM API server version 0.8.5\n"
PROGRAM = """Traceback (most recent call last):
  File "/v/vllm/entrypoints/openai/api_server.py", line 1130, in <module>
    uvloop.run(run_server(args))
  File "/v/vllm/entrypoints/openai/api_server.py", line 1018, in create_server_socket
    sock.bind(addr)
OSError: [Errno 98] Address already in use
"""
REQUEST = """Traceback (most recent call last):
  File "/v/uvicorn/protocols/http/httptools_impl.py", line 409, in run_asgi
    result = await app(
  File "/v/vllm/entrypoints/openai/serving_chat.py", line 118, in create_chat_completion
    raise ValueError("no template")
ValueError: no template
"""


def found(folder: Path, rule: str, files: dict[str, str]) -> list[Finding]:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    report = check_paths([str(folder)], RunSpec())
    return [one for one in report.findings if one.rule == rule]


@pytest.mark.parametrize("model", ["google/flan-t5-xl", "google/mt5-base", "t5-large"])
def test_float16_of_a_script_beside_comes_before_labels(tmp_path: Path, model: str) -> None:
    script = SCRIPT.format(model=model, precision="fp16=True")
    (one,) = found(
        tmp_path,
        "loss-or-gradient-exactly-zero",
        {"train.log": NEVER_FINITE, "train.py": script},
    )
    assert "overflows in float16" in one.message
    assert one.remedy.startswith("train in bf16")


@pytest.mark.parametrize("precision", ["bf16=True", "fp16=False", "learning_rate=1e-4"])
def test_without_float16_the_labels_are_named(tmp_path: Path, precision: str) -> None:
    script = SCRIPT.format(model="google/flan-t5-xl", precision=precision)
    (one,) = found(
        tmp_path,
        "loss-or-gradient-exactly-zero",
        {"train.log": NEVER_FINITE, "train.py": script},
    )
    assert one.remedy.startswith("no row has a label")


@pytest.mark.parametrize(("rows", "steps"), [(14, 3), (31, 3), (40, 6)])
def test_an_epoch_of_few_rows_is_a_step(tmp_path: Path, rows: int, steps: int) -> None:
    log = BANNER.format(rows=rows, steps=steps) + LOSSES + SUMMARY
    (one,) = found(tmp_path, "run-ended-after-few-steps", {"train.log": log})
    assert f"made only {steps} optimizer steps in all" in one.message


def test_a_run_that_ended_early_is_still_named(tmp_path: Path) -> None:
    log = BANNER.format(rows=14_000, steps=1314) + EARLY
    log += SUMMARY.replace("3.0", "0.5")
    (one,) = found(tmp_path, "run-ended-after-few-steps", {"train.log": log})
    assert "ended by itself" in one.message


def test_a_server_that_never_started_lost_no_request(tmp_path: Path) -> None:
    (one,) = found(tmp_path, "run-ended-in-an-exception", {"serve.log": SERVER + PROGRAM})
    assert "the server itself ended" in one.message
    assert "/v1/models" in one.remedy


def test_a_request_that_failed_is_called_one(tmp_path: Path) -> None:
    (one,) = found(tmp_path, "run-ended-in-an-exception", {"serve.log": SERVER + REQUEST})
    assert "a request to the server ended" in one.message


CANCELLED_AT = "slurmstepd: error: *** STEP 4711.0 ON a07 CANCELLED AT 2025-11-03T18:20:33 DUE TO TIME LIMIT ***\n"


def test_a_time_limit_before_any_step_is_not_told_to_go_on(tmp_path: Path) -> None:
    begin = "a07:1:1 [0] NCCL INFO Using network IB\n" * 3
    (one,) = found(tmp_path, "run-was-killed", {"job.out": begin + CANCELLED_AT})
    assert "checkpoint" not in one.remedy
    assert any("nothing shows that training had started" in line for line in one.evidence)


def test_a_time_limit_after_steps_is_told_to_go_on(tmp_path: Path) -> None:
    (one,) = found(tmp_path, "run-was-killed", {"job.out": EARLY + CANCELLED_AT})
    assert "newest checkpoint" in one.remedy


KEEPS_LOGITS = """
import numpy as np
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def compute_metrics(p):
    return {"acc": float((np.argmax(p.predictions, -1)[:, :-1] == p.label_ids[:, 1:]).mean())}
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")
Trainer(model, TrainingArguments("out"), train_dataset=a, eval_dataset=b, compute_metrics=compute_metrics%s).train()
"""
OOM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=84.0. Some of the step tasks have been OOM Killed.\n"


@pytest.mark.parametrize(
    ("given", "is_named"),
    [("", True), (", preprocess_logits_for_metrics=lambda x, y: x.argmax(-1)", False)],
)
def test_logits_that_an_evaluation_keeps_are_named_where_memory_is_full(
    tmp_path: Path, given: str, is_named: bool
) -> None:
    files = {"train.py": KEEPS_LOGITS % given, "job.out": EARLY + OOM_KILL}
    (one,) = found(tmp_path, "run-was-killed", files)
    assert ("preprocess_logits_for_metrics" in (one.remedy or "")) is is_named
