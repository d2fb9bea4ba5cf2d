"""The policy stops calling its tools: the reward is paid without them.

## What it does
Reads how many tools the answers of an agent's training call: `tools/call_frequency` (TRL), verl's `num_turns/mean`. It
warns if calls fall to a tenth of what they were, or if TRL logs none in 10 records or more.

## Why it is bad
If an answer from memory is graded like one after a search, it is the shorter way to the reward, and the policy unlearns
the tool. A report has 94 % of the answers without a call after 8 steps. If no call was ever logged, the model's calls
are not recognised: its prompt does not list the tools, or it writes them in another form than the parser reads.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 0.5, steps: 40, noise: 0.01}
  tools/call_frequency: {values: [1.4, 0.6, 0.1, 0.02], steps: 40, noise: 0.002}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 0.5, steps: 40, noise: 0.01}
  tools/call_frequency: {values: [0.8, 1.1, 1.3, 1.4], steps: 40, noise: 0.02}
```

## Fix safety
Paying for each call by itself leads to calls without need. Grading only answers that were submitted by a tool, or tasks
that can't be solved from memory, is safer.

## References
- NVIDIA-NeMo/Gym#1304 (94 % of the answers made no call after 8 steps), huggingface/trl#5366
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.curves_of_reward_training import ends_of_curve
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

CALLS = "tools/call_frequency"
TURNS = "num_turns/mean"
TURNS_WITHOUT_CALL = 2.0
"""verl counts the question and the answer"""
MIN_RECORDS = 10
MAX_LEFT = 0.1
"""Share of the calls at first. Chosen, not measured: a policy that learns to call less often keeps half of them"""
MIN_FIRST_CALLS = 0.2
"""Calls per answer: below it, a fall to a tenth is noise of a few answers"""


class ToolCallsDieOut(LogRule):
    code = "LOG186"
    fault = Fault.REWARD_RISES_WITHOUT_THE_TASK
    severity = "warning"
    symptoms = ("agent-training",)
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no tool calls are logged."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._calls().step.size >= MIN_RECORDS:
            return None
        return Unmet("the log has no tool calls")

    def measurement_if_clean(self) -> str:
        """The calls at both ends."""
        return "tool calls per answer go from {:.2f} to {:.2f}".format(
            *ends_of_curve(self._calls())
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on calls that die out, or never come."""
        calls = self._calls()
        if self.subject.kind != "reinforcement" or calls.step.size < MIN_RECORDS:
            return
        ends = ends_of_curve(calls)
        if not calls.value.any() and self.subject.curve(CALLS):
            message = f"no tool was called in any of {calls.step.size:,} records"
            remedy = (
                "print an answer with its special tokens: does its prompt list the tools, and does it write calls in"
                " the form of its own template?"
            )
        elif ends.first >= MIN_FIRST_CALLS and ends.last <= MAX_LEFT * ends.first:
            message = (
                f"tool calls per answer fall from {ends.first:.2f} to {ends.last:.2f}: the policy gets its reward"
                " without them"
            )
            remedy = "take prompts that can't be answered from memory, or give no reward to an answer that used no tool"
        else:
            return
        yield self.finding(
            message,
            remedy,
            total=int(calls.step.size),
            figure=draw_curves("tool calls per answer", {"calls": calls}),
        )

    def _calls(self) -> Curve:
        """The tool calls per answer."""
        calls = self.subject.curve(CALLS).finite()
        if calls:
            return calls
        turns = self.subject.curve(TURNS).finite()
        return Curve(turns.step, (turns.value - TURNS_WITHOUT_CALL) / 2)
