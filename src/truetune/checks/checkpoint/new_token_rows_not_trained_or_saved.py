"""The embedding rows of new tokens were not trained, or are not in the file.

## What it does
Takes the tokens that are in the tokenizer of the checkpoint but not in that of the base (except the pad token). In an
adapter, their rows must be in the file (`embed_tokens` in `modules_to_save`, `trainable_token_indices`, or an adapter
on the embedding). In a model, they must not be zero or all alike, in the embedding and in an output head of its own.
Tokens that the chat template beside an adapter writes are judged as new ones if the base has them, but never trained
them: their rows there are zero or tiny. A model whose embedding has more rows than the base's needs tokens for them.

## Why it is bad
The new tokens have random vectors after loading: the model never writes them, and does not understand them.

## Example
```yaml
lora: [q_proj]
tokens: {"<call>": 2000}
base:
  llama: 2
  tokens: {}
```

## Use instead
```yaml
lora: [q_proj]
tokens: {"<call>": 2000}
adapter_config: {trainable_token_indices: [2000]}
tensors:
  base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta: {shape: [1, 16]}
base:
  llama: 2
  tokens: {}
```

## Fix safety
Train again with `trainable_token_indices` (the ids of the new tokens), or with `modules_to_save=["embed_tokens",
"lm_head"]`, which takes more memory. Tokens that the base has trained do not need it.

## References
- artidoro/qlora#214, huggingface/peft#334, huggingface/peft#1300, axolotl-ai-cloud/axolotl#1570,
unslothai/unsloth#237, meta-pytorch/torchtune#2429 (marks of a template that the base never trained)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from truetune.checkpoint.find_input_embedding_and_output_head import (
    find_embedding,
    find_output_head,
)
from truetune.checks.checkpoint.new_token_rows import (
    SAMPLED_ROWS,
    TINY_SHARE_OF_NORM,
    NewTokens,
    explain_no_new_tokens,
    find_new_tokens,
    find_untrained_template_tokens,
    ids_adapter_can_change,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

REMEDY = (
    "train again and save their rows: set trainable_token_indices in LoraConfig to their ids, or"
    ' modules_to_save=["embed_tokens", "lm_head"]'
)


SMALLEST_MULTIPLE = 8
"""That embeddings are padded to (`pad_to_multiple_of`)"""


class NewTokenRowsNotTrainedOrSaved(CheckpointRule):
    code = "CKP011"
    fault = Fault.NEW_TOKENS_NOT_TRAINED
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    compares = True

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        new = find_new_tokens(self.subject)
        if new is None:
            if find_untrained_template_tokens(self.subject) or self._count_rows_without_token():
                return None
            return explain_no_new_tokens(self.subject)
        if self.subject.kind == "model" and new.rows is None:
            return Unmet("the model holds no embedding")
        return None

    def measurement_if_clean(self) -> str:
        """How many new tokens have a row that was trained or can be."""
        new = find_new_tokens(self.subject)
        count = len(new.ids) if new is not None else 0
        return f"{count:,} of {count:,} new tokens have a row that was trained or can be"

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_template_tokens()
        yield from self._finding_on_rows_without_token()
        new = find_new_tokens(self.subject)
        if new is None:
            return
        is_adapter = self.subject.kind == "adapter"
        cases = list(
            self._tokens_without_saved_row(new)
            if is_adapter
            else self._cases_of_missing_or_untrained_rows(new)
        )
        if cases:
            yield self.finding(
                f"{len(cases):,} of {len(new.ids):,} new tokens have no trained row:"
                f" {cases[0].text}",
                REMEDY,
                evidence=[f"the base has {new.base_size:,} tokens"],
                cases=cases,
                count=len(cases),
                total=len(new.ids),
            )

    def _count_rows_without_token(self) -> int:
        """The rows that the embedding has beyond the base's, where the tokenizer has the base's tokens alone.

        A resize to a multiple (of 8 and more) adds rows for no token, and so do bases that have spare rows.
        """
        checkpoint, base = self.subject, self.subject.base
        new = checkpoint.new_tokens
        if checkpoint.kind != "model" or base is None or new is None or new.ids:
            return 0
        own, of_base = find_embedding(checkpoint.tensors), find_embedding(base.tensors)
        if own is None or of_base is None or len(own) % SMALLEST_MULTIPLE == 0:
            return 0
        return max(0, len(own) - len(of_base))

    def _finding_on_rows_without_token(self) -> Iterator[Finding]:
        """The finding on a model that was trained with tokens which the tokenizer beside it lacks."""
        count = self._count_rows_without_token()
        if count:
            yield self.finding(
                f"the embedding has {count:,} rows more than the base's, but the tokenizer beside it has no token for"
                " them: it is the base's, and the tokens that were added for training are split into pieces",
                "copy the tokenizer that was used in training into this folder (tokenizer.save_pretrained)",
                cases=[Case(f"{count:,} rows beyond the base's", file="tokenizer.json")],
            )

    def _findings_on_template_tokens(self) -> Iterator[Finding]:
        """The finding on marks of an adapter's template that neither the base nor the adapter trained."""
        tokens = find_untrained_template_tokens(self.subject)
        trained = ids_adapter_can_change(self.subject) if tokens else None
        if trained is None:
            return
        left = [token for token in tokens if token.id not in trained]
        if not left:
            return
        cases = [
            Case(
                f"{one.text} ({one.id:,}): its row in the base has a norm of {one.norm:.3g}; others have"
                f" {one.median_norm:.3g}"
            )
            for one in left
        ]
        yield self.finding(
            f"{len(left):,} tokens that the chat template writes were never trained in the base, and the adapter does"
            f" not hold their rows: {cases[0].text}",
            REMEDY,
            cases=cases,
            count=len(left),
            total=len(tokens),
        )

    def _tokens_without_saved_row(self, new: NewTokens) -> Iterator[Case]:
        """New tokens whose row an adapter does not hold."""
        trained = ids_adapter_can_change(self.subject)
        for text, id in new.ids.items():
            if trained is not None and id not in trained:
                yield Case(f"{text} ({id:,}): no tensor of the adapter contains its row")

    def _cases_of_missing_or_untrained_rows(self, new: NewTokens) -> Iterator[Case]:
        """New tokens of a model without a row, or with one that is near zero or that several of them share.

        Rows that the base has too are the business of `new-token-on-untrained-spare-row`.
        """
        if new.rows is None:
            return
        base_rows = len(new.base_rows) if new.base_rows else 0
        ids = new.ids_with_row_in(new.rows)
        ids = ids[ids >= base_rows]
        for text, id in new.ids.items():
            if id >= len(new.rows):
                yield Case(f"{text} ({id:,}): the embedding has only {len(new.rows):,} rows")
        rows, median = new.rows.rows(ids), new.median_base_row_norm()
        yield from self._cases_of_rows_missing_from_head(new, ids)
        norms = np.linalg.norm(rows, axis=1)
        # A resize sets all new rows to one mean, or draws each by chance: equal rows were never trained.
        digests = [blake2b(row.tobytes(), digest_size=16).digest() for row in rows]
        counts = Counter(digests)
        for id, norm, digest in zip(ids.tolist(), norms, digests, strict=True):
            equal_rows = counts[digest] - 1
            if norm < TINY_SHARE_OF_NORM * median or equal_rows:
                more = (
                    f", equal to the rows of {equal_rows:,} other new tokens" if equal_rows else ""
                )
                yield Case(
                    f"{new.token_with_id(id)}: norm {norm:.3g}{more}; others have {median:.3g}"
                )

    def _cases_of_rows_missing_from_head(
        self, new: NewTokens, ids: NDArray[np.int64]
    ) -> Iterator[Case]:
        """New tokens whose row of a separate output head is near zero beside the others', or missing."""
        head = find_output_head(self.subject.tensors)
        if head is None or not len(ids):
            return
        old = np.linspace(0, min(new.base_size, len(head)) - 1, num=SAMPLED_ROWS).astype(np.int64)
        median = float(np.median(np.linalg.norm(head.rows(np.unique(old)), axis=1)))
        for id in ids.tolist():
            if id >= len(head):
                yield Case(f"{new.token_with_id(id)}: the output head has only {len(head):,} rows")
                continue
            norm = float(np.linalg.norm(head.rows(np.array([id]))))
            if norm < TINY_SHARE_OF_NORM * median:
                yield Case(
                    f"{new.token_with_id(id)}: norm {norm:.3g} in the output head; others have {median:.3g}"
                )
