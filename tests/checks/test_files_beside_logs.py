"""Logs read with the scripts, settings, jobs and other logs of their folder."""

# ruff: noqa: E501 - lines of logs stand as they are printed
from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec

SITE = "/opt/venv/lib/python3.11/site-packages"
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 79.15 GiB of which 1.20"
    " GiB is free. Including non-PyTorch memory, this process has 77.94 GiB memory in use. Of the allocated memory 76.60 GiB"
    " is allocated by PyTorch, and 402.11 MiB is reserved by PyTorch but unallocated.\n"
)
Frames = list[tuple[str, str, str]]
LAYER: Frames = [
    ("transformers/models/qwen2/modeling_qwen2.py", "forward", "down_proj = self.down_proj(x)")
]
STEP: Frames = [
    ("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)"),
    *LAYER,
]
CHECKPOINTED: Frames = [("torch/utils/checkpoint.py", "checkpoint", "ret = function(*args)"), *STEP]
EVALUATION: Frames = [
    ("transformers/trainer.py", "evaluation_loop", "loss = self.prediction_step(model, inputs)"),
    *LAYER,
]
MASK: Frames = [
    STEP[0],
    ("transformers/masking_utils.py", "sdpa_mask", "causal_mask = mask_function(q, kv)"),
]
LOGITS: Frames = [
    STEP[0],
    ("transformers/loss/loss_utils.py", "ForCausalLMLoss", "logits = logits.float()"),
]
RECORDS = 3 * "{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': 0.1}\n"
TRAINER = """
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B")
rows = rows.map(lambda row: tokenizer(row["text"], {padding}))
args = TrainingArguments(output_dir="o", {settings})
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train()
"""
LOOP = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B").cuda()
model.gradient_checkpointing_enable()
train_loader = DataLoader(rows, batch_size=2, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

def evaluate(model):
    model.eval()
    with torch.no_grad():
        return sum(model(**batch).loss.item() for batch in held_out)

for step, batch in enumerate(train_loader):
    {mode}
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0:
        print(evaluate(model))
"""


def failed(frames: Frames, asked: str = "1.96 GiB") -> str:
    """A traceback that ends in an out-of-memory message."""
    lines = "".join(
        f'  File "{SITE}/{file}", line 17, in {name}\n    {code}\n' for file, name, code in frames
    )
    return f'Traceback (most recent call last):\n  File "train.py", line 40, in <module>\n    loss = model(**batch).loss\n{lines}{MESSAGE.format(asked)}'


def found(folder: Path, files: dict[str, str]) -> tuple[Finding, ...]:
    """What a check of a folder with these files finds."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return check_paths([folder], RunSpec()).findings


def words(findings: tuple[Finding, ...], code: str) -> str:
    """All that the findings of a rule say, empty where it has none."""
    chosen = [one for one in findings if one.code == code]
    return " | ".join(" ".join((one.message, one.remedy, *one.evidence)) for one in chosen)


@pytest.mark.parametrize(
    ("log", "name", "text", "said", "unsaid"),
    [
        pytest.param(failed(STEP), "train.py", TRAINER.format(padding="", settings="per_device_train_batch_size=1, gradient_checkpointing=False"),
                     "gradient_checkpointing on: it is off (train.py:6", "unless it is", id="checkpointing is set off"),
        pytest.param(failed(STEP), "train.py", TRAINER.format(padding="", settings="per_device_train_batch_size=8"),
                     "per_device_train_batch_size from 8 to 4 (train.py:6)", "unless it is", id="a batch of eight, checkpointing by default off"),
        pytest.param(failed(CHECKPOINTED), "train.py", TRAINER.format(padding="", settings="per_device_train_batch_size=1, gradient_checkpointing=True"),
                     "the batch is 1 and checkpointing is on", "halve", id="nothing left to lower"),
        pytest.param(failed(STEP), "run.sh", "accelerate launch t.py --per_device_train_batch_size 4 --gradient_checkpointing False\n",
                     "from 4 to 2 (run.sh:1)", "unless it is", id="options of a command"),
        pytest.param(failed(STEP), "axolotl.yaml", "base_model: m\nadapter: lora\nlora_r: 8\ndatasets: [{path: x.jsonl, type: alpaca}]\nmicro_batch_size: 4\ngradient_checkpointing: false\nsequence_len: 4096\n",
                     "(axolotl.yaml:6", "unless it is", id="Axolotl"),
        pytest.param(failed(EVALUATION), "train.py", TRAINER.format(padding="", settings="per_device_train_batch_size=1, per_device_eval_batch_size=1"),
                     "evaluation's batch is 1 already (train.py:6)", "per_device_train", id="an evaluation of one row"),
        pytest.param(failed(EVALUATION), "train.py", TRAINER.format(padding="", settings="per_device_train_batch_size=1, per_device_eval_batch_size=16"),
                     "per_device_eval_batch_size from 16 to 1 (train.py:6)", "gradient_checkpointing on", id="an evaluation of many rows"),
        pytest.param(failed(MASK, "16.00 GiB"), "train.py", TRAINER.format(padding='padding="max_length", truncation=True', settings="per_device_train_batch_size=1"),
                     "rows of 131,072 tokens", "longest rows with", id="a mask of the whole context"),
        pytest.param(failed(LOGITS, "62.62 GiB"), "note.py", "x = 1\n", "131,072 x 128,256 at 4 bytes", "longest rows with", id="logits of the whole context"),
        pytest.param(failed(MASK, "16.00 GiB"), "train.py", TRAINER.format(padding='padding="max_length", truncation=True', settings="per_device_train_batch_size=1"),
                     "max_length with truncation=True at train.py:5", "", id="padding without a limit"),
    ],
)  # fmt: skip
def test_advice_on_memory_is_that_of_the_files_beside(
    tmp_path: Path, log: str, name: str, text: str, said: str, unsaid: str
) -> None:
    advice = words(found(tmp_path, {"run.log": RECORDS + log, name: text}), "LOG030")
    assert said in advice
    assert not unsaid or unsaid not in advice


def test_without_files_the_advice_stays_conditional(tmp_path: Path) -> None:
    assert "unless it is" in words(found(tmp_path, {"run.log": RECORDS + failed(STEP)}), "LOG030")


def test_a_usual_length_is_not_called_the_whole_context(tmp_path: Path) -> None:
    log = RECORDS + failed(LOGITS, "3.91 GiB")
    assert "whole context" not in words(found(tmp_path, {"run.log": log}), "LOG030")


STEPS = "".join(f"step {n} loss {2.3 - n * 0.001:.3f} mem 61.2GB\n" for n in range(10, 201, 10))
EVALUATED = "step 200 val_loss 1.92\n"
LATER = "".join(f"step {n} loss 1.9 mem 61.2GB\n" for n in range(210, 300, 10))
GROWING = "".join(f"step {n} loss 1.9 mem {40 + n / 10:.1f}GB\n" for n in range(10, 201, 10))


@pytest.mark.parametrize(
    ("log", "mode", "said"),
    [
        pytest.param(STEPS + EVALUATED + failed(LAYER), "pass", "which left the model in eval() mode", id="mode"),
        pytest.param(STEPS + EVALUATED + failed(LAYER), "model.train()", "first training step after an evaluation", id="something else"),
        pytest.param(RECORDS + "{'eval_loss': 1.9, 'eval_runtime': 12.2, 'epoch': 0.2}\n" + failed(STEP), "", "logits or predictions of the evaluation", id="the Trainer's"),
    ],
)  # fmt: skip
def test_what_an_evaluation_left_is_named(tmp_path: Path, log: str, mode: str, said: str) -> None:
    files = {"run.log": log} | ({"loop.py": LOOP.replace("{mode}", mode)} if mode else {})
    assert said in words(found(tmp_path, files), "LOG030")


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(STEPS + EVALUATED + LATER + failed(LAYER), id="steps between"),
        pytest.param(GROWING + EVALUATED + failed(LAYER), id="memory grows"),
        pytest.param(STEPS + failed(LAYER), id="no evaluation"),
        pytest.param(STEPS + EVALUATED + failed(EVALUATION), id="in the evaluation"),
    ],
)
def test_other_failures_are_not_laid_to_an_evaluation(tmp_path: Path, log: str) -> None:
    assert "after an evaluation" not in words(found(tmp_path, {"run.log": log}), "LOG030")


