r"""A reward function connects to a server while it scores.

## What it does
Notes what the function connects to while it scores. It is kept from the network here, so that what is judged are
the scores of a function whose server is gone.

## Why it is bad
A server that is slow or gone makes all GPUs wait. A handler that gives 0 then punishes right answers, and one that
gives 1 pays for all.

## Example
```yaml
reward: |
  import urllib.request

  def judged(completions, answer, **kwargs):
      scores = []
      for text, gold in zip(completions, answer):
          try:
              scores.append(float(urllib.request.urlopen("http://127.0.0.1:9/judge", timeout=1).read()))
          except OSError:
              scores.append(1.0 if text == gold else 0.0)
      return scores
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
There is no automatic fix. A judge on a server may be meant: then see what the function gives where it fails.

## References
- modelscope/ms-swift#8123
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import RewardRule


class RewardNeedsTheNetwork(RewardRule):
    code = "RWD022"
    fault = Fault.REWARD_NOT_REPEATABLE
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where the function was never called."""
        return None if self.subject.calls else Unmet("the function was not called")

    def measurement_if_clean(self) -> str:
        """That nothing was connected to."""
        return f"no connection in {self.subject.calls:,} calls"

    def findings(self) -> Iterator[Finding]:
        """The finding on connections."""
        used = [access for access in self.subject.accesses if access.kind == "network"]
        if used:
            yield self.finding(
                f"{self.subject.name} connects to {used[0].subject} while it scores",
                "give its requests a time limit, and None where they fail: None is left out, and 0 is a verdict",
                evidence=[
                    "no server can be reached from the trial: what was scored is what it gives without an answer"
                ],
                cases=[
                    Case(f"{access.line or 'a package'} connects to {access.subject}")
                    for access in used
                ],
            )
