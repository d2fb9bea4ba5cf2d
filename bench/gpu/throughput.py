"""Section `throughput`: truetune's trainer and TRL's SFTTrainer on the same model, packed rows and settings.

Both run in this process, in turn and back again (A B B A), so that neither has the warm caches alone. Time is taken
twice: of the steps after the first ones, and of the whole, from building the trainer to its last step. MFU counts what
the matrices of a step need (2 operations a weight and token forward, as many for the gradient of the activations and,
where the weight is trained, for its own; Kaplan 2020), not what is computed again by checkpointing; attention is left
out, so that it is a lower bound.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bench.gpu.entries import Budget, Entry, Value, free_memory, measure_guarded
from bench.gpu.liger import is_liger_installed, liger_kernels
from bench.gpu.material import SEED, Material, make_material
from bench.gpu.size import Race, Size
from bench.memory import SHAPES
from bench.train import LORA, matrix_rate

SECTION = "throughput"
Contender = Literal["truetune", "TRL packed", "TRL unpacked", "truetune with Liger"]
PACKED: tuple[Contender, ...] = ("truetune", "TRL packed")
"""They run in turn and back; the others once, after them"""
OTHERS: tuple[Contender, ...] = ("TRL unpacked", "truetune with Liger")
PAIRS: tuple[tuple[Contender, Contender], ...] = (
    ("truetune", "TRL packed"),
    ("truetune", "TRL unpacked"),
    ("truetune with Liger", "truetune"),
)
"""Whose tokens a second are divided by whose"""
SKIPPED = 2
"""First steps, which are not timed: kernels are loaded, the optimizer makes its states"""
TOKENS_PER_EXAMPLE = 256
"""About as many as an example of `make_material` has; only decides how many are made"""
PUBLISHED_TFLOPS = {"H100": 989.0, "H200": 989.0, "A100": 312.0}
"""Dense bf16 of NVIDIA's data sheets (SXM), by a part of the card's name"""


@dataclass(frozen=True)
class Timing:
    """One run of one contender."""

    tokens: int
    """Of the timed steps; pads do not count"""
    seconds: float
    """Of the timed steps"""
    all_tokens: int
    """Of all steps"""
    all_seconds: float
    """From building the trainer to the end of its last step, without making the model"""
    peak: float
    """Bytes on the card"""
    loss: float
    """Mean of the steps that were logged, in nats"""

    @property
    def rate(self) -> float:
        """Tokens a second, start excluded"""
        return self.tokens / self.seconds

    @property
    def rate_with_start(self) -> float:
        """Tokens a second, start included"""
        return self.all_tokens / self.all_seconds


def measure(size: Size, budget: Budget) -> Iterator[Entry]:
    """For each race one entry a contender, and one with the ratios."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rate = matrix_rate() if device == "cuda" else None
    for race in size.races:
        with tempfile.TemporaryDirectory() as work:
            yield from _measure_race(race, Path(work), device, rate, budget)


