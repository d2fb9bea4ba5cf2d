"""A custom loss of a causal model compares logits with the labels of the same position.

## What it does
Traces logits and labels of cross-entropies (`cross_entropy`, `CrossEntropyLoss`, `nll_loss`) and of log-probabilities
that are gathered by labels (DPO) back to the forward pass of a causal model: in `compute_loss` of a trainer, in
`compute_loss_func`, in Lightning steps and in loops. It fires if logits and labels are at the same position: neither
was sliced by one, and the labels are the ids of that pass (a copy, with -100 on ignored tokens). For a hand-written
decoder it fires if inputs and targets are the same window of the tokens. It does not fire if the rows come shifted, the
model is not known to be causal, or the labels can't be traced.

## Why it is bad
The logits at a position predict the next token. Without the shift the model learns to repeat its current input token:
the loss falls to nearly 0 within some steps, and the model writes one token over and over.

## Example
```python
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for batch in loader:
    logits = model(input_ids=batch["input_ids"]).logits
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    loss = cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
    loss.backward()
```

## Use instead
```python
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
for batch in loader:
    logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)[:, 1:]
    loss = cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1))
    loss.backward()
```

## Fix safety
There is no automatic fix: masks and token weights must be shifted together with the labels. The loss starts higher, and
weights that were trained without the shift can't be used.

## References
- Hugging Face Transformers, `ForCausalLMLoss` (shifts the labels by one)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.label_shifts_in_own_losses import (
    own_losses_with_known_label_shift,
)
from truetune.checks.source.evidence.own_decoder_losses_on_unshifted_targets import (
    has_own_decoder,
    losses_whose_targets_are_own_input,
)
from truetune.source.parsed_source_file import Module


def _hand_written_losses_over_labels(module: Module) -> Iterator[ast.AST]:
    """The losses whose labels and logits are known by their places, and the cross entropies of own decoders."""
    yield from (one.call.node for one in own_losses_with_known_label_shift(module))
    if has_own_decoder(module):
        yield from (call.node for call in module.calls("torch.nn.functional.cross_entropy"))


class OwnLossWithoutShift(SourceRule):
    code = "SRC148"
    fault = Fault.LABELS_MISALIGNED_WITH_TOKENS
    symptoms = ("garbage-output", "loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("own losses of causal models", _hand_written_losses_over_labels)

    def findings(self) -> Iterator[Finding]:
        for loss in own_losses_with_known_label_shift(self.subject):
            if loss.ahead == 0:
                yield self.finding(
                    "logits are compared with the labels of the same position: the model learns to repeat its input"
                    " token, not to predict the next one",
                    "compare logits[:, :-1] with labels[:, 1:]",
                    cases=[case_of_node(self.subject, loss.call.node)],
                )
        for node in losses_whose_targets_are_own_input(self.subject):
            yield self.finding(
                "inputs and targets are the same slice of the tokens: the model learns to repeat its input token, not"
                " to predict the next one",
                "shift the targets by one (tokens[i + 1 : i + 1 + n]), or compare logits[:, :-1] with labels[:, 1:]",
                cases=[case_of_node(self.subject, node)],
            )
