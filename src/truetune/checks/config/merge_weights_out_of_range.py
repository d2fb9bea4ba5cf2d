"""The weights of a merge leave a model out, or add up to far more than one.

## What it does
Reads mergekit's YAML. It fires for a model with `weight: 0` or `density: 0`, for `slerp` whose `t` is 0 or 1
everywhere, and for `linear` with `normalize: false` whose weights add up to less than 0.5 or more than 1.5.

## Why it is bad
With a weight of 0, the merged model contains nothing of that model. With three weights of 1 that are not normalised,
each matrix of a linear merge is three times as large, and the answers are garbage.

## Example
```yaml
config:
  models:
    - {model: ./sft-seed1, parameters: {weight: 1.0}}
    - {model: ./sft-seed2, parameters: {weight: 1.0}}
    - {model: ./sft-seed3, parameters: {weight: 1.0}}
  merge_method: linear
  parameters: {normalize: false}
  dtype: bfloat16
```

## Use instead
```yaml
config:
  models:
    - {model: ./sft-seed1, parameters: {weight: 1.0}}
    - {model: ./sft-seed2, parameters: {weight: 1.0}}
    - {model: ./sft-seed3, parameters: {weight: 1.0}}
  merge_method: linear
  parameters: {normalize: true}
  dtype: bfloat16
```

## Fix safety
The merged weights change.

## References
- mergekit, docs/merge_methods.md (linear, SLERP, TIES, DARE)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truetune.checks.config.evidence.parts_of_merge import merged_models
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.hyperparameter_limits import parse_setting_number
from truetune.checks.rule import ConfigRule

# A linear merge is a mean. Half of it or half as much again is more than any published sum that is not normalised.
LOWEST_SUM, HIGHEST_SUM = 0.5, 1.5


class MergeWeightsOutOfRange(ConfigRule):
    code = "CFG262"
    fault = Fault.HYPERPARAMETER_OUT_OF_RANGE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "warning"
    stacks = ("mergekit",)

    def measurement_if_clean(self) -> str:
        """How many models are merged by which method."""
        count = sum(1 for _ in merged_models(self.subject))
        return f"{count} models by {self.subject.raw.get('merge_method')}"

    def findings(self) -> Iterator[Finding]:
        if self.unmet() is not None:
            return
        config = self.subject
        for model in merged_models(config):
            # The base of a merge may be listed, and has no difference to itself that a weight could scale.
            for name in (
                () if model.name == str(config.raw.get("base_model")) else ("weight", "density")
            ):
                if _constant(model.parameters.get(name)) == 0:
                    yield self.finding(
                        f"{name} is 0: the merged model contains nothing of {model.name}",
                        f"set {name} above 0, or remove the model from the merge",
                        cases=[setting_case(config, 0, f"{model.key}.parameters.{name}")],
                    )
        shared = config.raw.get("parameters")
        shared = shared if isinstance(shared, Mapping) else {}
        mix = _constant(shared.get("t")) if config.raw.get("merge_method") == "slerp" else None
        if mix in (0, 1):
            yield self.finding(
                f"t is {mix:g} everywhere: slerp takes one of the two models alone",
                "set t between 0 and 1",
                cases=[setting_case(config, shared.get("t"), "parameters.t")],
            )
        yield from self._findings_on_sum(shared)

    def _findings_on_sum(self, shared: Mapping[str, Any]) -> Iterator[Finding]:
        """The finding on a linear merge that is no mean."""
        config = self.subject
        if config.raw.get("merge_method") != "linear" or shared.get("normalize") is not False:
            return
        weights = [_constant(model.parameters.get("weight")) for model in merged_models(config)]
        known = [one for one in weights if one is not None]
        total = sum(known)
        if (
            len(known) < len(weights)
            or config.raw.get("slices")
            or LOWEST_SUM <= total <= HIGHEST_SUM
        ):
            return
        yield self.finding(
            f"the weights add up to {total:g}, and normalize is false: each matrix of the merge is {total:g} times that"
            " of a mean",
            "in parameters, switch `normalize` on, or let the weights add up to 1",
            cases=[setting_case(config, False, "parameters.normalize")],
        )


def _constant(value: object) -> float | None:
    """The one number that a parameter has in all layers; None where it differs, or is not set."""
    if isinstance(value, list):
        constants = {
            _constant(one.get("value") if isinstance(one, Mapping) else one) for one in value
        }
        return next(iter(constants)) if len(constants) == 1 else None
    if isinstance(value, Mapping):
        return _constant(value.get("value")) if "filter" not in value else None
    return parse_setting_number(value)
