"""The flag for tied embeddings contradicts the tensors.

## What it does
Compares `tie_word_embeddings` of config.json with the file: the flag is true and the file holds an output head that
is not the input embedding; or it is false and the file holds no head.

## Why it is bad
With the flag on, transformers before 5 and most engines throw the trained head away and take the input embedding
(transformers 5 keeps it and says so). With the flag off and no head,
the head is filled with random numbers. The model writes garbage, or forgets just what the adapter had taught its
head.

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
Changing the flag in config.json is safe when the tensors are the ones that were trained.

## References
- huggingface/transformers#45127, huggingface/peft#2972, unslothai/unsloth#9331, hiyouga/LlamaFactory#6749
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.compare_samples import compare_tensor_samples
from truetune.checkpoint.embedding_matrices import find_embedding, find_output_head
from truetune.checks.checkpoint.architecture import makes_text
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule
from truetune.checks.unmet_reasons import BROKEN


class TiedEmbeddingsLostOnMerge(CheckpointRule):
    code = "CKP013"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_changes = True
    kind = "model"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        if self.subject.faults:
            return BROKEN
        if not makes_text(self.subject.config):
            return Unmet("config.json names no model with a head over the vocabulary")
        if find_embedding(self.subject.tensors) is None:
            return Unmet("no input embedding is in the file")
        said = self.subject.config.get("tie_word_embeddings")
        return (
            None
            if isinstance(said, bool)
            else Unmet("config.json does not name tie_word_embeddings")
        )

    def figure(self) -> str:
        out = find_output_head(self.subject.tensors)
        stored = "no head is stored" if out is None else f"{out.tensor.name} is stored"
        return (
            f"tie_word_embeddings is {str(self.subject.config['tie_word_embeddings']).lower()}, and"
            f" {stored}"
        )

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        tied = found.config.get("tie_word_embeddings")
        into, out = find_embedding(found.tensors), find_output_head(found.tensors)
        if found.kind != "model" or found.faults or into is None or not makes_text(found.config):
            return
        if tied is False and out is None:
            yield self.finding(
                "config.json says that the embeddings are not tied, and no file holds an output"
                f" head ({into.tensor.name} is there)",
                'write "tie_word_embeddings": true into config.json, or save the head',
            )
        if tied is not True or out is None:
            return
        if out.tensor.shape != into.tensor.shape:
            evidence = (
                f"{out.tensor.name} is {list(out.tensor.shape)}, {into.tensor.name}"
                f" {list(into.tensor.shape)}"
            )
        else:
            seen = compare_tensor_samples(out.tensor, into.tensor)
            if seen.same == seen.seen:
                return
            evidence = (
                f"{seen.seen - seen.same:,} of {seen.seen:,} values that were compared differ"
            )
        yield self.finding(
            f"config.json ties the embeddings, and {out.tensor.name} differs from"
            f" {into.tensor.name}: most engines, and transformers before 5, drop it",
            'write "tie_word_embeddings": false into config.json',
            evidence=[evidence],
        )