def _measure_race(
    race: Race, work: Path, device: str, rate: float | None, budget: Budget
) -> Iterator[Entry]:
    """One entry for each run of a contender, then the ratios."""
    title = f"{race.shape} {race.trains}"
    steps = race.steps + SKIPPED
    tokens = steps * race.rows_per_step * race.max_length
    if budget.left < 2 * race.expected_s:
        yield Entry(SECTION, title, "not run", note="the time of the section was used up")
        return
    material = make_material(
        work,
        chats=max(12, tokens // TOKENS_PER_EXAMPLE),
        max_length=race.max_length,
        answer_words=race.answer_words,
    )
    timings: dict[Contender, list[Timing]] = {name: [] for name in PACKED + OTHERS}
    for contender in _order(race.rounds):
        run = partial(
            _measure_run, race, contender, material, work, device, rate, timings[contender]
        )
        yield measure_guarded(SECTION, f"{title}: {contender}", budget, race.expected_s, run)
    for ours, theirs in PAIRS:
        yield _ratios(f"{title}: {ours} / {theirs}", timings[ours], timings[theirs])


def _order(rounds: int) -> Iterator[Contender]:
    """Who runs when: the packed ones in turn and back, so that neither always goes first; then the others."""
    for number in range(rounds):
        yield from PACKED if number % 2 == 0 else PACKED[::-1]
    yield from OTHERS


def _ratios(name: str, ours: Sequence[Timing], theirs: Sequence[Timing]) -> Entry:
    """How many times the tokens a second of `theirs` that `ours` makes, by their medians."""
    if not ours or not theirs:
        return Entry(SECTION, name, "not run", note="one of the two has no timing")
    figures: dict[str, Value] = {
        "ratio, start excluded": round(
            statistics.median(t.rate for t in ours) / statistics.median(t.rate for t in theirs), 3
        ),
        "ratio, start included": round(
            statistics.median(t.rate_with_start for t in ours)
            / statistics.median(t.rate_with_start for t in theirs),
            3,
        ),
        "runs": min(len(ours), len(theirs)),
    }
    return Entry(SECTION, name, "measured", figures)


def _measure_run(
    race: Race,
    contender: Contender,
    material: Material,
    work: Path,
    device: str,
    rate: float | None,
    runs: list[Timing],
) -> Entry:
    """One contender, trained; its timing is put into `runs`."""
    import torch

    name = f"{race.shape} {race.trains}: {contender}"
    liger = contender == "truetune with Liger"
    if liger and (device == "cpu" or not is_liger_installed()):
        return Entry(SECTION, name, "not run", note="needs a card and liger-kernel")
    free_memory()
    model = _make_model(race, device)
    attention = str(model.config._attn_implementation)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    with liger_kernels(model) if liger else nullcontext():
        timing = _train(race, contender, model, material, work / "run", device)
    runs.append(timing)
    flops = _flops_per_token(race) * timing.rate
    figures: dict[str, Value] = {
        "tokens/s": round(timing.rate),
        "tokens/s with start": round(timing.rate_with_start),
        "MFU of the data sheet": _share(flops, _published_flops()),
        "MFU of measured matrices": _share(flops, rate),
        "peak GiB": round(timing.peak / 2**30, 2),
        "loss": round(timing.loss, 3),
        "seconds of timed steps": round(timing.seconds, 3),
        "attention": attention,
        "examples a pack": round(len(material.alone) / len(material.packed), 1),
    }
    return Entry(SECTION, name, "measured", figures)


def _share(flops: float, of: float | None) -> float | None:
    return round(flops / of, 4) if of else None


def _published_flops() -> float | None:
    """Operations a second of the card's data sheet; None for a card that is not listed."""
    import torch

    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((rate * 1e12 for part, rate in PUBLISHED_TFLOPS.items() if part in name), None)


def _flops_per_token(race: Race) -> float:
    """Operations of the matrices for one token, forward and backward."""
    shape = SHAPES[race.shape]
    width, inner = shape["hidden_size"], shape["intermediate_size"]
    head = shape.get("head_dim", width // shape["num_attention_heads"])
    query, key = shape["num_attention_heads"] * head, shape["num_key_value_heads"] * head
    layer = 2 * width * query + 2 * width * key + 3 * width * inner
    weights = layer * shape["num_hidden_layers"] + width * shape["vocab_size"]
    return float(weights * (6 if race.trains == "full" else 4))


def _make_model(race: Race, device: str) -> Any:
    """Random weights, made where they are used: float32 where all are trained, else bfloat16."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils.import_utils import is_flash_attn_2_available

    values = dict(SHAPES[race.shape])
    config = AutoConfig.for_model(
        values.pop("model_type"),
        **values,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        max_position_embeddings=4096,
    )
    attention = "flash_attention_2" if is_flash_attn_2_available() else "sdpa"
    torch.manual_seed(SEED)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config,
            dtype=torch.float32 if race.trains == "full" else torch.bfloat16,
            attn_implementation=attention,
        )
    return model


def _train(
    race: Race, contender: Contender, model: Any, material: Material, folder: Path, device: str
) -> Timing:
    """Build the contender's trainer, train, and time it."""
    started = time.perf_counter()
    if contender.startswith("truetune"):
        trainer = _truetune_trainer(race, model, material, folder, device)
    else:
        trainer = _trl_trainer(
            race, model, material, folder, device, packed=contender == "TRL packed"
        )
    tokens, marks = _instrument(trainer)
    trainer.train()
    _synchronize()
    ended = time.perf_counter()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return Timing(
        # The loader may have fetched batches beyond the last step.
        tokens=sum(tokens[SKIPPED : len(marks)]),
        seconds=marks[-1] - marks[SKIPPED - 1],
        all_tokens=sum(tokens[: len(marks)]),
        all_seconds=ended - started,
        peak=_peak_bytes(),
        loss=statistics.mean(losses) if losses else float("nan"),
    )


def _instrument(trainer: Any) -> tuple[list[int], list[float]]:
    """Count the tokens of each batch, and note the time at the end of each step."""
    from transformers import PrinterCallback, ProgressCallback, TrainerCallback

    tokens: list[int] = []
    marks: list[float] = []
    collate = trainer.data_collator

    def counted(rows: Any) -> Any:
        tokens.append(sum(len(row["input_ids"]) for row in rows))
        return collate(rows)

    class Clock(TrainerCallback):
        def on_step_end(self, *args: Any, **parts: Any) -> None:
            _synchronize()
            marks.append(time.perf_counter())

    trainer.data_collator = counted
    for kind in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(kind)
    trainer.add_callback(Clock())
    return tokens, marks


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _peak_bytes() -> float:
    import torch

    return float(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0.0


def _arguments(race: Race, folder: Path, device: str, rows_per_step: int) -> dict[str, Any]:
    """Of both trainers"""
    from truetune.training.training_recipe import CHECKPOINTING

    return {
        "output_dir": str(folder),
        "max_steps": race.steps + SKIPPED,
        "per_device_train_batch_size": rows_per_step,
        "gradient_accumulation_steps": 1,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "optim": "adamw_torch_fused",
        "bf16": device == "cuda",
        "use_cpu": device == "cpu",
        "logging_steps": race.steps + SKIPPED,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        CHECKPOINTING: race.checkpointing,
        f"{CHECKPOINTING}_kwargs": {"use_reentrant": False},
    }


def _columns(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: row[name] for name in names} for row in rows]


def _lora_config() -> Any:
    from peft import LoraConfig

    return LoraConfig(task_type="CAUSAL_LM", **LORA)


def _truetune_trainer(race: Race, model: Any, material: Material, folder: Path, device: str) -> Any:
    """As `truetune train` builds it: its attention test, its head, its collator, its trainer. Where Liger is installed,
    `train` uses its kernels; here that is a contender of its own, since TRL uses none unless it is told to."""
    from peft import get_peft_model
    from transformers import TrainingArguments

    from truetune.training.choose_collator import choose_collator_by_attention
    from truetune.training.does_attention_keep_documents_apart import probe_packing_attention
    from truetune.training.supervised_token_losses import use_fused_head_where_it_computes
    from truetune.training.trainer_with_supervised_token_loss import SupervisedTrainer

    attention = probe_packing_attention(model)
    if device == "cuda":
        use_fused_head_where_it_computes(model)
    collate = choose_collator_by_attention(attention, material.tokenizer, model)
    if race.trains == "lora":
        if race.checkpointing:
            model.enable_input_require_grads()
        model = get_peft_model(model, _lora_config())
    return SupervisedTrainer(
        model=model,
        args=TrainingArguments(**_arguments(race, folder, device, race.rows_per_step)),
        train_dataset=_columns(material.packed, "input_ids", "labels", "seq_lengths"),
        data_collator=collate,
        processing_class=material.tokenizer,
    )


def _trl_trainer(
    race: Race, model: Any, material: Material, folder: Path, device: str, *, packed: bool
) -> Any:
    """TRL's SFTTrainer on the same encoded rows: packed and laid end to end as its packing does, or padded."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    names = ["input_ids", "labels", *(["seq_lengths"] if packed else [])]
    rows = _columns(material.packed if packed else material.alone, *names)
    # As many examples in a step as a packed step has on average.
    per_pack = len(material.alone) / len(material.packed)
    rows_per_step = race.rows_per_step if packed else round(race.rows_per_step * per_pack)
    settings = SFTConfig(
        **_arguments(race, folder, device, rows_per_step),
        max_length=None,
        padding_free=packed,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    return SFTTrainer(
        model,
        settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=material.tokenizer,
        peft_config=_lora_config() if race.trains == "lora" else None,
    )
