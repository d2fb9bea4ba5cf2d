"""Lengths of pairs, marks of templates and answers in prompts, judged where no tokenizer is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.read_truetune_settings import validate_settings

LONG = "It is on the hill behind the old mill, and the way there takes about {0} minutes. " * 4


TREES = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple")
PLACES = ("Aarau", "Bern", "Chur", "Davos", "Genf", "Jona", "Thun", "Visp")


def pair(i: int, *, chosen: str, rejected: str) -> dict[str, Any]:
    return {
        "prompt": f"Where is house {i}?",
        "chosen": chosen.format(i),
        "rejected": rejected.format(i),
    }


def chat(i: int, *, asked: str, said: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": asked.format(i)},
            {"role": "assistant", "content": said.format(i)},
        ]
    }


def prompt(i: int, *, field: str, value: str) -> dict[str, Any]:
    tree, place = TREES[i % 8], PLACES[i // 8]
    answer = f"Beside the {tree} of {place}, in street {i}."
    text = value.format(answer=answer)
    asked = f"Question: where does the owner of the old {tree} farm near {place} live?"
    return {"prompt": f"{asked}\n{field}: {text}\nGive only the answer.", "completion": answer}


@pytest.mark.parametrize(
    ("row", "rule", "fires"),
    [
        (lambda i: pair(i, chosen=LONG, rejected="No idea, {}."), "preference-length-bias", True),
        (lambda i: pair(i, chosen="No idea, {}.", rejected=LONG), "preference-length-bias", True),
        (
            lambda i: pair(i, chosen=(LONG, "No, {}.")[i % 2], rejected=("No, {}.", LONG)[i % 2]),
            "preference-length-bias",
            False,
        ),
        (
            lambda i: chat(i, asked="Where is house {}?", said="On hill {}.<|im_end|>"),
            "template-inside-template",
            True,
        ),
        (
            lambda i: chat(
                i, asked="What does <|im_end|> number {} mean?", said="It ends turn {}."
            ),
            "template-inside-template",
            False,
        ),
        (
            lambda i: prompt(i, field="Answer", value="{answer}"),
            "prompt-field-tells-the-answer",
            True,
        ),
        (
            lambda i: prompt(i, field="Notes", value="The mayor is ill."),
            "prompt-field-tells-the-answer",
            False,
        ),
    ],
)
def test_a_rule_on_texts_needs_no_tokenizer(
    row: Any, rule: str, fires: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(1, 61)), encoding="utf-8")
    report = check_paths([path], validate_settings({}, "test"))
    assert (rule in {finding.rule for finding in report.findings}) == fires
