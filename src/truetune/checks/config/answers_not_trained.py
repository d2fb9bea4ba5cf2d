"""roles_to_train does not include the assistant.

## What it does
For Axolotl data sets of type `chat_template`, checks that `roles_to_train` names the assistant: `assistant`, `gpt`,
`model`, `chatbot`, or a name that `roles` maps to it.

## Why it is bad
The model learns to write the user's turns (or the tools'), and never an answer. The loss falls as usual, so the curve
doesn't show it.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template, roles_to_train: [user]}]
  sequence_len: 2048
  micro_batch_size: 2
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template, roles_to_train: [assistant]}]
  sequence_len: 2048
  micro_batch_size: 2
```

## Fix safety
The loss then covers the assistant's turns. If you train a user simulator on purpose, ignore this rule.

## References
- axolotl-ai-cloud/axolotl#1761, axolotl-ai-cloud/axolotl#3098
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.data.answering_roles import ANSWERING_ROLES


class AnswersNotTrained(ConfigRule):
    code = "CFG035"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    stacks = ("axolotl",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no data set names the roles to train.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return (
            None
            if self._numbers_of_data_sets_naming_roles()
            else Unmet("it is about roles_to_train, which no data set has")
        )

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many data sets with roles to train hold no answer."""
        return make_count_measurement(
            "data sets whose roles_to_train hold no answer",
            0,
            len(self._numbers_of_data_sets_naming_roles()),
        )

    def _numbers_of_data_sets_naming_roles(self) -> list[int]:
        """The numbers of the data sets that name the roles to train."""
        return [
            index
            for index, item in numbered_tables_of_list(self.subject, "datasets")
            if item.get("roles_to_train")
        ]

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        for index, item in (
            numbered_tables_of_list(config, "datasets") if config.stack == "axolotl" else ()
        ):
            chosen = item.get("roles_to_train")
            if not isinstance(chosen, list) or not chosen or config.spec.training.train_on_inputs:
                continue
            roles = item.get("roles")
            named = roles.get("assistant") if isinstance(roles, dict) else None
            wanted = (
                ANSWERING_ROLES | {str(name) for name in named if name}
                if isinstance(named, list)
                else ANSWERING_ROLES
            )
            if not wanted & {str(role).lower() for role in chosen}:
                yield self.finding(
                    f"{item.get('path')}: only turns of {', '.join(map(str, chosen))} are trained on, so the model"
                    " never learns to answer",
                    "add assistant to roles_to_train of this data set",
                    cases=[
                        setting_case(
                            config, ", ".join(map(str, chosen)), f"datasets.{index}.roles_to_train"
                        )
                    ],
                )
