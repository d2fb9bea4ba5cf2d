"""What rules on source say where they find nothing: how many places of their kind they examined."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.pages import block, sections
from truetune.checks.lint import LintReport, lint
from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

RULES = all_rules("source")
NO_PLACE = {
    "balance-loss-added-twice": "the sum is gone",
    "prompt-grows-with-each-row": "a new list is made for each row",
    "words-read-as-missing": "the table is read with keep_default_na=False",
    "tokens-decoded-one-by-one": "a streamer decodes",
    "lm-collator-overwrites-labels": "another collator is made",
    "formatting-func-ignored": "formatting_func is left out",
    "state-dict-method-replaced": "the assignment is removed",
    "attention-mask-used-as-loss-mask": "the attention mask is left alone",
    "tokens-added-without-resize": "a token of the vocabulary is taken, and none added",
    "wrapper-keys-not-loaded": "the state is loaded with strict=True",
    "tokens-added-at-training-only": "the tokenizer is read from the folder that the training wrote",
    "metric-divided-by-another-count": "the sum is divided by the number of rows",
    "reasoning-scored-with-the-answer": "the reasoning is cut off",
    "chat-template-of-another-family": "the tokenizer keeps the template that it has",
    "answer-option-ids-are-all-bos": "the last id of each option is taken",
    "random-weights-trained": "the model is loaded with its weights",
    "processes-divide-rows-in-different-orders": "the order is that of a seed",
    "nccl-transport-switched-off-in-code": "no variable of NCCL is set",
    "file-read-in-another-encoding": "the file is read as UTF-8",
    "gemma-bos-left-out": "the tokenizer adds its special tokens",
    "cache-emptied-at-each-step": "the memory is left to torch",
    "debugging-left-on": "anomaly detection is off",
    "reference-lacks-the-sft-adapter": "the adapter is merged, and a new one trained",
    "split-by-salted-hash": "crc32 is no hash of Python's",
    "answer-rendered-as-own-chat": "the answers are left as messages",
    "evaluated-copy-is-not-trained": "the model itself is evaluated, and nothing copied",
    "weights-kept-without-copy": "a copy of the weights is kept",
    "checkpoints-sorted-as-texts": "the names are sorted by their numbers",
    "float16-gradients-not-scaled": "autocast is to bfloat16",
    "model-inside-the-adapter-saved": "the adapter's own model is saved",
    "token-ids-overflow-their-type": "the ids are 32-bit numbers",
}
"""Rules whose healthy example has none of their places, with the reason"""
GENERATES = """
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("model")
model.generate(**ids, max_new_tokens=9)
"""
TRAINS = "import torch\n"
ROW_BY_ROW = "generation-row-by-row"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_a_healthy_example_is_examined_with_a_figure(rule: type[Rule[object]]) -> None:
    made = run_rule(parse_module(block(sections(rule)["Use instead"]), "train.py"), rule)
    assert not made.findings
    if rule.name() in NO_PLACE:
        assert made.not_judged[0].reason.startswith("it is about ")
        return
    assert not made.not_judged
    assert made.examined[0].of
    assert made.examined[0].figure.endswith(f": {made.examined[0].of:,}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name())
def test_nothing_is_fine_where_a_file_has_no_code(rule: type[Rule[object]]) -> None:
    made = run_rule(parse_module("", "train.py"), rule)
    assert not made.findings
    assert not made.examined
    assert [part.asked for part in made.not_judged] == [False]
    assert made.not_judged[0].reason.startswith("it is about ")


def linted(folder: Path, *texts: str) -> LintReport:
    for number, text in enumerate(texts):
        (folder / f"part_{number}.py").write_text(text, encoding="utf-8")
    return lint([str(folder)])


def figures(report: LintReport, rule: str) -> list[str]:
    return [part.figure for part in report.examined if part.rule == rule]


def test_counts_are_summed_over_files_in_one_line(tmp_path: Path) -> None:
    report = linted(tmp_path, GENERATES, GENERATES + GENERATES, GENERATES, TRAINS)
    assert figures(report, ROW_BY_ROW) == ["calls that ask a model for text: 4"]
    assert ROW_BY_ROW not in {part.what for part in report.not_judged}


def test_a_rule_without_a_place_in_any_file_is_not_judged_once(tmp_path: Path) -> None:
    report = linted(tmp_path, GENERATES, TRAINS)
    reasons = [part.reason for part in report.not_judged if part.what == "merge-result-dropped"]
    assert reasons == ["it is about calls of merge_and_unload, and there are none"]
    assert figures(report, "merge-result-dropped") == []
    assert report.exit_code() == 0


def test_a_file_that_trains_with_none_of_the_places_is_still_judged(tmp_path: Path) -> None:
    report = linted(tmp_path, TRAINS)
    assert [part.rule for part in report.examined] == ["source-not-parsed"]
    assert (report.outcome, report.exit_code()) == ("no findings", 0)


def test_files_that_train_nothing_say_so_and_no_more(tmp_path: Path) -> None:
    report = linted(tmp_path, "import json\n")
    assert not report.examined
    assert [part.what for part in report.not_judged] == ["1 of 1 file"]
