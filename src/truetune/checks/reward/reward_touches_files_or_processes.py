r"""A reward function opens files or starts programs while it scores.

## What it does
Notes files that the function reads and writes and programs that it starts while it scores, imports left out. What
it writes is thrown away.

## Why it is bad
It is a note. All processes of a training write to the same file, and a file that is read in each call costs time.

## Example
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      with open("samples.txt", "a") as file:
          file.write(completions[0])
      return [1.0 if text == gold else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Use instead
```yaml
reward: |
  def correct(completions, answer, **kwargs):
      return [1.0 if text.strip() == gold else 0.0 for text, gold in zip(completions, answer)]
rows:
  - {prompt: "What is 5 + 7?", answer: "12"}
  - {prompt: "What is 30 * 41?", answer: "1230"}
```

## Fix safety
There is no automatic fix.

## References
- https://huggingface.co/docs/trl/grpo_trainer (custom reward functions)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import AccessKind

DOES: dict[AccessKind, str] = {
    "reads": "reads",
    "writes": "writes",
    "starts a process": "starts",
    "network": "connects to",
}
"""What is done with the subject of an access"""


class RewardTouchesFilesOrProcesses(RewardRule):
    code = "RWD023"
    fault = Fault.REWARD_NOT_REPEATABLE
    severity = "info"

    def unmet(self) -> Unmet | None:
        """Unmet where the function was never called."""
        return None if self.subject.calls else Unmet("the function was not called")

    def measurement_if_clean(self) -> str:
        """That no file was opened."""
        return f"no file and no process in {self.subject.calls:,} calls"

    def findings(self) -> Iterator[Finding]:
        """The finding on files that are opened, and programs that are started."""
        used = [access for access in self.subject.accesses if access.kind != "network"]
        if used:
            yield self.finding(
                f"{self.subject.name} {DOES[used[0].kind]} {used[0].subject} while it scores",
                "read files once, where the module is imported; let each process of a training write to a file"
                " of its own",
                cases=[
                    Case(f"{access.line or 'a package'} {DOES[access.kind]} {access.subject}")
                    for access in used
                ],
            )
