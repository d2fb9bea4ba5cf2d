"""Rows of a batch have the same fitting text, and each takes the other's as one that does not fit.

## What it does
Reads batches that hold each row's texts under names of their own (`anchor_input_ids`, `positive_input_ids`). If the
loss takes the other rows of a batch as negatives, it compares the second text of all rows, id by id. That is so for
known losses of sentence-transformers (MultipleNegativesRankingLoss and its likes), and where a batch has two texts a
row and no labels: then nothing else can push texts apart.

## Why it is bad
A text that fits two queries of a batch is drawn to both and pushed away from both. With few texts and many queries
this is most of the loss, which stays above zero whatever is learned.

## Example

```python
class Sides:
    def __call__(self, rows):
        made = {side: tokenizer([row[side] for row in rows], padding=True, return_tensors="pt")
                for side in ("anchor", "positive")}
        return {f"{side}_{key}": made[side][key] for side in made for key in ("input_ids", "attention_mask")}


class InBatch(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        one, other = (model(input_ids=inputs[f"{side}_input_ids"], output_hidden_states=True).hidden_states[-1].mean(1)
                      for side in ("anchor", "positive"))
        scores = 20 * torch.nn.functional.cosine_similarity(one[:, None], other[None], dim=-1)
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))


questions = [{"anchor": f"Is box {i} open?", "positive": f"Box {i % 2} is open."} for i in range(8)]
args = arguments(remove_unused_columns=False, per_device_train_batch_size=4)
run = InBatch(model, args, data_collator=Sides(), train_dataset=questions)
```

## Use instead

```python
class Sides:
    def __call__(self, rows):
        made = {side: tokenizer([row[side] for row in rows], padding=True, return_tensors="pt")
                for side in ("anchor", "positive")}
        return {f"{side}_{key}": made[side][key] for side in made for key in ("input_ids", "attention_mask")}


class InBatch(transformers.Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        one, other = (model(input_ids=inputs[f"{side}_input_ids"], output_hidden_states=True).hidden_states[-1].mean(1)
                      for side in ("anchor", "positive"))
        scores = 20 * torch.nn.functional.cosine_similarity(one[:, None], other[None], dim=-1)
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))


questions = [{"anchor": f"Is box {i} open?", "positive": f"Box {i} is open."} for i in range(8)]
args = arguments(remove_unused_columns=False, per_device_train_batch_size=4)
run = InBatch(model, args, data_collator=Sides(), train_dataset=questions)
```

## Fix safety
`batch_sampler="no_duplicates"` of sentence-transformers is safe. With very few different texts, batches become as
small as their number.

## References

- huggingface/sentence-transformers#3189, huggingface/sentence-transformers#2827
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.checks.source.evidence.losses_of_embedding_models import EMBEDDING_LOSSES
from truetune.probe.run_record import Arrays

IDS = "_input_ids"
SIDES_OF_OTHER_TRAININGS = ("chosen", "rejected", "kl", "prompt", "completion", "decoder")
"""Beginnings of sides that preference and sequence-to-sequence trainers have"""
LABELS = ("label", "labels", "score", "scores")
# Chosen: the loss of batches of random texts is right for the other nine of ten rows.
MIN_SHARE = 0.1
"""Share of the rows whose fitting text another row of the batch has"""


@dataclass(frozen=True, slots=True)
class _CopiedRow:
    """A row whose fitting text another row of its batch has as well."""

    batch: int
    row: int
    ids: tuple[int, ...]


class EqualTextsAmongBatchNegatives(BatchRule):
    code = "BAT050"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where no batch holds texts that are each other's negatives."""
        if not self._rows_and_copies()[0]:
            return Unmet("it is about losses that take the texts of a batch as negatives")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many rows have a fitting text that another row of the batch has."""
        rows, copies = self._rows_and_copies()
        return make_count_measurement(
            "rows with the fitting text of another row of the batch", len(copies), rows
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on copies in batches."""
        rows, copies = self._rows_and_copies()
        if not copies or len(copies) < MIN_SHARE * rows:
            return
        yield self.finding(
            f"{len(copies):,} of {rows:,} rows have the fitting text of another row of their batch: the loss takes it"
            " as not fitting",
            'keep equal texts out of one batch: batch_sampler="no_duplicates" in SentenceTransformerTrainingArguments',
            cases=[
                Case(f"batch {one.batch}, row {one.row}: {len(one.ids)} equal tokens")
                for one in copies
            ],
            count=len(copies),
            total=rows,
        )

    def _rows_and_copies(self) -> tuple[int, list[_CopiedRow]]:
        """The number of rows that are judged, and those whose fitting text another one of the batch has."""
        rows = 0
        copies: list[_CopiedRow] = []
        for record in self.subject.records:
            loss = str(record.facts["trainer"].get("loss_module") or "")
            for number, batch in enumerate(record.batches):
                side = _side_of_fitting_texts(batch, loss)
                texts = [] if side is None else _ids_of_lines(batch, side)
                counts = Counter(texts)
                rows += len(texts)
                copies += [
                    _CopiedRow(number, line, ids)
                    for line, ids in enumerate(texts)
                    if counts[ids] > 1
                ]
        return rows, copies


def _side_of_fitting_texts(batch: Arrays, loss: str) -> str | None:
    """The name of the second text of a batch whose loss takes other rows as negatives; None for any other batch."""
    sides = _sides_of_batch(batch)
    if len(sides) < 2 or any(side.startswith(SIDES_OF_OTHER_TRAININGS) for side in sides):
        return None
    facts = EMBEDDING_LOSSES.get(loss.rpartition(".")[2])
    if loss:
        return sides[1] if facts is not None and facts.takes_batch_as_negatives else None
    # Of a loss that is not known: two texts without a label leave only the other rows to be pushed away.
    has_labels = any(name in batch for name in LABELS)
    return sides[1] if len(sides) == 2 and not has_labels else None


def _sides_of_batch(batch: Arrays) -> list[str]:
    """The names of the texts of a batch, in their order."""
    names = [name for name, value in batch.items() if name.endswith(IDS) and value.ndim == 2]
    return [name.removesuffix(IDS) for name in names]


def _ids_of_lines(batch: Arrays, side: str) -> list[tuple[int, ...]]:
    """The ids of each line of a side, without padding."""
    ids = batch[f"{side}{IDS}"]
    kept = batch.get(f"{side}_attention_mask", np.ones_like(ids)) != 0
    return [tuple(line[mask].tolist()) for line, mask in zip(ids, kept, strict=True)]
