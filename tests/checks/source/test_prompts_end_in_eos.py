"""Which prompts end in EOS, and which only might."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm import LLM
NAME = "mistralai/Mistral-7B-v0.1"
model = AutoModelForCausalLM.from_pretrained(NAME)
plain = AutoTokenizer.from_pretrained(NAME)
tok = AutoTokenizer.from_pretrained(NAME, add_eos_token=True)
"""
ASK = "model.generate(**tok('a', return_tensors='pt'))\n"
ENDED = {
    "at the load": (ASK, "error"),
    "attribute": ("tok = plain\ntok.add_eos_token = True\n" + ASK, "error"),
    "ids on a device": ("model.generate(tok('a', return_tensors='pt').input_ids.to(0))", "error"),
    "method and function": (
        "def ask(tokenizer, text):\n    ids = tokenizer.encode(text, return_tensors='pt')\n"
        "    return model.generate(ids)\nask(tok, 'a')",
        "error",
    ),
    "another class": (
        "tok = AutoTokenizer.from_pretrained('a/b', add_eos_token=True)\n" + ASK,
        "warning",
    ),
    "folder": ("tok = AutoTokenizer.from_pretrained('tuned')\n" + ASK, "error"),
    "vllm": ("LLM(model='tuned').generate(['a'])", "error"),
}
OPEN = {
    "other tokenizer": ASK.replace("tok(", "plain("),
    "switched off": "tok.add_eos_token = False\n" + ASK,
    "switched off in the folder's": (
        "tok = AutoTokenizer.from_pretrained('tuned', add_eos_token=False)\n" + ASK
    ),
    "set later": "tok = plain\n" + ASK + "tok.add_eos_token = True\n",
    "in a branch": "tok = plain\nif train:\n    tok.add_eos_token = True\n" + ASK,
    "without special tokens": ASK.replace("'a',", "'a', add_special_tokens=False,"),
    "template": "model.generate(tok.apply_chat_template(chat, return_tensors='pt'))",
    "cut": "model.generate(tok('a', return_tensors='pt').input_ids[:, :-1])",
    "cut in place": (
        "b = tok('a', return_tensors='pt')\nb['input_ids'] = b['input_ids'][:, :-1]\n"
        "model.generate(**b)"
    ),
    "training": "rows.map(lambda row: tok(row['text']))\n" + ASK.replace("tok(", "plain("),
    "chat of vllm": "LLM(model='tuned').chat([{'role': 'user', 'content': 'a'}])",
    "ids for vllm": "LLM(model='tuned').generate(prompt_token_ids=[[1]])",
    "folder without": "LLM(model='other').generate(['a'])",
}


def severities(text: str, folder: Path) -> list[str]:
    for name, is_on in (("tuned", True), ("other", False)):
        (folder / name).mkdir()
        config = {"tokenizer_class": "LlamaTokenizerFast", "add_eos_token": is_on}
        (folder / name / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    module = parse_module(HEAD + text, str(folder / "ask.py"))
    made = run_rule(module, find_rule("prompts-end-in-eos"))
    return [finding.severity for finding in made.findings]


@pytest.mark.parametrize(("text", "severity"), ENDED.values(), ids=ENDED)
def test_prompts_that_end_are_found(text: str, severity: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == [severity]


@pytest.mark.parametrize("text", OPEN.values(), ids=OPEN)
def test_open_prompts_are_left_alone(text: str, tmp_path: Path) -> None:
    assert severities(text, tmp_path) == []
