"""A name in the LoRA target modules or modules to save matches no module of the model.

## What it does
Compares each name in `target_modules` and `modules_to_save` with the modules in the headers of the model's safetensors
files, as peft does (the whole name, or an ending after a dot), and counts the matches. If the weights are not on this
machine, it looks for misspelled names and for names without a comma between them. If the model's name is that of a
published family, it also looks for layer names of other families (`c_attn` for Qwen3).

## Why it is bad
peft only stops if no name at all matches, after the model is loaded. `q_proj`, `v_prjo` silently adapts only `q_proj`:
a weaker adapter, and the curve looks normal. A misspelled `lm_head` in `modules_to_save` is neither trained nor saved.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_r: 16
  lora_target_modules: [q_proj, v_prjo]
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  adapter: lora
  lora_r: 16
  lora_target_modules: [q_proj, v_proj]
```

## Fix safety
More layers are adapted: each takes memory for two matrices of rank r.

## References
- vvvvvjdy/D-OPSD#5, huggingface/peft#577, bghira/SimpleTuner#766, unslothai/unsloth-zoo#1150
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from truetune.checks.config.evidence.facts_from_model_folder import (
    linear_module_shapes,
    model_config,
    tensor_shapes,
)
from truetune.checks.config.evidence.match_module_names_like_peft import (
    FULLY_TRAINED_NAMES,
    LINEAR_NAMES,
    PATTERN_SIGN,
    count_pattern_matches,
    likely_module_name,
    modules_matching_name,
)
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import (
    NO_LORA,
    NO_WEIGHTS,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.config.evidence.target_module_names_of_published_families import (
    layer_names_of_family,
    targets_of_other_families_only,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.read_and_format_setting_values import format_setting
from truetune.checks.rule import ConfigRule

OWN_LAYERS = Unmet(
    "torchtune builds every model of layers of its own, which have the same names in all"
)
TARGETS, SAVED = "training.lora.target_modules", "training.lora.modules_to_save"


class LoraTargetFitsNothing(ConfigRule):
    code = "CFG018"
    fault = Fault.LORA_TARGETS_DO_NOT_EXIST
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet without LoRA, for torchtune's own layers, or for a pattern without weights to match.
        """
        lora = self.subject.spec.training.lora
        if lora is None:
            return NO_LORA
        if self.subject.stack == "torchtune":
            return OWN_LAYERS
        if isinstance(lora.target_modules, str) and not linear_module_shapes(self.subject):
            return NO_WEIGHTS
        return None

    def measurement_if_clean(self) -> Measurement | str:
        """What was measured: how many names of modules fit nothing, and by what that was judged."""
        lora, linear = self.subject.spec.training.lora, linear_module_shapes(self.subject)
        assert lora is not None, "else the rule is not judged"
        if not isinstance(lora.target_modules, tuple):
            return format_setting(self.subject, TARGETS)
        by = "" if linear else ", by the names of published models: the weights are not here"
        names = (*lora.target_modules, *lora.modules_to_save)
        return make_count_measurement("names of modules that fit none", 0, len(names), by)

    def findings(self) -> Iterator[Finding]:
        config, lora = self.subject, self.subject.spec.training.lora
        if lora is None or config.stack == "torchtune":
            return
        yield from self._findings_on_targets(lora.target_modules)
        held = {name.rpartition(".")[0]: shape for name, shape in tensor_shapes(config).items()}
        yield from self._findings_on_names(
            lora.modules_to_save,
            SAVED,
            held,
            FULLY_TRAINED_NAMES | LINEAR_NAMES,
            FULLY_TRAINED_NAMES,
        )

    def _findings_on_targets(self, targets: tuple[str, ...] | str | None) -> Iterator[Finding]:
        """Findings on target_modules, which may be names or one pattern."""
        linear, parts = linear_module_shapes(self.subject), model_config(self.subject)
        experts = any("experts" in key for key in parts) or any(
            ".experts." in name for name in linear
        )
        if isinstance(targets, tuple):
            yield from self._findings_on_other_family(targets)
            usual = LINEAR_NAMES | FULLY_TRAINED_NAMES
            yield from self._findings_on_names(
                targets, TARGETS, linear, LINEAR_NAMES, usual if experts else frozenset()
            )
        elif (
            targets is not None
            and PATTERN_SIGN.search(targets)
            and linear
            and "vision_config" not in parts
        ):
            yield from self._findings_on_pattern(targets, linear)

    def _findings_on_names(
        self,
        names: tuple[str, ...],
        field: str,
        there: Mapping[str, tuple[int, ...]],
        known: frozenset[str],
        trusted: frozenset[str],
    ) -> Iterator[Finding]:
        """Findings on names of a list that fit nothing; `trusted` may be there without standing in
        the checkpoint.
        """
        counts = {
            name: len(modules_matching_name(name, there))
            for name in names
            if not PATTERN_SIGN.search(name)
        }
        unmatched = [name for name, count in counts.items() if not count and name not in trusted]
        lost = _likely_name_of_each(unmatched, _candidate_names(field, there, known))
        if not there:
            # Without the weights, a name that resembles no known one may be right.
            lost = {name: likely for name, likely in lost.items() if likely}
        evidence = _evidence_of_matches_per_name(counts if there else {})
        where = " of the model" if there else ""
        for name, likely in lost.items():
            hint, remedy = _hint_and_remedy(name, likely)
            yield self.finding(
                f"{name} matches no module{where}, so it is not adapted or saved{hint}",
                remedy,
                evidence=evidence,
                cases=[setting_case(self.subject, ", ".join(names), field)],
                count=len(lost),
                total=len(names),
            )

    def _findings_on_other_family(self, targets: tuple[str, ...]) -> Iterator[Finding]:
        """Findings on names of layers that published models of this name do not have."""
        model = self.subject.spec.model or ""
        strange = targets_of_other_families_only(model, targets)
        # The weights, where they are here, say more than a name.
        if not strange or linear_module_shapes(self.subject):
            return
        layers = sorted(layer_names_of_family(model) or ())
        fits_none = len(strange) == len(targets)
        effect = ", so peft stops" if fits_none else ""
        yield self.finding(
            f"{', '.join(strange)}: layer names of other models; {model} has none of that name{effect}",
            f"name its layers ({', '.join(layers)}), or write all-linear",
            severity="error" if fits_none else None,
            evidence=["the model's weights are not here: judged by the names of published models"],
            cases=[setting_case(self.subject, ", ".join(targets), TARGETS)],
        )

    def _findings_on_pattern(
        self, pattern: str, linear: Mapping[str, tuple[int, ...]]
    ) -> Iterator[Finding]:
        """Findings on a pattern of target_modules that is not valid, or fits no module."""
        shown = [setting_case(self.subject, pattern, TARGETS)]
        try:
            re.compile(pattern)
        except re.error as error:
            yield self.finding(
                f"the pattern of target_modules is not valid: {error}",
                "correct the pattern, or list the module names",
                severity="error",
                cases=shown,
            )
            return
        if count_pattern_matches(pattern, linear) == 0:
            yield self.finding(
                f"the pattern in target_modules matches none of {len(linear):,} modules",
                "peft matches the whole name: begin it with .*",
                cases=shown,
            )


