"""Tells whether the weights that transformers reports as missing or unused are only those of a new
head.

A classifier or a reward model that is trained from a base model has a new head: its weights are missing from the
checkpoint, and the head for tokens is not used. transformers warns all the same. Where a training follows, that is as
it must be; without one the head guesses. Names decide, and a checkpoint of a training (`checkpoint-1200`) should have
its head: there the warning stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

WARNING_LINE = re.compile(
    r"Some weights of .{1,300}?(?:were not initialized from|were not used when)"
    r" (?P<from>.{0,300}?)\[(?P<names>.{0,4000}?)(?:\]|$)"
)
NAME = re.compile(r"['\"]([\w.]{1,200})['\"]")
REPORT_LINE = re.compile(r"^\s*(?P<name>[\w.{}, \[\]]{1,160}?)\s*\| (?:MISSING|UNEXPECTED)\b")
REPORT_TITLE = re.compile(r"\bLOAD REPORT from: (?P<from>\S{1,300})")
TRAINED_CHECKPOINT = re.compile(r"checkpoint-\d|\bglobal_step_?\d|\bstep_\d")
HEAD = re.compile(
    r"^(?:(?:bert|roberta|model|transformer)\.)?(?:pooler|classifier|score|qa_outputs|pre_classifier|classification_head"
    r"|regression_head|v_head|value_head|reward_head|summary|logits_proj|sequence_summary|cls|decoder\.(?:bias|weight)$|head|predictions"
    r"|lm_head|lm_predictions|mlm|vocab_\w{1,20}|generator_\w{1,20})\b"
)
"""First part of the name of a head's weights: for classes, figures and answers, or for tokens"""
TOKEN_HEAD = re.compile(r"^(?:lm_head|cls\.predictions|predictions|lm_predictions|mlm|decoder)\b")
"""Heads that predict tokens: a language model without its own is broken, so these may be unused and never missing"""


@dataclass(slots=True)
class WeightReportReader:
    """Takes the lines of an output, and keeps whether all weights that it reports are those of heads."""

    names: int = 0
    _others: bool = field(default=False)

    @property
    def are_reported_weights_only_heads(self) -> bool:
        """Were weights reported, and only those of heads that a training begins with?"""
        return self.names > 0 and not self._others

    def add_line(self, text: str) -> None:
        """Read one line of the output."""
        if "weights of" in text or "LOAD REPORT" in text:
            title = REPORT_TITLE.search(text)
            warning = WARNING_LINE.search(text)
            if TRAINED_CHECKPOINT.search(text):
                self._others = True
            if warning is not None and title is None:
                is_missing = "not initialized" in warning[0]
                for name in NAME.findall(warning["names"]):
                    self._count_weight(name, is_missing=is_missing)
        row = REPORT_LINE.match(text)
        if row is not None:
            self._count_weight(row["name"], is_missing="MISSING" in row[0])

    def _count_weight(self, name: str, *, is_missing: bool) -> None:
        """Count one reported weight, as a head's or another."""
        self.names += 1
        if HEAD.match(name) is None or (is_missing and TOKEN_HEAD.match(name)):
            self._others = True
