"""Rules on quantized weights: merges into them (SRC049), and settings that never reach a model (SRC039)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes

QUANTIZATION = "q = BitsAndBytesConfig(load_in_4bit=True)\n"
BASE = QUANTIZATION + "base = AutoModelForCausalLM.from_pretrained('a', quantization_config=q)\n"
TRAINER = "t = Trainer(model={})\nt.train()\n"
PUBLISHED = "base = AutoModelForCausalLM.from_pretrained({})\n"
MERGE = "m = PeftModel.from_pretrained(base, 'out').merge_and_unload()"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BASE + MERGE, True),
        (BASE + "m = PeftModel.from_pretrained(base, 'out').eval()\nm.merge_and_unload()", True),
        (BASE + TRAINER.format("base") + "t.model.merge_and_unload()", True),
        (
            f"{BASE}import trl\nt = trl.SFTTrainer(get_peft_model(base, LoraConfig()))\n"
            "Accelerator().unwrap_model(t.model).merge_and_unload()",
            True,
        ),
        (
            f"{QUANTIZATION}import trl\n"
            "a = trl.SFTConfig(model_init_kwargs={'quantization_config': q})\n"
            "t = trl.SFTTrainer('org/some', args=a, peft_config=LoraConfig())\n"
            "t.model.merge_and_unload()",
            True,
        ),
        (PUBLISHED.format("'unsloth/some-7B-bnb-4bit'") + MERGE, True),
        (
            f"{BASE}if new:\n    m = get_peft_model(base, LoraConfig())\n"
            "else:\n    m = PeftModel.from_pretrained(base, 'out')\nm.merge_and_unload()",
            True,
        ),
        (
            "def bits(four):\n    if four:\n        return BitsAndBytesConfig(load_in_4bit=True)\n"
            "    return BitsAndBytesConfig(load_in_8bit=True)\n"
            "base = AutoModelForCausalLM.from_pretrained('a', quantization_config=bits(x))\n"
            + MERGE,
            True,
        ),
        (PUBLISHED.format("'org/some-7B'") + MERGE, False),
        (PUBLISHED.format("'org/bnb-4bit-study'") + MERGE, False),
        (BASE + "base = base.dequantize()\n" + MERGE, False),
        (BASE + "base.dequantize()\n" + MERGE, False),
        (BASE + TRAINER.format("model") + "t.model.merge_and_unload()", False),
        (BASE.replace("load_in_4bit=True", "load_in_4bit=False") + MERGE, False),
        (f"{BASE}if plain:\n    {PUBLISHED.format(repr('a'))}{MERGE}", False),
        (
            BASE.replace("quantization_config=q", "quantization_config=q if four else None")
            + MERGE,
            False,
        ),
    ],
)
def test_adapters_merged_into_quantized_bases(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC049") == ["SRC049w"] * found


PLAIN = "m = AutoModelForCausalLM.from_pretrained('a')\n"
SERVED = "m = PeftModel.from_pretrained(model, 'out', {})"
LOADER = "def load({}):\n    return AutoModelForCausalLM.from_pretrained('a'{})\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (QUANTIZATION + PLAIN + "m.config.quantization_config = q", True),
        (QUANTIZATION + SERVED.format("quantization_config=q"), True),
        (SERVED.format("quantization_config=BitsAndBytesConfig(load_in_4bit=True)"), True),
        (QUANTIZATION + "extra = {'quantization_config': q}\n" + PLAIN, True),
        ("extra = dict(quantization_config=BitsAndBytesConfig())\n" + PLAIN, True),
        ("q = TorchAoConfig('int4_weight_only') if small else None\n" + PLAIN, True),
        (QUANTIZATION + LOADER.format("name, quant=None", "") + "load('a', quant=q)", True),
        (QUANTIZATION + LOADER.format("name, quant", "") + "load('a', q)", True),
        ("def bits():\n    return BitsAndBytesConfig()\nq = bits()\n" + PLAIN, True),
        (f"def f():\n    {QUANTIZATION}    {PLAIN}kinds = ['q']\nf()", True),
        (QUANTIZATION + LOADER.format("quant", ", quantization_config=quant") + "load(q)", False),
        (QUANTIZATION + LOADER.format("**more", ", **more") + "load(quantization_config=q)", False),
        (
            QUANTIZATION + "c = AutoConfig.from_pretrained('a')\nc.quantization_config = q\n"
            "m = AutoModelForCausalLM.from_pretrained('a', config=c)",
            False,
        ),
        (
            "extra = {'quantization_config': BitsAndBytesConfig()}\n"
            "m = AutoModelForCausalLM.from_pretrained('a', **extra)",
            False,
        ),
        (
            "from peft import AutoPeftModelForCausalLM\n"
            "m = AutoPeftModelForCausalLM.from_pretrained('a', quantization_config=BitsAndBytesConfig())",
            False,
        ),
        ("def bits():\n    return BitsAndBytesConfig()\n" + PLAIN, False),
        (QUANTIZATION + "jobs = [q]\n" + PLAIN, False),
    ],
)
def test_quantization_settings_that_reach_no_model(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC039") == ["SRC039e"] * found
