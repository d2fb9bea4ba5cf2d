"""Rows have roles that their entry in dataset_info.json does not name.

## What it does
Reads the chats of a LLaMA-Factory training (`formatting: sharegpt` or `openai`), and counts those with a role that is
not one of the entry's tags. If the entry has `tags`, only these count, and a tag that is missing there has no default.
Without `tags` the roles are human, gpt, observation, function_call and system.

## Why it is bad
LLaMA-Factory knows no other role names. With `sharegpt`, one turn with another role (`tool`, `user`, or a system turn
if the tags have no `system_tag`) drops the whole chat, with one line in the output ("Invalid role tag"). The run trains
on the rest: without the tools, or without the rows' second source. With `openai`, the run stops.

## Example
```yaml
config:
  stage: sft
  do_train: true
  model_name_or_path: some/model
  dataset: desk
  dataset_dir: tagged_sets
  template: llama3
  finetuning_type: lora
  cutoff_len: 2048
files:
  tagged_sets/dataset_info.json: '{"desk": {"file_name": "desk.jsonl", "formatting": "sharegpt"}}'
  tagged_sets/desk.jsonl:
    - conversations: [{from: human, value: "Is it open?"}, {from: gpt, value: It is open.}]
    - conversations: [{from: user, value: "Is it far?"}, {from: assistant, value: No.}]
```

## Use instead
```yaml
config:
  stage: sft
  do_train: true
  model_name_or_path: some/model
  dataset: desk
  dataset_dir: tagged_sets
  template: llama3
  finetuning_type: lora
  cutoff_len: 2048
files:
  tagged_sets/dataset_info.json: '{"desk": {"file_name": "desk.jsonl", "formatting": "sharegpt"}}'
  tagged_sets/desk.jsonl:
    - conversations: [{from: human, value: "Is it open?"}, {from: gpt, value: It is open.}]
    - conversations: [{from: human, value: "Is it far?"}, {from: gpt, value: No.}]
```

## Fix safety
The run then also trains on the dropped rows and has more steps. Adding a tag to the entry changes no row.

## References
- hiyouga/LlamaFactory#2381, hiyouga/LlamaFactory#8197, QwenLM/Qwen3#1314
- LLaMA-Factory 0.9.5, src/llamafactory/data/parser.py (`DatasetAttr.join`) and converter.py
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.row_roles_and_dataset_info_role_tags import (
    TaggedRows,
    likely_tag_of_role,
    tagged_rows_of_run,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.errors import format_name_list

# As for chats that are dropped for their order: a twentieth of the data is worth a stop.
ERROR_ONE_IN = 20
"""Share of the chats, as 1 in so many, from which it is an error"""


class RoleTagsDifferFromRows(ConfigRule):
    code = "CFG180"
    fault = Fault.ROLES_NOT_ACCEPTED
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stacks = ("llama-factory",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where no chats of its data sets are on this machine.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        return None if self.tagged_rows else NO_ROWS

    @cached_property
    def tagged_rows(self) -> tuple[TaggedRows, ...]:
        """The chats of the training's data sets, with their roles."""
        return tagged_rows_of_run(self.subject)

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many chats have a role that their entry does not name."""
        return make_count_measurement(
            "chats with a role that dataset_info.json does not name",
            sum(rows.odd for rows in self.tagged_rows),
            sum(rows.chats for rows in self.tagged_rows),
        )

    def findings(self) -> Iterator[Finding]:
        for rows in self.tagged_rows:
            if rows.odd:
                yield self._finding_on_rows(rows)

    def _finding_on_rows(self, rows: TaggedRows) -> Finding:
        """The finding on the chats of one data set."""
        roles = ", ".join(f"{role} ({count:,})" for role, count in rows.roles.most_common(5))
        stops = rows.formatting == "openai"
        counted = f"{rows.odd:,} of {rows.chats:,} chats of {rows.name}"
        return self.finding(
            f"LLaMA-Factory {'stops at' if stops else 'drops'} {counted}, because dataset_info.json does not name"
            f" these roles: {roles}",
            _remedy(rows),
            severity="error" if rows.odd * ERROR_ONE_IN >= rows.chats else "warning",
            evidence=[
                f"known roles: {format_name_list(rows.roles_named_by_tags)}",
                *(
                    [
                        (
                            f"missing in tags: {format_name_list(rows.left_out)}; if tags is set, missing ones have"
                            " no default"
                        )
                    ]
                    if rows.left_out
                    else []
                ),
            ],
            cases=rows.cases,
            count=rows.odd,
            total=rows.chats,
        )


def _remedy(rows: TaggedRows) -> str:
    """What to change: a tag of the entry where no row uses the name that it has, else the rows."""
    changes = []
    renames = []
    for role in rows.roles:
        tag = likely_tag_of_role(role)
        if tag is None or rows.tags.get(tag) in rows.used:
            renames.append(role)
        else:
            changes.append(f'"{tag}": "{role}"')
    parts = []
    if changes:
        parts.append(f"add {', '.join(changes)} to the tags of {rows.name} in dataset_info.json")
    if renames:
        parts.append(f"rename {format_name_list(renames)} in the rows to the matching known roles")
    return ", and ".join(parts)
