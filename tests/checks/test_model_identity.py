"""What names of models say: other weights, or mirrors and quantized copies of the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.identify_model_by_published_name import (
    are_base_and_instruct_model,
    explain_different_weights,
    family_known_to_overflow_float16,
)
from truetune.checks.lint import lint

APART = [
    (
        "mistralai/Mistral-7B-Instruct-v0.1",
        "mistralai/Mistral-7B-Instruct-v0.3",
        "release 0.1 and 0.3",
    ),
    ("meta-llama/Meta-Llama-3-8B", "meta-llama/Llama-3.1-8B", "generation 3 and 3.1"),
    ("google/gemma-2b", "google/gemma-2-2b", "generation 1 and 2"),
    ("google/gemma-2-2b-it", "google/gemma-2-9b-it", "size 2b and 9b"),
    ("mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x22B-v0.1", "size 8x7b and 8x22b"),
    ("Qwen/Qwen2.5-Coder-7B", "Qwen/Qwen2.5-7B", "only one is named coder"),
    ("llama3:8b-instruct-q8_0", "meta-llama/Llama-3.1-8B-Instruct", "generation 3 and 3.1"),
]
SAME = [
    ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B-Instruct"),
    ("TheBloke/Mistral-7B-Instruct-v0.2-GPTQ", "mistralai/Mistral-7B-Instruct-v0.2"),
    ("./Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ("/data/base", "mistralai/Mistral-7B-v0.1"),
    ("microsoft/Phi-3-mini-4k-instruct", "microsoft/Phi-3-mini-128k-instruct"),
    ("NousResearch/Llama-2-7b-hf", "meta-llama/Llama-2-7b"),
]


@pytest.mark.parametrize(("one", "other", "how"), APART)
def test_other_weights_are_told_apart(one: str, other: str, how: str) -> None:
    assert explain_different_weights(one, other) == how
    assert explain_different_weights(other, one) is not None


@pytest.mark.parametrize(("one", "other"), SAME)
def test_copies_of_a_model_are_the_same(one: str, other: str) -> None:
    assert explain_different_weights(one, other) is None
    assert not are_base_and_instruct_model(one, other)


def test_a_base_is_not_its_instruction_tuned_model() -> None:
    assert are_base_and_instruct_model("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct")
    assert not are_base_and_instruct_model("./base", "Qwen/Qwen2.5-7B-Instruct")


@pytest.mark.parametrize(
    ("name", "overflows"),
    [
        ("google/gemma-2-9b-it", True),
        ("unsloth/gemma-3-4b-it-bnb-4bit", True),
        ("google/flan-t5-large", True),
        ("google/gemma-2b", False),
        ("google/gemma-7b-it", False),
        ("Qwen/Qwen2.5-7B", False),
    ],
)
def test_families_that_overflow_in_float16(name: str, overflows: bool) -> None:
    assert (family_known_to_overflow_float16(name) is not None) == overflows


@pytest.mark.parametrize(
    ("base", "severity"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", None),
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", None),
        ("Qwen/Qwen2.5-7B", "warning"),
        ("Qwen/Qwen2-7B-Instruct", "error"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        'PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("BASE"), "out/adapter")',
        'AutoModelForCausalLM.from_pretrained("BASE").load_adapter("out/adapter")',
        'LLM(model="BASE", enable_lora=True).generate(x, lora_request=LoRARequest("a", 1, "out/adapter"))',
    ],
)
def test_the_base_of_a_script_is_compared(
    use: str, base: str, severity: str | None, tmp_path: Path
) -> None:
    (tmp_path / "out/adapter").mkdir(parents=True)
    (tmp_path / "out/adapter/adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}), encoding="utf-8"
    )
    script = tmp_path / "serve.py"
    script.write_text(
        "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM\n"
        "from vllm import LLM\nfrom vllm.lora.request import LoRARequest\n\n"
        f"model = {use.replace('BASE', base)}\n",
        encoding="utf-8",
    )
    found = lint([str(script)], select=("script-puts-adapter-on-another-base",)).findings
    assert [finding.severity for finding in found] == ([severity] if severity else [])


MERGE = """
import sys
from peft import PeftModel
from transformers import AutoModelForCausalLM
BASE = "{base}"
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), sys.argv[1])
model.merge_and_unload().save_pretrained(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("base", "adapters", "severities"),
    [
        ("Qwen/Qwen2.5-7B", ("Qwen/Qwen2.5-7B-Instruct",), ["warning"]),
        ("Qwen/Qwen2.5-7B", ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"), ["warning"]),
        ("Qwen/Qwen2.5-7B-Instruct", ("Qwen/Qwen2.5-7B-Instruct",), []),
        ("Qwen/Qwen2.5-7B", ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"), []),
        ("Qwen/Qwen2.5-7B", (), []),
    ],
)
def test_an_adapter_that_the_command_names_lies_beside(
    base: str, adapters: tuple[str, ...], severities: list[str], tmp_path: Path
) -> None:
    for number, name in enumerate(adapters):
        folder = tmp_path / "out" / f"checkpoint-{number}"
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": name}))
    script = tmp_path / "merge.py"
    script.write_text(MERGE.format(base=base))
    found = lint([str(script)], select=("script-puts-adapter-on-another-base",)).findings
    assert [finding.severity for finding in found] == severities
