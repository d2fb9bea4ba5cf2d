"""Trains tiny models, healthy and broken, and keeps what they logged: python -m tests.logs.make_runs [NAME ...]

The runs in `runs/` were made by transformers 5.23, TRL 1.16 and peft 0.21; all together take a few minutes on a CPU.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

RUNS = Path(__file__).with_name("runs")
KEPT = {
    "step", "epoch", "loss", "eval_loss", "learning_rate", "grad_norm", "num_tokens", "rewards/chosen",
    "rewards/rejected", "rewards/margins", "rewards/accuracies", "logps/chosen", "logps/rejected", "eval_accuracy",
    "train_runtime", "train_loss", "kl", "eval_runtime",
}  # fmt: skip
RECIPES: dict[str, Callable[[Path], dict[str, Any]]] = {}
Rows = list[dict[str, Any]]


def recipe(make: Callable[[Path], dict[str, Any]]) -> Callable[[Path], dict[str, Any]]:
    """A run, named like its function: it trains in a folder and gives the content of trainer_state.json."""
    RECIPES[make.__name__.replace("_", "-")] = make
    return make


def tokenizer() -> Any:
    """The demo's."""
    from transformers import AutoTokenizer

    from truetune.demo import TOKENIZER

    return AutoTokenizer.from_pretrained(TOKENIZER)


