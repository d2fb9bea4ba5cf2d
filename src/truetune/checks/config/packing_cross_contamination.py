"""Packed documents attend to the documents before them in the same row.

## What it does
Finds packing that does not separate documents: TRL's `packing_strategy: wrapped`, LLaMA-Factory's `packing` without
`neat_packing` (chats only: in stage pt this is customary), and Axolotl's `sample_packing` with no attention set or with
one that cannot separate them. Axolotl before 0.18 does not separate them with sdpa and eager attention either. For
these the rule fires if the project asks for such a release, or uses the older switches (`sdp_attention`,
`eager_attention`) and does not ask for a newer release.

## Why it is bad
A document attends to unrelated text, and its positions continue from the document before. The loss gets lower, since
there is more to copy from, and the model slightly worse. In a measurement on one model, the logits of a second document
changed by 0.17 (`wrapped`) and 0.11 (`packing`) compared with that document on its own; with separation they changed by
less than 1e-7.

## Example
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  packing: true
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  dataset: rows
  finetuning_type: lora
  neat_packing: true
```

## Fix safety
Training then sees each conversation on its own, as at inference. The loss can get higher and can't be compared with
earlier runs.

## References
- hiyouga/LLaMA-Factory#2289, hiyouga/LLaMA-Factory#4224, huggingface/trl#805, huggingface/trl#3526
- axolotl-ai-cloud/axolotl#3796 (sdpa and eager, until 0.17), axolotl-ai-cloud/axolotl#449
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

SEPARATING_ATTENTION = (
    "flash_attention",
    "flex_attention",
    "xformers",
    "sage",
    "sdpa",
    "eager",
    "varlen",
    "kernels",
)
"""Beginnings of attention implementations with which Axolotl keeps packed rows apart; `org/name` is a kernel of the
hub."""
MASKED_SINCE = "0.18.0"
"""The release of Axolotl from which on packed rows are kept apart with the attentions below, too"""
MASKED_LATER: Mapping[str, str] = {"sdpa": "sdp_attention", "eager": "eager_attention"}
"""Attention -> its switch of releases until 0.17"""


class PackingCrossContamination(ConfigRule):
    code = "CFG025"
    fault = Fault.PACKED_ROWS_NOT_SEPARATED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft",)
    about = ("training.packing",)
    reads = ("training.packing_strategy", "training.attn_implementation")

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if not training.packing or training.method != "sft":
            return
        setting_and_remedy = _unmasked_packing_setting_with_remedy(config)
        if setting_and_remedy is not None:
            field, value, remedy = setting_and_remedy
            yield self.finding(
                f"packed documents attend to each other, which makes the model slightly worse: {value}",
                remedy,
                cases=[
                    setting_case(config, True, "training.packing"),
                    setting_case(config, value, field),
                ],
            )


def _unmasked_packing_setting_with_remedy(config: Config) -> tuple[str, str, str] | None:
    """The setting that leaves documents open, its value, and the remedy."""
    training = config.spec.training
    if config.stack in ("trl", "transformers") and training.packing_strategy == "wrapped":
        return "training.packing_strategy", "wrapped", "set packing_strategy: bfd"
    if config.stack == "llama-factory" and training.packing_strategy == "greedy":
        return "training.packing_strategy", "packing without neat_packing", "set neat_packing: true"
    if config.stack == "axolotl" and not config.raw.get("diffusion_lm"):
        attention_and_remedy = _leaking_attention_and_remedy(config)
        return (
            None
            if attention_and_remedy is None
            else ("training.attn_implementation", *attention_and_remedy)
        )
    return None


def _leaking_attention_and_remedy(config: Config) -> tuple[str, str] | None:
    """The attention with which Axolotl keeps packed rows not apart, and the remedy; None for others."""
    attention = config.spec.training.attn_implementation
    if attention is None:
        return "attn_implementation is not set", "set attn_implementation: flash_attention_2"
    if not attention.startswith(SEPARATING_ATTENTION) and "/" not in attention:
        return attention, "set attn_implementation: flash_attention_2, or sdpa"
    if _is_release_without_packing_masks(config, attention):
        return (
            f"{attention} attention in Axolotl before {MASKED_SINCE.removesuffix('.0')}",
            f"set flash_attention: true, or flex_attention: true; or install axolotl {MASKED_SINCE}"
            " or newer; or switch sample_packing off",
        )
    return None


def _is_release_without_packing_masks(config: Config, attention: str) -> bool:
    """Is this Axolotl of a release that keeps nothing apart with this attention?"""
    if attention not in MASKED_LATER:
        return False
    if config.pins.is_release_surely_before("axolotl", MASKED_SINCE):
        return True
    is_older_spelling = config.raw.get(MASKED_LATER[attention]) is True
    release_age = config.pins.age_of_asked_releases("axolotl", MASKED_SINCE, MASKED_SINCE)
    return is_older_spelling and release_age != "current"
