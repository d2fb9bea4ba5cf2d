"""The head is trained as a whole, and the embedding that it shares its weights with is not.

## What it does
Finds `lm_head` without `embed_tokens` in `modules_to_save`, on a model whose config.json or weights say that the two
are one.

## Why it is bad
Training makes a copy of the head, and the two part. Whoever merges the adapter and loads the result with
`tie_word_embeddings: true` gets one of them back for both: what was learned in the head is lost, or the embedding is
overwritten with it. Words that were added are written and never read.

## Example
```yaml
files:
  model/config.json: {model_type: llama, tie_word_embeddings: true}
config:
  base_model: model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_target_linear: true
  lora_modules_to_save: [lm_head]
```

## Use instead
```yaml
files:
  model/config.json: {model_type: llama, tie_word_embeddings: true}
config:
  base_model: model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_target_linear: true
  lora_modules_to_save: [embed_tokens]
```

## Fix safety
peft keeps the two together with `ensure_weight_tying`, or where the embedding alone is named.

## References
- huggingface/transformers#45127, huggingface/peft#2972, hiyouga/LLaMA-Factory#6749, unslothai/unsloth#9331
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.facts_from_model_folder import is_head_tied
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import (
    NO_LORA,
    NO_MODEL,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule


class TiedHeadTrainedAlone(ConfigRule):
    code = "CFG021"
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    since = "0.1.0"
    reads = ("training.lora.modules_to_save",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet without LoRA, or where it is not known whether the head is tied.
        """
        lora = self.subject.spec.training.lora
        if lora is None:
            return NO_LORA
        alone = any(name.rpartition(".")[2] == "lm_head" for name in lora.modules_to_save)
        return NO_MODEL if alone and is_head_tied(self.subject) is None else None

    def findings(self) -> Iterator[Finding]:
        config, lora = self.subject, self.subject.spec.training.lora
        if lora is None:
            return
        saved = {name.rpartition(".")[2] for name in lora.modules_to_save}
        if "lm_head" in saved and not saved & {"embed_tokens", "wte"} and is_head_tied(config):
            yield self.finding(
                "lm_head is trained alone, and shares its weights with the embedding",
                "name embed_tokens in its place",
                evidence=["tie_word_embeddings is true, or the weights hold no lm_head"],
                cases=[
                    setting_case(
                        config, ", ".join(lora.modules_to_save), "training.lora.modules_to_save"
                    )
                ],
            )
