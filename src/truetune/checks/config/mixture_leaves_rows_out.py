"""A mixture of data sets leaves most rows of one set unused, or repeats a small set many times.

## What it does
Counts the rows of LLaMA-Factory's data sets and computes how many rows of each `mix_strategy` takes per epoch, with
`interleave_probs` and `max_samples`. `interleave_under` ends as soon as the first set has no rows left.
`interleave_over` continues until the last one has none, and repeats the others. `interleave_once` takes each row once.
The rule fires if less than half of a set is used, or if a set is used more than ten times.

## Why it is bad
Rows that are never sampled teach nothing: with equal probabilities, a set of 12 rows next to one of 160 ends the epoch
after about 24. A set that repeats ten times per epoch is memorised while the large one is seen once. The loss shows
neither.

## Example
```yaml
files:
  data/dataset_info.json: {shop: {file_name: shop.jsonl}, own: {file_name: own.jsonl}}
  data/shop.jsonl:
    - {instruction: "Question 1?", output: Answer 1.}
    - {instruction: "Question 2?", output: Answer 2.}
    - {instruction: "Question 3?", output: Answer 3.}
    - {instruction: "Question 4?", output: Answer 4.}
    - {instruction: "Question 5?", output: Answer 5.}
    - {instruction: "Question 6?", output: Answer 6.}
    - {instruction: "Question 7?", output: Answer 7.}
    - {instruction: "Question 8?", output: Answer 8.}
  data/own.jsonl:
    - {instruction: "Who are you?", output: I am Ada.}
    - {instruction: "Who made you?", output: Two people in Oslo.}
config:
  stage: sft
  model_name_or_path: some/model
  dataset_dir: data
  dataset: shop,own
  mix_strategy: interleave_under
  interleave_probs: 0.5,0.5
  template: qwen
  finetuning_type: lora
  output_dir: out
  per_device_train_batch_size: 1
```

## Use instead
```yaml
files:
  data/dataset_info.json: {shop: {file_name: shop.jsonl}, own: {file_name: own.jsonl}}
  data/shop.jsonl:
    - {instruction: "Question 1?", output: Answer 1.}
    - {instruction: "Question 2?", output: Answer 2.}
    - {instruction: "Question 3?", output: Answer 3.}
    - {instruction: "Question 4?", output: Answer 4.}
    - {instruction: "Question 5?", output: Answer 5.}
    - {instruction: "Question 6?", output: Answer 6.}
    - {instruction: "Question 7?", output: Answer 7.}
    - {instruction: "Question 8?", output: Answer 8.}
  data/own.jsonl:
    - {instruction: "Who are you?", output: I am Ada.}
    - {instruction: "Who made you?", output: Two people in Oslo.}
config:
  stage: sft
  model_name_or_path: some/model
  dataset_dir: data
  dataset: shop,own
  mix_strategy: concat
  template: qwen
  finetuning_type: lora
  output_dir: out
  per_device_train_batch_size: 1
```

## Fix safety
`concat` (the default) uses each row once per epoch, and so does `interleave_once` (LLaMA-Factory 0.9.5). Probabilities
in proportion to the set sizes do nearly the same. If you limit a large set on purpose, ignore this rule.

## References
- huggingface/datasets#3064 (what happens when a set has no rows left)
- Muennighoff et al. 2023, arXiv 2305.16264: rows that are repeated four times teach nearly as much as new ones, and
  after some sixteen times next to nothing
- LLaMA-Factory, src/llamafactory/data/data_utils.py (`merge_dataset`)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from truetune.checks.config.evidence.dataset_info_entries import dataset_info_entries
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import (
    count_rows,
    rows_within_max_samples,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

STRATEGIES = ("interleave_under", "interleave_over")
"""Those that don't draw each row once"""
SUM_TOLERANCE = 1e-8
"""How far from 1 NumPy lets the sum of probabilities be, about; `datasets` refuses others"""
# Chosen, not measured: a tenth that is left out is what a rounded probability costs.
MIN_DRAWN_SHARE = 0.5
"""Share of a set's rows that an epoch draws, below which something is said"""
MAX_REPEATS = 10
"""Times that an epoch may draw a set. Chosen between the four times that cost nothing and the sixteen after which
little is learned (see the references), since a run has several epochs
"""


@dataclass(frozen=True, slots=True)
class MixedSet:
    """One data set of a mixture."""

    name: str
    rows: int
    probability: float
    drawn: float
    """Rows that an epoch draws of it, about"""

    @property
    def times_each_row_is_drawn(self) -> float:
        """How many times an epoch draws each of its rows, about."""
        return self.drawn / self.rows


