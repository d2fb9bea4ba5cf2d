"""Chat templates beside the marks that published models of their family write."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.parts import folder
from truetune.checks.template.evidence.turn_marks_of_published_chat_models import (
    FAMILIES,
    find_published_marks,
)

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + 'AFTER_ROLE' + m['content'] + '<|im_end|>AFTER_TURN' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistantAFTER_ROLE' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + m['role'] + '\\n' + m['content'] +"
    " '<end_of_turn>\\n' }}{% endfor %}"
)
DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|User|>' + m['content'] }}{% else %}"
    "{{ '<|Assistant|>' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
PUBLISHED = (
    "qwen2.5-instruct", "qwen2.5-base", "qwen3", "smollm2", "llama3.1-instruct", "llama3.2-instruct", "gemma2",
    "gemma3", "gemma4", "phi3", "phi3.5", "phi4", "deepseek-v3", "deepseek-r1", "mistral-7b-v0.3", "llama2-chat",
    "gpt-oss",
)  # fmt: skip


def _folder_with_template(target: Path, name: str, template: str) -> Path:
    """A copy of a published tokenizer with another chat template."""
    shutil.copytree(folder(name), target)
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")
    _edit(target / "tokenizer_config.json", lambda one: one.pop("chat_template", None))
    return target


def _edit(path: Path, change: Any) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def _findings(path: Path) -> list[Any]:
    return [one for one in truetune.check(path).findings if one.code == "TPL017"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates_have_no_finding(name: str) -> None:
    assert not _findings(folder(name))


@pytest.mark.parametrize(
    ("after_role", "after_turn"),
    [(" ", "\\n"), ("\\n", ""), ("\\\\n", "\\\\n"), ("\\n\\n ", "\\n")],
)
def test_other_white_space_is_found(after_role: str, after_turn: str, tmp_path: Path) -> None:
    template = CHATML.replace("AFTER_ROLE", after_role).replace("AFTER_TURN", after_turn)
    found = _findings(_folder_with_template(tmp_path / "m", "qwen2.5-instruct", template))
    # Two line ends after a role begin as the published one does, and are an empty line of the answer.
    expected = [] if after_role.startswith("\\n") and after_turn == "\\n" else ["warning"]
    assert [one.severity for one in found] == expected


def test_the_published_white_space_is_no_finding(tmp_path: Path) -> None:
    template = CHATML.replace("AFTER_ROLE", "\\n").replace("AFTER_TURN", "\\n")
    assert not _findings(_folder_with_template(tmp_path / "m", "qwen2.5-instruct", template))


def test_another_word_for_a_role_is_found(tmp_path: Path) -> None:
    (found,) = _findings(_folder_with_template(tmp_path / "m", "gemma3", GEMMA))
    assert "<start_of_turn>assistant" in found.message
    assert "<start_of_turn>model" in found.message


def test_a_mark_that_only_resembles_a_token(tmp_path: Path) -> None:
    (found,) = _findings(_folder_with_template(tmp_path / "m", "deepseek-v3", DEEPSEEK))
    assert found.severity == "error"
    assert "<｜User｜>" in found.message


def test_a_template_of_its_own_is_not_compared(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    assert not _findings(_folder_with_template(tmp_path / "m", "qwen2.5-instruct", template))


@pytest.mark.parametrize("flag", ["lstrip", "rstrip"])
def test_marks_that_take_white_space(flag: str, tmp_path: Path) -> None:
    target = tmp_path / "m"
    shutil.copytree(folder("qwen2.5-instruct"), target)

    def strip(value: Any) -> None:
        added = value.get("added_tokens") or list(value["added_tokens_decoder"].values())
        for token in added:
            token[flag] = token["content"] == "<|im_start|>" or token[flag]

    _edit(target / "tokenizer.json", strip)
    _edit(target / "tokenizer_config.json", strip)
    (found,) = _findings(target)
    assert "<|im_start|>" in found.message


def test_marks_that_are_cut_into_pieces(tmp_path: Path) -> None:
    target = tmp_path / "m"
    shutil.copytree(folder("qwen2.5-instruct"), target)
    _edit(target / "tokenizer_config.json", lambda one: one.update(split_special_tokens=True))
    (found,) = _findings(target)
    assert found.severity == "error"


def test_a_later_model_of_the_same_tokens_is_another_family() -> None:
    """Command A and R7B have all tokens of Command R, and wrap their answers in two more."""
    command_r = next(one for one in FAMILIES if one.models == "Command R")
    assert find_published_marks(command_r.tokens) is command_r
    later = (*command_r.tokens, "<|START_RESPONSE|>", "<|END_RESPONSE|>")
    assert find_published_marks(later) is None
