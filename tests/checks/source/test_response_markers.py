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


ALIKE = "from unsloth.chat_templates import standardize_sharegpt\nrows = standardize_sharegpt(rows)"
WRITTEN = 'chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]'
OF_ROLES = 'tokenizer = get_chat_template(tokenizer, "llama-3.1", mapping={"user": "human"})'
HUMAN = "<|start_header_id|>human<|end_header_id|>\n\n"
PHI_ANSWER = "<|im_start|>assistant<|im_sep|>"


@pytest.mark.parametrize(
    ("model", "template", "own", "markers", "found"),
    [
        # a role that the rows do not have
        (LLAMA, AS_LLAMA, ALIKE, (HUMAN, HEADER[1]), True),
        (QWEN, "", ALIKE, ("<|im_start|>human\n", CHATML[1]), True),
        (QWEN, "", WRITTEN, ("<|im_start|>customer\n", CHATML[1]), True),
        (GEMMA, "", "", ("<start_of_turn>human\n", TURN[1]), True),
        # the mark of another family beside the right marker of answers
        (QWEN, "", "", (HEADER[0], CHATML[1]), True),
        (LLAMA, "", "", ("<|im_start|>user\n", HEADER[1]), True),
        (GEMMA, "", "", ("[INST]", TURN[1]), True),
        # what a row may hold
        (LLAMA, AS_LLAMA, "", (HUMAN, HEADER[1]), False),
        (LLAMA, OF_ROLES, ALIKE, (HUMAN, HEADER[1]), False),
        (QWEN, "", WRITTEN.replace("user", "human"), ("<|im_start|>human\n", CHATML[1]), False),
        (QWEN, "", ALIKE, ("<|im_start|>user", CHATML[1]), False),
        (GEMMA, "", ALIKE, TURN, False),
        ("unsloth/phi-4", "", ALIKE, ("<|im_start|>user<|im_sep|>", PHI_ANSWER), False),
        ("unsloth/Phi-3.5-mini-instruct", "", ALIKE, ("<|user|>\n", "<|assistant|>\n"), False),
        ("unsloth/mistral-7b-instruct-v0.3", "", ALIKE, ("[INST]", "[/INST]"), False),
        ("me/my-model", "", ALIKE, (HUMAN, HEADER[1]), False),
        (QWEN, OF_OWN, ALIKE, (HUMAN, CHATML[1]), False),
    ],
)
def test_markers_of_prompts(
    model: str, template: str, own: str, markers: tuple[str, str], found: bool, tmp_path: Path
) -> None:
    """The marker of prompts ends each answer: one that no prompt has leaves the rest of the chat its labels."""
    user, answer = markers
    text = UNSLOTH.format(model=model, template=template, own=own, user=user, answer=answer)
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    messages = [finding.message for finding in lint([path], select=("SRC090",)).findings]
    assert ["later questions too" in message for message in messages] == [True] * found


def test_the_marker_of_prompts_of_a_collator(tmp_path: Path) -> None:
    """TRL's collator leaves no label in a row that lacks one of its two markers."""
    text = """
from transformers import AutoTokenizer
from trl import DataCollatorForCompletionOnlyLM
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
def render(row):
    return tokenizer.apply_chat_template([{"role": "user", "content": row["q"]}], tokenize=False)
collator = DataCollatorForCompletionOnlyLM(
    "<|im_start|>assistant\\n", instruction_template="<|im_start|>human\\n", tokenizer=tokenizer)
"""
    path = tmp_path / "train.py"
    path.write_text(text, encoding="utf-8")
    (finding,) = lint([path], select=("SRC090",)).findings
    assert "gives no row a label" in finding.message
    path.write_text(text.replace("human", "user"), encoding="utf-8")
    assert not lint([path], select=("SRC090",)).findings
