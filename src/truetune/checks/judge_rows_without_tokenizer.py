"""Judges rows without a tokenizer, by the rules that compare texts and need no tokens.

Whether two answers are the same, or an answer is a null word, is a matter of texts. So where no tokenizer is named (or
that of the hub is not on this machine) the rows are read through a tokenizer of bytes, which tells all texts apart, and
the rules judge them that count nothing in tokens (`needs_tokenizer = False`). What needs prompts, masks or lengths
stays not judged, and says so. What is *nearly* the same is measured on tokens, and is left out as well.
"""

from __future__ import annotations

from truetune.checks.check_data import Progress, check
from truetune.checks.detect_trainer_and_apply_facts import trainer_facts_of_run
from truetune.checks.judgement import Judgement
from truetune.checks.reports import Subject
from truetune.checks.rule import DataRule
from truetune.checks.rule_runner import choose_rules
from truetune.render.byte_tokenizer import BYTE_TOKENIZER
from truetune.settings.recognise_input_kind import title_of_kind
from truetune.settings.run_spec import RunSpec

UNCUT = 1 << 30
"""A limit that cuts nothing: bytes are no measure for max_length"""


def judge_rows_by_text_rules(
    run: RunSpec,
    progress: Progress | None,
    *,
    script_reads_rows: bool,
    why: str,
    columns_read: frozenset[str] = frozenset(),
    tokens_added: frozenset[str] = frozenset(),
) -> tuple[Judgement, Subject]:
    """What the rules on texts say of the rows of a run, and the rows as a subject.

    Where a script reads the rows, which column is which is not judged: the script may decide that. `why` says why there
    is no tokenizer. Raises a TruetuneError where the rows can't be read.
    """
    rules = [
        rule
        for rule in choose_rules(run, DataRule)
        if not rule.needs_tokenizer and not (rule.judges_columns and script_reads_rows)
    ]
    # A tokenizer of bytes needs no files: the rules on texts see the same texts with any tokenizer.
    by_bytes = run.model_copy(
        update={"tokenizer": BYTE_TOKENIZER, "model": None, "max_length": UNCUT}
    )
    report = check(
        by_bytes,
        rules,
        progress=progress,
        cut=False,
        columns_read=columns_read,
        tokens_added=tokens_added,
        uncut_limit=run.max_length or trainer_facts_of_run(run).cut.value.limit,
    )
    facts = (("rows", f"{report.rows:,}"), ("note", f"judged by their texts alone: {why}"))
    subject = Subject(title_of_kind("data"), ", ".join(run.data), facts)
    return Judgement(report.findings, report.examined), subject