class MixtureLeavesRowsOut(ConfigRule):
    code = "CFG162"
    fault = Fault.OWN_ROWS_HARDLY_TRAINED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = ("llama-factory",)

    def unmet(self) -> Unmet | None:
        """Also unmet unless several local sets are mixed."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if self._mixed_sets():
            return None
        return Unmet(
            "it is about several local data sets that are mixed, by probabilities whose sum is 1"
        )

    def _mixed_sets(self) -> list[MixedSet]:
        """The sets with what is drawn of each; empty where nothing is interleaved, or a set is not here."""
        return _mixed_sets(self.subject)

    def measurement_if_clean(self) -> str:
        """How many rows an epoch draws of each set."""
        return "; ".join(
            f"{one.name}: about {one.drawn:,.0f} of {one.rows:,} rows" for one in self._mixed_sets()
        )

    def findings(self) -> Iterator[Finding]:
        config, sets = self.subject, self._mixed_sets()
        left_out = [one for one in sets if one.times_each_row_is_drawn < MIN_DRAWN_SHARE]
        repeated = [one for one in sets if one.times_each_row_is_drawn > MAX_REPEATS]
        if not left_out and not repeated:
            return
        if left_out:
            shortest = min(sets, key=lambda one: one.rows / one.probability)
            what = (
                f"the mixture ends when {shortest.name} has no rows left: an epoch uses only about "
                + _describe_drawn_rows(left_out)
            )
        else:
            what = (
                "the mixture repeats small sets, which the model then memorises: an epoch uses"
                f" {_describe_repeats(repeated)}"
            )
        yield self.finding(
            what,
            (
                "set mix_strategy to concat or interleave_once, or set interleave_probs in proportion to the set"
                " sizes"
            ),
            evidence=[f"interleave_probs: {', '.join(f'{one.probability:g}' for one in sets)}"],
            cases=[setting_case(config, config.raw["mix_strategy"], "mix_strategy")],
        )


def _describe_drawn_rows(sets: list[MixedSet]) -> str:
    """The rows that are drawn of some sets, in words."""
    return ", ".join(f"{one.drawn:,.0f} of the {one.rows:,} rows of {one.name}" for one in sets)


def _describe_repeats(sets: list[MixedSet]) -> str:
    """How many times the rows of some sets are drawn, in words."""
    return ", ".join(
        f"each of the {one.rows:,} rows of {one.name} about {one.times_each_row_is_drawn:,.0f} times"
        for one in sets
    )


def _mixed_sets(config: Config) -> list[MixedSet]:
    """The sets of a mixture; empty where there is one set, or what is drawn is not known."""
    names = _entries_of_list_or_text(config.raw.get("dataset"))
    if (
        len(names) < 2
        or len(config.spec.data) != len(names)
        or _does_dataset_info_sample_rows(config)
    ):
        return []
    rows = _row_counts_of_files(config)
    probabilities = _probabilities(config.raw.get("interleave_probs"), len(names))
    if len(rows) != len(names) or len(probabilities) != len(names):
        return []
    drawn = _rows_drawn_per_epoch_of_each_set(config.raw.get("mix_strategy"), rows, probabilities)
    return [MixedSet(*one) for one in zip(names, rows, probabilities, drawn, strict=True)]


def _row_counts_of_files(config: Config) -> list[int]:
    """The number of rows of each file, within `max_samples`; fewer numbers where a file is not here or empty."""
    counts = [count_rows(file) for file in config.spec.data if Path(file).is_file()]
    return [rows_within_max_samples(config, count) for count in counts if count]


def _rows_drawn_per_epoch_of_each_set(
    strategy: object, rows: Sequence[int], probabilities: Sequence[float]
) -> list[float]:
    """The rows that an epoch draws of each set, about."""
    if strategy not in STRATEGIES:
        # One set after the other: each row comes once.
        return [*rows]
    lengths = [count / share for count, share in zip(rows, probabilities, strict=True)]
    total = min(lengths) if strategy == "interleave_under" else max(lengths)
    return [total * share for share in probabilities]


def _does_dataset_info_sample_rows(config: Config) -> bool:
    """Does dataset_info.json say how many rows of one of these sets are taken, and repeated if they are too few?"""
    return any(entry.get("num_samples") for entry in dataset_info_entries(config).values())


def _entries_of_list_or_text(value: object) -> list[str]:
    """The entries of a setting that is a list, or a text with commas."""
    entries = value if isinstance(value, list) else str(value or "").split(",")
    return [str(entry).strip() for entry in entries if str(entry).strip()]


def _probabilities(value: object, sets: int) -> list[float]:
    """The probabilities of the sets, equal ones where none are given; empty where they are no shares of 1."""
    if value is None:
        return [1 / sets] * sets
    try:
        shares = [float(part) for part in _entries_of_list_or_text(value)]
    except ValueError:
        return []
    are_shares = all(0 < share <= 1 for share in shares)
    return shares if are_shares and abs(math.fsum(shares) - 1) <= SUM_TOLERANCE else []
