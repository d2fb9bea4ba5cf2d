"""Audits of trainers that sample their own answers, and of loops whose batches have names of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch.utils.data import DataLoader

import truetune
from tests.auditing import tiny
from tests.auditing.running import run_training

PROMPTS = [
    {"prompt": [{"role": "user", "content": f"How many figs are in box {i}?"}]} for i in range(8)
]
SCRIPT = """
import sys
from datasets import Dataset
from transformers import AutoTokenizer
kind, folder = sys.argv[1:]
if kind == "online_dpo":
    from trl.experimental.online_dpo import OnlineDPOConfig as Config, OnlineDPOTrainer as Trainer
    settings = dict(max_new_tokens=4)
else:
    import trl
    Config, Trainer = getattr(trl, kind + "Config"), getattr(trl, kind + "Trainer")
    settings = dict(num_generations=2, max_completion_length=4)
def reward(completions, **_):
    return [float(len(str(one))) for one in completions]
arguments = Config(output_dir=folder + "/out", per_device_train_batch_size=2, max_steps=1, use_cpu=True, bf16=False,
                   report_to=[], save_strategy="no", **settings)
rows = Dataset.from_list([{"prompt": [{"role": "user", "content": f"How many figs in box {i}?"}]} for i in range(4)])
trainer = Trainer(folder, reward_funcs=reward, args=arguments, train_dataset=rows,
                  processing_class=AutoTokenizer.from_pretrained(folder))
trainer.train()
print("TRAINED")
"""


@pytest.mark.parametrize("kind", ["GRPO", "RLOO", "online_dpo"])
def test_a_run_that_samples_its_answers_is_judged_as_far_as_it_can_be(
    kind: str, tmp_path: Path
) -> None:
    tiny.model().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    made = run_training(str(tmp_path / "script.py"), kind, str(tmp_path))
    assert "TRAINED" in made.stdout, made.stderr
    assert "the audit failed" not in made.stderr
    assert "sampled from the model while it trains" in made.stderr
    assert made.returncode == 0, made.stderr
    # A training of one step is judged when it has ended.
    judged = (
        "sampled-ids-are-not-trained (ROL001)"
        if kind == "online_dpo"
        else "advantages-are-not-of-their-rewards (ROL011)"
    )
    assert judged in made.stderr
    assert "no line of a batch was seen" not in made.stderr


def _no_reward(completions: Any, **_: Any) -> list[float]:
    """Nothing is worth more than anything else."""
    return [0.0] * len(completions)


def test_an_audit_of_prompts_alone_is_not_clean() -> None:
    from trl import GRPOConfig, GRPOTrainer

    arguments = GRPOConfig(
        output_dir="unused", per_device_train_batch_size=2, num_generations=2, max_completion_length=4, use_cpu=True,
        bf16=False, report_to=[], save_strategy="no",
    )  # fmt: skip
    no_reward: Any = _no_reward
    trainer = GRPOTrainer(
        tiny.model(), no_reward, args=arguments,
        train_dataset=Dataset.from_list(PROMPTS), processing_class=tiny.tokenizer(),
    )  # fmt: skip
    report = truetune.audit(trainer)
    assert not report.findings
    assert not report.samples
    assert any("sampled from the model" in missing.reason for missing in report.not_judged)
    assert (
        report.laws["gradient-accumulation"]["untested"] == "the trainer generates its own answers"
    )


Batch = Callable[[torch.Tensor, torch.Tensor], Any]


def audited(batch: Batch, **settings: Any) -> Any:
    """The audit of a loop whose collator makes such a batch of ids and labels."""
    tokenizer = tiny.tokenizer()
    rows = [
        tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=False)
        for row in tiny.chats(8)
    ]

    def collate(rows: list[list[int]]) -> Any:
        longest = max(map(len, rows))
        ids = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
        half = len(rows[0]) // 2
        labels = [[-100] * half + row[half:] + [-100] * (longest - len(row)) for row in rows]
        return batch(ids, torch.tensor(labels))

    loader: Any = DataLoader(rows, batch_size=4, collate_fn=collate)  # type: ignore[arg-type]
    return truetune.audit(tiny.model(), loader, tokenizer, **settings)


USUAL: Batch = lambda ids, labels: {"input_ids": ids, "labels": labels}  # noqa: E731


@pytest.mark.parametrize(
    "batch",
    [
        lambda ids, labels: {"tokens": ids, "labels": labels},
        lambda ids, labels: (ids, labels),
        lambda ids, labels: [ids, labels],
        lambda ids, labels: {"x": ids, "y": labels},
        lambda ids, labels: (
            ids,
            torch.cat((labels[:, 1:], torch.full_like(labels[:, :1], -100)), 1),
        ),
    ],
)
def test_a_batch_of_other_names_is_judged_like_the_usual_one(batch: Batch) -> None:
    usual, other = audited(USUAL, laws="none"), audited(batch, laws="none")
    assert usual.ledger.counts.tolist() == other.ledger.counts.tolist()
    assert [f.rule for f in usual.findings] == [f.rule for f in other.findings]
    assert "line-without-label" not in [f.rule for f in other.findings]


def test_a_loss_of_ones_own_is_given_the_batch_as_the_loader_makes_it() -> None:
    seen: list[type[Any]] = []

    def loss(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        seen.append(type(batch))
        return model(input_ids=batch[0], labels=batch[1]).loss

    report = audited(
        lambda ids, labels: (ids, labels), loss=loss, laws=["loss-alive", "loss-targets"]
    )
    assert set(seen) == {tuple}
    assert all("value" in law for law in report.laws.values()), report.laws


def test_a_doubt_is_told_with_what_would_settle_it() -> None:
    doubtful: Batch = lambda ids, labels: {"x": ids, "y": ids.flip(1)}  # noqa: E731
    report = audited(doubtful)
    assert not report.samples
    assert any("keys=" in missing.reason for missing in report.not_judged)
    settled = audited(doubtful, laws="none", keys={"input_ids": "x", "labels": "y"})
    assert settled.samples


def test_packed_rows_of_a_list_are_judged() -> None:
    """A data set that is a list has no column names; the rule on what its rows see asked for them."""

    def pack(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        ids = torch.tensor([[token for row in rows for token in row["input_ids"]]])
        positions = torch.cat([torch.arange(len(row["input_ids"])) for row in rows])[None]
        return {
            "input_ids": ids,
            "labels": ids.clone(),
            "position_ids": positions,
            "attention_mask": torch.ones_like(ids),
        }

    rows = [dict(row) for row in tiny.encoded(tiny.chats(8))]
    import transformers

    trainer = transformers.Trainer(
        tiny.model(),
        tiny.arguments(),
        pack,
        rows,
        processing_class=tiny.tokenizer(),
    )
    for given in (rows, [["a"], ["b"]]):
        report = truetune.audit(trainer, given=given, laws=["packing-isolation"])
        assert "packed-documents-see-each-other" in [finding.rule for finding in report.findings]
        assert not [
            missing
            for missing in report.not_judged
            if missing.what == "packed-documents-see-each-other"
        ]
