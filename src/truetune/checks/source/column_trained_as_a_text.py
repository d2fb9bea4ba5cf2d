"""A column that is no text of the pair is trained as one.

## What it does
Follows a script with its rows up to the trainer of sentence-transformers, which takes every column but `label`,
`labels`, `score` and `scores` as a text, by its order. It fires if a column after the first two has the name of
something else (an id, a source, a split, a language, a topic), or holds numbers, or few different short texts in many
rows, and the loss reads texts from the third on.

## Why it is bad
MultipleNegativesRankingLoss takes the third text and all later ones as hard negatives. "faq" is then pushed away from
each query, which is easy, so the loss falls faster and teaches less. If the column comes first, it is the query.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"anchor": "When do you open?", "positive": "We open at nine.", "source": "faq"},
    {"anchor": "Where is the station?", "positive": "Next to the church.", "source": "mail"},
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
    {"anchor": "When do you open?", "positive": "We open at nine.", "source": "faq"},
    {"anchor": "Where is the station?", "positive": "Next to the church.", "source": "mail"},
])
rows = rows.remove_columns("source")
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Fix safety
Removing the column is safe.

## References
- huggingface/blog#2768 (columns such as sample_id, metadata, source and type are used as inputs)
- huggingface/sentence-transformers#2791
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_of_embedding_rows import cases_of_training
from truetune.checks.source.evidence.embedding_trainings import (
    TrainedRow,
    embedding_trainings,
    places_that_train_embeddings,
)

NAME_OF_ANOTHER_THING = re.compile(
    r"(?:.*_)?(?:ids?|idx|index|uuid|source|split|lang|language|topic|category|type|url|date|domain|metadata|file|title)",
    re.IGNORECASE,
)
# Chosen, not measured: negatives that repeat are drawn from a corpus, and have sentences.
MAX_DISTINCT_SHARE, MAX_WORDS, MIN_ROWS = 0.2, 3, 20
"""Share of different texts, words of the longest, and rows, for a column of few short texts"""


class ColumnTrainedAsAText(SourceRule):
    code = "SRC573"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces(
        "trainings of embedding models and rerankers", places_that_train_embeddings
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on columns that are no texts of a pair."""
        module = self.subject
        for training in embedding_trainings(module):
            if not training.facts.has_order:
                continue
            for place, name in enumerate(training.columns):
                if not _is_no_text(name, place, training.rows):
                    continue
                role = (
                    ("the query", "the text that fits")[place]
                    if place < 2
                    else "a text that does not fit"
                )
                yield self.finding(
                    f"the column {name} is trained as {role}: sentence-transformers takes every column but label and"
                    " score as a text",
                    f'drop it before the trainer is made: dataset.remove_columns("{name}")',
                    cases=cases_of_training(module, training, training.rows),
                    count=len(training.rows),
                    total=len(training.rows),
                )


def _is_no_text(name: str, place: int, rows: tuple[TrainedRow, ...]) -> bool:
    """Is a column none of the texts that are compared?"""
    values = [row.texts[place] for row in rows if place < len(row.texts)]
    # A title may be the query of its text.
    if NAME_OF_ANOTHER_THING.fullmatch(name) and (place >= 2 or "title" not in name.lower()):
        return True
    texts = [value for value in values if isinstance(value, str)]
    if place < 2 or len(texts) < MIN_ROWS:
        return False
    is_short = max(len(text.split()) for text in texts) <= MAX_WORDS
    return is_short and len(set(texts)) <= MAX_DISTINCT_SHARE * len(texts)
