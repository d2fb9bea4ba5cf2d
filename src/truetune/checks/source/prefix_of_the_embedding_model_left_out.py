"""An embedding model that was trained with prefixes is tuned or used without them.

## What it does
Reads which model a script loads by SentenceTransformer. For families that were trained with a prefix before each text
(E5 "query: " and "passage: ", Nomic "search_query: " and "search_document: "), it looks for one in the trained rows,
in `prompts` of the training's arguments, and in the files that run together. If the rows are known and none is
anywhere, it fires. It also fires if one side has its prefix and the other has none.

## Why it is bad
Such a model tells queries from passages by the prefix. Tuned without it, it starts from worse embeddings. If its
users write the prefix, as its page says, they get another model than the one that was tuned.

## Example
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses

model = SentenceTransformer("intfloat/e5-base-v2")
rows = Dataset.from_list([
    {"anchor": "When do you open?", "positive": "We open at nine."},
    {"anchor": "Where is the station?", "positive": "Next to the church."},
])
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, train_dataset=rows, loss=loss).train()
```

## Use instead
```python
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
from sentence_transformers import SentenceTransformerTrainingArguments

model = SentenceTransformer("intfloat/e5-base-v2")
rows = Dataset.from_list([
    {"anchor": "When do you open?", "positive": "We open at nine."},
    {"anchor": "Where is the station?", "positive": "Next to the church."},
])
args = SentenceTransformerTrainingArguments("out", prompts={"anchor": "query: ", "positive": "passage: "})
loss = losses.MultipleNegativesRankingLoss(model)
SentenceTransformerTrainer(model=model, args=args, train_dataset=rows, loss=loss).train()
```

## Fix safety
`prompts` in the training's arguments is safe. Write the same prefixes wherever the tuned model is used.

## References
- microsoft/unilm#1325 (a maintainer: "query: " and "passage: " are prepended)
- rtk-ai/icm#266 (measured: MRR 0.764 without, 0.850 with), jeanibarz/knowledge-base-mcp-server#567
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
    EmbeddingTraining,
    embedding_trainings,
    places_that_train_embeddings,
)

E5 = re.compile(r"(?:^|/)(?:multilingual-)?e5-(?:small|base|large)(?:-v2|-unsupervised)?$", re.I)
NOMIC = re.compile(r"(?:^|/)nomic-embed-text-v\d", re.I)
PREFIXES_OF_FAMILIES = (
    (E5, ("query: ", "passage: ")),
    (NOMIC, ("search_query: ", "search_document: ")),
)
"""Names of models, and the prefixes before their queries and texts; models of instructions are no part of it"""
MIN_SHARE = 0.5
"""Share of a side's texts with a prefix, from which it has one"""


class PrefixOfTheEmbeddingModelLeftOut(SourceRule):
    code = "SRC576"
    fault = Fault.EMBEDDINGS_USED_OTHERWISE
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces(
        "trainings of embedding models and rerankers", places_that_train_embeddings
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on trainings of such models whose texts have no prefix."""
        module = self.subject
        for training in embedding_trainings(module):
            prefixes = _prefixes_of_model(training.model_name)
            if prefixes is None or not training.rows or not training.facts.has_order:
                continue
            if training.setting("prompts") is not None and training.arguments is not None:
                continue
            bare = [place for place in (0, 1) if not _has_prefix(training, place, prefixes)]
            if not bare:
                continue
            sides = " and ".join(("queries", "texts")[place] for place in bare)
            wanted = {name: prefixes[min(place, 1)] for place, name in enumerate(training.columns)}
            yield self.finding(
                f"{training.model_name} was trained with {prefixes[0]!r} before queries and {prefixes[1]!r} before"
                f" texts, but the {sides} of these rows begin with none",
                f"set prompts={wanted!r} in the training's arguments, and write the same prefixes where the model is"
                " used",
                cases=cases_of_training(module, training, training.rows),
                count=len(training.rows),
                total=len(training.rows),
            )


def _prefixes_of_model(name: str) -> tuple[str, str] | None:
    """The prefixes that a model was trained with; None for a model without, or of no known name."""
    return next(
        (prefixes for family, prefixes in PREFIXES_OF_FAMILIES if family.search(name)), None
    )


def _has_prefix(training: EmbeddingTraining, place: int, prefixes: tuple[str, str]) -> bool:
    """Do most texts of a column begin with one of the prefixes?"""
    texts = [str(row.texts[place]) for row in training.rows if place < len(row.texts)]
    with_prefix = sum(text.startswith(prefixes) for text in texts)
    return with_prefix >= MIN_SHARE * len(texts)