def _candidate_names(
    field: str, there: Mapping[str, tuple[int, ...]], known: frozenset[str]
) -> frozenset[str]:
    """The names that a misspelt one may have meant: the last parts of the modules that are there, or known ones.

    What is saved whole may be any module. LoRA fits only what the checkpoint has, where that is here.
    """
    parts = {module.rpartition(".")[2] for module in there}
    lasts = frozenset(part for part in parts if not part.isdecimal())
    return lasts | known if field == SAVED else lasts or known


def _likely_name_of_each(unmatched: list[str], candidates: frozenset[str]) -> dict[str, str | None]:
    """The names that fit nothing, each with the module that was likely meant; "all-linear" is peft's own word."""
    return {
        name: likely_module_name(name, candidates) for name in unmatched if name != "all-linear"
    }


def _evidence_of_matches_per_name(counts: Mapping[str, int]) -> list[str]:
    """Evidence: how many modules each name fits; without weights, what was judged by in their
    place.
    """
    fitting = [f"{name}: {count:,} modules" for name, count in counts.items() if count]
    return fitting or ["the model's weights are not here: judged by the names of published models"]


def _hint_and_remedy(name: str, likely: str | None) -> tuple[str, str]:
    """The part of a message that names what was likely meant, and the remedy; `likely` is None
    where no name resembles it.
    """
    if likely is None:
        return "", f"correct {name}, or remove it"
    return f"; did you mean {likely}?", f"write {likely} instead of {name}"