REPORT = "Engine 000: Avg prompt throughput: 9 tokens/s, generation: 38.0 tokens/s, Running: {} reqs, Waiting: {} reqs, GPU KV cache usage: {}%\n"
CLIENT = """
import json
from openai import OpenAI
client = OpenAI(base_url="http://localhost:11434/v1", api_key="x")
for row in [json.loads(line) for line in open("test.jsonl")]:
    reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": row["q"]}])
    print(reply.choices[0].message.content)
"""
OLLAMA = 'time=2026-11-09T08:12:03Z level=INFO source=routes.go:1511 msg="server config" env="map[OLLAMA_NUM_PARALLEL:{}]"\n'


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("docker-compose.yml", "services:\n  llm:\n    image: vllm/vllm-openai:v0.10.0\n    command: --model /m --max-num-seqs 4\n", "docker-compose.yml:4"),
        ("serve.slurm", "#!/bin/bash\nSEQS=4\nvllm serve /m --max-num-seqs $SEQS\n", "serve.slurm:3"),
        ("serve.py", "from vllm import AsyncEngineArgs\nSEQS = 4\nargs = AsyncEngineArgs(model='/m', max_num_seqs=SEQS)\n", "serve.py:3"),
    ],
)  # fmt: skip
def test_the_file_that_sets_a_cap_is_named(
    tmp_path: Path, name: str, text: str, place: str
) -> None:
    files = {"server.log": 12 * REPORT.format(4, 90, 0.9), name: text}
    assert f"max_num_seqs is 4 ({place})" in words(found(tmp_path, files), "LOG064")


