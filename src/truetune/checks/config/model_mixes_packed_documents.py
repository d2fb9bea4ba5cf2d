"""The model mixes the documents of a packed row, whatever the trainer gives it.

## What it does
Finds packing for models that do not keep packed documents apart: layers that carry a state from token to token (state
space, linear attention, short convolutions) and get no borders of documents, and models whose attention mask ignores
the positions that TRL gives, unless a flash attention separates by lengths. What each type of model does was measured
with tiny models of transformers 5.23: the first document of a row is changed, and the logits of the second are
compared. Where the model's config.json is not on this machine, well-known names are recognised.

## Why it is bad
Each answer is learned with the text of unrelated rows in view, or in the state that they leave, which is never there
in serving. The loss falls as usual and nothing warns. In the measurement the logits of a second document changed by up
to 1.6 times the largest logit.

## Example
```yaml
files:
  model/config.json: {model_type: gpt_oss}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  packing: true
```

## Use instead
```yaml
files:
  model/config.json: {model_type: gpt_oss}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  packing: true
  attn_implementation: kernels-community/vllm-flash-attn3
```

## Fix safety
Without packing each row is padded, which takes longer and mixes nothing.

## References
- huggingface/transformers#39997 (gpt-oss), huggingface/transformers#46093, unslothai/unsloth#7249,
  axolotl-ai-cloud/axolotl#3572, state-spaces/mamba#478
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    setting_place,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.trainers.packing_of_model_types import (
    MEASURED_RELEASE,
    PACKING_OF_MODEL_TYPES,
    packed_model_type,
)

FIRST_RELEASE_AFTER = "5.24.0"
"""Of transformers, after the measured one"""
NOT_MEASURED = Unmet(
    f"how its model treats packed rows was not measured with transformers {MEASURED_RELEASE}",
    "run the training with `truetune run`, which changes a document and looks at the others",
)


class ModelMixesPackedDocuments(ConfigRule):
    code = "CFG270"
    fault = Fault.PACKED_ROWS_NOT_SEPARATED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    methods = ("sft",)
    stacks = ("trl", "llama-factory")
    about = ("training.packing",)
    reads = ("model", "training.packing_strategy", "training.attn_implementation")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the model's type was not measured, or where older releases than the measured ones run.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if not self.subject.spec.training.packing:
            return None
        pins = self.subject.pins
        is_older = pins.is_release_surely_before("transformers", MEASURED_RELEASE)
        is_unknown = is_older or self._is_release_newer() or self._model_type() is None
        return NOT_MEASURED if is_unknown else None

    def measurement_if_clean(self) -> str:
        """What was compared, and what the model does with packed rows."""
        return f"{self.describe_compared_settings()}; a model of type {self._model_type()} keeps them apart"

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        model_type = self._model_type()
        # `wrapped` and `greedy` separate nothing with any model: CFG025 says so.
        if (
            not training.packing
            or model_type is None
            or self._is_release_newer()
            or training.packing_strategy in ("wrapped", "greedy")
        ):
            return
        part_and_remedy = self._mixing_part_and_remedy(model_type)
        if part_and_remedy is None:
            return
        part, remedy = part_and_remedy
        yield self.finding(
            f"packed documents are mixed by the model itself: {part}",
            remedy,
            evidence=[
                f"measured with a tiny model of this type and transformers {MEASURED_RELEASE}"
            ],
            cases=[
                setting_case(config, True, "training.packing"),
                Case(f"model_type: {model_type}", file=config.spec.model or None),
            ],
        )

    def _is_release_newer(self) -> bool:
        """Does a release of transformers run that may have fixed this since the measurement?

        Older releases mix no less: what hands borders on was added with time.
        """
        age = self.subject.pins.age_of_asked_releases(
            "transformers", MEASURED_RELEASE, FIRST_RELEASE_AFTER
        )
        return age == "current"

    def _model_type(self) -> str | None:
        """The model's type; None where it was not measured or is not known, or another program packs the rows: Axolotl
        gives the borders to some of these models itself.
        """
        if self.subject.stack not in self.stacks:
            return None
        return packed_model_type(model_config(self.subject), self.subject.spec.model or "")

    def _mixing_part_and_remedy(self, model_type: str) -> tuple[str, str] | None:
        """What lets documents see each other, and what to do; None where nothing does."""
        known = PACKING_OF_MODEL_TYPES[model_type]
        gives_borders = self.subject.stack == "trl"
        switch = setting_place(self.subject, "training.packing").key
        if known.carries_state and not (known.hands_borders_on and gives_borders):
            reason = (
                "get no borders from LLaMA-Factory's packing"
                if known.hands_borders_on
                else "take no borders"
            )
            return (
                f"the layers of {model_type} that carry a state from token to token {reason}",
                f"set {switch}: false for this model",
            )
        attention = self.subject.spec.training.attn_implementation or "the default attention"
        # LLaMA-Factory makes a mask of blocks itself; flash attention is given the lengths of the documents.
        if known.mask_follows_positions or not gives_borders or "flash" in attention:
            return None
        # gpt-oss has sinks, which FlashAttention 2 does not know; transformers names this kernel for it.
        is_gpt_oss = model_type == "gpt_oss"
        flash = "kernels-community/vllm-flash-attn3" if is_gpt_oss else "flash_attention_2"
        return (
            f"the attention mask of {model_type} ignores the positions of packed rows, and {attention}"
            " is given nothing else",
            f"set {switch}: false, or use {flash} as attn_implementation",
        )
