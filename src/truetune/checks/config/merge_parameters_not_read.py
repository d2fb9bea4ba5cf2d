"""Weights of a merge are at a place where mergekit does not read them.

## What it does
Finds keys of mergekit's YAML that it drops: `weight`, `density`, `t` and the like beside a `model` instead of below its
`parameters`, or at the top of the file; and names in `parameters` that no merge method has (`weights`, `densities`).

## Why it is bad
mergekit drops unknown keys without a word. The model is then merged with a weight or density from elsewhere, or with
the default.

## Example
```yaml
config:
  models:
    - {model: ./qwen-math, density: 0.5, weight: 0.6}
    - {model: ./qwen-code, parameters: {density: 0.5, weight: 0.4}}
  merge_method: ties
  base_model: Qwen/Qwen2.5-7B
  parameters: {normalize: true, weight: 0.5}
  dtype: bfloat16
```

## Use instead
```yaml
config:
  models:
    - {model: ./qwen-math, parameters: {density: 0.5, weight: 0.6}}
    - {model: ./qwen-code, parameters: {density: 0.5, weight: 0.4}}
  merge_method: ties
  base_model: Qwen/Qwen2.5-7B
  parameters: {normalize: true, weight: 0.5}
  dtype: bfloat16
```

## Fix safety
The merged weights change.

## References
- mergekit, mergekit/config.py (`InputModelDefinition`: `model` and `parameters`, other keys are ignored)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.parts_of_merge import merged_models
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import ConfigRule

PARAMETERS = frozenset((
    "weight", "density", "normalize", "int8_mask", "t", "lambda", "epsilon", "gamma", "scale", "select_topk",
    "filter_wise", "rescale", "nuslerp_flatten", "nuslerp_row_wise", "tukey_fence", "randomize", "cosine",
))  # fmt: skip
"""Of its merge methods"""
MISNAMED = {
    "weights": "weight",
    "densities": "density",
    "ts": "t",
    "normalise": "normalize",
    "lambda_": "lambda",
    "alpha": "weight",
}


class MergeParametersNotRead(ConfigRule):
    code = "CFG261"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stacks = ("mergekit",)

    def measurement_if_clean(self) -> str:
        """How many models have their parameters where they are read."""
        return f"models: {sum(1 for _ in merged_models(self.subject))}"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        misplaced = list(self._misplaced())
        if misplaced:
            yield self.finding(
                "mergekit drops these keys: it reads the parameters of a merge below `parameters` alone",
                "move them below `parameters` of the model, or of the file",
                cases=misplaced,
            )
        for case, written, meant in self._misnamed():
            yield self.finding(
                f"mergekit has no parameter {written}: it is dropped",
                f"write {meant}",
                cases=[case],
            )

    def _misplaced(self) -> Iterator[Case]:
        """The parameters beside a model, or at the top of the file."""
        config = self.subject
        for model in merged_models(config):
            for name in map(str, model.table):
                if name in PARAMETERS or name in MISNAMED:
                    yield setting_case(config, model.table[name], f"{model.key}.{name}")
        for name in config.raw:
            if name in PARAMETERS or name in MISNAMED:
                yield setting_case(config, config.raw[name], name)

    def _misnamed(self) -> Iterator[tuple[Case, str, str]]:
        """The parameters by a name that no method has: where, the name, and the one that is meant."""
        config = self.subject
        for model in merged_models(config):
            for name in map(str, model.parameters):
                if name in MISNAMED:
                    key = f"{model.key}.parameters.{name}"
                    yield setting_case(config, model.parameters[name], key), name, MISNAMED[name]
