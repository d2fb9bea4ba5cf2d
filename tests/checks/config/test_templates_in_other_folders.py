"""A training and what serves its weights, in other folders of one project."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

TRAIN = """
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
dataset: rows
template: {template}
output_dir: saves/desk
learning_rate: 1.0e-4
"""
CHAT = """
model_name_or_path: Qwen/Qwen2.5-7B
adapter_name_or_path: {adapter}
template: {template}
finetuning_type: lora
"""
SERVER = "vllm serve saves/desk --chat-template {template}\n"
JINJA = "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
CASES = {
    "api below": ("train.yaml", "deploy/api.yaml", CHAT, "llama3", True),
    "two folders": ("configs/sft/train.yaml", "configs/chat/chat.yaml", CHAT, "default", True),
    "a checkpoint": ("conf/train.yaml", "eval/eval.yaml", CHAT, "gemma", True),
    "a command": ("conf/train.yaml", "scripts/serve.sh", SERVER, "../t/inst.jinja", True),
    "the same": ("configs/train.yaml", "deploy/api.yaml", CHAT, "qwen", False),
    "the same family": ("configs/train.yaml", "deploy/api.yaml", CHAT, "qwen3", False),
    "of an environment": ("configs/train.yaml", "venv/api.yaml", CHAT, "llama3", False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_template_of_another_folder(name: str, tmp_path: Path) -> None:
    training, serving, text, template, is_found = CASES[name]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "inst.jinja").write_text(JINJA, encoding="utf-8")
    adapter = "saves/desk/checkpoint-400" if "checkpoint" in name else "saves/desk"
    for file, content in (
        (training, TRAIN.format(template="qwen")),
        (serving, text.format(adapter=adapter, template=template)),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(content, encoding="utf-8")
    found = [one.rule for one in truetune.check(tmp_path).findings]
    assert ("served-template-differs" in found) == is_found


def test_another_adapter_has_its_own_template(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "train.yaml").write_text(TRAIN.format(template="qwen"))
    other = CHAT.format(adapter="saves/other", template="llama3")
    (tmp_path / "configs" / "api.yaml").write_text(other)
    found = [one.rule for one in truetune.check(tmp_path).findings]
    assert "served-template-differs" not in found


def test_another_base_in_another_folder(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "deploy").mkdir()
    (tmp_path / "configs" / "train.yaml").write_text(TRAIN.format(template="qwen"))
    chat = CHAT.format(adapter="saves/desk", template="qwen").replace("2.5-7B", "3-8B")
    (tmp_path / "deploy" / "merge.yaml").write_text(chat + "export_dir: merged\n")
    found = [one.rule for one in truetune.check(tmp_path).findings]
    assert "settings-put-adapter-on-another-base" in found
