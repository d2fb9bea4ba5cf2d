"""What right templates and tokenizers do, tried: each turn once, in order, under its role; tokens that can be made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers

import truetune
from tests.parts import folder, templates
from truetune.checks.rule import DataRule, Setup
from truetune.checks.template.generation_prompt_without_header import GenerationPromptWithoutHeader
from truetune.checks.template.template_changes_contents import TemplateChangesContents
from truetune.checks.tokenizer.added_tokens_disagree import AddedTokensDisagree
from truetune.checks.tokenizer.prompts_end_in_eos_by_tokenizer import PromptsEndInEosByTokenizer
from truetune.checks.tokenizer.tokenizer_loses_text import TokenizerLosesText
from truetune.checks.tokenizer.tokens_never_made import TokensNeverMade
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

PROPERTIES = (
    TemplateChangesContents,
    GenerationPromptWithoutHeader,
    PromptsEndInEosByTokenizer,
    AddedTokensDisagree,
    TokenizerLosesText,
    TokensNeverMade,
)
SMALL_VOCABULARIES = ("smollm2", "gpt2", "phi3", "mistral-7b-v0.3")
"""One of each kind; all 29 of tests.parts take twenty seconds, and had no finding"""
TURN = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
END = "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
CHATML = f"{{% for m in messages %}}{TURN}{END}"
OWN_SYSTEM = "{{ '<|im_start|>system\\nYou are Zorbo.<|im_end|>\\n' }}"
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]END' }}"
    "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
SYSTEM_ROW = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it open?"},
    {"role": "assistant", "content": "Yes, until nine."},
]
FAULTY_TEMPLATES = {
    "the last exchange alone": (CHATML.replace("in messages", "in messages[-2:]"), "is written nowhere"),
    "the first content again": (
        CHATML.replace("m.content +", "m.content + (messages[0].content if m.role == 'user' else '') +"),
        "times",
    ),
    "the newest first": (CHATML.replace("in messages", "in messages[::-1]"), "another order"),
    "roles by place": (
        CHATML.replace("m.role +", "('assistant' if loop.index0 % 2 else 'user') +"),
        "by the place of a turn",
    ),
    "a second system turn": (OWN_SYSTEM + CHATML, "of its own beside that of the rows"),
    "a word before answers": (
        CHATML.replace("m.content +", "('Answer: ' if m.role == 'assistant' else '') + m.content +"),
        "learns to begin its answers",
    ),
}  # fmt: skip


def _with_template(target: Path, name: str, template: str) -> Path:
    """A copy of a published tokenizer with another chat template."""
    shutil.copytree(folder(name), target, ignore=shutil.ignore_patterns("training*"))
    (target / "chat_template.jinja").write_text(template, encoding="utf-8")
    _edit(target / "tokenizer_config.json", lambda one: one.pop("chat_template", None))
    return target


def _edit(path: Path, change: Any) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def _messages(tokenizer: Path, *rules: type[DataRule], template: str | None = None) -> list[str]:
    """What rules say about a tokenizer, or about another template with its tokens."""
    spec = RunSpec(tokenizer=str(tokenizer), template=template)
    loaded = load_tokenizer(str(tokenizer))
    setup = Setup(spec=spec, tokenizer=loaded, probes=make_probes(loaded, spec))
    return [finding.message for rule in rules for finding in rule(setup).findings()]


@pytest.mark.parametrize("name", FAULTY_TEMPLATES)
def test_faulty_templates(name: str, tmp_path: Path) -> None:
    template, said = FAULTY_TEMPLATES[name]
    faulty = _with_template(tmp_path / "model", "smollm2", template)
    rows = tmp_path / "rows.jsonl"
    rows.write_text((json.dumps({"messages": SYSTEM_ROW}) + "\n") * 3, encoding="utf-8")
    found = truetune.check(rows, tokenizer=str(faulty), select=("TPL015", "TPL016")).findings
    assert any(said in finding.message for finding in found), found


def test_published_tokenizers_and_templates_have_no_finding() -> None:
    """The small vocabularies, and a quarter of the templates that packages ship, on the tokens of one."""
    found = {name: _messages(folder(name), *PROPERTIES) for name in SMALL_VOCABULARIES}
    tokens = folder("smollm2")
    for path in (*templates("trl"), *templates("llama.cpp"))[::4]:
        rules = (TemplateChangesContents, PromptsEndInEosByTokenizer, GenerationPromptWithoutHeader)
        found[path.name] = _messages(tokens, *rules, template=str(path))
    assert not {name: said for name, said in found.items() if said}


@pytest.mark.parametrize(("end", "count"), [("</s> ", 1), ("", 0)])
def test_templates_that_end_prompts_with_eos(end: str, count: int, tmp_path: Path) -> None:
    made = _with_template(tmp_path / "model", "mistral-7b-v0.3", INST.replace("END", end))
    assert len(_messages(made, PromptsEndInEosByTokenizer)) == count


def test_special_tokens_and_vocabularies_of_two_files(tmp_path: Path) -> None:
    made = _with_template(tmp_path / "model", "gpt2", CHATML)
    vocabulary = tokenizers.Tokenizer.from_file(str(made / "tokenizer.json")).get_vocab()
    files = {"special_tokens_map.json": {"eos_token": "<|endoftext|>"}, "vocab.json": vocabulary}
    for name, value in files.items():
        (made / name).write_text(json.dumps(value), encoding="utf-8")
    assert not _messages(made, AddedTokensDisagree)
    _edit(made / "special_tokens_map.json", lambda one: one.update(eos_token="<|end|>"))
    _edit(made / "vocab.json", lambda one: one.pop("the"))
    (found,) = truetune.check(made, select=("TOK010",)).findings
    texts = [case.text for case in found.cases]
    assert any("eos_token is <|endoftext|>" in text for text in texts)
    assert any(
        "1 tokens of tokenizer.json are not there, for example 'the'" in text for text in texts
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one["model"].update(dropout=0.1), "by chance"),
        (lambda one: one["model"].update(merges=one["model"]["merges"][:3000]), "merges are missing"),
        (lambda one: one["model"].update(merges=one["model"]["merges"][:-100]), None),
        (lambda one: one.update(normalizer={"type": "NFKC"}), "full-width"),
        (lambda one: one.update(normalizer={"type": "NFC"}), None),
    ],
)  # fmt: skip
def test_damaged_tokenizers(change: Any, said: str | None, tmp_path: Path) -> None:
    made = _with_template(tmp_path / "model", "gpt2", CHATML)
    _edit(made / "tokenizer.json", change)
    found = _messages(made, TokensNeverMade, TokenizerLosesText)
    assert bool(found) == (said is not None)
    assert said is None or said in found[0]
