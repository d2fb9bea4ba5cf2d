"""Advice on answers without an end is not given where the script that asked follows it already."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.answers.answers_never_stop import ASK_AS_TRAINED
from truetune.checks.explain_answers_by_generating_scripts import explain_answers_by_scripts
from truetune.checks.findings import Finding

ENDLESS = Finding(
    "answers-never-stop",
    "ANS001",
    "warning",
    "9 of 9 answers do not stop by themselves",
    f"{ASK_AS_TRAINED}; else supervise the stop token",
)
BY_TEMPLATE = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out")
ids = tok.apply_chat_template(rows, add_generation_prompt=True, return_tensors="pt")
print(tok.decode(model.generate(ids)[0]))
"""
BY_CLIENT = """
from openai import OpenAI
client = OpenAI(base_url="http://localhost:8000/v1")
print(client.chat.completions.create(model="m", messages=[]).choices[0])
"""
BARE = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("out")
model = AutoModelForCausalLM.from_pretrained("out")
print(tok.decode(model.generate(**tok("Why?", return_tensors="pt"))[0]))
"""
COMPLETIONS = BY_CLIENT.replace("chat.completions", "completions").replace("messages", "prompt")
OTHER_CREATE = "from db import table\ntable.rows.create(name='chat')\n"


def remedy(folder: Path, *scripts: str) -> str:
    for number, script in enumerate(scripts):
        (folder / f"ask{number}.py").write_text(script, encoding="utf-8")
    (finding,) = explain_answers_by_scripts([ENDLESS], [str(folder)])
    return finding.remedy


@pytest.mark.parametrize(
    ("scripts", "place"),
    [
        ((BY_TEMPLATE,), "ask0.py:5"),
        ((BY_CLIENT,), "ask0.py:4"),
        ((BY_CLIENT, BY_TEMPLATE), "ask0.py:4"),
        ((OTHER_CREATE, BY_CLIENT), "ask1.py:4"),
        (("x = 1\n", BY_TEMPLATE), "ask1.py:5"),
    ],
)
def test_the_template_is_no_advice_where_it_was_used(
    tmp_path: Path, scripts: tuple[str, ...], place: str
) -> None:
    text = remedy(tmp_path, *scripts)
    assert ASK_AS_TRAINED not in text
    assert place in text


@pytest.mark.parametrize(
    "scripts",
    [
        (BARE,),
        (COMPLETIONS,),
        (BARE, BY_TEMPLATE),
        (OTHER_CREATE,),
        (BY_TEMPLATE.replace("True", "False"),),
        (),
    ],
)
def test_the_template_is_advice_where_it_may_not_have_been(
    tmp_path: Path, scripts: tuple[str, ...]
) -> None:
    assert ASK_AS_TRAINED in remedy(tmp_path, *scripts)
