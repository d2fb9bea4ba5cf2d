"""The same short runs on any number of processes: `python -m tests.training.ranks FILE`, alone or under torchrun."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import TrainerCallback

from tests.auditing import tiny
from truetune.collate import PaddingFreeCollator
from truetune.errors import FirstProcessFailed
from truetune.settings.run_spec import RunSpec
from truetune.training.coordinate_processes_of_run import (
    hide_other_processes_from_accelerate,
    join_processes_of_launcher,
    run_first_process_before_others,
)
from truetune.training.load_encoded_held_out_and_packed_rows import TrainingRows
from truetune.training.trainer_with_supervised_token_loss import SupervisedTrainer
from truetune.training.watch.losses_by_source import SourceLosses

CASES = (*product(("full",), (False, True), (1, 2)), ("lora", False, 2), ("lora", True, 1))
"""(what is trained, packed?, accumulation)"""
NAMES = ["/".join(map(str, case)) for case in CASES]
ROWS, HELD_OUT, BATCH = 9, 5, 4


class Gradients(TrainerCallback):
    """All gradients before each step, as one vector."""

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        kept = [p.grad.flatten() for p in parts["model"].parameters() if p.requires_grad]
        self.seen.append(torch.cat(kept).numpy().copy())


def rows(count: int, packed: bool, start: int = 0) -> TrainingRows:
    """Rows of unequal length, of which unequal parts are supervised; packed by two."""
    encoded = tiny.encoded(tiny.chats(start + count, turns=2))[start:]
    for number, row in enumerate(encoded):
        row |= {
            "sources": [number % 5] * len(row["labels"]),
            "file": "rows.jsonl",
            "line": number,
            "row": number,
        }
    packs = [[i, i + 1] for i in range(0, count - 1, 2)] + [[count - 1]] * (count % 2)
    return TrainingRows(
        Dataset.from_list(encoded), packs if packed else [[i] for i in range(count)]
    )


def run(what: str, packed: bool, accumulation: int, processes: int) -> dict[str, np.ndarray]:
    """One epoch: gradients and loss of each step, and the loss of an evaluation after it."""
    model: Any = tiny.model()
    if what == "lora":
        torch.manual_seed(1)
        model = peft.get_peft_model(
            model, peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
        )
    settings = tiny.arguments(
        per_device_train_batch_size=BATCH // processes, gradient_accumulation_steps=accumulation, max_steps=-1,
        num_train_epochs=2, learning_rate=0.1, optim="sgd", per_device_eval_batch_size=2, prediction_loss_only=True,
        remove_unused_columns=False,
    )  # fmt: skip
    seen, ledger = Gradients(), SourceLosses()
    trainer = SupervisedTrainer(
        model, settings, train_dataset=rows(ROWS, packed), eval_dataset=rows(HELD_OUT, False, ROWS),
        data_collator=PaddingFreeCollator(), callbacks=[seen], ledger=ledger,
    )  # fmt: skip
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    kinds = sorted({name for step in steps for name in step if name.startswith("loss/")})
    return {
        "gradients": np.stack(seen.seen),
        "losses": np.array([step["loss"] for step in steps]),
        "by source": np.array([[step.get(kind, 0.0) for kind in kinds] for step in steps]),
        "held out": np.array(trainer.evaluate()["eval_loss"]),
    }


def turns() -> dict[str, np.ndarray]:
    """How many processes there seem to be for one that is alone, and after; what each met where the first failed."""
    with run_first_process_before_others() as leads:
        inside = 0
        if leads:
            with hide_other_processes_from_accelerate():
                inside = PartialState().num_processes
    try:
        with run_first_process_before_others() as leads:
            outcome = str(1 // (not leads))
    except (ZeroDivisionError, FirstProcessFailed) as error:
        outcome = type(error).__name__
    outcomes = gather_object([outcome])
    return {
        "alone": np.array([inside, PartialState().num_processes]),
        "outcomes": np.array(outcomes),
    }


def main(file: Path) -> None:
    state = join_processes_of_launcher(RunSpec())
    found = turns()
    for case, name in zip(CASES, NAMES, strict=True):
        made = run(*case, state.num_processes)
        found |= {f"{name}/{what}": value for what, value in made.items()}
    if state.is_main_process:
        arrays: dict[str, Any] = found
        np.savez(file, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
