"""Columns are in another order than the loss of the embedding model takes them.

## What it does
Follows a script with its rows up to the trainer of sentence-transformers. Where the rows are not there, it reads the
columns off the code (`select_columns`, `from_dict`, a `map` that writes all columns). The loss takes columns by their
order and not by their names: first the query, then the text that fits it, then those that do not. It fires if names say
otherwise: a `positive`, `answer`, `passage` or `document` first, a `negative` second, a `query`, `anchor` or `question`
later.

## Why it is bad
With the answer first, the model learns to find the question for an answer. With a negative second, it learns to draw
the wrong text to the query and to push the right one away. The loss falls either way. sentence-transformers logs a
warning for some of these names, once.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("microsoft/mpnet-base")
rows = Dataset.from_list([
    {"answer": "We open at nine.", "question": "When do you open?"},
    {"answer": "Next to the church.", "question": "Where is the station?"},
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
    {"answer": "We open at nine.", "question": "When do you open?"},
    {"answer": "Next to the church.", "question": "Where is the station?"},
])
rows = rows.select_columns(["question", "answer"])
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Fix safety
`select_columns` with the names in the right order is safe.

## References
- huggingface/sentence-transformers#2791, philschmid/deep-learning-pytorch-huggingface#66
- huggingface/sentence-transformers#3263
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_of_embedding_rows import cases_of_training
from truetune.checks.source.evidence.columns_written_in_code import columns_written_in_code
from truetune.checks.source.evidence.embedding_trainings import (
    TRAINERS,
    EmbeddingTraining,
    embedding_trainings,
    places_that_train_embeddings,
    texts_among_columns,
)
from truetune.source.parsed_source_file import Module

QUERIES = ("anchor", "query", "queries", "question", "premise_query")
FITTING = ("positive", "pos", "answer", "response", "passage", "document", "doc", "context")
OTHERS = ("negative", "neg", "hard_negative", "contradiction")
PLACES = {
    **dict.fromkeys(QUERIES, 0),
    **dict.fromkeys(FITTING, 1),
    **dict.fromkeys(OTHERS, 2),
}
"""Name of a column -> its place for a loss with an order; 2 stands for any later place, too"""
LAST = 2


class ColumnsOutOfTheOrderOfTheLoss(SourceRule):
    code = "SRC572"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("odd-metrics", "nothing-is-learned")
    severity = "warning"
    looks_at = CodePlaces(
        "trainings of embedding models and rerankers", places_that_train_embeddings
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on columns whose names tell another order."""
        module = self.subject
        for training in embedding_trainings(module):
            names = training.columns or _texts_by_code(module, training)
            wrong = [name for place, name in enumerate(names) if _is_out_of_place(name, place)]
            if not training.facts.has_order or not _is_order_told(names) or not wrong:
                continue
            pushes_away = any(_place(name) == LAST for name in names[:LAST])
            order = sorted(names, key=lambda name: (_place(name) or 0, names.index(name)))
            yield self.finding(
                f"{training.loss} takes columns by their order, and it is {', '.join(names)}:"
                f" {names[0]} is taken as the query, and {names[1]} as the text that fits it",
                f"order them: dataset.select_columns({order!r})",
                severity="error" if pushes_away else "warning",
                cases=cases_of_training(module, training, training.rows),
            )


def _texts_by_code(module: Module, training: EmbeddingTraining) -> tuple[str, ...]:
    """The columns of the texts as the code writes them, where the rows are not known; empty if it tells none."""
    node = training.call.node
    if training.rows or not isinstance(node, ast.Call) or not training.call.named(*TRAINERS):
        return ()
    rows = module.flow.call(node).argument(2, "train_dataset")
    return texts_among_columns(columns_written_in_code(module, rows))


def _place(name: str) -> int | None:
    """The place that a name tells; None if it tells none."""
    plain = name.lower()
    stem = plain.rpartition("_")[0] if plain.rpartition("_")[2].isdigit() else plain
    return PLACES.get(stem)


def _is_out_of_place(name: str, place: int) -> bool:
    """Does a name tell another place than the one that its column has?"""
    told = _place(name)
    return told is not None and told != min(place, LAST)


def _is_order_told(names: tuple[str, ...]) -> bool:
    """Do the names of at least two columns tell their places, and different ones?"""
    told = [_place(name) for name in names]
    known = [place for place in told if place is not None]
    return len(known) > 1 and len(set(known)) > 1
