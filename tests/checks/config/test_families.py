"""Templates by name against the tokenizers of real families."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import parts
from tests.checks.config import found
from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY, LORA
from tests.checks.pages.config import lay_out
from truetune.checks.check_paths import check_paths
from truetune.checks.lint import lint
from truetune.settings.run_spec import RunSpec

TEMPLATES = {
    "qwen2.5-instruct": "qwen", "qwen3": "qwen3", "llama3.1-instruct": "llama3", "gemma3": "gemma3", "gemma4": "gemma4",
    "mistral-7b-v0.3": "mistral", "phi3": "phi", "phi4": "phi4", "deepseek-v3": "deepseek3", "llama2-chat": "llama2",
    "smollm2": "smollm2",
}  # fmt: skip
"""Family -> LLaMA-Factory's name for its template"""
ENDS = {"gemma3": "<end_of_turn>", "gemma4": "<turn|>", "phi3": "<|end|>"}
"""Families whose turns do not end with their EOS"""


@pytest.mark.parametrize("family", TEMPLATES)
def test_only_another_familys_template_differs(family: str, tmp_path: Path) -> None:
    for name, own in (
        ("right", TEMPLATES[family]),
        ("wrong", "gemma" if family != "gemma3" else "llama3"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        config = {**LLAMA_FACTORY, "model_name_or_path": str(parts.folder(family)), "template": own}
        assert ("served-template-differs" in found(folder, config)) is (name == "wrong")


@pytest.mark.parametrize("family", TEMPLATES)
def test_axolotl_is_told_the_end_of_a_turn(family: str, tmp_path: Path) -> None:
    config = {**AXOLOTL, **LORA, "base_model": str(parts.folder(family))}
    findings = found(tmp_path, config).get("stop-token-not-trained", [])
    assert [finding.remedy for finding in findings] == (
        [f'set eot_tokens: ["{ENDS[family]}"]'] if family in ENDS else []
    )
    told = tmp_path / "told"
    told.mkdir()
    assert "stop-token-not-trained" not in found(
        told, {**config, "eot_tokens": [ENDS.get(family, "</s>")]}
    )


@pytest.mark.parametrize(
    ("model", "template", "differs"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "llama3", True),
        ("/models/Mistral-7B-Instruct-v0.3", "gemma", True),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "qwen", True),
        ("Qwen/Qwen3-8B", "mistral", True),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen", False),
        ("Qwen/Qwen2.5-7B", "llama3", False),  # a base has no format of its own
        ("allenai/Llama-3.1-Tulu-3-8B-SFT", "zephyr", False),
        ("Qwen/Qwen2.5-7B-Instruct", "alpaca", False),  # saved with the tokenizer
        ("ours/support-7b-instruct", "llama3", False),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen", True),
        ("unsloth/DeepSeek-R1-Distill-Llama-8B-bnb-4bit", "llama3", True),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3", True),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "llama3", True),
        ("THUDM/GLM-4-9B-0414", "qwen", True),
        ("CohereForAI/c4ai-command-r-v01", "mistral", True),
        ("ibm-granite/granite-3.1-8b-instruct", "llama3", True),
        ("openai/gpt-oss-20b", "qwen3", True),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseekr1", False),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "deepseek3", False),
        ("deepseek-ai/DeepSeek-V3-Base", "qwen", False),
        ("microsoft/phi-4", "phi4", False),
        ("01-ai/Yi-1.5-9B-Chat", "yi", False),
        ("01-ai/Yi-1.5-9B", "llama3", False),
        ("THUDM/glm-4-9b", "qwen", False),
        ("ours/r1-distill-qwen-7b-sft", "qwen", False),
    ],
)
def test_a_chat_model_is_known_by_its_name(
    model: str, template: str, differs: bool, tmp_path: Path
) -> None:
    config = {**LLAMA_FACTORY, "model_name_or_path": model, "template": template}
    assert ("served-template-differs" in found(tmp_path, config)) is differs


@pytest.mark.parametrize(
    ("template", "differs"),
    [("qwen2_5", True), ("qwen2_5_vl", True), ("deepseek_r1", False), (None, False)],
)
def test_templates_of_ms_swift(template: str | None, differs: bool, tmp_path: Path) -> None:
    named = f" --template {template}" if template else ""
    (tmp_path / "train.sh").write_text(
        f"swift sft --model deepseek-ai/DeepSeek-R1-Distill-Qwen-7B --dataset a.jsonl{named}\n"
    )
    rules = [one.rule for one in check_paths([str(tmp_path)], RunSpec()).findings]
    assert ("served-template-differs" in rules) is differs


@pytest.mark.parametrize(("template", "differs"), [("qwen_25", True), ("deepseek_v3", False)])
def test_templates_of_axolotl(template: str, differs: bool, tmp_path: Path) -> None:
    model = "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"
    config = {**AXOLOTL, **LORA, "base_model": model, "chat_template": template}
    assert ("served-template-differs" in found(tmp_path, config)) is differs


@pytest.mark.parametrize(
    ("model", "template", "tokens", "differs"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "llama3", [], True),
        ("meta-llama/Llama-3.1-8B-Instruct", "gemma", ["<start_of_turn>", "<end_of_turn>"], False),
        ("mistralai/Mistral-7B-v0.3", "llama3", [], False),
    ],
)
def test_axolotl_saves_its_template(
    model: str, template: str, tokens: list[str], differs: bool, tmp_path: Path
) -> None:
    config = {**AXOLOTL, **LORA, "base_model": model, "chat_template": template, "tokens": tokens}
    assert ("served-template-differs" in found(tmp_path, config)) is differs


@pytest.mark.parametrize(
    ("command", "differs"),
    [
        ("swift sft --model Qwen/Qwen2.5-7B-Instruct --template llama3 --dataset a.jsonl", True),
        ("swift sft --model Qwen/Qwen2.5-7B-Instruct --template qwen --dataset a.jsonl", False),
        (
            "llamafactory-cli train --stage sft --do_train true --finetuning_type lora --dataset rows"
            " --model_name_or_path Qwen/Qwen2.5-7B-Instruct --template llama3 --output_dir out",
            True,
        ),
        (
            "llamafactory-cli train --stage pt --do_train true --finetuning_type lora --dataset rows"
            " --model_name_or_path Qwen/Qwen2.5-7B-Instruct --template llama3 --output_dir out",
            False,
        ),
    ],
)
def test_templates_of_commands(command: str, differs: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(command + "\n", encoding="utf-8")
    rules = {finding.rule for finding in lint([str(script)]).findings}
    assert ("served-template-differs" in rules) is differs


@pytest.mark.parametrize(("template", "differs"), [("llama3", True), ("qwen", False)])
def test_the_tokenizer_that_is_named_beside_settings(
    template: str, differs: bool, tmp_path: Path
) -> None:
    settings = {**LLAMA_FACTORY, "model_name_or_path": "ours/a-model", "template": template}
    config = lay_out({"config": settings}, tmp_path)
    spec = RunSpec(tokenizer=str(parts.folder("qwen2.5-instruct")))
    rules = {finding.rule for finding in check_paths([str(config)], spec).findings}
    assert ("served-template-differs" in rules) is differs
