"""What `rows-not-shuffled` says of settings is what the real trainer's sampler does."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

transformers = pytest.importorskip("transformers")
SETTINGS = """\
model_name_or_path: some/model
dataset_name: json
max_length: 1024
learning_rate: 2.0e-5
num_train_epochs: 1
per_device_train_batch_size: 4
assistant_only_loss: true
output_dir: out
"""


@pytest.mark.parametrize(
    ("strategy", "is_shuffled"), [("sequential", False), ("random", True), (None, True)]
)
def test_the_order_is_that_of_the_trainer(
    strategy: str | None, is_shuffled: bool, tmp_path: Path
) -> None:
    from torch.utils.data import RandomSampler

    line = f"train_sampling_strategy: {strategy}\n" if strategy else ""
    (tmp_path / "sft.yaml").write_text(SETTINGS + line)
    report = truetune.check(str(tmp_path / "sft.yaml"), select="rows-not-shuffled")
    assert bool(report.findings) is not is_shuffled

    given = {"train_sampling_strategy": strategy} if strategy else {}
    arguments = transformers.TrainingArguments(str(tmp_path), use_cpu=True, **given)
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=8)
        ),
        args=arguments,
        train_dataset=[{"input_ids": [number]} for number in range(4)],
    )
    assert isinstance(trainer._get_train_sampler(), RandomSampler) is is_shuffled
