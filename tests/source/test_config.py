"""Settings in scripts, as a Config."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.modules import module
from truetune.source.settings_of_script_as_configs import extract_configs, only_config_of_script

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
    config = only_config_of_script(module(SCRIPT))
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
    assert only_config_of_script(made) is None
    assert only_config_of_script(module("x = 1\n")) is None


def test_an_adapter_that_is_not_known_is_an_adapter() -> None:
    text = (
        "from peft import PromptTuningConfig, get_peft_model\nfrom transformers import"
        " TrainingArguments\n"
    )
    text += (
        "m = get_peft_model(m, PromptTuningConfig())\nTrainingArguments('out', learning_rate=1.0)\n"
    )
    config = only_config_of_script(module(text))
    assert config is not None
    assert config.spec.training.lora is not None


def test_names_of_files_stay_files(tmp_path: Path) -> None:
    text = (
        "from transformers import TrainingArguments as T\nT(output_dir=f'{x}/out', bf16=cond,"
        " num_train_epochs=3)\n"
    )
    config = only_config_of_script(module(text, str(tmp_path / "x.py")))
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
    config = only_config_of_script(
        module(TWO_LOADS.format(policy=policy, other=other, given=given))
    )
    assert config is not None
    assert (config.spec.training.dtype, config.spec.model) == (dtype, name)
    assert "training.dtype" in config.places


OF_OBJECTS = """
from dataclasses import asdict, dataclass, field
from pathlib import Path
from trl import SFTConfig

@dataclass
class Base:
    output_dir: str = "out"

@dataclass
class Run(Base):
    max_steps: int = 60
    learning_rate: float = field(default=1e-4)
    seed: int = somewhere()

    def arguments(self):
        return asdict(self)

"""


@pytest.mark.parametrize(
    ("code", "steps", "rate"),
    [
        ("SFTConfig(**asdict(Run()))", 60, 1e-4),
        ("SFTConfig(**Run().arguments())", 60, 1e-4),
        ("SFTConfig(**vars(Run(max_steps=900)))", 900, 1e-4),
        ("SFTConfig(**Run().__dict__)", 60, 1e-4),
        ("run = Run()\nrun.learning_rate = read()\nSFTConfig(**asdict(run))", 60, None),
        ("args = SFTConfig('out')\nargs.max_steps = 60", 60, None),
        ("args = SFTConfig('out', max_steps=60)\nif test():\n    args.max_steps = 900", None, None),
        (
            "d = {'max_steps': 60, 'name': 'a'}\nload(d.pop('name'))\nSFTConfig('out', **d)",
            60,
            None,
        ),
    ],
)
def test_settings_of_objects(code: str, steps: int | None, rate: float | None) -> None:
    config = only_config_of_script(module(OF_OBJECTS + code))
    assert config is not None
    training = config.spec.training
    assert training.max_steps == steps
    assert "training.learning_rate" not in config.places or training.learning_rate == rate
    assert not config.unknown


@pytest.mark.parametrize(
    ("code", "folder"),
    [
        ("OUT = Path('runs')\nSFTConfig(str(OUT / 'sft'))", "runs/sft"),
        ("SFTConfig(Path('runs', 'sft'))", "runs/sft"),
        ("name = 'sft'\nSFTConfig(f'runs/{name}-{2}')", "runs/sft-2"),
        ("SFTConfig(f'runs/{read()}')", None),
        ("import os\nSFTConfig(os.path.join('runs', 'sft'))", "runs/sft"),
    ],
)
def test_paths_of_known_parts(code: str, folder: str | None) -> None:
    config = only_config_of_script(module(OF_OBJECTS + code))
    assert config is not None
    assert (config.raw.get("output_dir") if folder else None) == folder