def test_a_cap_is_none_where_the_cache_was_full(tmp_path: Path) -> None:
    files = {
        "server.log": 12 * REPORT.format(8, 30, 98.0),
        "serve.sh": "vllm serve /m --max-num-seqs 8\n",
    }
    findings = found(tmp_path, files)
    assert words(findings, "CMD002") == words(findings, "LOG064") == ""


@pytest.mark.parametrize(("parallel", "is_first"), [(1, True), (2, True), (16, False)])
def test_a_client_is_not_sent_to_a_server_that_works_on_one_request(
    tmp_path: Path, parallel: int, is_first: bool
) -> None:
    findings = found(tmp_path, {"ollama.log": OLLAMA.format(parallel), "ask.py": CLIENT})
    assert ("set OLLAMA_NUM_PARALLEL" in words(findings, "SRC043")) is is_first
    assert ("send some 32 requests" in words(findings, "SRC043")) is not is_first


def timed(seconds: float, *, clock: bool = True) -> str:
    """Steps at an even pace."""
    return "".join(
        (f"2025-05-01 10:{n * 10 // 60:02d}:{n * 10 % 60:02d} " if clock else "")
        + f"step {n}/1000 loss {2.3 - n * 0.005:.3f} step_time {seconds:.2f}s\n"
        for n in range(1, 40)
    )


CANCELLED = "slurmstepd: error: *** JOB 48213 ON gpu-a17 CANCELLED AT 2025-05-01T{} ***\n"


@pytest.mark.parametrize(
    ("files", "said", "unsaid"),
    [
        pytest.param({"t-1.out": timed(9.8) + CANCELLED.format("10:06:40"), "t-1.err": CANCELLED.format("10:06:41")}, "even pace up to step 39", "it hung", id="in two logs"),
        pytest.param({"t-1.out": timed(9.8), "t-1.err": CANCELLED.format("10:06:41")}, "even pace up to step 39", "it hung", id="steps in the other log"),
        pytest.param({"t.out": timed(9.8, clock=False) + CANCELLED.format("10:06:40")}, "even pace up to step 39", "it hung", id="without a clock"),
        pytest.param({"t.out": timed(9.8) + CANCELLED.format("13:40:00")}, "it hung: the last step was logged 214 minutes", "even pace", id="hours later"),
    ],
)  # fmt: skip
def test_a_cancelled_job_stood_still_only_where_its_steps_say_so(
    tmp_path: Path, files: dict[str, str], said: str, unsaid: str
) -> None:
    findings = found(tmp_path, files)
    assert len([one for one in findings if one.code == "LOG031"]) == 1
    assert said in words(findings, "LOG031")
    assert unsaid not in words(findings, "LOG031")


