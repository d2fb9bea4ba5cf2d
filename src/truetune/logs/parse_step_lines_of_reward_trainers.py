"""Reads the lines in which verl and prime-rl print the figures of a step.

    step:34 - actor/entropy:0.22 - critic/score/mean:0.4 - ...                     (verl)
    Step 34 | Time: 3.2s | Loss: 0.0043 | Mismatch KL: 0.0012 | Grad. Norm: 0.05   (prime-rl)

verl prints up to a hundred figures a line, behind Ray's `(TaskRunner pid=7)`: too long and too unlike a loop's line for
the patterns of `parse_printed_records`. Its figures are separated by ` - `, and a name may hold colons and blanks
(`val-core/my data/acc/mean@1`), so a name ends at the last colon of its part. With numpy 2 a value is printed as
`np.float64(0.22)`; before 2025, verl printed three decimals.
"""

from __future__ import annotations

import re

from truetune.logs.run_log_builder import parse_logged_number

StepRecord = dict[str, float | str]
"""Figures by their names, with `step`"""

VERL_STEP = re.compile(r"(?:^|[\s)m])step:\s?(\d{1,9}) - (?=\S)")
"""`m` ends a terminal code (`\\x1b[0m`), which Ray prints around the process"""
VERL_SEPARATOR = " - "
NUMPY_NUMBER = re.compile(r"^(?:np|numpy)\.\w{1,20}\((?P<number>[^()]{1,60})\)$")
ROUNDED_TO_ZERO = re.compile(r"-?0\.000")
ROUNDED_AWAY = ("/lr", "/grad_norm")
"""Ends of names of what is often below 0.0005: three decimals make 0 of it, and a rate of 0 would be a fault"""
LABEL_AND_VALUE = re.compile(
    r"\s*(?P<label>[A-Z][\w. ]{0,30}?):\s*(?P<value>[-+]?\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
)
NAME_OF_LABEL = {
    "Loss": "loss",
    "Reward": "reward",
    "Val. Reward": "eval_reward",
    "Entropy": "entropy",
    "Mismatch KL": "mismatch_kl/mean",
    "Grad. Norm": "grad_norm",
    "Grad Norm": "grad_norm",
    "LR": "learning_rate",
    "Throughput": "tokens_per_second",
    "Seq. Length": "seq_len/mean",
    "Time": "step_time",
}
MIN_FIGURES = 2
"""One figure alone may stand in prose"""


def parse_verl_step_line(text: str) -> StepRecord | None:
    """The record in a line of verl's; None for any other line.

    Args:
        text: the line, with or without what Ray and a logger print before it.
    """
    head = VERL_STEP.search(text)
    if head is None:
        return None
    record: StepRecord = {}
    for part in text[head.end() :].split(VERL_SEPARATOR):
        name, colon, printed = part.rpartition(":")
        number = _printed_number(printed)
        is_lost = name.endswith(ROUNDED_AWAY) and ROUNDED_TO_ZERO.fullmatch(printed.strip())
        if colon and name and number is not None and not is_lost:
            record[name.strip()] = number
    # verl's names have a group before a slash; a step that is only evaluated may have one figure
    is_record = len(record) >= MIN_FIGURES or any("/" in name for name in record)
    return {"step": head[1], **record} if is_record else None


def figures_behind_labels(text: str) -> StepRecord:
    """The figures of a line whose parts are labels with values, as prime-rl prints them; empty for any other line.

    Args:
        text: what stands behind `Step 34 |`.
    """
    figures: StepRecord = {}
    for part in text.split("|"):
        match = LABEL_AND_VALUE.match(part)
        number = parse_logged_number(match["value"]) if match is not None else None
        if match is not None and number is not None and match["label"] in NAME_OF_LABEL:
            figures[NAME_OF_LABEL[match["label"]]] = number
    return figures if len(figures) >= MIN_FIGURES else {}


def _printed_number(printed: str) -> float | None:
    """A value as it is printed, as a number; None if it is none."""
    printed = printed.strip()
    wrapped = NUMPY_NUMBER.match(printed)
    return parse_logged_number(wrapped["number"] if wrapped is not None else printed)
