"""An embedding model cuts most of the text of its rows.

## What it does
Reads the limit that a script sets on its SentenceTransformer or CrossEncoder (`max_seq_length`, `max_length`), and
counts the words of the rows that it trains. A word is a token or more, so a text with more words than the limit is
surely cut. It fires if at least a fifth of the texts of a column are, and names the share of words that is lost.

## Why it is bad
sentence-transformers cuts without a word. What comes after the limit has no effect on the embedding, in training as
in use. Two passages with the same beginning have the same embedding.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
model.max_seq_length = 8
rows = Dataset.from_list([
    {"anchor": "When do you open?", "positive": "On weekdays the shop opens at nine in the morning and closes at six."},
    {"anchor": "Where is the station?", "positive": "From the church, walk down the hill and turn left at the mill."},
])
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Use instead
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
model.max_seq_length = 128
rows = Dataset.from_list([
    {"anchor": "When do you open?", "positive": "On weekdays the shop opens at nine in the morning and closes at six."},
    {"anchor": "Where is the station?", "positive": "From the church, walk down the hill and turn left at the mill."},
])
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Fix safety
Raising the limit up to the positions of the model is safe, and takes memory. Longer texts have to be split.

## References
- huggingface/sentence-transformers#285, huggingface/sentence-transformers#1865, simonw/llm-sentence-transformers#8
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
    embedding_trainings,
    places_that_train_embeddings,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of

# Chosen: a few long texts are a decision, a fifth of them is not what the limit was meant for.
MIN_SHARE = 0.2
"""Share of a column's texts that are surely cut"""


class TextsCutByTheEmbeddingModel(SourceRule):
    code = "SRC577"
    fault = Fault.TRAINING_ROWS_CUT
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces(
        "trainings of embedding models and rerankers", places_that_train_embeddings
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on limits below the texts of the rows."""
        module = self.subject
        for training in embedding_trainings(module):
            limit = _limit_of_model(training)
            if limit is not None:
                yield from self._findings_on_limit(module, training, limit)

    def _findings_on_limit(
        self, module: Module, training: EmbeddingTraining, limit: int
    ) -> Iterator[Finding]:
        """The finding on the column that loses most."""
        width = max((len(row.texts) for row in training.rows), default=0)
        for place in range(width):
            rows = [row for row in training.rows if place < len(row.texts)]
            words = [len(str(row.texts[place]).split()) for row in rows]
            cut = [row for row, count in zip(rows, words, strict=True) if count > limit]
            if not rows or len(cut) < MIN_SHARE * len(rows):
                continue
            lost = sum(max(count - limit, 0) for count in words) / sum(words)
            name = training.columns[place] if training.columns else f"text {place + 1}"
            yield self.finding(
                f"{len(cut):,} of {len(rows):,} texts of {name} have more words than the model's limit of {limit:,}"
                f" tokens: at least {lost:.0%} of their words are cut",
                "raise max_seq_length up to the positions of the model, or split the texts",
                cases=cases_of_training(module, training, cut),
                count=len(cut),
                total=len(rows),
            )
            return


def _limit_of_model(training: EmbeddingTraining) -> int | None:
    """The limit that the script sets on the model; None where it sets none."""
    if training.model is None:
        return None
    given = (
        training.model.result.attributes.get("max_seq_length")
        or training.model.keywords.get("max_length")
        or training.model.result.attributes.get("max_length")
    )
    value = None if given is None else constant_of(given)
    return value if type(value) is int and value > 0 else None
