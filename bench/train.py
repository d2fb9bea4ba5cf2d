"""Training by truetune and by TRL alone: the same model, rows and settings, in turn, in one run.

python -m bench.train MODEL              LoRA on chats of mixed length; on a CPU this takes some minutes
python -m bench.train MODEL --full       all weights
python -m bench.train --gpu               random weights in the shapes of Qwen2.5 0.5B and 7B, LoRA and full, 2,048
                                         tokens packed, bf16: tokens/s and MFU against the matrix rate of the same run

Tokens are real ones: pads do not count. CPU seconds are those of the process, which neighbours hardly change. TRL gets
the same attention, dtype and optimizer, no checkpointing unless both have it, and its best packing (`bfd`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LORA: dict[str, Any] = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
LENGTH = 512
"""Tokens of a row, on a CPU"""
SKIPPED = 2
"""First steps, which are not timed"""
SHAPES: dict[str, dict[str, Any]] = {
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
}  # fmt: skip
"""Qwen2.5, from its published config.json"""


@dataclass(frozen=True)
class Timed:
    """The steps of one training, but for the first ones."""

    tokens: int
    wall: float
    cpu: float
    loss: float
    """Mean of the steps, in nats"""
    peak: float
    """Bytes on the GPU; 0 on a CPU"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a model folder with weights")
    parser.add_argument("--data", help="rows of alpaca (instruction, input, output), as JSON")
    parser.add_argument("--full", action="store_true")
    parser.add_argument(
        "--dtype", default="float32", help="of the weights, in both: float32, bfloat16"
    )
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps(vars(_arm(asked))))
    elif asked.gpu:
        _gpu(asked)
    else:
        _cpu(asked)


def _cpu(asked: Any) -> None:
    found: dict[str, list[Timed]] = {}
    for _ in range(asked.rounds):
        for arm in ("trl plain", "ours plain", "trl packed", "ours packed"):
            found.setdefault(arm, []).append(_run(asked, arm))
    print(f"{'':<12} {'tokens/s':>9} {'tokens/cpu s':>13} {'loss':>6}")
    for arm, times in found.items():
        rate, cpu = (
            statistics.median(t.tokens / getattr(t, by) for t in times) for by in ("wall", "cpu")
        )
        print(f"{arm:<12} {rate:9.0f} {cpu:13.0f} {statistics.mean(t.loss for t in times):6.3f}")
    for ours, theirs in (
        ("ours plain", "trl plain"),
        ("ours packed", "trl packed"),
        ("ours packed", "trl plain"),
    ):
        pairs = list(zip(found[ours], found[theirs], strict=True))
        ratios = [
            statistics.median(
                (a.tokens / getattr(a, by)) / (b.tokens / getattr(b, by)) for a, b in pairs
            )
            for by in ("wall", "cpu")
        ]
        print(f"{ours} / {theirs}: {ratios[0]:.2f} in wall time, {ratios[1]:.2f} in CPU time")


def _gpu(asked: Any) -> None:
    rate = matrix_rate()
    print(f"matrices: {rate / 1e12:.0f} TFLOP/s in bf16")
    print(f"{'':<18} {'tokens/s':>9} {'MFU':>6} {'GiB':>6}")
    for shape in SHAPES:
        for weights in ("lora", "full"):
            times = {}
            for who in ("trl", "ours"):
                times[who] = found = _run(asked, f"{who} {shape} {weights}")
                flops = _flops(shape, weights) * found.tokens / found.wall
                print(
                    f"{who} {shape} {weights:<8} {found.tokens / found.wall:9.0f}"
                    f" {flops / rate:6.1%} {found.peak / 2**30:6.1f}"
                )
            print(
                "  ratio"
                f" {times['ours'].tokens / times['ours'].wall * times['trl'].wall / times['trl'].tokens:.2f}"
            )


