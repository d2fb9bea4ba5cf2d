"""The data contain control tokens that the model was never trained on.

## What it does
Reads the embedding rows of the control tokens in the tokenized rows (those that the chat template writes and those in
the texts) from the safetensors file. It compares their norms with those of ordinary tokens, and looks for identical
rows.

## Why it is bad
A base model has embedding rows for chat tokens that were never trained: zero, tiny, or all identical. With LoRA and a
frozen embedding they stay like that. The model can't tell the tokens apart, writes wrong ones, and does not stop.

## Example
```yaml
weights: {zero: ["<|im_start|>", "<|im_end|>"]}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
weights: {zero: []}
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Training the embedding rows of these tokens (`trainable_token_indices`, or `modules_to_save` with `embed_tokens` and
`lm_head`) is safe but needs more memory. Starting from the instruct model avoids it.

## References
- meta-pytorch/torchtune#2429, unslothai/unsloth#915, unslothai/unsloth#1056
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import DataRule, Setup
from truetune.encoding.batch import Batch
from truetune.render.read_embedding_from_safetensors import find_embedding

# Rows of ordinary tokens to compare with, evenly over the vocabulary. The median of 1,000 is off by
# some hundredths; a whole matrix of a large model is gigabytes to read.
MAX_SAMPLED_ROWS = 1000
# One or two equal rows happen by design: a new token's row may be a copy of another's, or two
# reserved ones are filled alike. Trained rows are never equal to the last bit.
MIN_EQUAL_ROWS = 3
"""Rows equal to this many others were never trained apart from them."""
# Chosen, not measured: zeros and what weight decay leaves of a row lie below, and each trained row
# lies far above.
TINY_NORM_SHARE = 1e-3
"""Of the median norm of the sample."""


class BaseModelSpecialTokensUntrained(DataRule):
    code = "TOK006"
    fault = Fault.NEW_TOKENS_NOT_TRAINED
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.matrix = setup.embedding or find_embedding(setup.tokenizer.weights)
        self.control = np.zeros(setup.tokenizer.vocabulary, dtype=np.bool_)
        self.control[list(setup.tokenizer.control)] = self.matrix is not None
        self.used: set[int] = set()
        self.compared = 0

    def add_batch(self, batch: Batch) -> None:
        """Collect the control tokens that the encoded rows hold, where the embedding is known."""
        if self.matrix is not None:
            self.used.update(batch.ids[self.control[batch.ids]].tolist())

    def unmet(self) -> Unmet | None:
        """Unmet where there are no weights, the trainer trains the embedding's rows too, or the
        data hold no control token.
        """
        if self.matrix is None:
            return Unmet(
                "there are no weights to read the embedding from", "give the model with --model"
            )
        if self._are_all_weights_trained():
            return Unmet(
                f"it is about adapters, and {self.setup.trainer.name_in_reports} trains these rows too"
            )
        return None if self.used else Unmet("it is about control tokens, and the data contain none")

    def measurement_if_clean(self) -> Measurement:
        """The number of control tokens of the data that were never trained, none."""
        return make_count_measurement(
            "control tokens of the data that were never trained", 0, self.compared
        )

    def _are_all_weights_trained(self) -> bool:
        """Does the trainer train all weights, and make the rows that it needs?"""
        training = self.spec.training
        return (
            training.lora is None
            and training.adapter is None
            and bool(self.setup.trainer.prepares_model.value)
        )

    def findings(self) -> Iterator[Finding]:
        if self.matrix is None or self._are_all_weights_trained():
            return
        size = self.matrix.row_count
        ids = np.array(sorted(id for id in self.used if id < size), dtype=np.int64)
        control = np.flatnonzero(self.control[:size])
        ordinary = np.setdiff1d(
            np.linspace(0, size - 1, num=min(MAX_SAMPLED_ROWS, size), dtype=np.int64), control
        )
        if not len(ids) or not len(ordinary):
            return
        self.compared = len(ids)
        rows = self.matrix.rows(ids)
        median = float(np.median(np.linalg.norm(self.matrix.rows(ordinary), axis=1)))
        norms = np.linalg.norm(rows, axis=1)
        # The other control tokens are compared too: untrained ones are alike among themselves.
        others = self.matrix.rows(np.concatenate((ordinary, control[:MAX_SAMPLED_ROWS])))
        twins = np.array([int((others == row).all(axis=1).sum()) - 1 for row in rows])
        bad = (norms < TINY_NORM_SHARE * median) | (twins >= MIN_EQUAL_ROWS)
        if bad.any():
            tokens = [str(self.tokenizer.backend.id_to_token(int(id))) for id in ids]
            yield self.finding(
                f"{int(bad.sum())} of {len(ids)} control tokens in the data were never trained (their embeddings are"
                " zero, tiny or identical): the model can't tell them apart",
                "start from the instruct model, or train the embedding rows of these tokens too:"
                ' trainable_token_indices=[ids] in LoraConfig, or modules_to_save=["embed_tokens", "lm_head"]',
                evidence=[
                    f"median norm of {len(ordinary):,} ordinary rows: {median:.3g}"
                    f" ({self.matrix.name})"
                ],
                cases=[
                    Case(
                        f"{token} ({id}): norm {norm:.3g}, {twin} other rows are equal",
                        file=self.matrix.where,
                    )
                    for token, id, norm, twin, is_bad in zip(
                        tokens, ids, norms, twins, bad, strict=True
                    )
                    if is_bad
                ],
                count=int(bad.sum()),
                total=len(ids),
            )
