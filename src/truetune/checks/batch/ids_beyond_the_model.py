"""Ids or labels in the batches have no row in the model.

## What it does
Compares the ids in the real batches with the number of rows of the model's embedding, and the labels with that of its
output.

## Why it is bad
On a GPU it ends with a device-side assert far from the cause, or reads other memory. It happens if tokens were added
without resizing the embedding, or with the tokenizer of another model.

## Example

```python
small = model.__class__(model.config.__class__(**{**model.config.to_dict(), "vocab_size": 64}))
run = transformers.Trainer(small, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: call `model.resize_token_embeddings(len(tokenizer))`, whose new rows must be trained, or use
the tokenizer of this model.

## References

- huggingface/transformers#23401, huggingface/transformers#33325
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.render.rendering import IGNORED

# Multimodal models write an id without a row where a picture goes, and never look it up.
MEDIA_KEYS = ("pixel_values", "images", "input_features", "audio_values")
"""With images or sounds an id may be a place for them"""


class IdsBeyondTheModel(BatchRule):
    code = "BAT027"
    fault = Fault.TOKEN_IDS_EXCEED_EMBEDDING
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        if self._do_batches_hold_media():
            return
        model = self.subject.facts["model"]
        for what, rows in (("id", model["embedding_rows"]), ("label", model["output_rows"])):
            limit = _most_rows_by_weight_or_config(rows, model["config"])
            beyond = list(self._ids_beyond_limit(what, limit)) if limit else []
            if beyond:
                count = sum(number for _, _, number in beyond)
                yield self.finding(
                    f"{count} {what}s in the batches are not in the model, which has only {limit:,} rows",
                    "call model.resize_token_embeddings(len(tokenizer)) before training, or use the tokenizer of this"
                    " model",
                    cases=[Case(f"{sample.place}: {what} {first}") for sample, first, _ in beyond],
                    count=count,
                    total=sum(int(np.size(sample.ids)) for sample in self.subject.samples),
                )

    def _ids_beyond_limit(self, what: str, limit: int) -> Iterator[tuple[Sample, int, int]]:
        """(line, the first id, how many) of the ids or labels (`what`) that have no row below
        `limit`.
        """
        for sample in self.subject.samples:
            values = sample.ids if what == "id" else sample.labels
            if values is None:
                continue
            wrong = (values < 0) | (values >= limit)
            if what == "label":
                wrong &= values != IGNORED
            if wrong.any():
                yield sample, int(values[wrong][0]), int(wrong.sum())

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if self._do_batches_hold_media():
            return Unmet("it is about ids of text, and the batches hold images or sound too")
        return (
            None
            if self._count_embedding_rows()
            else Unmet("it is not known how many rows the embedding has")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many ids are not in the model, and how many rows its embedding has."""
        ids = sum(int(np.size(sample.ids)) for sample in self.subject.samples)
        return make_count_measurement(
            "ids that are not in the model",
            0,
            ids,
            f"; it has {self._count_embedding_rows():,} rows",
        )

    def _do_batches_hold_media(self) -> bool:
        """Does any batch hold images or sound?"""
        return any(
            name in batch
            for name in MEDIA_KEYS
            for record in self.subject.records
            for batch in record.batches
        )

    def _count_embedding_rows(self) -> int:
        """Rows of the embedding; 0 where they are not known."""
        model = self.subject.facts["model"]
        return _most_rows_by_weight_or_config(model["embedding_rows"], model["config"])


def _most_rows_by_weight_or_config(rows: int | None, config: dict[str, Any]) -> int:
    """The rows of a weight: as in memory, or as the config says if that is more, for sharding may
    leave only a part of the weight here.

    0 if the rows in memory are not known.
    """
    text = config.get("text_config") or {}
    return (
        max(rows or 0, config.get("vocab_size") or 0, text.get("vocab_size") or 0)
        if rows is not None
        else 0
    )
