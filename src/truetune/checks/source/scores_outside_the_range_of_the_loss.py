"""Scores of pairs are on another scale than the loss of the embedding model or reranker takes.

## What it does
Follows a script with its rows up to the trainer of sentence-transformers, or to `fit`. It compares the labels with
what the loss takes: -1 to 1 for CosineSimilarityLoss, 0 to 1 for BinaryCrossEntropyLoss, 0 and 1 for ContrastiveLoss
and OnlineContrastiveLoss, whole numbers for SoftmaxLoss and CrossEntropyLoss. CoSENTLoss and AnglELoss take any
numbers. It also fires if all labels of a loss that compares single pairs are equal. Where the rows are not there, it
fires if the script divides the scores for the evaluator alone.

## Why it is bad
A cosine can't be 4. The nearest is 1, so CosineSimilarityLoss draws all pairs with scores above 1 together, whatever
their order. BinaryCrossEntropyLoss with a label above 1 falls below zero without limit. ContrastiveLoss with a score
between 0 and 1 draws each pair together and pushes it apart at once. If all labels are equal, the loss is smallest
where all texts have one embedding. Nothing fails in any of these.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"sentence1": "When do you open?", "sentence2": "When are you open?", "score": 5.0},
    {"sentence1": "When do you open?", "sentence2": "Are you open?", "score": 3.0},
    {"sentence1": "When do you open?", "sentence2": "Is it heated?", "score": 0.0},
])
loss = losses.CosineSimilarityLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Use instead
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"sentence1": "When do you open?", "sentence2": "When are you open?", "score": 5.0},
    {"sentence1": "When do you open?", "sentence2": "Are you open?", "score": 3.0},
    {"sentence1": "When do you open?", "sentence2": "Is it heated?", "score": 0.0},
])
rows = rows.map(lambda row: {"score": row["score"] / 5.0})
loss = losses.CosineSimilarityLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Fix safety
Dividing scores by the highest that the scale allows is safe. The scale is that of the raters: 5 for STS, though no
pair may have it.

## References
- huggingface/sentence-transformers#1095 (the label range has to be -1 to 1), huggingface/sentence-transformers#95
- TharinduDR/TransQuest#30, huggingface/sentence-transformers#3469
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.cases_of_embedding_rows import cases_of_training
from truetune.checks.source.evidence.embedding_trainings import (
    EmbeddingTraining,
    TrainedRow,
    embedding_trainings,
    number_of_label,
    places_that_train_embeddings,
)
from truetune.checks.source.evidence.scores_divided_for_evaluation_alone import (
    scores_divided_for_evaluation_alone,
)
from truetune.source.parsed_source_file import Module

RANGES = {"cosine": (-1.0, 1.0), "probability": (0.0, 1.0)}
"""Labels that a loss takes -> the lowest and the highest"""
# Labels may be written as 1.0000001 where they were divided.
ROUNDING = 1e-3
EQUAL_LABELS_TEACH_NOTHING = ("cosine", "probability", "binary")
# Chosen, not measured: of ten pairs with two labels in equal parts, all agree in one of 500 draws.
MIN_PAIRS = 10
"""Pairs, below which equal labels may be chance"""


class ScoresOutsideTheRangeOfTheLoss(SourceRule):
    code = "SRC571"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall", "odd-metrics", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces(
        "trainings of embedding models and rerankers", places_that_train_embeddings
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on labels that the loss can't take."""
        module = self.subject
        for training in embedding_trainings(module):
            unfit = [row for row in training.rows if _is_unfit(training, row)]
            if unfit:
                yield self._finding_on_scale(module, training, unfit)
            elif _are_all_equal(training):
                yield self._finding_on_equal_labels(module, training)
            elif not training.rows and training.facts.labels in RANGES:
                yield from self._findings_on_evaluator(module, training)

    def _finding_on_scale(
        self, module: Module, training: EmbeddingTraining, unfit: list[TrainedRow]
    ) -> Finding:
        """The finding on labels outside of what the loss takes."""
        labels = training.labels
        wanted, remedy = _wanted_and_remedy(training, max(labels))
        return self.finding(
            f"{training.loss} takes {wanted}, but {len(unfit):,} of {len(training.rows):,} labels are others: they"
            f" are from {min(labels):g} to {max(labels):g}",
            remedy,
            cases=cases_of_training(module, training, unfit),
            count=len(unfit),
            total=len(training.rows),
        )

    def _findings_on_evaluator(
        self, module: Module, training: EmbeddingTraining
    ) -> Iterator[Finding]:
        """The finding that the evaluator alone gets divided scores, where the rows are not known."""
        divided = scores_divided_for_evaluation_alone(module)
        if divided is None:
            return
        wanted, remedy = _wanted_and_remedy(training, divided.by)
        yield self.finding(
            f"{training.loss} takes {wanted}, but the labels are trained as they are read: only the evaluator gets"
            f" them divided by {divided.by:g}",
            remedy,
            severity="warning",
            cases=[
                case_of_node(module, training.loss_call.node),
                case_of_node(module, divided.node),
            ],
        )

    def _finding_on_equal_labels(self, module: Module, training: EmbeddingTraining) -> Finding:
        """The finding that no label differs."""
        label = training.labels[0]
        return self.finding(
            f"all {len(training.rows):,} labels are {label:g}: {training.loss} is lowest if all texts have the same"
            " embedding or score",
            "add pairs with other labels, or use MultipleNegativesRankingLoss, which takes the other texts of the"
            " batch as negatives, and leave the labels out",
            cases=cases_of_training(module, training, training.rows),
            count=len(training.rows),
            total=len(training.rows),
        )


def _is_unfit(training: EmbeddingTraining, row: TrainedRow) -> bool:
    """Is the label of a row none that the loss takes?"""
    label = number_of_label(row.label)
    if label is None:
        return False
    kind = training.facts.labels
    if kind in RANGES:
        low, high = RANGES[kind]
        return not low - ROUNDING <= label <= high + ROUNDING
    if kind == "binary":
        return label not in (0.0, 1.0)
    return kind == "class" and not label.is_integer()


def _wanted_and_remedy(training: EmbeddingTraining, highest: float) -> tuple[str, str]:
    """What a loss takes as labels, and what to do with others."""
    kind = training.facts.labels
    if kind in RANGES:
        low, high = RANGES[kind]
        scaled = f"divide the scores by the highest of their scale ({highest:g}?)"
        other = ", or use CoSENTLoss, which takes any numbers" if kind == "cosine" else ""
        return f"labels from {low:g} to {high:g}", scaled + other
    if kind == "binary":
        return (
            "the labels 0 and 1",
            "round the scores to 0 and 1, or use CoSENTLoss or CosineSimilarityLoss",
        )
    return (
        "numbers of classes",
        "use BinaryCrossEntropyLoss for a reranker or CoSENTLoss for an embedding model, which take scores",
    )


def _are_all_equal(training: EmbeddingTraining) -> bool:
    """Are all labels equal, for a loss that learns from their differences?"""
    labels = training.labels
    if training.facts.labels not in EQUAL_LABELS_TEACH_NOTHING or len(labels) < MIN_PAIRS:
        return False
    return len(labels) == len(training.rows) and len(set(labels)) == 1
