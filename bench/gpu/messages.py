"""Section `messages`: real failures of a card, provoked in programs of their own, as `truetune diagnose` reads them.

Each program fails in one planted way. What it prints is kept word for word in the entry, and `truetune diagnose` has to
name the planted cause: the name of the known message (`truetune explain NAME`), or the rule. Some programs need a card;
the others fail in the same words on a CPU, and are what a test runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.gpu.entries import MAX_NOTE, Budget, Entry, Value, error_entry
from bench.gpu.size import Size

SECTION = "messages"
PROGRAM_TIMEOUT_S = 75.0
"""Seconds for one program: the imports of a fresh machine take up to 40"""
DIAGNOSE_TIMEOUT_S = 60.0
TOGETHER = 5
"""Programs that run at a time: more would fight for the cores while they import, and for the card"""
MAX_TEXT = 200_000
"""Characters of an output that are kept, from its end"""
KNOWN_AS = re.compile(r"known as ([a-z0-9-]+)")

TRAINING_STEP = """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def make_model(vocabulary, dtype=torch.bfloat16):
        config = LlamaConfig(vocab_size=vocabulary, hidden_size=256, intermediate_size=512,
                             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
        return LlamaForCausalLM(config).to("cuda", dtype)
"""
TRAINER = """
    import torch
    from torch.utils.data import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    class Rows(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, number):
            ids = torch.arange(32) * (number + 3) % 256
            return {"input_ids": ids, "labels": ids}

    def train(dtype, **settings):
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128,
                             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
        arguments = TrainingArguments(
            output_dir="run", max_steps=12, per_device_train_batch_size=4, logging_steps=1,
            report_to="none", save_strategy="no", logging_nan_inf_filter=False, **settings)
        Trainer(LlamaForCausalLM(config).to(dtype), arguments, train_dataset=Rows()).train()
"""


@dataclass(frozen=True)
class Failure:
    """A program that fails in a known way."""

    name: str
    planted: str
    """The cause, in words"""
    expected: tuple[str, ...]
    """Names of messages or rules, any of which names the cause"""
    program: str
    needs_card: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    """Between the interpreter and the program's file"""
    expected_s: float = 20.0


FAILURES = (
    Failure(
        "CUDA out of memory",
        "logits of 128 rows of 4096 tokens over 151,936 ids",
        ("cuda-out-of-memory",),
        f"""{TRAINING_STEP}
    # 148 GiB in one tensor: it fails at once, before it can take memory from the programs beside it.
    model = make_model(151936)
    ids = torch.randint(0, 151936, (128, 4096), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
""",
    ),
    Failure(
        "id beyond the embedding",
        "an id of 1,500 for an embedding of 1,000 rows",
        ("ids-beyond-the-embedding-on-the-gpu", "ids-beyond-the-embedding"),
        f"""{TRAINING_STEP}
    model = make_model(1000)
    ids = torch.full((2, 64), 1500, device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    print(loss.item())
""",
    ),
    Failure(
        "label beyond the classes",
        "class 3 of a head for 3 classes",
        ("labels-beyond-the-classes-on-the-gpu", "labels-beyond-the-classes"),
        """
    import torch
    from transformers import LlamaConfig, LlamaForSequenceClassification

    config = LlamaConfig(vocab_size=1000, hidden_size=64, intermediate_size=128, num_labels=3,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, pad_token_id=0)
    model = LlamaForSequenceClassification(config).to("cuda")
    ids = torch.randint(1, 1000, (4, 16), device="cuda")
    loss = model(input_ids=ids, labels=torch.tensor([0, 1, 2, 3], device="cuda")).loss
    print(loss.item())
""",
    ),
    Failure(
        "loss is nan in float16",
        "all weights in float16, and a learning rate that overflows them",
        (
            "loss-not-finite",
            "loss-is-nan",
            "pure-fp16",
            "loss-diverges",
            "loss-or-gradient-exactly-zero",
        ),
        f"""{TRAINER}
    train(torch.float16, learning_rate=30.0, optim="sgd", max_grad_norm=0.0)
""",
    ),
    Failure(
        "float16 gradients unscaled",
        "weights in float16 under fp16 mixed precision",
        ("unscale-fp16",),
        f"""{TRAINER}
    train(torch.float16, learning_rate=1e-3, fp16=True)
""",
    ),
    Failure(
        "no card is visible",
        "CUDA_VISIBLE_DEVICES is empty",
        ("no-gpu-found",),
        """
    import torch

    model = torch.nn.Linear(4, 4).to("cuda")
""",
        needs_card=False,
        environment={"CUDA_VISIBLE_DEVICES": ""},
    ),
    Failure(
        "mixed dtypes in a product",
        "inputs in float32 for a layer in bfloat16",
        ("dtypes-do-not-fit",),
        """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = torch.nn.Linear(64, 64).to(device, torch.bfloat16)
    layer(torch.ones(8, 64, device=device)).sum().backward()
""",
        needs_card=False,
    ),
    Failure(
        "tensors on two devices",
        "ids on the CPU for a model on the card",
        ("two-devices",),
        f"""{TRAINING_STEP}
    model = make_model(1000)
    model(input_ids=torch.ones(2, 16, dtype=torch.long))
""",
    ),
    Failure(
        "CUDA in a forked worker",
        "a data set that uses the card in the DataLoader's workers",
        ("cuda-in-a-forked-process",),
        """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, number):
            return torch.ones(4, device="cuda") * number

    torch.ones(1, device="cuda")
    if __name__ == "__main__":
        for batch in DataLoader(Rows(), batch_size=2, num_workers=1, multiprocessing_context="fork"):
            print(batch.sum())
""",
    ),
    Failure(
        "two ranks on one card",
        "torchrun with two processes that both take card 0",
        ("nccl-same-gpu-twice", "ranks-on-one-gpu"),
        """
    import datetime
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=30))
    torch.cuda.set_device(0)
    tensor = torch.ones(4, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    print(tensor)
""",
        command=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        expected_s=40.0,
    ),
    Failure(
        "flash attention is not installed",
        "attn_implementation='flash_attention_2' without its package",
        ("flash-attention-not-usable",),
        """
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                         num_attention_heads=4)
    AutoModelForCausalLM.from_config(config, attn_implementation="flash_attention_2", dtype=torch.bfloat16)
""",
    ),
    Failure(
        "quantized load without bitsandbytes",
        "BitsAndBytesConfig where bitsandbytes is not installed",
        ("package-missing",),
        """
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                         num_attention_heads=4)
    LlamaForCausalLM(config).save_pretrained("model")
    AutoModelForCausalLM.from_pretrained("model", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
""",
    ),
)


def measure(size: Size, budget: Budget) -> Iterator[Entry]:
    """One entry for each failure, in the order in which they are known."""
    import torch

    on_card = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(TOGETHER) as pool:
        futures = {}
        for number, failure in enumerate(FAILURES):
            if failure.needs_card and not on_card:
                yield Entry(SECTION, failure.name, "not run", note="needs a card")
                continue
            folder = Path(work, str(number))
            folder.mkdir()
            futures[pool.submit(_measure_failure, failure, folder, budget)] = failure
        for future in as_completed(futures):
            try:
                yield future.result()
            except Exception as error:
                yield error_entry(SECTION, futures[future].name, error)


def _measure_failure(failure: Failure, folder: Path, budget: Budget) -> Entry:
    """Run the program, let diagnose read what it printed, and compare."""
    if budget.left < failure.expected_s and failure.needs_card:
        note = "the time of the section was used up"
        return Entry(SECTION, failure.name, "not run", note=note)
    started = time.monotonic()
    # A name as logs have it: `diagnose` takes the kind of a file from it.
    log = folder / "run.log"
    program = folder / "train.py"
    program.write_text(textwrap.dedent(failure.program), encoding="utf-8")
    code = _run_program(failure, program, log, min(PROGRAM_TIMEOUT_S, max(5.0, budget.left - 10)))
    text = _without_folder(log.read_text(encoding="utf-8", errors="replace"), folder)
    # Before diagnose reads it: what is kept has to be what was read.
    log.write_text(text, encoding="utf-8")
    entry = _judge(failure, log, text, code)
    return replace(entry, seconds=round(time.monotonic() - started, 2))


def _run_program(failure: Failure, program: Path, log: Path, timeout: float) -> int | None:
    """The exit code; None where it had to be ended."""
    environment = {**os.environ, **failure.environment, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *failure.command, program.name]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            cwd=program.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            # terminate first: torchrun ends its workers then, and leaves them alone when it is killed.
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return None


def _without_folder(text: str, folder: Path) -> str:
    """The text without the temporary folder, which differs in every run."""
    return text.replace(f"{folder}{os.sep}", "")


def _judge(failure: Failure, log: Path, text: str, code: int | None) -> Entry:
    """What `truetune diagnose` says of the text."""
    figures: dict[str, Value] = {
        "planted": failure.planted,
        "exit code": code,
        "last line": _last_line(text),
    }
    kept = text[-MAX_TEXT:]
    # Training that logs nan ends with 0 all the same; every other program has to fail.
    if code is None:
        note = "the program did not end in time"
        return Entry(SECTION, failure.name, "error", figures, note, kept)
    done = subprocess.run(
        [sys.executable, "-m", "truetune", "diagnose", str(log), "--json"],
        capture_output=True,
        text=True,
        timeout=DIAGNOSE_TIMEOUT_S,
        check=False,
    )
    try:
        findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError):
        note = f"truetune diagnose ended with {done.returncode}: {done.stderr.strip()[-MAX_NOTE:]}"
        return Entry(SECTION, failure.name, "failed", figures, note, kept)
    rules = [finding["rule"] for finding in findings]
    known = [
        name
        for finding in findings
        for line in finding.get("evidence") or ()
        for name in KNOWN_AS.findall(str(line))
    ]
    named = [name for name in failure.expected if name in (*rules, *known)]
    figures |= {
        "rules": ", ".join(dict.fromkeys(rules)),
        "known as": ", ".join(dict.fromkeys(known)),
        "names the cause": bool(named),
    }
    note = str(findings[0]["message"])[:MAX_NOTE] if findings else "no finding"
    return Entry(SECTION, failure.name, "passed" if named else "failed", figures, note, kept)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
