"""The loss of an embedding model does not read the labels or texts that its rows have.

## What it does
Follows a script with its rows up to the trainer of sentence-transformers, or to `fit`. It fires if the rows have
different labels and the loss reads none (MultipleNegativesRankingLoss, GISTEmbedLoss, TripletLoss), and if they have
three texts or more and the loss reads two (CosineSimilarityLoss, CoSENTLoss, OnlineContrastiveLoss).

## Why it is bad
sentence-transformers hands every column to the loss, and the loss drops what it does not read. A loss that reads no
label takes each pair as one that fits: pairs that are labelled 0 are drawn together. A third text, meant as a
negative, is embedded for nothing.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"sentence1": "When do you open?", "sentence2": "We open at nine.", "label": 1},
    {"sentence1": "When do you open?", "sentence2": "Next to the church.", "label": 0},
    {"sentence1": "Where is the station?", "sentence2": "Next to the church.", "label": 1},
])
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Use instead
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"sentence1": "When do you open?", "sentence2": "We open at nine.", "label": 1},
    {"sentence1": "When do you open?", "sentence2": "Next to the church.", "label": 0},
    {"sentence1": "Where is the station?", "sentence2": "Next to the church.", "label": 1},
])
loss = losses.OnlineContrastiveLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Fix safety
There is no automatic fix. Either keep the pairs that fit, or take a loss that reads labels.

## References
- huggingface/sentence-transformers#1436 (the labels are not used)
- https://sbert.net/docs/sentence_transformer/loss_overview.html
"""

from __future__ import annotations

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
    number_of_label,
    places_that_train_embeddings,
)
from truetune.source.parsed_source_file import Module

TEXTS_OF_PAIR = 2


class LossDropsLabelsOrTexts(SourceRule):
    code = "SRC570"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces(
        "trainings of embedding models and rerankers", places_that_train_embeddings
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on losses that do not read the labels or all texts of their rows."""
        module = self.subject
        for training in embedding_trainings(module):
            yield from self._findings_on_labels(module, training)
            yield from self._findings_on_texts(module, training)

    def _findings_on_labels(self, module: Module, training: EmbeddingTraining) -> Iterator[Finding]:
        """The finding on labels that differ, and that the loss does not read."""
        labels = training.labels
        # InputExample has the label 0 where none is given, so that equal labels say nothing.
        if training.facts.labels != "none" or len(set(labels)) < 2:
            return
        best = max(labels)
        lower = [row for row in training.rows if _is_below(row, best)]
        yield self.finding(
            f"{training.loss} reads no labels: {len(lower):,} of {len(training.rows):,} pairs are labelled below"
            f" {best:g}, and are trained as pairs that fit",
            "drop these pairs and the column of labels, or use a loss that reads labels (OnlineContrastiveLoss for 0"
            " and 1, CoSENTLoss for scores)",
            cases=cases_of_training(module, training, lower),
            count=len(lower),
            total=len(training.rows),
        )

    def _findings_on_texts(self, module: Module, training: EmbeddingTraining) -> Iterator[Finding]:
        """The finding on texts after the second one, which the loss does not read."""
        if not training.facts.drops_further_texts or not training.rows:
            return
        further = [row for row in training.rows if len(row.texts) > TEXTS_OF_PAIR]
        if not further:
            return
        names = ", ".join(training.columns[TEXTS_OF_PAIR:]) or "what follows"
        yield self.finding(
            f"{training.loss} reads two texts: {names} is dropped",
            "use a loss that reads negatives (MultipleNegativesRankingLoss, TripletLoss), or remove the column",
            cases=cases_of_training(module, training, further),
            count=len(further),
            total=len(training.rows),
        )


def _is_below(row: TrainedRow, best: float) -> bool:
    """Is the label of a row lower than the best one?"""
    number = number_of_label(row.label)
    return number is not None and number < best
