"""lm_head is trained in full, but the embedding that shares its weights is not.

## What it does
Finds `lm_head` without `embed_tokens` in `modules_to_save`, for a model whose head and embedding share their weights,
by its config.json or its weights.

## Why it is bad
Training makes a copy of the head, and the two diverge. If you merge the adapter and load the result with
`tie_word_embeddings: true`, both get one of the two: the training of the head is lost, or overwrites the embedding. The
model can write added tokens but not read them.

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
peft keeps the two tied with `ensure_weight_tying`, or if only the embedding is named.

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
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    setting_place,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule


class TiedHeadTrainedAlone(ConfigRule):
    code = "CFG021"
    fault = Fault.TIED_EMBEDDINGS_SEPARATED
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
                (
                    "lm_head is trained without embed_tokens, although the two share their weights: they diverge,"
                    " and one is lost on merging"
                ),
                f"replace lm_head by embed_tokens in {setting_place(config, 'training.lora.modules_to_save').key}",
                evidence=["tie_word_embeddings is true, or the weights contain no lm_head"],
                cases=[
                    setting_case(
                        config, ", ".join(lora.modules_to_save), "training.lora.modules_to_save"
                    )
                ],
            )
