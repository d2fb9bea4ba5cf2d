"""A mixture of data sets ends before most rows of one of them were drawn, or repeats a small one many times.

## What it does
Counts the rows of LLaMA-Factory's data sets and works out what `mix_strategy` takes of each in an epoch, with
`interleave_probs`. `interleave_under` ends as soon as the first set has no rows left; `interleave_over` continues until
the last one has none, and begins the others again. It fires where under half of a set is drawn, or a set more than ten
times.

## Why it is bad
Rows that are never drawn teach nothing: with equal probabilities, 12 rows beside 160 end the epoch after some 24. A set
that comes round ten times in an epoch is learned by heart, while the large one is seen once. The loss tells neither.

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
`concat` (the default) draws each row once an epoch. Probabilities by the sizes of the sets do nearly the same.
A warning: who limits a large set on purpose may leave it.

## References
- huggingface/datasets#3064 (what happens when a set has no rows left)
- LLaMA-Factory, src/llamafactory/data/data_utils.py (`merge_dataset`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.upper_bound_of_optimizer_steps import count_rows
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

STRATEGIES = ("interleave_under", "interleave_over")
# Chosen, not measured: a tenth that is left out is what a rounded probability costs.
MIN_DRAWN_SHARE = 0.5
"""Share of a set's rows that an epoch draws, below which something is said"""
MAX_REPEATS = 10
"""Times that an epoch may draw a set: three epochs of it are as many as most runs train in all"""


@dataclass(frozen=True, slots=True)
class MixedSet:
    """One data set of a mixture."""

    name: str
    rows: int
    probability: float
    drawn: float
    """Rows that an epoch draws of it, about"""


class MixtureLeavesRowsOut(ConfigRule):
    code = "CFG162"
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = ("llama-factory",)

    def unmet(self) -> Unmet | None:
        """Also unmet unless several local sets are mixed."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if self._mixed_sets():
            return None
        return Unmet("it is about several local data sets that are mixed")

    def _mixed_sets(self) -> list[MixedSet]:
        """The sets with what is drawn of each; empty where nothing is interleaved, or a set is not here."""
        return _mixed_sets(self.subject)

    def figure(self) -> str:
        """How many rows an epoch draws of each set."""
        return "; ".join(
            f"{one.name}: about {one.drawn:,.0f} of {one.rows:,} rows" for one in self._mixed_sets()
        )

    def findings(self) -> Iterator[Finding]:
        config, sets = self.subject, self._mixed_sets()
        left_out = [one for one in sets if one.drawn < MIN_DRAWN_SHARE * one.rows]
        repeated = [one for one in sets if one.drawn > MAX_REPEATS * one.rows]
        if not left_out and not repeated:
            return
        if left_out:
            shortest = min(sets, key=lambda one: one.rows / one.probability)
            what = (
                f"the mixture ends when {shortest.name} has no rows left: an epoch draws about "
                + _shares(left_out)
            )
        else:
            what = f"the mixture begins small sets again: an epoch draws about {_shares(repeated)}"
        yield self.finding(
            what,
            "set mix_strategy: concat, or interleave_probs by the sizes of the sets",
            evidence=[f"interleave_probs: {', '.join(f'{one.probability:g}' for one in sets)}"],
            cases=[setting_case(config, config.raw["mix_strategy"], "mix_strategy")],
        )


def _shares(sets: list[MixedSet]) -> str:
    """The rows that are drawn of some sets, in words."""
    return ", ".join(f"{one.drawn:,.0f} of the {one.rows:,} rows of {one.name}" for one in sets)


def _mixed_sets(config: Config) -> list[MixedSet]:
    """The sets of a mixture; empty where there is one set, or what is drawn is not known."""
    strategy, names = config.raw.get("mix_strategy"), _parts(config.raw.get("dataset"))
    files = config.spec.data
    if len(names) < 2 or len(files) != len(names):
        return []
    counts = [count_rows(file) for file in files if Path(file).is_file()]
    probabilities = _probabilities(config.raw.get("interleave_probs"), len(names))
    rows = [count for count in counts if count]
    if len(rows) != len(names) or len(probabilities) != len(names):
        return []
    if strategy not in STRATEGIES:
        # One set after the other: each row comes once.
        return [
            MixedSet(name, count, share, count)
            for name, count, share in zip(names, rows, probabilities, strict=True)
        ]
    lengths = [count / share for count, share in zip(rows, probabilities, strict=True)]
    total = min(lengths) if strategy == "interleave_under" else max(lengths)
    return [
        MixedSet(name, count, share, total * share)
        for name, count, share in zip(names, rows, probabilities, strict=True)
    ]


def _parts(value: object) -> list[str]:
    """The entries of a setting that is a list, or a text with commas."""
    entries = value if isinstance(value, list) else str(value or "").split(",")
    return [str(entry).strip() for entry in entries if str(entry).strip()]


def _probabilities(value: object, sets: int) -> list[float]:
    """The probabilities of the sets, equal ones where none are given; empty where one is no share."""
    if value is None:
        return [1 / sets] * sets
    try:
        shares = [float(part) for part in _parts(value)]
    except ValueError:
        return []
    return shares if all(0 < share <= 1 for share in shares) else []
