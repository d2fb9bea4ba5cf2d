"""The forms of `bench.forms`: what each makes of a script, and a sample of the rules in all of them."""

from __future__ import annotations

import ast
from zlib import crc32

import pytest

from bench.forms.exceptions import EXCEPTIONS, GAPS
from bench.forms.measure import outcomes
from bench.forms.transforms import FORMS, SCRIPT, rewrite
from truetune.checks.rule_catalogue import all_rules

TEXT = """# pip install transformers==4.55.4
from transformers import AutoModelForCausalLM, Trainer

def collate(rows):
    return rows

base = AutoModelForCausalLM.from_pretrained("org/base", dtype="bfloat16")
base = base.half()
trainer = Trainer(model=base, data_collator=collate)
trainer.train()
"""
HAS = {
    "main": "def main():",
    "names": "trainer_1.train()",
    "qualified": "transformers.Trainer(",
    "unpacked": "Trainer(**options_2)",
    "dataclass": "dtype=cfg.dtype",
    "command-line": "dtype=args.dtype",
    "helpers": "base = make_base_2(base)",
    "class": "self.trainer.train()",
    "two-files": "from helpers import collate",
}
SAMPLE = 10
"""Of so many rules one is asked; all take a minute"""


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_a_program_of_the_same_calls(form: str) -> None:
    made = rewrite(TEXT, (form,))
    assert made is not None
    if form == "notebook":
        assert '"execution_count": 5' in made["train.ipynb"]
        return
    assert HAS[form] in made[SCRIPT]
    assert made[SCRIPT].startswith("# pip install transformers==4.55.4\n")
    calls = [
        ast.unparse(node.func).rpartition(".")[2]
        for text in made.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
    ]
    assert {"from_pretrained", "half", "Trainer", "train"} <= set(calls)


def test_forms_follow_each_other_and_are_left_out_where_they_change_nothing() -> None:
    made = rewrite(TEXT, ("unpacked", "class", "notebook"))
    assert made is not None
    assert "Trainer(**self.options_2)" in made["train.ipynb"]
    assert rewrite("print(1)\n", ("unpacked",)) is None
    assert rewrite(TEXT, ("notebook", "class")) is None


def test_a_variable_that_functions_read_stays_global() -> None:
    text = "limit = 3\nrows = load()\ndef cut(row):\n    return row[:limit]\nmade = rows.map(cut)\n"
    made = rewrite(text, ("class",))
    assert made is not None
    assert "\nlimit = 3\n" in made[SCRIPT]
    assert "self.made = self.rows.map(cut)" in made[SCRIPT]


def test_a_sample_of_the_rules_is_found_in_all_forms_and_silent_without_the_fault() -> None:
    # By the name, so that a new rule does not change which of the others are asked.
    rules = [one for one in all_rules("source") if crc32(one.name().encode()) % SAMPLE == 0]
    measured = list(outcomes(rules, [(form,) for form in FORMS]))
    asked = {one.rule for one in measured}
    assert len(asked) > len(rules) // 2
    assert not [one for one in measured if one.false_alarm]
    lost = {
        (one.forms[0], one.rule) for one in measured if one.finds is False and one.excused is None
    }
    # A gap that a reader closes is taken out of the table.
    assert lost == {(form, rule) for form, gaps in GAPS.items() for rule in gaps if rule in asked}


def test_exceptions_are_of_rules_and_forms_that_exist() -> None:
    names = {rule.name() for rule in all_rules("source")}
    assert {rule for gaps in GAPS.values() for rule in gaps} <= names
    assert GAPS.keys() <= FORMS.keys()
    assert {rule for rule, _ in EXCEPTIONS} <= names
    assert {form for _, form in EXCEPTIONS} <= {*FORMS, "*"}
