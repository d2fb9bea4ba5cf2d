"""The sampler's log-probabilities are not the trainer's, for the same tokens.

## What it does

Compares, before the first update on a rollout, the log-probabilities that the sampler gave with its tokens with those
that the trainer computes for them. It fires from 0.1 nats/token on, on average.

## Why it is bad

The policy that samples is then another than the one that is trained: older weights, another temperature, a cut
distribution (top_k, top_p), another type. The gradient is right for samples of the policy alone.

## Example

```python
def sampler(prompts, trainer):
    ids = [trainer.processing_class.apply_chat_template(p, add_generation_prompt=True, return_dict=True)["input_ids"]
           for p in prompts]
    cold = [[-0.5] * 6 for _ in prompts]  # as of another temperature
    return {"prompt_ids": ids, "completion_ids": [[40, 41, 42, 43, 44, 3]] * len(ids), "logprobs": cold}

run = grpo(trl.GRPOTrainer, rollout_func=sampler)
```

## Use instead

```python
def sampler(prompts, trainer):
    ids = [trainer.processing_class.apply_chat_template(p, add_generation_prompt=True, return_dict=True)["input_ids"]
           for p in prompts]
    answer = [40, 41, 42, 43, 44, 3]
    with torch.no_grad():
        logits = [trainer.model(torch.tensor([one + answer])).logits[0, -7:-1] for one in ids]
    logps = [one.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0].tolist() for one in logits]
    return {"prompt_ids": ids, "completion_ids": [answer] * len(ids), "logprobs": logps}

run = grpo(trl.GRPOTrainer, rollout_func=sampler)
```

## Fix safety

Give the sampler the trainer's temperature, no top_k and top_p, and the weights of each step. With vLLM, TRL's
importance sampling correction makes up for small differences.

## References

- huggingface/trl#4159, huggingface/trl#6789
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import RolloutRule

NO_SAMPLER_LOGPS = Unmet("the sampler gave no log-probabilities: it is the trainer's own model")
# As in the log (`sampled-answers-are-not-the-policys`): users of TRL see 0.01 to 0.02 nats for bfloat16 on both sides,
# and 0.2 where the sampler's weights were wrong.
MAX_DIFFERENCE = 0.1
"""nats/token, on average over the tokens in the loss"""


class SamplerDiffersFromTrainer(RolloutRule):
    code = "ROL010"
    fault = Fault.TRAINED_COMPLETIONS_NOT_AS_SAMPLED
    severity = "warning"
    symptoms = ("reward-does-not-rise", "agent-training")

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.tokens = 0
        self.mean = 0.0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (None if self.tokens else NO_SAMPLER_LOGPS)

    def findings(self) -> Iterator[Finding]:
        differences = [
            (one.logps - one.sampler_logps)[one.in_loss & ~np.isnan(one.sampler_logps)]
            for step, one in self.subject.passes()
            if one.sampler_logps is not None and one.optimizer_step == step.optimizer_step
        ]
        values = np.concatenate(differences) if differences else np.zeros(0)
        self.tokens, self.mean = len(values), float(np.abs(values).mean()) if len(values) else 0.0
        if self.mean < MAX_DIFFERENCE:
            return
        side = "less" if float(values.mean()) < 0 else "more"
        yield self.finding(
            f"the sampler's log-probabilities differ from the trainer's by {self.mean:.2g} nats/token on average: it"
            " samples from other weights, or in another way",
            "see that the weights reach the sampler after each step, and that temperature, top_p and top_k are the"
            " trainer's",
            evidence=[
                f"{len(values):,} tokens; the trainer finds them {side} likely, by {abs(float(values.mean())):.2g} nats"
                " on average"
            ],
        )

    def measurement_if_clean(self) -> str:
        """The mean difference."""
        return (
            f"{self.mean:.2g} nats/token between sampler and trainer, over {self.tokens:,} tokens"
        )