def model(seed: int = 0) -> Any:
    """A Llama of two layers with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    size: dict[str, Any] = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer()), max_position_embeddings=1024, **size)
    )


def chats(count: int = 160) -> Rows:
    """Chats of the demo, only their first turns."""
    from truetune.demo import DATA

    rows = [json.loads(line)["messages"] for line in Path(DATA).read_text("utf-8").splitlines()]
    plain = [[m for m in row if m["role"] != "system"][:2] for row in rows]
    plain = [
        row
        for row in plain
        if [m["role"] for m in row] == ["user", "assistant"] and row[1]["content"]
    ]
    return [{"messages": [{k: m[k] for k in ("role", "content")} for m in row]} for row in plain][
        :count
    ]


def pairs(count: int = 96, same: bool = False, clear: bool = False) -> Rows:
    """Two answers to each question: the chat's own and a scrambled one, swapped in a quarter of the pairs (as people
    disagree) unless `clear`."""
    rows = chats(count + 1)
    rng = random.Random(0)
    made = []
    for row, other in pairwise(rows):
        good, bad = row["messages"][1:], [dict(m) for m in other["messages"][1:]]
        words = bad[0]["content"].split()
        bad[0]["content"] = " ".join(rng.sample(words, len(words) // 2 + 1))
        if not clear and rng.random() < 0.25:
            good, bad = bad, good
        made.append(
            {"prompt": row["messages"][:1], "chosen": good, "rejected": good if same else bad}
        )
    return made


def common(folder: Path, **given: Any) -> dict[str, Any]:
    """Settings of all runs."""
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "learning_rate": 3e-3,
        "max_steps": 40,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 0,
        "gradient_checkpointing": False,
        **given,
    }


def sft(
    folder: Path,
    rows: Rows | None = None,
    held_out: Rows | None = None,
    start: Any = None,
    **given: Any,
) -> Any:
    """A trained SFTTrainer."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    more = {
        name: given.pop(name)
        for name in ("peft_config", "callbacks", "compute_metrics")
        if name in given
    }
    resume = given.pop("resume", None)
    trainer = SFTTrainer(
        start or model(),
        args=SFTConfig(**common(folder, **given)),
        train_dataset=Dataset.from_list(rows or chats()),
        eval_dataset=Dataset.from_list(held_out) if held_out else None,
        processing_class=tokenizer(),
        **more,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def state_of(trainer: Any) -> dict[str, Any]:
    """What the trainer would save as trainer_state.json."""
    path = Path(trainer.args.output_dir) / "made.json"
    trainer.state.save_to_json(str(path))
    made: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return made


def lora(**given: Any) -> Any:
    """A LoRA configuration."""
    from peft import LoraConfig

    return LoraConfig(
        r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", **given
    )


@recipe
def healthy_sft_cosine(folder: Path) -> dict[str, Any]:
    return state_of(sft(folder, lr_scheduler_type="cosine", warmup_steps=4, max_steps=80))


@recipe
def healthy_sft_epochs(folder: Path) -> dict[str, Any]:
    """Three epochs with evaluation on rows that were held out."""
    rows = chats()
    steps = {"max_steps": -1, "num_train_epochs": 3, "eval_strategy": "steps", "eval_steps": 8}
    return state_of(sft(folder, rows[:120], rows[120:160], learning_rate=1e-3, **steps))


@recipe
def healthy_sft_lora(folder: Path) -> dict[str, Any]:
    """LoRA on a model that knows a little."""
    first = sft(folder, max_steps=60).model
    return state_of(sft(folder, start=first, peft_config=lora(), max_steps=60, learning_rate=2e-2))


@recipe
def lora_without_effect(folder: Path) -> dict[str, Any]:
    """A rate far too low for this adapter: three epochs change nothing."""
    first = sft(folder, max_steps=60).model
    return state_of(sft(folder, start=first, peft_config=lora(), max_steps=60, learning_rate=1e-4))


@recipe
def healthy_sft_five_steps(folder: Path) -> dict[str, Any]:
    return state_of(sft(folder, max_steps=5, warmup_steps=1))


@recipe
def healthy_sft_memorise(folder: Path) -> dict[str, Any]:
    """Eight chats by heart: a loss near zero is wanted."""
    return state_of(sft(folder, chats(8), max_steps=120, learning_rate=5e-3))


@recipe
def healthy_sft_small_batch(folder: Path) -> dict[str, Any]:
    return state_of(sft(folder, per_device_train_batch_size=1, max_steps=150, learning_rate=1e-3))


@recipe
def healthy_sft_packed(folder: Path) -> dict[str, Any]:
    more: dict[str, Any] = {"packing": True, "max_length": 256, "gradient_accumulation_steps": 2}
    return state_of(sft(folder, per_device_train_batch_size=2, max_steps=50, **more))


@recipe
def healthy_sft_windows(folder: Path) -> dict[str, Any]:
    """Loss logged as means of ten steps."""
    return state_of(
        sft(folder, max_steps=150, logging_steps=10, lr_scheduler_type="constant_with_warmup")
    )


@recipe
def healthy_resumed(folder: Path) -> dict[str, Any]:
    rows = chats()
    sft(folder, rows, save_strategy="steps", save_steps=20, max_steps=60, callbacks=[_stop_at(20)])
    return state_of(sft(folder, rows, max_steps=60, resume=str(folder / "checkpoint-20")))


@recipe
def healthy_dpo(folder: Path) -> dict[str, Any]:
    return state_of(dpo(folder, pairs()))


@recipe
def healthy_dpo_five_steps(folder: Path) -> dict[str, Any]:
    return state_of(dpo(folder, pairs(40), max_steps=5))


@recipe
def healthy_kto(folder: Path) -> dict[str, Any]:
    from datasets import Dataset
    from trl.experimental.kto import KTOConfig, KTOTrainer

    rows = []
    for i, pair in enumerate(pairs(64)):
        rows.append(
            {
                "prompt": pair["prompt"],
                "completion": pair["rejected" if i % 2 else "chosen"],
                "label": not i % 2,
            }
        )
    trainer = KTOTrainer(
        tuned(folder),
        ref_model=tuned(folder),
        args=KTOConfig(**common(folder, learning_rate=3e-4, max_steps=24)),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
    )
    trainer.train()
    return state_of(trainer)


@recipe
def healthy_early_stopping(folder: Path) -> dict[str, Any]:
    from transformers import EarlyStoppingCallback

    rows = chats()
    steps = {
        "eval_strategy": "steps",
        "eval_steps": 5,
        "save_strategy": "steps",
        "save_steps": 5,
        "max_steps": 300,
    }
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    stop = [EarlyStoppingCallback(early_stopping_patience=3)]
    return state_of(sft(folder, rows[:40], rows[120:160], callbacks=stop, **steps, **best))


def tuned(folder: Path) -> Any:
    """A model that knows the chats a little, as a start for preferences."""
    return sft(folder / "sft", max_steps=60).model


def dpo(folder: Path, rows: Rows, **given: Any) -> Any:
    """A trained DPOTrainer."""
    import copy

    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    start = tuned(folder)
    trainer = DPOTrainer(
        start,
        ref_model=copy.deepcopy(start),
        args=DPOConfig(**common(folder, **{"learning_rate": 1e-4, "max_steps": 24, **given})),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(),
    )
    trainer.train()
    return trainer


def _stop_at(step: int) -> Any:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            control.should_training_stop = state.global_step >= step
            control.should_save = state.global_step == step
            return control

    return Stop()


@recipe
def frozen_adapter(folder: Path) -> dict[str, Any]:
    return state_of(sft(folder, start=_frozen(folder), max_steps=30))


def _frozen(folder: Path) -> Any:
    from peft import PeftModel, get_peft_model

    get_peft_model(model(), lora()).save_pretrained(folder / "adapter")
    return PeftModel.from_pretrained(model(), folder / "adapter")


@recipe
def masked_rows(folder: Path) -> dict[str, Any]:
    """Rows 2 and 3 of every four have no label."""
    return state_of(_bare(folder, [i % 4 < 2 for i in range(64)]))


@recipe
def masked_rows_in_windows(folder: Path) -> dict[str, Any]:
    return state_of(_bare(folder, [i % 4 < 2 for i in range(64)], logging_steps=4))


@recipe
def all_rows_masked(folder: Path) -> dict[str, Any]:
    return state_of(_bare(folder, [False] * 64))


def _bare(folder: Path, live: list[bool], **given: Any) -> Any:
    """transformers' own Trainer on ready labels, in file order."""
    from torch.utils.data import SequentialSampler
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    made = tokenizer()
    rows = []
    for row, is_live in zip(chats(len(live)), live, strict=True):
        ids = made.apply_chat_template(row["messages"], tokenize=True, return_dict=True)[
            "input_ids"
        ]
        rows.append(
            {
                "input_ids": ids,
                "attention_mask": [1] * len(ids),
                "labels": ids if is_live else [-100] * len(ids),
            }
        )

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return SequentialSampler(rows)

    args = TrainingArguments(**common(folder, **{"per_device_train_batch_size": 1, **given}))
    trainer = InOrder(model(), args, DataCollatorForSeq2Seq(made, padding=True), rows)
    trainer.train()
    return trainer


@recipe
def warmup_500(folder: Path) -> dict[str, Any]:
    return state_of(sft(folder, max_steps=40, warmup_steps=500))


@recipe
def learning_rate_tiny(folder: Path) -> dict[str, Any]:
    return state_of(sft(folder, learning_rate=1e-9, max_steps=60))


@recipe
def learning_rate_huge(folder: Path) -> dict[str, Any]:
    """What the model knew is lost at once."""
    return state_of(
        sft(
            folder,
            start=tuned(folder),
            learning_rate=10,
            max_steps=40,
            lr_scheduler_type="constant",
        )
    )


@recipe
def learning_rate_too_high(folder: Path) -> dict[str, Any]:
    """It learns, then the rate climbs past what the model bears."""
    rate: dict[str, Any] = {
        "learning_rate": 0.3,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": 70,
    }
    return state_of(sft(folder, start=tuned(folder), max_steps=80, **rate))


@recipe
def schedule_four_times(folder: Path) -> dict[str, Any]:
    """The scheduler steps four times a step, as it does on four processes in a hand-written loop."""
    from transformers import TrainerCallback

    class Faster(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            for _ in range(3):
                given["lr_scheduler"].step()

    return state_of(sft(folder, max_steps=80, callbacks=[Faster()], lr_scheduler_type="linear"))


@recipe
def best_is_worst(folder: Path) -> dict[str, Any]:
    rows = chats()
    steps = {"eval_strategy": "steps", "eval_steps": 10, "save_strategy": "steps", "save_steps": 10}
    best = {
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": True,
    }
    return state_of(sft(folder, rows[:120], rows[120:160], learning_rate=1e-3, **steps, **best))


@recipe
def overfit(folder: Path) -> dict[str, Any]:
    rows = chats()
    steps = {"eval_strategy": "steps", "eval_steps": 10, "max_steps": 200}
    return state_of(sft(folder, rows[:16], rows[120:160], **steps))


@recipe
def resumed_without_optimizer(folder: Path) -> dict[str, Any]:
    rows = chats()
    given: dict[str, Any] = {"max_steps": 80, "lr_scheduler_type": "linear", "warmup_steps": 8}
    sft(folder, rows, save_strategy="steps", save_steps=40, callbacks=[_stop_at(40)], **given)
    for name in ("optimizer.pt", "scheduler.pt"):
        (folder / "checkpoint-40" / name).unlink()
    return state_of(sft(folder, rows, resume=str(folder / "checkpoint-40"), **given))


@recipe
def resumed_without_weights(folder: Path) -> dict[str, Any]:
    """The step count comes back, the weights do not."""
    from safetensors.torch import save_file

    rows = chats()
    sft(folder, rows, save_strategy="steps", save_steps=40, max_steps=80, callbacks=[_stop_at(40)])
    fresh = {name: tensor.clone() for name, tensor in model(1).state_dict().items()}
    save_file(fresh, folder / "checkpoint-40" / "model.safetensors", metadata={"format": "pt"})
    return state_of(sft(folder, rows, max_steps=80, resume=str(folder / "checkpoint-40")))


@recipe
def identical_pairs(folder: Path) -> dict[str, Any]:
    return state_of(dpo(folder, pairs(same=True)))


@recipe
def dpo_by_length(folder: Path) -> dict[str, Any]:
    """The chosen answer is one word, the rejected one the whole answer."""
    rows = pairs(clear=True)
    for row in rows:
        row["rejected"] = row["chosen"]
        row["chosen"] = [{"role": "assistant", "content": row["rejected"][0]["content"].split()[0]}]
    return state_of(dpo(folder, rows, per_device_train_batch_size=4, learning_rate=1e-3))


@recipe
def dpo_too_weak(folder: Path) -> dict[str, Any]:
    return state_of(dpo(folder, pairs(), learning_rate=1e-9, max_steps=40))


@recipe
def dpo_unlearns(folder: Path) -> dict[str, Any]:
    """Pairs that differ in one word, and a high rate: both sides become less likely."""
    rows = pairs(clear=True)
    for row in rows:
        words = row["chosen"][0]["content"].split()
        words[0] = "Sorry,"
        row["rejected"] = [{"role": "assistant", "content": " ".join(words)}]
    return state_of(dpo(folder, rows, learning_rate=3e-3, max_steps=60, beta=0.02))


@recipe
def loss_summed(folder: Path) -> dict[str, Any]:
    """A loss that is a sum over accumulated batches, not their mean."""
    from trl import SFTTrainer

    plain = SFTTrainer.compute_loss

    def summed(self: Any, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        loss = plain(self, model, inputs)
        return (loss, None) if return_outputs else loss

    setattr(SFTTrainer, "compute_loss", summed)  # noqa: B010 (an assignment of a method is refused by types)
    try:
        return state_of(
            sft(folder, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=30)
        )
    finally:
        SFTTrainer.compute_loss = plain  # type: ignore[method-assign]


@recipe
def labels_not_shifted(folder: Path) -> dict[str, Any]:
    """Random tokens, of which nothing can be learned, with a loss that compares each with itself."""
    from torch.nn.functional import cross_entropy

    def unshifted(outputs: Any, labels: Any, **_: Any) -> Any:
        return cross_entropy(outputs.logits.flatten(0, 1).float(), labels.flatten())

    return state_of(
        noise(
            folder, noise_rows(1600), compute_loss_func=unshifted, max_steps=180, learning_rate=1e-2
        )
    )


def noise_rows(count: int, seed: int = 0) -> Rows:
    """Rows of 32 random tokens out of 60."""
    rng = random.Random(seed)
    return [
        {"input_ids": (ids := rng.choices(range(60), k=32)), "labels": ids} for _ in range(count)
    ]


def noise(folder: Path, rows: Rows, compute_loss_func: Any = None, **given: Any) -> Any:
    """transformers' own Trainer on rows of ids."""
    from transformers import Trainer, TrainingArguments

    args = TrainingArguments(**common(folder, **{"lr_scheduler_type": "constant", **given}))
    trainer = Trainer(model(), args, None, rows, compute_loss_func=compute_loss_func)
    trainer.train()
    return trainer


def main(names: list[str]) -> None:
    """Make these runs, or all."""
    RUNS.mkdir(exist_ok=True)
    for name in names or RECIPES:
        folder = Path(tempfile.mkdtemp())
        try:
            state = RECIPES[name](folder)
        finally:
            shutil.rmtree(folder)
        history = [
            json.dumps(_short(record), allow_nan=True) for record in state.pop("log_history")
        ]
        head = json.dumps({k: v for k, v in state.items() if k != "stateful_callbacks"})[:-1]
        lines = ",\n".join(history)
        (RUNS / f"{name}.json").write_text(
            f'{head}, "log_history": [\n{lines}\n]}}\n', encoding="utf-8"
        )
        print(name, len(history), flush=True)


def _short(record: dict[str, Any]) -> dict[str, Any]:
    return {
        k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in record.items() if k in KEPT
    }


if __name__ == "__main__":
    main(sys.argv[1:])
