"""Settings in scripts, as a Config."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.modules import module
from truetune.source.script_configs import extract_configs, extract_only_config

SCRIPT = """
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

LENGTH = 2 * 1024
common = dict(per_device_train_batch_size=4)
common["gradient_accumulation_steps"] = 8
tokenizer = AutoTokenizer.from_pretrained("some/tokenizer")
model = AutoModelForCausalLM.from_pretrained(
    "some/model", dtype=torch.bfloat16, quantization_config=BitsAndBytesConfig(load_in_4bit=True)
)
args = SFTConfig(
    "out",
    learning_rate=2e-4,
    max_length=LENGTH,
    seed=somewhere(),
    **common,
)
trainer = SFTTrainer(model, args, peft_config=LoraConfig(r=16, target_modules=["q_proj"]))
trainer.train(resume_from_checkpoint=True)
"""


def test_a_script_is_a_config() -> None:
    config = extract_only_config(module(SCRIPT))
    assert config is not None
    training = config.spec.training
    assert (training.learning_rate, training.per_device_train_batch_size) == (2e-4, 4)
    assert (training.gradient_accumulation_steps, config.limit) == (8, 2048)
    assert training.lora is not None
    assert (training.lora.r, training.load_in, training.dtype) == (16, 4, "bfloat16")
    assert (training.method, training.resume_from_checkpoint) == ("sft", True)
    place = config.places["training.learning_rate"]
    assert (place.file, place.line, place.column) == ("train.py", 16, 19)


def test_several_and_none() -> None:
    text = (
        "from trl import SFTConfig\nSFTConfig('a', learning_rate=1e-4)\nSFTConfig('b',"
        " learning_rate=2e-4)\n"
    )
    made = module(text)
    assert [c.spec.training.learning_rate for c in extract_configs(made)] == [1e-4, 2e-4]
    assert extract_only_config(made) is None
    assert extract_only_config(module("x = 1\n")) is None


def test_an_adapter_that_is_not_known_is_an_adapter() -> None:
    text = (
        "from peft import PromptTuningConfig, get_peft_model\nfrom transformers import"
        " TrainingArguments\n"
    )
    text += (
        "m = get_peft_model(m, PromptTuningConfig())\nTrainingArguments('out', learning_rate=1.0)\n"
    )
    config = extract_only_config(module(text))
    assert config is not None
    assert config.spec.training.lora is not None


def test_names_of_files_stay_files(tmp_path: Path) -> None:
    text = (
        "from transformers import TrainingArguments as T\nT(output_dir=f'{x}/out', bf16=cond,"
        " num_train_epochs=3)\n"
    )
    config = extract_only_config(module(text, str(tmp_path / "x.py")))
    assert config is not None
    assert (config.spec.training.bf16, config.spec.training.num_train_epochs) == (None, 3)


TWO_LOADS = """
import torch
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained("some/policy", dtype={policy})
other = AutoModelForCausalLM.from_pretrained("some/judge", dtype={other})
trainer = DPOTrainer({given}, args=DPOConfig("out", learning_rate=5e-7))
"""


@pytest.mark.parametrize(
    ("policy", "other", "given", "dtype", "name"),
    [
        ("torch.bfloat16", "torch.bfloat16", "model, other", "bfloat16", "some/policy"),
        (
            "torch.bfloat16",
            "torch.float32",
            "model=model, ref_model=other",
            "bfloat16",
            "some/policy",
        ),
        ("torch.float32", "torch.bfloat16", "model", "float32", "some/policy"),
        # Which one is trained is not seen: what both say counts, and the rest is not known
        ("torch.bfloat16", "torch.bfloat16", "wrapped(model)", "bfloat16", None),
        ("torch.bfloat16", "torch.float32", "wrapped(model)", None, None),
    ],
)
def test_of_several_loads_that_of_the_trained_model_counts(
    policy: str, other: str, given: str, dtype: str | None, name: str | None
) -> None:
    config = extract_only_config(module(TWO_LOADS.format(policy=policy, other=other, given=given)))
    assert config is not None
    assert (config.spec.training.dtype, config.spec.model) == (dtype, name)
    assert "training.dtype" in config.places