def _run(asked: Any, arm: str) -> Timed:
    """In a process of its own."""
    command = [
        sys.executable,
        "-m",
        "bench.train",
        *filter(None, [asked.model]),
        "--steps",
        str(asked.steps),
        "--arm",
        arm,
        "--dtype",
        asked.dtype,
        *(["--full"] if asked.full else []),
        *(["--data", asked.data] if asked.data else []),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    return Timed(**json.loads(done.stdout.splitlines()[-1]))


def _arm(asked: Any) -> Timed:
    who, what, *weights = asked.arm.split()
    with tempfile.TemporaryDirectory() as work:
        if weights:
            trainer = _of_shape(who, what, weights[0] == "lora", asked.steps, work)
        else:
            data = Path(asked.data) if asked.data else _demo()
            make: Callable[..., Any] = _ours if who == "ours" else _theirs
            lora = None if asked.full else LORA
            trainer = make(
                asked.model, data, what == "packed", lora, asked.dtype, asked.steps, Path(work)
            )
        return timed(trainer)


def timed(trainer: Any) -> Timed:
    """Train, and time all steps but the first."""
    import torch
    from transformers import PrinterCallback, ProgressCallback, TrainerCallback

    tokens: list[int] = []
    marks: list[tuple[float, float]] = []
    collate = trainer.data_collator

    def counted(rows: Any) -> Any:
        batch = collate(rows)
        mask = batch.get("attention_mask")
        tokens.append(int(mask.sum()) if mask is not None else batch["input_ids"].numel())
        return batch

    class Clock(TrainerCallback):
        def on_step_end(self, *args: Any, **parts: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            marks.append((time.perf_counter(), time.process_time()))

    trainer.data_collator = counted
    for kind in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(kind)
    trainer.add_callback(Clock())
    trainer.train()
    (wall, cpu), (last_wall, last_cpu) = marks[SKIPPED - 1], marks[-1]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    peak = float(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0.0
    return Timed(
        sum(tokens[SKIPPED : len(marks)]),
        last_wall - wall,
        last_cpu - cpu,
        statistics.mean(losses),
        peak,
    )


def _common(steps: int, folder: str | Path, packed: bool) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "max_steps": steps + SKIPPED,
        "per_device_train_batch_size": 2 if packed else 4,
        "gradient_accumulation_steps": 1,
        "learning_rate": 2e-4,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "optim": "adamw_torch_fused",
    }


def _ours(
    model: str,
    data: Path,
    packed: bool,
    lora: dict[str, Any] | None,
    dtype: str,
    steps: int,
    work: Path,
) -> Any:
    from truetune.settings.read_truetune_settings import validate_settings
    from truetune.training.load_encoded_held_out_and_packed_rows import load_training_data
    from truetune.training.prepare_model import prepare_model
    from truetune.training.trainer_with_supervised_token_loss import make_supervised_trainer
    from truetune.training.training_recipe import make_recipe

    given = {
        name: value for name, value in _common(steps, work, packed).items() if name != "report_to"
    }
    spec = validate_settings(
        {
            "model": model,
            "tokenizer": model,
            "data": str(data),
            "max_length": LENGTH,
            "rehearsal": False,
            "encode": {"packing": "best-fit" if packed else "none"},
            "trainer": {"report_to": "none"},
            "training": {
                **given,
                "val_size": 0,
                "bf16": False,
                "dtype": dtype,
                **({"lora": lora} if lora else {}),
            },
        },
        "bench",
    )
    rows = load_training_data(make_recipe(spec, rows=None, gpu=False, bf16=False).spec)
    made = make_recipe(spec, rows=len(rows.train), gpu=False, bf16=False)
    return make_supervised_trainer(made, prepare_model(made.spec, made.training), rows)


def _theirs(
    model: str,
    data: Path,
    packed: bool,
    lora: dict[str, Any] | None,
    dtype: str,
    steps: int,
    work: Path,
) -> Any:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    rows = [
        {
            "prompt": [
                {"role": "user", "content": f"{row['instruction']}\n{row['input']}".strip()}
            ],
            "completion": [{"role": "assistant", "content": row["output"]}],
        }
        for row in json.loads(data.read_text(encoding="utf-8"))
    ]
    settings = SFTConfig(
        **_common(steps, work, packed),
        max_length=LENGTH,
        packing=packed,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
    )
    return SFTTrainer(
        AutoModelForCausalLM.from_pretrained(model, dtype=dtype),
        settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(model),
        peft_config=LoraConfig(task_type="CAUSAL_LM", **lora) if lora else None,
    )


def _of_shape(who: str, shape: str, lora: bool, steps: int, work: str) -> Any:
    """A trainer over random weights and random packed rows, half of whose tokens are supervised."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen2Config, Qwen2ForCausalLM, TrainingArguments
    from trl import SFTConfig, SFTTrainer

    from tests.auditing.tiny import tokenizer
    from truetune.collate import PaddingFreeCollator
    from truetune.training.trainer_with_supervised_token_loss import SupervisedTrainer

    torch.manual_seed(0)
    try:
        import flash_attn  # noqa: F401

        attention = "flash_attention_2"
    except ImportError:
        attention = "sdpa"
    shape_settings: dict[str, Any] = {
        **SHAPES[shape],
        "max_position_embeddings": 4096,
        "attn_implementation": attention,
    }
    config = Qwen2Config(**shape_settings)
    with torch.device("cuda"):
        model: Any = Qwen2ForCausalLM(config)
        model = model.to(torch.bfloat16 if lora or shape == "7B" else torch.float32)
    given = {
        **_common(steps, work, True),
        "bf16": True,
        "gradient_checkpointing": shape == "7B",
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "remove_unused_columns": False,
    }
    adapter = LoraConfig(task_type="CAUSAL_LM", **LORA) if lora else None
    rows = list(_random_rows(4 * (steps + SKIPPED), SHAPES[shape]["vocab_size"]))
    if who == "ours":
        return SupervisedTrainer(
            model=get_peft_model(model, adapter) if adapter else model,
            args=TrainingArguments(**given),
            train_dataset=rows,
            data_collator=PaddingFreeCollator(varlen=attention != "sdpa"),
        )
    from datasets import Dataset

    settings = SFTConfig(
        **given, padding_free=True, max_length=None, dataset_kwargs={"skip_prepare_dataset": True}
    )
    return SFTTrainer(
        model,
        settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
        peft_config=adapter,
    )


def _random_rows(count: int, ids: int) -> Iterator[dict[str, Any]]:
    """Packs of 8 documents of 256 tokens."""
    import numpy as np

    made = np.random.default_rng(0)
    for _ in range(count):
        row = made.integers(0, ids, 2048).tolist()
        labels = [id if place % 256 >= 128 else -100 for place, id in enumerate(row)]
        yield {"input_ids": row, "labels": labels, "seq_lengths": [256] * 8}


def _flops(shape: str, weights: str) -> float:
    """Floating point operations a token: 2 N forward, 2 N for the gradients of activations, 2 N for those of weights,
    which LoRA does not need (Kaplan et al. 2020); attention within documents of 256 tokens is left out.
    """
    s: dict[str, Any] = SHAPES[shape]
    width, inner, kv = (
        s["hidden_size"],
        s["intermediate_size"],
        s["num_key_value_heads"] / s["num_attention_heads"],
    )
    layer = width * width * (2 + 2 * kv) + 3 * width * inner
    return float(
        (layer * s["num_hidden_layers"] + width * s["vocab_size"]) * (4 if weights == "lora" else 6)
    )


def matrix_rate(size: int = 8192, times: int = 20) -> float:
    """Operations a second of bf16 matrices on this GPU."""
    import torch

    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        a @ b
    torch.cuda.synchronize()
    return 2 * size**3 * times / (time.perf_counter() - started)


def _demo() -> Path:
    from tests.parts import data

    return data("llamafactory/alpaca_en_demo.json")


if __name__ == "__main__":
    main()
