"""Batches hold the same fitting text for several queries, which the loss takes as not fitting.

## What it does
Follows a script with its rows up to the trainer of sentence-transformers, or to `fit`. For a loss that takes the
other texts of a batch as negatives, it computes from the rows how many of a random batch have a fitting text, or a
query, that another row of the batch has as well. It fires from 10 % on, if the sampler does not keep equal texts
apart.

## Why it is bad
If two rows of a batch have the same text, that text is right for both queries, and each row takes the other's copy as
wrong: it is drawn near and pushed away at once. With few texts and many queries, this is most of the loss.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"anchor": "When do you open?", "positive": "We open at nine."},
    {"anchor": "When can I come?", "positive": "We open at nine."},
    {"anchor": "Where is the station?", "positive": "Next to the church."},
    {"anchor": "How do I get to the train?", "positive": "Next to the church."},
])
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Use instead
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
from sentence_transformers import SentenceTransformerTrainingArguments

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"anchor": "When do you open?", "positive": "We open at nine."},
    {"anchor": "When can I come?", "positive": "We open at nine."},
    {"anchor": "Where is the station?", "positive": "Next to the church."},
    {"anchor": "How do I get to the train?", "positive": "Next to the church."},
])
args = SentenceTransformerTrainingArguments("out", batch_sampler="no_duplicates")
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, args=args, train_dataset=rows, loss=loss).train()
```

## Fix safety
`batch_sampler="no_duplicates"` is safe. With very few different texts, batches become as small as their number.

## References
- huggingface/sentence-transformers#3189, huggingface/sentence-transformers#2827, huggingface/sentence-transformers#608
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_of_embedding_rows import cases_of_training
from truetune.checks.source.evidence.embedding_trainings import (
    EmbeddingTraining,
    TrainedRow,
    embedding_trainings,
    places_that_train_embeddings,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import Attribute, Library

# Chosen: MNRL of batches of random texts is right for the other nine of ten rows.
MIN_SHARE = 0.1
"""Share of the rows of a random batch with a text that another one has"""
DEFAULT_BATCH = 8
"""Rows of a batch where the script names no number: the default of transformers"""
COMPARED_TEXTS = 2
"""Texts whose copies are wrong negatives: queries and those that fit"""


class EqualTextsInOneBatch(SourceRule):
    code = "SRC574"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "warning"
    moot_where = ("loss-drops-labels-or-texts",)
    looks_at = CodePlaces(
        "trainings of embedding models and rerankers", places_that_train_embeddings
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on trainings whose batches hold copies of a text."""
        module = self.subject
        for training in embedding_trainings(module):
            size = _rows_of_batch(training)
            if not training.facts.takes_batch_as_negatives or size is None:
                continue
            if _keeps_copies_apart(training) or not training.rows:
                continue
            share = _share_with_copy_in_batch(training.rows, size)
            if share < MIN_SHARE:
                continue
            copies = _copies_of_rows(training.rows)
            repeated = [row for row, count in zip(training.rows, copies, strict=True) if count]
            yield self.finding(
                f"{share:.0%} of the rows of a random batch of {size} have a text that another row of the batch has,"
                f" and {training.loss} takes it as not fitting",
                'set batch_sampler="no_duplicates" (with fit: sentence_transformers.datasets.NoDuplicatesDataLoader),'
                " or use GISTEmbedLoss",
                cases=cases_of_training(module, training, repeated),
                count=len(repeated),
                total=len(training.rows),
            )


def _rows_of_batch(training: EmbeddingTraining) -> int | None:
    """The rows of one batch; None where they are not known."""
    if training.loader is not None:
        given = training.loader.argument(1, "batch_size")
        size = None if given is None else constant_of(given)
    else:
        size = training.setting("per_device_train_batch_size")
        is_default = training.arguments is None and training.call.lacks("args", 1)
        if size is None or is_default:
            size = DEFAULT_BATCH
    return size if type(size) is int and size > 1 else None


def _keeps_copies_apart(training: EmbeddingTraining) -> bool:
    """Does the sampler of batches keep equal texts apart, or is it not known what it does?"""
    if training.call.method == "fit":
        # The loaders of sentence-transformers keep them apart, torch's does not.
        return training.loader is None
    if training.arguments is None:
        return not training.call.lacks("args", 1)
    given = training.arguments.keywords.get("batch_sampler")
    if given is None:
        return training.arguments.is_open
    # The default under its name; any other sampler has a reason of its own.
    is_default = isinstance(given, Attribute | Library) and given.name.endswith(".BATCH_SAMPLER")
    return not is_default and constant_of(given) != "batch_sampler"


def _share_with_copy_in_batch(rows: tuple[TrainedRow, ...], size: int) -> float:
    """The expected share of rows of a random batch with a query or fitting text that another one has."""
    others = len(rows) - 1
    if others < 1:
        return 0.0
    total = 0.0
    for copies in _copies_of_rows(rows):
        total += 1 - (1 - min(copies / others, 1.0)) ** (min(size, len(rows)) - 1)
    return total / len(rows)


def _copies_of_rows(rows: tuple[TrainedRow, ...]) -> list[int]:
    """For each row, how many others have its fitting text."""
    counts = Counter(str(row.texts[1]) for row in rows if len(row.texts) >= COMPARED_TEXTS)
    return [
        counts[str(row.texts[1])] - 1 if len(row.texts) >= COMPARED_TEXTS else 0 for row in rows
    ]
