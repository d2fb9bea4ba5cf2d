"""Judges the batches that a script's own collator makes of its rows, with the rules on batches of a real run.

How it works: a few batches are made by following the collator (`data.script_rows.make_batches_by_collator`); without
one of the script's own each row is a batch. They are written down as a run would record them, and the audit's rules on
batches judge them: padding, masks, labels, and which texts of the user's rows are learned.

The trade-off: nothing is known of the model but that it learns next tokens, so the rules on positions, on packed
documents and on the model's own ids are left out. `truetune run` sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from truetune.auditing.audit import Audit, Sample
from truetune.auditing.build_audit import build_audit
from truetune.auditing.list_row_texts_with_sources import parse_row
from truetune.checks.batch.another_field_supervised import AnotherFieldSupervised
from truetune.checks.batch.answer_partly_supervised import AnswerPartlySupervised
from truetune.checks.batch.answers_cut_in_batch import AnswersCutInBatch
from truetune.checks.batch.attention_mask_hides_text import AttentionMaskHidesText
from truetune.checks.batch.bos_inside_a_document import BosInsideADocument
from truetune.checks.batch.bos_twice_in_batch import BosTwiceInBatch
from truetune.checks.batch.double_label_shift import DoubleLabelShift
from truetune.checks.batch.eos_not_appended import EosNotAppended
from truetune.checks.batch.header_or_role_tokens_supervised import HeaderOrRoleTokensSupervised
from truetune.checks.batch.labels_overwritten_by_collator import LabelsOverwrittenByCollator
from truetune.checks.batch.line_without_label import LineWithoutLabel
from truetune.checks.batch.loss_mask_dropped import LossMaskDropped
from truetune.checks.batch.only_some_assistant_turns_supervised import (
    OnlySomeAssistantTurnsSupervised,
)
from truetune.checks.batch.padding_inside_text import PaddingInsideText
from truetune.checks.batch.padding_supervised import PaddingSupervised
from truetune.checks.batch.prompt_supervised import PromptSupervised
from truetune.checks.batch.response_not_supervised import ResponseNotSupervised
from truetune.checks.batch.stop_token_never_supervised import StopTokenNeverSupervised
from truetune.checks.batch.stop_token_twice_in_batch import StopTokenTwiceInBatch
from truetune.checks.findings import Finding
from truetune.checks.judgement import Judgement
from truetune.checks.rule import BatchRule, TokenizedRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.checks.tokenized.answers_masked_in_token_rows import AnswersMaskedInTokenRows
from truetune.checks.tokenized.bos_wrong_in_token_rows import BosWrongInTokenRows
from truetune.checks.tokenized.headers_supervised_in_token_rows import HeadersSupervisedInTokenRows
from truetune.checks.tokenized.labels_are_of_other_tokens import LabelsAreOfOtherTokens
from truetune.checks.tokenized.prompts_supervised_in_token_rows import PromptsSupervisedInTokenRows
from truetune.checks.tokenized.stop_masked_in_token_rows import StopMaskedInTokenRows
from truetune.checks.tokenized.token_rows_cut_at_the_limit import TokenRowsCutAtTheLimit
from truetune.data.script_rows.imported_project_files import texts_of_script_and_possible_imports
from truetune.data.script_rows.last_column_in_trained_text import find_last_column
from truetune.data.script_rows.make_batches_by_collator import ScriptBatch
from truetune.data.script_rows.read_rows_given_to_trainer import ScriptRows
from truetune.probe.run_record import NO_MODEL, Record
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

CAUSAL_MODEL = "transformers.AutoModelForCausalLM"
"""The class of a model that shifts the labels itself"""
MARKS_OF_OWN_LOSS = ("cross_entropy", "CrossEntropyLoss", "log_softmax", "compute_loss")
"""What a script has in its text that computes a loss of its own: it may want its labels shifted"""
MAX_LINES_WITHOUT_COLLATOR = 16
"""Rows that are judged as batches of their own, where the script has no collator of its own: as many as there are in
followed batches, for a script does the same to each row"""
MIN_SHARE_OF_ONE_COLUMN = 0.9
"""Share of the rows whose text ends with the same column, from which it is the answer. Chosen: rows without a text of
their own are few in sets that people train on"""
RULES: tuple[type[BatchRule], ...] = (
    AnotherFieldSupervised,
    AnswerPartlySupervised,
    AnswersCutInBatch,
    AttentionMaskHidesText,
    BosInsideADocument,
    BosTwiceInBatch,
    DoubleLabelShift,
    EosNotAppended,
    HeaderOrRoleTokensSupervised,
    LabelsOverwrittenByCollator,
    LineWithoutLabel,
    LossMaskDropped,
    OnlySomeAssistantTurnsSupervised,
    PaddingInsideText,
    PaddingSupervised,
    PromptSupervised,
    ResponseNotSupervised,
    StopTokenNeverSupervised,
    StopTokenTwiceInBatch,
)
"""The rules that need neither a model nor the order and number of a run's batches"""
OF_THE_COLLATOR: tuple[type[BatchRule], ...] = (
    AttentionMaskHidesText,
    DoubleLabelShift,
    LabelsOverwrittenByCollator,
    LossMaskDropped,
    PaddingInsideText,
    PaddingSupervised,
)
"""Those among them that a row by itself says nothing about"""
SAME_FAULTS: dict[type[TokenizedRule], tuple[type[BatchRule], ...]] = {
    AnswersMaskedInTokenRows: (LineWithoutLabel, ResponseNotSupervised),
    BosWrongInTokenRows: (BosInsideADocument, BosTwiceInBatch),
    HeadersSupervisedInTokenRows: (HeaderOrRoleTokensSupervised,),
    LabelsAreOfOtherTokens: (DoubleLabelShift,),
    PromptsSupervisedInTokenRows: (PromptSupervised, AnotherFieldSupervised),
    StopMaskedInTokenRows: (EosNotAppended, StopTokenNeverSupervised),
    TokenRowsCutAtTheLimit: (AnswersCutInBatch, EosNotAppended),
}
"""Rule on token rows -> the rules on batches that would report its fault a second time"""


