"""The template writes control tokens that the model has never trained.

## What it does
Reads the embedding rows of the control tokens that the chat template writes, straight from the safetensors file, and
compares their size with that of ordinary tokens, and with each other.

## Why it is bad
A base model ships rows for chat markers that no text ever trained: zero, tiny, or all alike. With LoRA and a frozen
embedding they stay so; the model can't tell the markers apart, writes wrong ones, and does not stop.

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
`lm_head`) is safe and costs memory. Starting from the instruct model avoids it.

## References
- meta-pytorch/torchtune#2429, unslothai/unsloth#915, unslothai/unsloth#1056
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Case, Finding
from truetune.checks.rule import Rule
from truetune.encode.batch import Batch
from truetune.render.probes import ANSWER, QUESTION, chat
from truetune.render.weights import embedding

SAMPLE = 2000
TINY = 1e-3
"""Of the median norm of the sample."""


class BaseModelSpecialTokensUntrained(Rule):
    code = "TT106"
    severity = "error"
    chats = 0

    def batch(self, batch: Batch) -> None:
        self.chats += sum(row.is_chat for row in batch.rows)

    def findings(self) -> Iterator[Finding]:
        matrix = embedding(self.tokenizer.weights) if self.chats else None
        text = self.probes.text(chat(QUESTION, ANSWER))
        if matrix is None or text is None:
            return
        written = set(self.tokenizer.backend.encode(text, add_special_tokens=False).ids) & self.tokenizer.control
        ids = np.array(sorted(id for id in written if id < len(matrix.values)), dtype=np.int64)
        if not len(ids):
            return
        sample = np.linspace(0, len(matrix.values) - 1, num=min(SAMPLE, len(matrix.values)), dtype=np.int64)
        ordinary = matrix.rows(np.setdiff1d(sample, ids))
        rows = matrix.rows(ids)
        median = float(np.median(np.linalg.norm(ordinary, axis=1)))
        norms = np.linalg.norm(rows, axis=1)
        twins = np.array([int((ordinary == row).all(axis=1).sum()) for row in rows])
        bad = (norms < TINY * median) | (twins >= 3)
        if bad.any():
            tokens = [str(self.tokenizer.backend.id_to_token(int(id))) for id in ids]
            yield self.finding(
                f"{int(bad.sum())} of {len(ids)} control tokens that the template writes were never trained",
                "start from the instruct model, or train and save the embedding rows of these tokens",
                evidence=[f"median norm of {len(ordinary):,} ordinary rows: {median:.3g} ({matrix.name})"],
                cases=[
                    Case(f"{token} ({id}): norm {norm:.3g}, equal to {twin} sampled rows", file=matrix.file.name)
                    for token, id, norm, twin, is_bad in zip(tokens, ids, norms, twins, bad, strict=True)
                    if is_bad
                ],
                count=int(bad.sum()),
                total=len(ids),
            )
