"""id2label and label2id in config.json contradict each other.

## What it does
Compares the two tables of label names in config.json: each number must have the name that has this number in the other
table. It fires as well if one table has names and the other has the defaults (`LABEL_0`), and if the head of a
classifier has another number of rows than there are labels.

## Why it is bad
Training turns names into numbers with one table, and pipelines and evaluations turn numbers into names with the other.
A model that predicts rightly gets a wrong name for each of its answers, and accuracy is near zero or inverted. Nothing
fails.

## Example
```yaml
llama: 2
config: {id2label: {"0": negative, "1": positive}, label2id: {positive: 0, negative: 1}}
```

## Use instead
```yaml
llama: 2
config: {id2label: {"0": negative, "1": positive}, label2id: {negative: 0, positive: 1}}
```

## Fix safety
Keep the table with which the rows were numbered, and derive the other from it. It changes no weight.

## References
- huggingface/transformers documentation, "Text classification" (`id2label`, `label2id`)
- huggingface/transformers#19530
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import CheckpointRule

DEFAULT_NAME = re.compile(r"LABEL_\d+")
CONFIG = "config.json"
HEADS = ("score.weight", "classifier.weight", "classifier.out_proj.weight")


class LabelNamesContradict(CheckpointRule):
    code = "CKP047"
    fault = Fault.LABEL_NAMES_MIXED_UP
    symptoms = ("odd-metrics",)
    severity = "error"
    kind = "model"
    opens = False

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self._names_by_id() or not self._ids_by_name():
            return Unmet("it is about id2label and label2id, and config.json has not both")
        return None

    def measurement_if_clean(self) -> Measurement:
        """The number of labels that the two tables give differently, none."""
        count = len(self._names_by_id())
        return make_count_measurement("labels that the two tables give differently", 0, count)

    def findings(self) -> Iterator[Finding]:
        names, ids = self._names_by_id(), self._ids_by_name()
        if self.subject.kind != "model" or not names or not ids:
            return
        yield from self._finding_on_rows_of_head(len(names))
        contradictions = list(_contradictions(names, ids))
        if contradictions:
            yield self.finding(
                f"id2label and label2id contradict each other on {len(contradictions):,} of {len(names):,} labels:"
                f" {contradictions[0]}",
                "keep the table with which the rows were numbered, and write the other from it:"
                " label2id = {name: id for id, name in id2label.items()}",
                cases=[Case(text, file=CONFIG) for text in contradictions],
                count=len(contradictions),
                total=len(names),
            )

    def _finding_on_rows_of_head(self, labels: int) -> Iterator[Finding]:
        """The finding on a head of a classifier with another number of rows than there are labels."""
        heads = {
            name: tensor.shape[0]
            for name, tensor in self.subject.tensors.items()
            if name.endswith(HEADS) and len(tensor.shape) > 1
        }
        wrong = [(name, rows) for name, rows in heads.items() if rows != labels]
        if not wrong:
            return
        name, rows = wrong[0]
        yield self.finding(
            f"config.json names {labels:,} labels, but {name} has {rows:,} rows: loading fails, or fills"
            " a new head with random numbers (ignore_mismatched_sizes)",
            f"name {rows:,} labels in id2label and label2id, as in training",
            cases=[Case(f"{name}: {rows:,} rows", file=CONFIG)],
        )

    def _names_by_id(self) -> dict[int, str]:
        """id2label, its numbers as JSON has them: as texts."""
        table = self.subject.config.get("id2label")
        entries = table.items() if isinstance(table, Mapping) else ()
        return {int(id): str(name) for id, name in entries if str(id).isdecimal()}

    def _ids_by_name(self) -> dict[str, int]:
        """label2id."""
        table = self.subject.config.get("label2id")
        entries: Any = table.items() if isinstance(table, Mapping) else ()
        return {str(name): id for name, id in entries if type(id) is int}


def _contradictions(names: Mapping[int, str], ids: Mapping[str, int]) -> Iterator[str]:
    """What the two tables say differently, label by label."""
    for id, name in sorted(names.items()):
        other = ids.get(name)
        if other == id:
            continue
        if other is not None:
            yield f"{id} is {name!r} in id2label, but {name!r} is {other} in label2id"
        elif _is_default(name) != all(map(_is_default, ids)):
            known = next((label for label, number in ids.items() if number == id), None)
            yield f"{id} is {name!r} in id2label, and {known!r} in label2id"
        else:
            yield f"{id} is {name!r} in id2label, and label2id has no {name!r}"


def _is_default(name: str) -> bool:
    """Is it a name that transformers gives where nobody named the label?"""
    return DEFAULT_NAME.fullmatch(name) is not None
