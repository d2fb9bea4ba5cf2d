"""What the pages say of other libraries, asked of the libraries."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import TRL
from tests.checks.pages.config import lay_out
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import max_steps_of_run
from truetune.settings.stacks.read_config_of_any_stack import read_config


def test_trl_drops_keys_that_it_does_not_know(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    path = tmp_path / "sft.yaml"
    path.write_text(
        yaml.safe_dump(
            {"output_dir": "out", "learning_rte": 0.5, "max_seq_length": 99, "bf16": False}
        )
    )
    parser = trl.TrlParser(trl.SFTConfig)
    (config,) = parser.parse_args_and_config(["--config", str(path)], fail_with_unknown_args=False)
    assert (config.learning_rate, config.max_length) == (2e-5, 1024)


def test_trl_makes_no_adapter_unless_it_is_switched_on() -> None:
    trl = pytest.importorskip("trl")
    assert (
        trl.get_peft_config(trl.ModelConfig(lora_r=64, lora_target_modules=["all-linear"])) is None
    )


def test_a_constant_schedule_has_no_warm_up() -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for name, first in (("constant", 1.0), ("constant_with_warmup", 0.0)):
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        schedule = transformers.get_scheduler(
            name, optimizer, num_warmup_steps=10, num_training_steps=100
        )
        assert schedule.get_last_lr() == [first]


def test_peft_passes_targets_of_which_some_fit() -> None:
    peft = pytest.importorskip("peft")
    model = _tiny()
    config = peft.LoraConfig(
        target_modules=["q_proj", "v_prjo"], modules_to_save=["embed_tokens", "lm_haed"]
    )
    trained = {
        name
        for name, weight in peft.get_peft_model(model, config).named_parameters()
        if weight.requires_grad
    }
    assert any("q_proj" in name for name in trained)
    assert not any("v_proj" in name or "lm_head" in name for name in trained)


@pytest.mark.parametrize(
    ("count", "batch", "accumulation", "epochs"), [(10, 3, 2, 2), (7, 2, 4, 1), (40, 4, 1, 1.5)]
)
def test_steps_are_those_of_the_trainer(
    count: int, batch: int, accumulation: int, epochs: float, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    config = {
        **TRL, "dataset_name": "rows.jsonl", "per_device_train_batch_size": batch, "num_train_epochs": epochs,
        "gradient_accumulation_steps": accumulation,
    }  # fmt: skip
    found = max_steps_of_run(
        read_config(lay_out({"config": config, "files": {"rows.jsonl": {"rows": count}}}, tmp_path))
    )
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
        num_train_epochs=epochs, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]} for _ in range(count)]
    trainer = transformers.Trainer(_tiny(), arguments, train_dataset=rows)
    trainer.train()
    assert found is not None
    assert found.most == trainer.state.global_step == trainer.state.max_steps
    assert math.isfinite(trainer.state.log_history[-1]["train_loss"])


def _tiny() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=16,
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
