"""An adapter is merged, loaded or served with another position scaling or attention than in training.

## What it does
Takes the architecture settings of a training (`rope_scaling`, `rope_theta`, `sliding_window`) from LLaMA-Factory's
settings, Axolotl's `overrides_of_model_config`, TRL's `model_init_kwargs`, or a script's `from_pretrained` or
`config.rope_scaling = ...`. It looks for them in the files that use the trained adapter: an export, a script that
merges or loads it, a vLLM server, and config.json of the merged model. It fires if one of them lacks the setting.

## Why it is bad
The adapter was trained with scaled positions. Without the scaling, the model rotates its queries and keys by other
angles. The training loss was good, but the merged model writes word salad, even for short prompts.

## Example
```yaml
beside:
  merge.yaml:
    model_name_or_path: some/model
    adapter_name_or_path: saves/contracts
    template: llama3
    finetuning_type: lora
    export_dir: models/contracts
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  finetuning_type: lora
  dataset: contracts
  template: llama3
  rope_scaling: linear
  cutoff_len: 32768
  output_dir: saves/contracts
```

## Use instead
```yaml
beside:
  merge.yaml:
    model_name_or_path: some/model
    adapter_name_or_path: saves/contracts
    template: llama3
    finetuning_type: lora
    rope_scaling: linear
    export_dir: models/contracts
config:
  model_name_or_path: some/model
  stage: sft
  do_train: true
  finetuning_type: lora
  dataset: contracts
  template: llama3
  rope_scaling: linear
  cutoff_len: 32768
  output_dir: saves/contracts
```

## Fix safety
The weights don't change. Take the scaling factor from the training log.

## References
- Chen et al. 2023, Extending Context Window via Positional Interpolation, arXiv 2306.15595
- hiyouga/LLaMA-Factory `model/model_utils/rope.py`; transformers `modeling_rope_utils.py`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from truetune.checks.config.evidence.facts_from_model_folder import model_config
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.find_uses_of_weight_folders import is_same_or_below
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.position_and_attention_overrides import (
    ONLY_FAR_POSITIONS,
    POSITIONS,
    Override,
    does_config_differ,
    max_positions_of_config,
    override_value_in_config,
    overrides_of_config,
    read_model_config,
    scaling_lines_for_config,
)
from truetune.checks.rule import ConfigRule
from truetune.settings.config import WeightUse

NO_OVERRIDE = Unmet("it is about trainings that change positions or attention of the model")
NO_USES = Unmet(
    "it is about a training that is given together with a file that merges, loads or serves its adapter",
    "give both: truetune check TRAINING EXPORT",
)
UNKNOWN_FACTOR = '"..."'
"""In the lines for config.json: nothing here says the factor"""
VERBS = {"merges": "merges it", "loads": "loads it", "serves": "serves it"}


class _MergedConfig(NamedTuple):
    """config.json of a merged model."""

    file: Path
    values: Mapping[str, Any]


class PositionsScaledInTrainingOnly(ConfigRule):
    code = "CFG111"
    fault = Fault.MODEL_USED_WITH_OTHER_SETTINGS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the settings change no positions, or no file uses the adapter.
        """
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if not overrides_of_config(self.subject):
            return NO_OVERRIDE
        return None if self._uses_of_adapter() else NO_USES

    def measurement_if_clean(self) -> str:
        """What was measured: what the training changes, and which uses do the same."""
        trained = ", ".join(f"{one.key} {one.kind}" for one in overrides_of_config(self.subject))
        return f"trained with {trained}; so do {', '.join(use.text for use in self._uses_of_adapter())}"

    def findings(self) -> Iterator[Finding]:
        for override in overrides_of_config(self.subject):
            for use in self._uses_of_adapter():
                finding = self._finding_on_use(override, use)
                if finding is not None:
                    yield finding
                    break  # one place names the cause; the next check shows the others

    def _uses_of_adapter(self) -> list[WeightUse]:
        """The other files that put the trained adapter on its base."""
        config = self.subject
        output = config.raw.get("output_dir")
        if not isinstance(output, str) or not output:
            return []
        return [
            use
            for use in config.uses
            if use.file != config.path
            and use.are_adapters
            and use.overrides is not None
            and any(is_same_or_below(name, output) for name in use.folders)
        ]

    def _finding_on_use(self, override: Override, use: WeightUse) -> Finding | None:
        """The finding on a use that computes otherwise than the training; None where it computes as
        the training did.
        """
        merged = _merged_config(use)
        stored = (
            override_value_in_config(merged.values, override.key) if merged is not None else None
        )
        is_other = stored is not None and does_config_differ(override, stored)
        if not is_other and (
            stored is not None or self._computes_as_trained(override, use, merged)
        ):
            return None
        lines = scaling_lines_for_config(
            override, self._trained_length(), self._known_positions(merged)
        )
        known_factor = " (the training log shows the factor)" if UNKNOWN_FACTOR in lines else ""
        has = "none" if stored is None else str(stored)
        holds = f" ({merged.file.as_posix()} has {has})" if merged is not None else ""
        return self.finding(
            f"the adapter was trained with {override.key}: {override.kind}, but {PurePath(use.file).name}"
            f" {VERBS[use.verb]} {'with another value' if is_other else 'without it'}{holds}."
            f" {_effect_on_answers_in_words(override)}",
            (
                f"write {lines}{known_factor} into {_config_to_edit(use)}, then compare the answers to one prompt"
                " before and after"
            ),
            severity="warning" if override.kind in ONLY_FAR_POSITIONS else "error",
            cases=[
                self._case_of_override(override),
                Case(use.text, file=use.file, line=use.line),
                *_case_of_merged(override, merged, has),
            ],
        )

    def _computes_as_trained(
        self, override: Override, use: WeightUse, merged: _MergedConfig | None
    ) -> bool:
        """Does the use compute as the training did: by its own setting, a server's, or the base as it is?"""
        is_set = override.key in (use.overrides or ()) or self._is_set_by_server(override, use)
        return is_set or self._has_no_effect(override, merged)

    def _trained_length(self) -> int | None:
        """The length of rows in the training, where it is a number."""
        limit = self.subject.spec.max_length
        return limit if type(limit) is int else None

    def _is_set_by_server(self, override: Override, use: WeightUse) -> bool:
        """Does a server of the merged model set it: `--hf-overrides`?"""
        return any(
            override.key in (one.overrides or ())
            for one in self.subject.uses
            if one.verb == "serves"
            and any(is_same_or_below(name, folder) for name in one.folders for folder in use.writes)
        )

    def _case_of_override(self, override: Override) -> Case:
        """The case of the setting that changes positions or attention, at its line."""
        if override.line:
            return Case(
                f"{override.key}: {override.kind}", file=self.subject.path, line=override.line
            )
        return setting_case(self.subject, override.kind, override.place)

    def _known_positions(self, merged: _MergedConfig | None) -> int | None:
        """The positions that the base knows, by its own config.json or that of the merged model."""
        return max_positions_of_config(model_config(self.subject)) or (
            max_positions_of_config(merged.values) if merged is not None else None
        )

    def _has_no_effect(self, override: Override, merged: _MergedConfig | None) -> bool:
        """Does the base compute so already, or does LLaMA-Factory leave the scaling out for rows that fit?"""
        base = model_config(self.subject)
        if base and str(override_value_in_config(base, override.key)) == str(override.value):
            return True
        limit, known = self._trained_length(), self._known_positions(merged)
        is_short = limit is not None and known is not None and limit <= known
        return self.subject.stack == "llama-factory" and override.key == POSITIONS and is_short


def _effect_on_answers_in_words(override: Override) -> str:
    """What the difference does to answers, as a sentence."""
    if override.key != POSITIONS:
        return "The model attends to other tokens than in training"
    if override.kind in ONLY_FAR_POSITIONS:
        return (
            "Prompts longer than the model's original length get other positions than in training"
        )
    return (
        "Every position differs from training: the answers are word salad, even for short prompts"
    )


def _merged_config(use: WeightUse) -> _MergedConfig | None:
    """config.json of the model that a use writes, where there is one."""
    configs = (read_model_config(folder, Path(use.file)) for folder in use.writes)
    return next((_MergedConfig(*one) for one in configs if one), None)


def _config_to_edit(use: WeightUse) -> str:
    """Where the scaling has to be written: into the model that the use writes, else into its base."""
    if use.writes:
        return f"config.json in {use.writes[0]}"
    return f"config.json of the base model ({use.text})"


def _case_of_merged(override: Override, merged: _MergedConfig | None, has: str) -> Iterator[Case]:
    """The case of the merged model's config.json; nothing without one."""
    if merged is not None:
        yield Case(f"{override.key}: {has}", file=str(merged.file))
