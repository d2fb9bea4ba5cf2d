"""The header of an answer behind the last turn of a training text: in any form, and what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune
from tests.checks.pages.data import DEMO
from tests.parts import templates
from truetune.checks.template.generation_prompt_in_training_texts import (
    find_header_behind_last_answer,
)
from truetune.render.template_probes import Probes, make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

TURNS = {
    "ChatML": "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n",
    "Llama 3": "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>",
    "Phi": "<|{{ m.role }}|>\n{{ m.content }}<|end|>\n",
    "Vicuna": (
        "{{ m.role.upper() }}: {{ m.content }}{{ '</s>' if m.role == 'assistant' else '\n' }}"
    ),
    "Alpaca": ("### {{ 'Instruction' if m.role == 'user' else 'Response' }}:\n{{ m.content }}\n\n"),
    "other words": "<{{ 'frage' if m.role == 'user' else 'antwort' }}>{{ m.content }}\n",
}
HEADERS = {
    "ChatML": "<|im_start|>assistant\n",
    "Llama 3": "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "Phi": "<|assistant|>\n",
    "Vicuna": "ASSISTANT: ",
    "Alpaca": "### Response:\n",
    "other words": "<antwort>",
}
SOUND = {
    "EOS at the end of the chat": TURNS["Phi"] + "{% if loop.last %}<|endoftext|>{% endif %}",
    "another mark at the end": "{{ m.role }}: {{ m.content }}"
    "{{ '<|return|>' if loop.last else '<|end|>' }}",
    "no headers": "{{ m.content }}<|end|>",
    "a header for questions alone": "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}",
    "thoughts of the last answer": "<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think>\n\n"
    "</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n",
}


def _probes(turn: str, end: str, to: Path) -> Probes:
    path = to / "template.jinja"
    path.write_text(f"{{% for m in messages %}}{turn}{{% endfor %}}{end}", encoding="utf-8")
    return make_probes(load_tokenizer(str(DEMO)), RunSpec(template=str(path)))


@pytest.mark.parametrize("name", TURNS)
def test_headers_that_nobody_asked_for(name: str, tmp_path: Path) -> None:
    header = HEADERS[name]
    asked = f"{{% if add_generation_prompt %}}{header}{{% endif %}}"
    found = find_header_behind_last_answer(_probes(TURNS[name], header, tmp_path))
    assert found
    assert header.strip().endswith(found)
    assert not find_header_behind_last_answer(_probes(TURNS[name], asked, tmp_path))
    assert not find_header_behind_last_answer(_probes(TURNS[name], "", tmp_path))


@pytest.mark.parametrize("name", SOUND)
def test_ends_that_are_no_header(name: str, tmp_path: Path) -> None:
    assert not find_header_behind_last_answer(_probes(SOUND[name], "", tmp_path))


def test_published_templates_have_none() -> None:
    tokenizer = load_tokenizer(str(DEMO))
    found = {
        path.name: find_header_behind_last_answer(
            make_probes(tokenizer, RunSpec(template=str(path)))
        )
        for path in templates("trl")[:4]
    }
    assert not {name: header for name, header in found.items() if header}


def test_a_header_outside_of_the_loss_is_no_finding(tmp_path: Path) -> None:
    _probes(TURNS["ChatML"], HEADERS["ChatML"], tmp_path)
    row = {
        "messages": [{"role": "user", "content": "Open?"}, {"role": "assistant", "content": "Yes."}]
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    template = str(tmp_path / "template.jinja")
    found = {
        what: [
            one.code
            for one in truetune.check(
                path, tokenizer=str(DEMO), template=template, learn={"what": what}
            ).findings
        ]
        for what in ("all", "last")
    }
    assert "TPL018" in found["all"]
    assert "TPL018" not in found["last"]
