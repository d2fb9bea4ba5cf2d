"""Tokens that the policy sampled are left out of the loss of a rollout.

## What it does

Counts the sampled tokens of a completion that are not in its loss, and names the stop tokens among them. Where tools
wrote a part of it (`from_tools`), the rest has to be what the sampler gave for all turns (`sampled_ids`); else it is
not judged. Completions that are left out as a whole are another rule's (`cut-completions-against-setting`).

## Why it is bad

Mostly it is the stop token, since a mask was made by the id of a pad token that is the EOS token as well. The policy
then gets nothing for stopping at the right place, and completions grow until they are cut. Where the last of several
turns is trained alone, the policy gets nothing for its calls of tools.

## Example

```python
class MaskedById(trl.GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        stops = torch.tensor(self.eos_token_ids)
        output["completion_mask"] = output["completion_mask"] * ~torch.isin(output["completion_ids"], stops)
        return output

run = grpo(MaskedById)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

There is no automatic fix: build the mask from the number of sampled tokens, not by comparing ids.

## References

- huggingface/trl#4970, huggingface/trl#6357
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.rollout_run import Completion, RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import NO_SAMPLED_IDS
from truetune.checks.rule import RolloutRule


class SampledTokensLeftOutOfLoss(RolloutRule):
    code = "ROL004"
    fault = Fault.ANSWERS_MISSING_FROM_LOSS
    severity = "warning"
    symptoms = ("agent-training", "reward-rises-model-is-worse")

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.sampled = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.sampled else NO_SAMPLED_IDS)

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        left_out = stops = 0
        for completion in self.subject.completions():
            places = _places_of_sampled_tokens(completion)
            if places is None or not completion.in_loss.any():
                continue
            self.sampled += len(places)
            ids = completion.ids[places[~completion.in_loss[places]]].tolist()
            if not ids:
                continue
            left_out += len(ids)
            stops += sum(token in completion.step.settings.sampler_stops for token in ids)
            cases.append(Case(f"{completion.place}: {self.subject.text(ids)!r} is not in the loss"))
        if not cases:
            return
        yield self.finding(
            f"{left_out:,} of {self.sampled:,} sampled tokens are not in the loss, {stops:,} of them stop tokens",
            "build completion_mask from the number of tokens that were sampled, not by comparing ids: it is 1 up to and"
            " with the stop token of each turn, and 0 on what tools wrote and on the padding after it",
            cases=cases,
            count=left_out,
            total=self.sampled,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many sampled tokens are left out."""
        return make_count_measurement(
            "sampled tokens that are not in the loss of their completion", 0, self.sampled
        )


def _places_of_sampled_tokens(completion: Completion) -> NDArray[np.integer] | None:
    """The places of a completion's sampled tokens; None where they are not known."""
    sampled, from_tools = completion.sampled, completion.step.from_tools
    if sampled is None or from_tools is None or completion.step.sampled_places is not None:
        return completion.places
    own = np.flatnonzero(~from_tools[completion.row])
    if np.array_equal(completion.ids[own[: len(sampled)]], sampled):
        return own[: len(sampled)]
    # Some loops keep the completion with what tools wrote. What they keep else tells no place.
    if np.array_equal(completion.ids[: len(sampled)], sampled):
        return own[own < len(sampled)]
    return None
