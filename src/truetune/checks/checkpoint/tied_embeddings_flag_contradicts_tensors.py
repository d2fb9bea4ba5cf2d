"""The setting for tied embeddings contradicts the tensors.

## What it does
Compares `tie_word_embeddings` in config.json with the file. It fires if it is true and the file has an output head that
differs from the input embedding, or if it is false and the file has no head.

## Why it is bad
If it is true, transformers before 5 and most engines drop the trained head and use the input embedding (transformers 5
keeps it and says so). If it is false and there is no head, the head is filled with random numbers. The model writes
garbage, or loses just what the adapter had taught its head.

## Example
```yaml
llama: 2
config: {tie_word_embeddings: true}
```

## Use instead
```yaml
llama: 2
config: {tie_word_embeddings: false}
```

## Fix safety
Changing the setting in config.json is safe if the tensors are the trained ones.

## References
- huggingface/transformers#45127, huggingface/peft#2972, unslothai/unsloth#9331, hiyouga/LlamaFactory#6749
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.compare_tensor_samples import compare_tensor_sample
from truetune.checkpoint.find_input_embedding_and_output_head import (
    find_embedding,
    find_output_head,
)
from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checks.checkpoint.read_text_part_of_model_config import has_text_output_head
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import BROKEN
from truetune.checks.rule import CheckpointRule


class TiedEmbeddingsFlagContradictsTensors(CheckpointRule):
    code = "CKP013"
    fault = Fault.TIED_EMBEDDINGS_SEPARATED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "model"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.faults:
            return BROKEN
        if not has_text_output_head(self.subject.config):
            return Unmet("config.json names no model with a head over the vocabulary")
        if find_embedding(self.subject.tensors) is None:
            return Unmet("no input embedding is in the file")
        if not isinstance(self.subject.config.get("tie_word_embeddings"), bool):
            return Unmet("config.json does not name tie_word_embeddings")
        return None

    def measurement_if_clean(self) -> str:
        """The flag tie_word_embeddings, and whether a head is stored."""
        head = find_output_head(self.subject.tensors)
        stored = "no head is stored" if head is None else f"{head.tensor.name} is stored"
        flag = str(self.subject.config["tie_word_embeddings"]).lower()
        return f"tie_word_embeddings is {flag}, and {stored}"

    def findings(self) -> Iterator[Finding]:
        checkpoint = self.subject
        if (
            checkpoint.kind != "model"
            or checkpoint.faults
            or not has_text_output_head(checkpoint.config)
        ):
            return
        embedding = find_embedding(checkpoint.tensors)
        head = find_output_head(checkpoint.tensors)
        is_tied = checkpoint.config.get("tie_word_embeddings")
        if embedding is None:
            return
        if is_tied is False and head is None:
            yield self.finding(
                "config.json says that the embeddings are not tied, but no file has an output"
                f" head (only {embedding.tensor.name}), so it would be random",
                'set "tie_word_embeddings": true in config.json, or save the head',
            )
        if is_tied is not True or head is None:
            return
        difference = _describe_difference(head.tensor, embedding.tensor)
        # A head that is saved twice is no fault: loaders drop the copy.
        if difference is None:
            return
        yield self.finding(
            f"config.json ties the embeddings, but {head.tensor.name} differs from"
            f" {embedding.tensor.name}: most engines, and transformers before 5, drop it",
            'set "tie_word_embeddings": false in config.json',
            evidence=[difference],
        )


def _describe_difference(head: StoredTensor, embedding: StoredTensor) -> str | None:
    """How the head differs from the input embedding; None where it is the same."""
    if head.shape != embedding.shape:
        return f"{head.name} is {list(head.shape)}, {embedding.name} {list(embedding.shape)}"
    comparison = compare_tensor_sample(head, embedding)
    if comparison.same == comparison.seen:
        return None
    return (
        f"{comparison.seen - comparison.same:,} of {comparison.seen:,} values that were compared"
        " differ"
    )
