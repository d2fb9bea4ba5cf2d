"""Tokens in the data have ids for which the embedding has no row.

## What it does
Compares the highest id in the tokenized rows with the number of rows of the embedding matrix (from the weights,
otherwise from config.json).

## Why it is bad
The run fails with an index error or a CUDA assert at the first such batch, which may come late. If ids are clamped
instead, another token's vector is trained.

## Example
```yaml
files:
  config.json: {vocab_size: 40}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
`model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)` is safe before training; the new rows must be
trained and saved with the adapter.

## References
- meta-llama/llama-cookbook#189, meta-llama/llama3#310, huggingface/transformers#23401
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_at_token
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_EMBEDDING, NO_EXAMPLE
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.checks.severity_by_trainer import MOOT, SeverityByFact
from truetune.encoding.batch import Batch


class IdsBeyondEmbedding(DataRule):
    code = "LEN007"
    fault = Fault.TOKEN_IDS_EXCEED_EMBEDDING
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    # A trainer that prepares the model resizes its embedding to the tokenizer's vocabulary.
    by_trainer = (SeverityByFact("prepares_model", {True: MOOT}),)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.limit = setup.tokenizer.embedding_rows
        self.tokens = self.beyond = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the tokens, and those with an id beyond the rows of the embedding."""
        if self.limit is None or not len(batch.ids):
            return
        self.tokens += len(batch.ids)
        if int(batch.ids.max()) < self.limit:  # nearly always: the maximum alone is quick
            return
        places = np.flatnonzero(batch.ids >= self.limit)
        self.beyond += len(places)
        for place in places[: MAX_CASES - len(self.cases)].tolist():
            token = self.tokenizer.backend.id_to_token(int(batch.ids[place]))
            self.cases.append(
                case_at_token(batch, place, f"{token} has the id {batch.ids[place]:,}")
            )

    def unmet(self) -> Unmet | None:
        """Unmet where the rows of the embedding are not known, or there is no example."""
        if self.limit is None:
            return NO_EMBEDDING
        return None if self.tokens else NO_EXAMPLE

    def measurement_if_clean(self) -> Measurement:
        """The number of tokens with an id beyond the rows of the embedding."""
        return make_count_measurement(
            f"tokens with an id beyond the {self.limit:,} rows of the embedding",
            self.beyond,
            self.tokens,
        )

    def findings(self) -> Iterator[Finding]:
        if self.beyond:
            yield self.finding(
                f"{self.beyond:,} of {self.tokens:,} tokens have an id beyond the {self.limit:,}"
                " rows of the embedding: training fails at the first such batch",
                "use the tokenizer that belongs to the model, or call model.resize_token_embeddings(len(tokenizer))"
                " before training and train the new rows",
                cases=self.cases,
                count=self.beyond,
                total=self.tokens,
            )
