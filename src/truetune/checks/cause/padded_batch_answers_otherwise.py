"""A prompt gets another answer in a padded batch than on its own.

## What it does
Sends the two shortest prompts, which a batch pads most, again one at a time. If an answer differs, it takes the token
at which they diverge. It fires if that token of the batch is less likely by more than 0.5 in log-probability, computed
without the batch. Rounding only changes tokens that are about equally likely.

## Why it is bad
Padding is on the wrong side, the attention mask is ignored, or positions count the padding. The model is right but its
answers are not, the more so the more the prompt lengths differ. Scores depend on the batch size.

## Example

```yaml
look: {stopped: 3}
unbatched_prompts: 2
divergent_answers:
  - {question: "Where is it?", together: the the the, alone: On the cliff, token: 0, nats: 7.5}
```

## Use instead

```yaml
look: {stopped: 8}
unbatched_prompts: 2
divergent_answers:
  - {question: "Where is it?", together: On the cliff, alone: At the cliff, token: 0, nats: 0.01}
```

## Fix safety
There is no automatic fix: pad on the left (`tokenizer.padding_side = "left"`), pass `attention_mask` to `generate`, and
check that custom modeling code takes its positions from the mask. Until then, use a batch size of 1. Scores change,
since the answers do.

## References

- huggingface/transformers#34842, kserve/kserve#3534, bigscience-workshop/t-zero#29
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule
from truetune.checks.shorten_text import quote_shortened

# Nats. Chosen, not measured: rounding in bf16 turns round tokens that are some tenths of a nat apart at most; a mask
# that is ignored moves them by whole nats. At half, large models in bf16 would be blamed; at double, short paddings
# pass.
MAX_NATS_OF_ROUNDING = 0.5


class PaddedBatchAnswersOtherwise(CauseRule):
    code = "CAU007"
    fault = Fault.PADDING_CHANGES_RESULTS
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if not self.subject.unbatched_prompts:
            return Unmet(
                "no prompt was sent on its own", "omit --backend, so that transformers is used"
            )
        unknown = sum(one.nats is None for one in self.subject.divergent_answers)
        if unknown:
            return Unmet(
                f"{unknown:,} answers differ when the prompt is sent on its own; by how much is not known"
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many answers differ when they are asked alone, and by how many nats at most."""
        worst = max((one.nats or 0.0 for one in self.subject.divergent_answers), default=0.0)
        return (
            f"{len(self.subject.divergent_answers):,} of {self.subject.unbatched_prompts:,} answers differ without"
            f" the batch, by at most {worst:.2g} in log-probability"
        )

    def findings(self) -> Iterator[Finding]:
        differing = [
            one
            for one in self.subject.divergent_answers
            if one.nats is not None and one.nats > MAX_NATS_OF_ROUNDING
        ]
        if not differing:
            return
        worst = max(one.nats or 0.0 for one in differing)
        yield self.finding(
            f"{len(differing)} of {self.subject.unbatched_prompts} prompts get another answer in a padded batch than"
            " on their own",
            "set tokenizer.padding_side = 'left' and pass attention_mask to generate(); in custom model code,"
            " compute position_ids from the mask",
            evidence=[
                f"where the answers diverge, the batch's token is up to {worst:.3g} less likely in log-probability;"
                f" rounding stays below {MAX_NATS_OF_ROUNDING}"
            ],
            cases=[
                Case(
                    f"{quote_shortened(one.question)}: token {one.token}: in the batch"
                    f" {quote_shortened(one.together)}, on its own {quote_shortened(one.alone)}"
                )
                for one in differing
            ],
            count=len(differing),
            total=self.subject.unbatched_prompts,
        )
