"""The data use added tokens, but their rows in the model can't change.

## What it does
Compares the tokenizer of the run with the one that it was made from, and looks for added tokens in the real batches. It
fires if neither embedding nor output has a trainable part, because LoRA leaves both out or they are frozen. It is an
error if such tokens are in the loss, and a warning if they are only in prompts.

## Why it is bad
The rows of new tokens keep their initial values. The model never learns to write these tokens, nor to read them.

## Example

```python
tokenizer.add_tokens(["<call>"])
model.resize_token_embeddings(len(tokenizer))
for row in rows:
    row["messages"][1]["content"] = "<call>" + row["messages"][1]["content"]
model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
run = sft(rows, model, tokenizer)
```

## Use instead

```python
tokenizer.add_tokens(["<call>"])
model.resize_token_embeddings(len(tokenizer))
for row in rows:
    row["messages"][1]["content"] = "<call>" + row["messages"][1]["content"]
settings = peft.LoraConfig(target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
run = sft(rows, peft.get_peft_model(model, settings), tokenizer)
```

## Fix safety
There is no automatic fix: set `modules_to_save=["embed_tokens", "lm_head"]`, which takes memory for both matrices, or
`trainable_token_indices` with the ids of the new tokens.

## References

- huggingface/peft#334, huggingface/peft#1300, axolotl-ai-cloud/axolotl#1570
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule
from truetune.errors import TruetuneError
from truetune.render.tokenizer import load_tokenizer

# LoRA on an embedding, modules_to_save and trainable_token_indices all keep the module's name in
# the parameter's.
EMBEDDING_NAMES = ("embed", "wte", "lm_head", "trainable_tokens", "output_layer", "word_emb")
"""Parts of the names of embeddings and output layers"""


class NewTokenRowsNotTrained(BatchRule):
    code = "BAT036"
    fault = Fault.NEW_TOKENS_NOT_TRAINED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        names = self.subject.facts["model"]["trainable_names"]
        if not names or any(part in name for name in names for part in EMBEDDING_NAMES):
            return
        read, learned = (
            self._added_tokens_with_their_last_line(False),
            self._added_tokens_with_their_last_line(True),
        )
        used = read | learned
        if not used:
            return
        yield self.finding(
            f"the batches contain added tokens ({len(used)}, of which {len(learned)} are in the loss),"
            " but no row of the embedding or the output can change",
            'set trainable_token_indices in LoraConfig to their ids, or modules_to_save=["embed_tokens", "lm_head"]',
            # What is only read still tells rows apart by its untrained vector; what is to be
            # written never is.
            severity="error" if learned else "warning",
            cases=[
                Case(f"{self._added_tokens[id]!r} (id {id}) in {used[id].place}")
                for id in sorted(learned or used)
            ],
            count=len(used),
            total=len(self._added_tokens),
        )

    def _added_tokens_with_their_last_line(self, is_learned: bool) -> dict[int, Sample]:
        """Added tokens, each with the last line that holds it: those in the loss, or all that are
        not padding.
        """
        lines: dict[int, Sample] = {}
        for sample in self.subject.samples:
            ids = sample.ids[sample.supervised if is_learned else ~sample.padding]
            lines.update({id: sample for id in np.unique(ids).tolist() if id in self._added_tokens})
        return lines

    @cached_property
    def _added_tokens(self) -> dict[int, str]:
        """Tokens that the tokenizer which this one was made from does not have; none where it is not available."""
        name, probes = (self.subject.facts["tokenizer"] or {}).get("name"), self.subject.probes
        if not name or probes is None:
            return {}
        try:
            base = load_tokenizer(name)
        except TruetuneError:
            return {}
        added = probes.tokenizer.backend.get_added_tokens_decoder()
        return {
            id: token.content
            for id, token in added.items()
            if base.backend.token_to_id(token.content) is None
        }

    def unmet(self) -> Unmet | None:
        names = self.subject.facts["model"]["trainable_names"]
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if not names:
            return Unmet("it is not known which parameters are trained")
        if any(part in name for name in names for part in EMBEDDING_NAMES):
            return Unmet("it is about fixed embeddings, and this run trains theirs")
        return (
            None
            if self._added_tokens
            else Unmet("it is about tokens that were added, and none is known")
        )

    def measurement_if_clean(self) -> Measurement:
        """How many of the added tokens are in the batches."""
        return make_count_measurement(
            "added tokens that are in the batches", 0, len(self._added_tokens)
        )