def judge_batches_of_script(
    rows: ScriptRows, run: RunSpec, probes: Probes, reported: Collection[str]
) -> Judgement:
    """What the rules on batches say of the batches that a script makes.

    Args:
        rows: The rows of the script, whose labels are next tokens, with its own collator, if it has one.
        run: Which rules are chosen.
        probes: The tokenizer of the script.
        reported: Names of rules that have found a fault in the rows already.

    Returns:
        Findings with how the batches were made, and rules that failed.
    """
    subject = _audit_of_batches(rows, run, probes)
    left_out = _rules_on_reported_faults(reported)
    if not _batches_of_script_collator(rows):
        left_out.update(OF_THE_COLLATOR)
    if not any(_is_text_masked(sample) for sample in subject.samples):
        # Who learns whole texts may mean to; the rules on token rows say so.
        left_out.add(PromptSupervised)
    rules = [rule for rule in choose_rules(run, BatchRule) if rule in RULES]
    judgement = run_rules(subject, [rule for rule in rules if rule not in left_out])
    findings = tuple(_with_script_collator_as_evidence(one, rows) for one in judgement.findings)
    # What these rules can't judge of a script, `truetune run` judges: only their failures are worth a word.
    failures = tuple(one for one in judgement.not_judged if one.place)
    return Judgement(findings, judgement.examined, failures)


def _rules_on_reported_faults(reported: Collection[str]) -> set[type[BatchRule]]:
    """The rules on batches whose fault was found in the rows."""
    return {
        rule for other, rules in SAME_FAULTS.items() if other.name() in reported for rule in rules
    }


def _batches_of_script_collator(rows: ScriptRows) -> tuple[ScriptBatch, ...]:
    """The batches of the script's own collator; none where it has none, or they are not known."""
    return () if rows.collator is None else rows.collator.batches or ()


def _is_text_masked(sample: Sample) -> bool:
    """Is a part of a line's text kept out of the loss?"""
    return bool((~sample.padding & ~sample.supervised).any())


