"""One cause, one finding: what each rule's example is found to be, under all rules that look at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.checks.pages.all_rules import CHEAP, all_findings
from tests.parts import folder
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Judgement
from truetune.checks.rule import CauseRule, Rule
from truetune.checks.rule_catalogue import all_rules, find_rule
from truetune.checks.rule_runner import all_rules_of_classes, merge_explained_findings_into_causes
from truetune.data.conversation import Origin

BESIDES: dict[str, tuple[str, ...]] = {
    # Their faults are seen over many rows, and an example of copies is short.
    "labels-are-inconsistent": ("duplicate-rows", "few-distinct-answers"),
    "one-picture-in-all-rows": ("duplicate-rows", "few-distinct-answers"),
    "json-answers-differ-in-form": ("duplicate-rows", "few-distinct-answers"),
    "answer-contradicts-its-reasoning": ("duplicate-rows",),
    "tool-turns-ignore-each-other": ("duplicate-rows",),
    "evaluation-rows-of-another-form": ("duplicate-rows", "few-distinct-answers"),
    "sides-swapped-in-part-of-rows": ("duplicate-rows", "few-distinct-answers"),
    "extracted-values-are-not-in-the-prompt": ("duplicate-rows", "few-distinct-answers"),
    "answers-ignore-a-countable-request": ("duplicate-rows",),
    "code-in-answers-is-broken": ("duplicate-rows",),
    "neighbouring-texts-overlap": ("eos-not-appended-by-tokenizer",),
    "offsets-do-not-mark-their-text": ("duplicate-rows", "unused-columns"),
    "answers-share-a-mark-at-their-ends": ("duplicate-rows", "few-distinct-answers"),
    # Another fact that the example shows as well: it is ended by another edit.
    "thinking-stripped-from-history": ("template-marks-differ-from-published",),
    "empty-think-block-supervised": ("template-marks-differ-from-published",),
    "template-changes-contents": ("template-marks-differ-from-published",),
    "generation-prompt-in-training-texts": ("template-marks-differ-from-published",),
    "generation-prompt-without-header": ("template-marks-differ-from-published",),
    "field-reaches-no-token": ("template-marks-differ-from-published",),
    # Small letters are both another text and another split.
    "tokenizer-differs-from-published": ("tokenizer-loses-text",),
    "tokenizer-loses-text": ("tokenizer-differs-from-published",),
    # The prompts are alike because a place in them was not filled.
    "prompts-all-alike": ("instructions-lack-their-text",),
    # Nothing but the one tensor has changed.
    "few-tensors-unlike-the-base": ("most-weights-never-moved",),
    "evaluation-labelled-otherwise": ("setting-overruled",),
    # One of two runs that are compared is limited.
    "harness-runs-not-comparable": ("harness-scores-few-rows",),
    # The key that is not read would have gathered the weights.
    "deepspeed-key-not-read": ("trained-weights-not-saved",),
    "mixture-leaves-rows-out": ("settings-train-nothing",),
    "resumed-run-repeats-its-rows": ("last-steps-not-saved",),
    "stop-ids-incomplete": ("turn-terminator-is-not-eos",),
    "chat-template-not-prefix-stable": (
        "boundary-token-merge",
        "template-marks-differ-from-published",
    ),
    "frozen-weights-flattened-with-trained": ("fsdp-wraps-the-model-whole",),
    "default-system-prompt-injected": (
        "boundary-token-merge",
        "template-marks-differ-from-published",
    ),
    "date-in-template": (
        "boundary-token-merge",
        "default-system-prompt-injected",
        "template-marks-differ-from-published",
    ),
    "turn-roles-unknown-to-template": ("duplicate-rows",),
    "boundary-token-merge": ("plain-string-pair-skips-template",),
    "few-distinct-answers": ("unused-columns",),
    "answer-not-terminated": ("turn-terminator-is-not-eos", "boundary-token-merge"),
    "pair-side-not-terminated": ("plain-string-pair-skips-template",),
    "special-token-inside-pair-answer": (
        "pair-side-not-terminated",
        "plain-string-pair-skips-template",
    ),
    "rejected-answers-of-other-prompts": ("plain-string-pair-skips-template",),
    "pair-scores-are-equal": ("plain-string-pair-skips-template",),
    "winner-column-disagrees": ("plain-string-pair-skips-template",),
    # Its long answers are words without an end.
    "preference-length-bias": ("one-phrase-tells-the-sides",),
    "one-phrase-tells-the-sides": ("plain-string-pair-skips-template", "preference-length-bias"),
    "kto-imbalance": ("plain-string-pair-skips-template",),
    "iterable-dataset-not-sharded-or-shuffled": ("ddp-hang-or-uneven-ranks",),
    "weights-are-pickle": ("adapter-file-empty", "adapter-on-another-base"),
    "new-token-on-untrained-spare-row": ("weights-equal-the-base",),
    "special-token-ids-differ-from-base": ("weights-equal-the-base",),
    "template-rejects-rows": (
        "generation-prompt-without-header",
        "template-marks-differ-from-published",
    ),
    "tokenizer-differs-from-base": ("weights-equal-the-base",),
    "model-settings-differ-from-base": ("weights-equal-the-base",),
    "weights-changed-since-training": ("weights-all-zero",),
    "bare-text-to-chat-model": ("model-left-on-the-cpu",),
    "prompt-left-in-answers": ("generation-row-by-row",),
    "judge-sees-one-order": ("generation-row-by-row",),
    "warmup-longer-than-run": ("setting-out-of-range",),
    "epoch-length-differs-from-rows": ("run-ended-after-few-steps",),
    "memorised-not-learned": ("evaluation-rows-were-trained-on",),
    "parser-scores-shuffled-golds": ("parser-misses-gold-answers",),
    "prompt-field-tells-the-answer": ("few-distinct-answers",),
    "answers-continue-the-dialogue": (
        "eos-not-appended-by-tokenizer",
        "plain-string-pair-skips-template",
    ),
    "answers-stripped-to-words": ("few-distinct-answers", "duplicate-rows"),
    "sibling-rows-held-out-and-trained": (
        "eos-not-appended-by-tokenizer",
        "plain-string-pair-skips-template",
    ),
    "answers-are-no-json": ("eos-not-appended-by-tokenizer", "plain-string-pair-skips-template"),
    "answers-mix-languages-unasked": (
        "eos-not-appended-by-tokenizer",
        "plain-string-pair-skips-template",
    ),
    "answer-is-little-of-the-loss": ("eos-not-appended-by-tokenizer",),
    "inner-turns-not-terminated": ("eos-not-appended-by-tokenizer",),
    # The text that all rows share ends in a label.
    "shared-text-is-learned": (
        "eos-not-appended-by-tokenizer",
        "answers-share-a-mark-at-their-ends",
    ),
    "completion-repeats-its-prompt": ("plain-string-pair-skips-template",),
    "kto-labels-misread-as-booleans": ("plain-string-pair-skips-template",),
    "one-row-decides-memory": (
        "few-distinct-answers",
        "duplicate-rows",
        "answer-is-little-of-the-loss",
    ),
    "text-column-guessed": ("eos-not-appended-by-tokenizer",),
    "rows-longer-than-default-max-length": ("whitespace-around-answers",),
    "pair-truncated-on-one-side": ("whitespace-around-answers",),
    "pairs-lack-diversity": ("whitespace-around-answers",),
    "generation-config-distorts-answers": ("sampling-defaults-from-generation-config",),
    "float32-weights-of-16-bit-base": ("most-weights-never-moved",),
    # The short adapter of the example has no magnitudes.
    "dora-slow-unmerged": ("rslora-or-alpha-scale-ignored", "tensors-missing"),
    "merge-into-quantized-base": ("four-bit-computed-in-float32",),
    "modelfile-context-left-to-default": ("modelfile-template-differs",),
    "modelfile-parameters-unfit": ("modelfile-template-differs",),
    "compiled-generation-recompiles": ("generation-row-by-row",),
    "parser-scores-empty-answers": ("parser-misses-gold-answers", "parser-scores-shuffled-golds"),
}
"""Rule -> what else its example is found to be"""


@pytest.mark.parametrize("rule", all_rules(*CHEAP), ids=lambda rule: rule.name())
def test_an_example_has_the_findings_that_it_should(rule: type[Rule[Any]], tmp_path: Path) -> None:
    found = [finding.rule for finding in all_findings(rule, tmp_path / "example")]
    assert sorted(found) == sorted((rule.name(), *BESIDES.get(rule.name(), ())))


def test_what_makes_a_rule_moot_is_a_rule() -> None:
    for rule in all_rules():
        assert all(find_rule(name).name() == name for name in rule.moot_where)


def test_what_a_cause_is_read_from_are_rules_on_files() -> None:
    on_files = {rule.name() for rule in all_rules("checkpoint")}
    named = [name for rule in all_rules_of_classes(CauseRule) for name in rule.file_rules]
    assert named
    assert set(named) <= on_files


def _finding(rule: str, rows: range, count: int | None = -1, severity: Any = "error") -> Finding:
    cases = tuple(Case("x", Origin("a", row + 1, row)) for row in rows)
    number = len(rows) if count == -1 else count
    return Finding(
        rule,
        find_rule(rule).code,
        severity,
        f"{rule} of {len(rows)}",
        "do it",
        cases=cases,
        count=number,
    )


@pytest.mark.parametrize(
    ("causes", "left"),
    [
        ([("turn-roles-unknown-to-template", range(10))], 0),
        ([("turn-roles-unknown-to-template", range(5)), ("malformed-rows", range(5, 10))], 0),
        ([("turn-roles-unknown-to-template", range(9))], 1),
        ([("malformed-rows", range(20, 30))], 1),
        ([("duplicate-rows", range(10))], 1),
    ],
)
def test_rows_may_be_explained_by_several_findings(
    causes: list[tuple[str, range]], left: int
) -> None:
    findings = [*(_finding(*cause) for cause in causes), _finding("no-supervised-token", range(10))]
    made = merge_explained_findings_into_causes(Judgement(tuple(findings)), all_rules()).findings
    assert sum(finding.rule == "no-supervised-token" for finding in made) == left
    again = merge_explained_findings_into_causes(Judgement(made), all_rules()).findings
    assert again == made


def test_a_finding_with_more_rows_than_it_keeps_is_not_moot() -> None:
    findings = (
        _finding("turn-roles-unknown-to-template", range(10)),
        _finding("no-supervised-token", range(10), 11),
    )
    assert len(merge_explained_findings_into_causes(Judgement(findings), all_rules()).findings) == 2


def test_a_cause_is_as_grave_as_what_it_explains() -> None:
    whole = _finding("turn-terminator-is-not-eos", range(1), None)
    cause = _finding("stop-token-not-trained", range(0), None, "warning")
    (made,) = merge_explained_findings_into_causes(Judgement((whole, cause)), all_rules()).findings
    assert (made.rule, made.severity) == ("stop-token-not-trained", "error")
    assert "so turn-terminator-is-not-eos of 1 (turn-terminator-is-not-eos)" in made.evidence


def test_settings_and_data_tell_one_cause_once(tmp_path: Path) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "Open?"},
            {"role": "assistant", "content": "It is."},
        ]
    }
    (tmp_path / "chats.jsonl").write_text(json.dumps(row) + "\n")
    config = tmp_path / "axolotl.yaml"
    config.write_text(
        f"base_model: {folder('gemma3')}\ndatasets: [{{path: {tmp_path}/chats.jsonl, type:"
        " chat_template}]\nchat_template: gemma3\nsequence_len: 2048\nmicro_batch_size: 2\n"
    )
    found = [finding.rule for finding in truetune.check(config).findings]
    assert found.count("stop-token-not-trained") == 1
    assert "turn-terminator-is-not-eos" not in found