def trained(batch: int, processes: int, steps: int, seconds: float) -> str:
    """The output of a Trainer that ends at so many steps."""
    rate = batch * processes * steps / seconds
    return (
        f"***** Running training *****\n  Num examples = 8,000\n  Instantaneous batch size per device = {batch}\n"
        f"  Total train batch size (w. parallel, distributed & accumulation) = {batch * processes}\n"
        f"  Gradient Accumulation steps = 1\n  Total optimization steps = {steps}\n{RECORDS}"
        f"100%|██████████| {steps}/{steps} [10:12<00:00,  {seconds / steps:.2f}s/it]\n"
        f"{{'train_runtime': {seconds}, 'train_samples_per_second': {rate:.3f}, 'train_loss': 1.9, 'epoch': {rate * seconds / 8000:.2f}}}\n"
    )


@pytest.mark.parametrize(
    ("one", "other", "severity"),
    [
        pytest.param(
            trained(4, 1, 1000, 610.0), trained(4, 8, 1000, 625.0), "warning", id="more GPUs"
        ),
        pytest.param(
            trained(4, 1, 1000, 610.0), trained(16, 1, 1000, 625.0), "info", id="a larger batch"
        ),
        pytest.param(trained(4, 1, 1000, 610.0), trained(4, 1, 1000, 612.0), "", id="the same run"),
        pytest.param(trained(4, 1, 1000, 610.0), trained(4, 8, 125, 80.0), "", id="as many rows"),
    ],
)
def test_runs_that_are_bounded_by_steps_are_compared(
    tmp_path: Path, one: str, other: str, severity: str
) -> None:
    findings = found(tmp_path, {"one.log": one, "other.log": other})
    chosen = [finding.severity for finding in findings if finding.code == "LOG067"]
    assert chosen == ([severity] if severity else [])


def test_steps_on_more_nodes_are_compared(tmp_path: Path) -> None:
    files = {
        "two.log": "nnodes=2\nworld_size: 16\n" + timed(9.8),
        "one.log": "nnodes=1\nworld_size: 8\n" + timed(1.3),
        "job.sbatch": "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nexport NCCL_IB_DISABLE=1\nsrun torchrun --nnodes 2 --nproc-per-node 8 train.py\n",
    }
    assert "one.log: 1.3 s a step (1 node, 8 processes) two.log: 9.8 s" in words(
        found(tmp_path, files), "CMD045"
    )


ENDED = "".join(
    f"step={step} loss={2 - step / 4000:.3f} lr={max(0.0, 2e-5 * (1 - step / 220)):.3e}\n"
    for step in range(20, 2001, 20)
)
DEEPSPEED = '{{"scheduler": {{"type": "WarmupDecayLR", "params": {{\n"total_num_steps": {}}}}}}}'
OWN_SCHEDULE = """
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup
TOTAL = {}
model = AutoModelForCausalLM.from_pretrained("org/model")
optimizer = torch.optim.AdamW(model.parameters())
scheduler = get_cosine_schedule_with_warmup(optimizer, 20, TOTAL)
model(**batch).loss.backward()
"""


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"ds.json": DEEPSPEED.format(220)}, "ds.json:2"),
        ({"train.py": OWN_SCHEDULE.format(220)}, "train.py:6"),
        ({"job.sh": "python train.py \\\n  --total-steps 215 --lr 2e-5\n"}, "job.sh:2"),
        ({"conf.yaml": "lr: 2e-5\nt_max: 220\n"}, "conf.yaml:2"),
    ],
)
def test_the_line_that_ends_the_rate_is_named(
    files: dict[str, str], place: str, tmp_path: Path
) -> None:
    told = words(found(tmp_path, {"run.log": ENDED, **files}), "LOG012")
    assert f"{place} builds the schedule over that many steps" in told


@pytest.mark.parametrize(
    "files",
    [
        {"ds.json": DEEPSPEED.format(3600)},
        {"train.py": OWN_SCHEDULE.format(200)},
        {"conf.yaml": "# t_max: 220\nseed: 220\n"},
    ],
)
def test_another_length_explains_no_end_of_the_rate(files: dict[str, str], tmp_path: Path) -> None:
    told = words(found(tmp_path, {"run.log": ENDED, **files}), "LOG012")
    assert "learning rate is 0 from step 220" in told
    # One ninth is no number of accumulated batches or processes that anything here says.
    assert "builds the schedule" not in told
    assert "stepped" not in told
