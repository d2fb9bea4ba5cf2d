"""Answers that are cut out of what was generated."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForCausalLM.from_pretrained("model").eval()
"""
FAULTY = {
    "marks in the script": """
def ask(question):
    prompt = f"<|im_start|>user {question}<|im_end|> <|im_start|>assistant"
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    out = model.generate(input_ids=ids, max_new_tokens=100)
    text = tokenizer.batch_decode(out, skip_special_tokens=True)[0]
    return text.replace(prompt, "").strip()
""",
    "a batch in a function": """
def answers(prompts):
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    out = model.generate(**inputs, max_new_tokens=100)
    texts = tokenizer.batch_decode(out, skip_special_tokens=True)
    return [text[len(prompt):] for text, prompt in zip(texts, prompts)]


prompts = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]
print(answers(prompts))
""",
    "ids by characters": """
for question in questions:
    prompt = "Question: " + question
    ids = tokenizer.encode(prompt, return_tensors="pt")
    out = model.generate(ids, max_new_tokens=100)
    count = len(prompt)
    print(tokenizer.decode(out[0, count:], skip_special_tokens=True))
""",
}
RIGHT = {
    "a template of one's own without marks": """
tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}assistant:"
prompt = tokenizer.apply_chat_template(chat, tokenize=False)
out = model.generate(tokenizer.encode(prompt, return_tensors="pt"), max_new_tokens=100)
print(tokenizer.decode(out[0], skip_special_tokens=True)[len(prompt):])
""",
    "a prompt without marks": """
prompt = "Question: " + question
out = model.generate(tokenizer.encode(prompt, return_tensors="pt"), max_new_tokens=100)
print(tokenizer.decode(out[0], skip_special_tokens=True)[len(prompt):])
""",
    "marks that stay in the text": """
prompt = tokenizer.apply_chat_template(chat, tokenize=False)
out = model.generate(tokenizer.encode(prompt, return_tensors="pt"), max_new_tokens=100)
print(tokenizer.decode(out[0])[len(prompt):])
""",
    "a prompt of ids": """
prompt = tokenizer(question)["input_ids"]
out = model.generate(prompt, max_new_tokens=100)
print(tokenizer.decode(out[0][len(prompt):], skip_special_tokens=True))
""",
    "the length of the decoded prompt": """
ids = tokenizer(tokenizer.apply_chat_template(chat, tokenize=False), return_tensors="pt")
out = model.generate(**ids, max_new_tokens=100)
shown = tokenizer.decode(ids["input_ids"][0], skip_special_tokens=True)
print(tokenizer.decode(out[0], skip_special_tokens=True)[len(shown):])
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("answer-cut-by-prompt-text-length")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_cut_at_the_wrong_place(case: str) -> None:
    """The cut is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_cut_at_the_right_place(case: str) -> None:
    """A cut by tokens, or of a text that has its marks, is right."""
    assert findings_of(RIGHT[case]) == []
