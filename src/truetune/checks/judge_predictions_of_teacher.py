"""Judges the stored predictions of a teacher that stand beside token ids, which needs no tokenizer."""

from __future__ import annotations

from truetune.checks.judgement import Judgement
from truetune.checks.rule import TeacherRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.teacher_predictions import read_teacher_file
from truetune.settings.run_spec import RunSpec


def judge_predictions_of_teacher(path: str, spec: RunSpec) -> Judgement:
    """What the rules on a teacher's predictions say of a file; nothing if it holds none.

    Args:
        path: rows of token ids.
        spec: selects rules.
    """
    predictions = read_teacher_file(path)
    if predictions is None:
        return Judgement()
    return run_rules(predictions, choose_rules(spec, TeacherRule))
