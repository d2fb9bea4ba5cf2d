"""The laws of an audit on truetune's trainer over a small model, on the card or on the CPU.

python -m bench.gpu.laws CONFIGURATION SIZE    print the outcomes as JSON: for a process that sees no card

One process measures on one device: accelerate keeps the first device that a Trainer was made for.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bench.gpu.material import make_material, make_small_model, small_config
from bench.gpu.size import SIZES, Size

Verdict = Literal["holds", "broken", "untested"]
RECORDED_BATCHES = 4


@dataclass(frozen=True)
class Configuration:
    """A run whose laws are measured."""

    packed: bool = True
    """Else each example is a row, and rows are padded"""
    bf16: bool = False
    lora: bool = False
    """Else all weights are trained, in float32"""
    checkpointing: bool = False
    borders: bool = True
    """Documents of a pack are kept apart"""
    broken: tuple[str, ...] = ()
    """Laws that it breaks: controls, without which a law that always holds would prove nothing"""


CONFIGURATIONS: Mapping[str, Configuration] = {
    "full, float32": Configuration(),
    "LoRA, bf16, checkpointing": Configuration(bf16=True, lora=True, checkpointing=True),
    "full, bf16, padded": Configuration(packed=False, bf16=True),
    "control: packed without borders": Configuration(borders=False, broken=("packing-isolation",)),
}


@dataclass(frozen=True)
class LawOutcome:
    """What one law says of a run."""

    verdict: Verdict
    value: float | None
    """How far it is from holding; None where it is untested"""
    tolerance: float | None
    why: str
    """Of a law that is untested"""

    @property
    def share(self) -> float | None:
        """Of the tolerance that the value takes"""
        if self.value is None or not self.tolerance or not math.isfinite(self.value):
            return None
        return self.value / self.tolerance

    def describe(self) -> str:
        """For a line of text."""
        if self.value is None:
            return f"untested ({self.why})"
        return f"{self.verdict} ({self.value:.2g} of {self.tolerance:.2g})"


def measure_laws(configuration: str, size: Size) -> dict[str, LawOutcome]:
    """The laws of `size` on a run of this configuration, on the card where this process sees one."""
    run = CONFIGURATIONS[configuration]
    laws: str | tuple[str, ...] = "quick" if size.laws == ("quick",) else size.laws
    if run.broken:
        laws = run.broken
    with tempfile.TemporaryDirectory() as work:
        return audit_laws(Path(work), run, size, laws)


def audit_laws(
    work: Path,
    run: Configuration,
    size: Size,
    laws: str | tuple[str, ...],
    *,
    break_trainer: Callable[[Any], None] | None = None,
) -> dict[str, LawOutcome]:
    """These laws on one run; `break_trainer` puts a fault into its trainer first."""
    import torch

    from truetune.auditing.record_trainer_run_in_this_process import record_run

    device = "cuda" if torch.cuda.is_available() else "cpu"
    trainer = make_audited_trainer(work, run, size, device)
    if break_trainer is not None:
        break_trainer(trainer)
    record = record_run(
        trainer, None, None, loss=None, given=None, batches=RECORDED_BATCHES, laws=laws
    )
    return {law: _outcome(measured) for law, measured in record.facts["laws"].items()}


def make_audited_trainer(work: Path, run: Configuration, size: Size, device: str) -> Any:
    """truetune's own trainer over a small Llama and chats."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import TrainingArguments

    from truetune.collate import PaddingCollator
    from truetune.training.choose_collator import choose_collator_by_attention
    from truetune.training.does_attention_keep_documents_apart import probe_packing_attention
    from truetune.training.trainer_with_supervised_token_loss import SupervisedTrainer
    from truetune.training.training_recipe import CHECKPOINTING

    # Short rows: a law takes at most 256 tokens of a row that can be cut, and packs whole.
    material = make_material(work, chats=size.chats, max_length=256, answer_words=20)
    config = small_config("llama", len(material.tokenizer), hidden=size.hidden, layers=size.layers)
    dtype = torch.bfloat16 if run.lora else torch.float32
    model = make_small_model(config, device, dtype, "sdpa")
    collate: Any = choose_collator_by_attention(
        probe_packing_attention(model), material.tokenizer, model
    )
    if not run.borders:
        collate = _with_mask_of_ones(PaddingCollator.of(material.tokenizer))
    if run.lora:
        model = get_peft_model(
            model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")
        )
        if run.checkpointing:
            model.enable_input_require_grads()
    arguments: dict[str, Any] = {
        "output_dir": str(work / "run"),
        "report_to": "none",
        "use_cpu": device == "cpu",
        "bf16": run.bf16,
        "per_device_train_batch_size": 2,
        "max_steps": 4,
        "remove_unused_columns": False,
        "disable_tqdm": True,
        CHECKPOINTING: run.checkpointing,
        f"{CHECKPOINTING}_kwargs": {"use_reentrant": False},
    }
    return SupervisedTrainer(
        model=model,
        args=TrainingArguments(**arguments),
        train_dataset=material.packed if run.packed else material.alone,
        data_collator=collate,
        processing_class=material.tokenizer,
    )


def _with_mask_of_ones(collate: Any) -> Any:
    """A common fault: transformers keeps documents apart by their positions only where there is no attention mask."""

    def masked(rows: Any) -> Any:
        import torch

        batch = collate(rows)
        return batch | {"attention_mask": torch.ones_like(batch["input_ids"])}

    return masked


def _outcome(measured: Mapping[str, Any]) -> LawOutcome:
    """A law's outcome as the record has it."""
    if "untested" in measured:
        return LawOutcome("untested", None, None, str(measured["untested"]))
    value, tolerance = float(measured["value"]), float(measured["tolerance"])
    # A value that is no number is a difference too.
    verdict: Verdict = "holds" if value <= tolerance else "broken"
    return LawOutcome(verdict, value, tolerance, "")


def main() -> None:
    """Print the outcomes of one configuration as one line of JSON."""
    configuration, size = sys.argv[1:3]
    outcomes = measure_laws(configuration, SIZES[size])
    print(json.dumps({law: asdict(outcome) for law, outcome in outcomes.items()}))


if __name__ == "__main__":
    main()
