"""Judges rows without a tokenizer: by the rules that compare texts, and no tokens.

Whether two answers are the same, or an answer is a null word, is a matter of texts. So where
no tokenizer is named (or that of the hub is not on this machine) the rows are read through a tokenizer of bytes, which
tells all texts apart, and the rules judge them that count nothing in tokens. What needs prompts, masks or lengths stays
not judged, and says so.
"""

from __future__ import annotations

from pathlib import Path

from truetune.checks.check_data import Progress, check
from truetune.checks.judgement import Judgement
from truetune.checks.reports import Subject
from truetune.checks.rule import DataRule
from truetune.checks.rule_catalogue import DATA, select_rules
from truetune.errors import TruetuneError
from truetune.render import byte_tokenizer
from truetune.spec.recognise_input_kind import title_of_kind
from truetune.spec.run_spec import RunSpec

BYTE_TOKENIZER = str(Path(byte_tokenizer.__file__).parent)
UNCUT = 1 << 30
"""A limit that cuts nothing: bytes are no measure for max_length"""
BY_TEXT = frozenset(
    (
        "answer-is-a-null-word",
        "answers-nearly-all-alike",
        "answers-of-other-rows",
        "broken-encoding",
        "encoded-text",
        "kto-imbalance",
        "kto-label-is-no-boolean",
        "pairs-with-opposite-labels",
        "placeholder-in-answer",
        "preference-pairs-identical",
        "refusals-in-answers",
        "rejected-side-empty",
        "roles-exchanged",
        "rows-grouped-by-source",
        "values-printed-as-python",
    )
)
"""Rules whose sentences hold no count of tokens, and that need no template. What is *nearly* the same (near copies and
leaks) is measured on tokens, and is another matter on bytes; which column is which, the script may decide"""


def judge_rows_by_text_rules(
    run: RunSpec, progress: Progress | None
) -> tuple[Judgement, Subject] | None:
    """What the rules on texts say of the rows of a run, and the rows as a subject; None where they can't be read."""
    rules = [
        rule
        for rule in select_rules(run.select, run.ignore, *DATA)
        if issubclass(rule, DataRule) and rule.name() in BY_TEXT
    ]
    # A tokenizer of bytes needs no files: the rules on texts see the same texts with any tokenizer.
    by_bytes = run.model_copy(
        update={"tokenizer": BYTE_TOKENIZER, "model": None, "max_length": UNCUT}
    )
    try:
        report = check(by_bytes, rules, progress=progress, cut=False)
    except TruetuneError:
        return None
    facts = (("rows", f"{report.rows:,}"), ("note", "judged by their texts alone"))
    subject = Subject(title_of_kind("data"), ", ".join(run.data), facts)
    return Judgement(report.findings, report.examined), subject
