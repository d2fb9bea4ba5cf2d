"""Turns have roles that the chat template does not know.

## What it does
Counts the turns whose role is not one of system, developer, user, assistant, tool and function, and checks whether
their text reaches the rendered text.

## Why it is bad
Converters with a fixed list of roles silently skip such turns, and templates write them under a header that the model
has never seen. An answer under the role "bot" is not in the loss.

## Example
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: bot, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Use instead
```yaml
data:
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
  - {messages: [{role: user, content: "Is it open?"}, {role: assistant, content: It is open.}]}
```

## Fix safety
Renaming a role is safe if its meaning is clear (bot, gpt, model: assistant; human: user).

## References
- NVIDIA-NeMo/Automodel#3144, axolotl-ai-cloud/axolotl#752, axolotl-ai-cloud/axolotl#723
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_of_problem
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reasons_data_rules_cannot_judge import NO_CHATS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

NO_ROLE = "none at all"


class TurnRolesUnknownToTemplate(DataRule):
    code = "ROW003"
    fault = Fault.ROLES_NOT_ACCEPTED
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    moot_where = ("special-token-in-structure",)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.rows = self.chats = self.odd = 0
        self.roles: Counter[str] = Counter()
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the rows of a batch with turns of unknown roles."""
        self.rows += len(batch.rows)
        self.chats += batch.chats
        for row in batch.rows:
            unknown = [problem for problem in row.problems if problem.kind == "unknown-role"]
            if unknown:
                self.odd += 1
                self.roles.update(
                    problem.text.partition(" has the role ")[2] or NO_ROLE for problem in unknown
                )
                if len(self.cases) < MAX_CASES:
                    self.cases.append(case_of_problem(batch, row, unknown[0]))

    def unmet(self) -> Unmet | None:
        """Unmet without chats."""
        return None if self.chats else NO_CHATS

    def measurement_if_clean(self) -> Measurement:
        """How many chats have turns of unknown roles."""
        return make_count_measurement("chats with turns of unknown roles", self.odd, self.chats)

    def findings(self) -> Iterator[Finding]:
        if self.odd:
            roles = ", ".join(
                f"{role} ({count:,} turns)" for role, count in self.roles.most_common(5)
            )
            yield self.finding(
                f"{self.odd:,} of {self.rows:,} rows have turns with unknown roles, which trainers skip or leave out"
                f" of the loss: {roles}",
                (
                    "rename the keys of each message to role and content, or from and value (--map can't do it: it"
                    " renames columns only)"
                    if NO_ROLE in self.roles
                    else (
                        "rename these roles to system, user, assistant or tool (for a check: --map"
                        " role.assistant=NAME)"
                    )
                ),
                cases=self.cases,
                count=self.odd,
                total=self.rows,
            )
