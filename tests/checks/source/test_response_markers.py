"""Response markers that stand in no row (SRC090): those of other families, and of a role that the template has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

UNSLOTH = """
from unsloth import FastLanguageModel
from unsloth.chat_templates import get_chat_template, train_on_responses_only

model, tokenizer = FastLanguageModel.from_pretrained(model_name="{model}")
{template}
rows = rows.map(lambda row: {{"text": tokenizer.apply_chat_template(row["messages"], tokenize=False)}})
{own}
trainer = train_on_responses_only(trainer, instruction_part={user!r}, response_part={answer!r})
"""
QWEN, GEMMA, LLAMA = "unsloth/Qwen3-8B", "unsloth/gemma-3-4b-it", "unsloth/Llama-3.2-3B-Instruct"
CHATML = ("<|im_start|>user\n", "<|im_start|>assistant\n")
HEADER = (
    "<|start_header_id|>user<|end_header_id|>\n\n",
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
)
TURN = ("<start_of_turn>user\n", "<start_of_turn>model\n")
WRONG_ROLE = ("<start_of_turn>user\n", "<start_of_turn>assistant\n")
AS_LLAMA = 'tokenizer = get_chat_template(tokenizer, chat_template="llama-3.1")'
OF_OWN = 'tokenizer = get_chat_template(tokenizer, chat_template=("{{ messages }}", "</s>"))'
OWN_TEXT = 'prompt = "<|start_header_id|>user<|end_header_id|>\\n\\n" + question'


@pytest.mark.parametrize(
    ("model", "template", "own", "markers", "found"),
    [
        (QWEN, "", "", HEADER, True),
        (LLAMA, "", "", CHATML, True),
        (GEMMA, "", "", WRONG_ROLE, True),
        (QWEN, AS_LLAMA, "", CHATML, True),
        (QWEN, "", "", CHATML, False),
        (GEMMA, "", "", TURN, False),
        (GEMMA, "", "", ("<start_of_turn>user", "<start_of_turn>"), False),
        (QWEN, AS_LLAMA, "", HEADER, False),
        (QWEN, OF_OWN, "", HEADER, False),
        (QWEN, "", OWN_TEXT, HEADER, False),
        ("me/my-model", "", "", HEADER, False),
    ],
)
def test_markers_of_unsloth(
    model: str, template: str, own: str, markers: tuple[str, str], found: bool, tmp_path: Path
) -> None:
    """The marker is compared with what the model's template, or the one put in its place, writes before an answer."""
    user, answer = markers
    text = UNSLOTH.format(model=model, template=template, own=own, user=user, answer=answer)
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    assert bool(lint([path], select=("SRC090",)).findings) == found
