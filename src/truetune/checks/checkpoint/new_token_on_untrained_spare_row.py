"""A new token got an unused row of the base's embedding, and the row was not trained.

## What it does
Embeddings have more rows than the tokenizer has tokens, to round up their number. This rule takes the new tokens whose
ids fall on such rows, and compares these rows with those of the base, with zero, and with the other unused rows.

## Why it is bad
The embedding is not resized, so nothing initializes the row: it is zero, tiny, or the same as its neighbours. The model
learns the token slowly, or not at all if the embedding is frozen.

## Example
```yaml
llama: 2
tokens: {"<call>": 2000}
tensors: &wide
  model.embed_tokens.weight: {shape: [2048, 16], rows: {2000: 0.0, 2001: 0.0, 2002: 0.0}}
  lm_head.weight: {shape: [2048, 16]}
config: {vocab_size: 2048}
base:
  llama: 2
  tokens: {}
  tensors: *wide
  config: {vocab_size: 2048}
```

## Use instead
```yaml
llama: 2
tokens: {"<call>": 2000}
tensors:
  model.embed_tokens.weight: {shape: [2048, 16], rows: {2000: 0.03, 2001: 0.0, 2002: 0.0}}
  lm_head.weight: {shape: [2048, 16]}
config: {vocab_size: 2048}
base:
  llama: 2
  tokens: {}
  tensors:
    model.embed_tokens.weight: {shape: [2048, 16], rows: {2000: 0.0, 2001: 0.0, 2002: 0.0}}
    lm_head.weight: {shape: [2048, 16]}
  config: {vocab_size: 2048}
```

## Fix safety
Before training, set the row to the mean of the trained rows, and train the embedding (with LoRA:
`trainable_token_indices`). That takes memory for the trained rows.

## References
- hiyouga/LlamaFactory#10547, QwenLM/Qwen#553, huggingface/transformers#25729, huggingface/transformers#33325
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.checkpoint.new_token_rows import (
    TINY_SHARE_OF_NORM,
    NewTokens,
    explain_no_new_tokens,
    find_new_tokens,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule


class NewTokenOnUntrainedSpareRow(CheckpointRule):
    code = "CKP012"
    fault = Fault.NEW_TOKENS_NOT_TRAINED
    symptoms = ("garbage-output",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "model"
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        new = find_new_tokens(self.subject)
        if new is None:
            return explain_no_new_tokens(self.subject)
        ids = self._ids_on_base_rows(new)
        if ids is None:
            return Unmet("no embedding of the same width is in both")
        return None if ids else Unmet("no new token has a row that the base has")

    def measurement_if_clean(self) -> str:
        """How many new tokens use rows that the base left over, and were trained."""
        new = find_new_tokens(self.subject)
        ids = self._ids_on_base_rows(new) if new is not None else None
        return (
            f"{len(ids or ()):,} new tokens use rows that the base left over, and their rows"
            " were trained"
        )

    def _ids_on_base_rows(self, new: NewTokens) -> list[int] | None:
        """New ids on rows of the base; None where the rows can't be compared."""
        if new.rows is None or new.base_rows is None:
            return None
        if new.rows.tensor.shape[1:] != new.base_rows.tensor.shape[1:]:
            return None
        return [id for id in new.ids_with_row_in(new.rows).tolist() if id < len(new.base_rows)]

    def findings(self) -> Iterator[Finding]:
        new = find_new_tokens(self.subject)
        if new is None or self.subject.kind != "model":
            return
        ids = self._ids_on_base_rows(new)
        if not ids or new.rows is None or new.base_rows is None:
            return
        places = np.array(ids, dtype=np.int64)
        rows, base_rows, median = (
            new.rows.rows(places),
            new.base_rows.rows(places),
            new.median_base_row_norm(),
        )
        cases = []
        for id, row, base_row in zip(ids, rows, base_rows, strict=True):
            norm = float(np.linalg.norm(row))
            is_base_row = bool((row == base_row).all())
            # A row that began at zero and got a few gradients is still far from the others.
            if is_base_row or norm < TINY_SHARE_OF_NORM * median:
                state = "as in the base" if is_base_row else "close to zero"
                cases.append(
                    Case(
                        f"{new.token_with_id(id)}: its row is {state}, with a norm of {norm:.3g}; others have"
                        f" {median:.3g}"
                    )
                )
        if cases:
            yield self.finding(
                f"{len(cases):,} of {len(new.ids):,} new tokens use rows that the base left unused, and they"
                " were not trained",
                "before training, set these rows to the mean of the others, and train the embedding (with LoRA:"
                " trainable_token_indices with these ids)",
                evidence=[f"the base has {new.base_size:,} tokens and {len(new.base_rows):,} rows"],
                cases=cases,
                count=len(cases),
                total=len(new.ids),
            )