def _with_script_collator_as_evidence(finding: Finding, rows: ScriptRows) -> Finding:
    """A finding with the collator that made the batches, where one of the script's own was followed."""
    batches = _batches_of_script_collator(rows)
    if rows.collator is None or not batches:
        return finding
    how = (
        f"{rows.collator.name} ({rows.script}:{rows.collator.line}) was followed on"
        f" {len(batches)} batches of the rows, and not run"
    )
    return replace(finding, evidence=(*finding.evidence, how))


def _audit_of_batches(rows: ScriptRows, run: RunSpec, probes: Probes) -> Audit:
    """The batches as a run would have recorded them, with each token placed."""
    batches = _batches_of_script_collator(rows) or _first_rows_as_single_batches(rows)
    special = {name: token.id for name, token in probes.tokenizer.special.items()}
    prepared = [dict(row) for batch in batches for row in batch.given]
    columns = sorted({name for row in prepared for name in row})
    table = {"rows": len(rows.rows), "columns": columns}
    facts = {
        "rank": 0,
        "world": 1,
        "versions": {},
        "trainer": {
            "class": None,
            "bases": [],
            "kind": "loop",
            "collator": "" if rows.collator is None else rows.collator.name,
            "own_loss": _may_have_own_loss(rows.script),
            "loss": {},
        },
        "args": {},
        "model": {**NO_MODEL, "class": CAUSAL_MODEL},
        "tokenizer": {
            "class": "",
            "padding_side": "right" if rows.collator is None else rows.collator.padding.side,
            "pad": None if rows.collator is None else rows.collator.padding.id,
            "bos": special.get("bos"),
            "eos": special.get("eos"),
            "name": str(probes.tokenizer.folder),
        },
        "data": {
            "given": table,
            "prepared": table,
            "numbers": list(range(len(rows.rows))),
            "used": columns,
        },
        "batches": [{"indices": list(batch.rows)} for batch in batches],
        "laws": {},
        "notes": [],
    }
    arrays = [dict(batch.arrays) for batch in batches]
    given = _rows_with_prompt_and_answer(rows, probes)
    return build_audit([Record(facts, arrays, given, prepared)], run, probes)


def _rows_with_prompt_and_answer(rows: ScriptRows, probes: Probes) -> list[dict[str, Any]]:
    """The rows of the file, as prompt and answer where their columns have names that no format knows.

    The column whose text comes last in what the script makes of a row is its answer, where it is the same column in
    nearly all rows; all text before it is its prompt. Otherwise the rows stay as they are.
    """
    raw = [row.raw for row in rows.rows]
    if parse_row(raw[0], 0) is not None:
        return raw
    decode = probes.tokenizer.backend.decode
    texts = [decode(row.row["input_ids"], skip_special_tokens=False) for row in rows.rows]
    last = [
        find_last_column(_texts_of_row(row), text) for row, text in zip(raw, texts, strict=True)
    ]
    names = Counter(one.name for one in last if one is not None)
    if not names or names.most_common(1)[0][1] < MIN_SHARE_OF_ONE_COLUMN * len(raw):
        return raw
    answer = names.most_common(1)[0][0]
    return [
        {"prompt": text[: len(text) - one.behind - len(one.text)].rstrip(), "completion": one.text}
        if one is not None and one.name == answer
        else row
        for row, text, one in zip(raw, texts, last, strict=True)
    ]


def _texts_of_row(row: dict[str, Any]) -> dict[str, str]:
    """The columns of a row that are texts."""
    return {name: value for name, value in row.items() if isinstance(value, str)}


def _first_rows_as_single_batches(rows: ScriptRows) -> tuple[ScriptBatch, ...]:
    """The first rows, each as a batch of its own without padding."""
    first = enumerate(rows.rows[:MAX_LINES_WITHOUT_COLLATOR])
    return tuple(
        ScriptBatch(
            (number,),
            (row.row,),
            {name: np.asarray([values]) for name, values in row.row.items()},
        )
        for number, row in first
        if row.row["input_ids"]
    )


def _may_have_own_loss(script: str) -> bool:
    """May a script, or a file of the project that it imports, compute a loss of its own?"""
    texts = texts_of_script_and_possible_imports(Path(script)).values()
    return any(mark in text for text in texts for mark in MARKS_OF_OWN_LOSS)
