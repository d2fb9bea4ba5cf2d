"""Only one side of a pair ends with a stop token.

## What it does
Counts the pairs of which exactly one side has a stop token at its end. (If neither has one,
`eos-not-appended-by-tokenizer` and `answer-not-terminated` report it.) It is an error if it is missing on 10 % of the
chosen sides, otherwise a warning.

## Why it is bad
The stop token then tells the sides apart. If the chosen side lacks it, the model learns that answers which do not end
are better, and never stops.

## Example
```yaml
data:
  - {prompt: "Is it open?", chosen: " It is.", rejected: " Who knows?<|im_end|>"}
```

## Use instead
```yaml
data:
  - {prompt: "Is it open?", chosen: " It is.<|im_end|>", rejected: " Who knows?<|im_end|>"}
```

## Fix safety
Writing the EOS token after both sides is safe. TRL appends it to strings that do not end with it: then pass
`--append-eos`, so that truetune does the same, and change nothing.

## References
- axolotl-ai-cloud/axolotl#1616, huggingface/trl#1073, huggingface/trl#1025, allenai/reward-bench#90
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.make_cases_at_tokens_and_turns import case_in_example, side_of_pair_name
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.encoding.batch import Batch, Example

# Chosen, not measured: of logged answers a few are cut off, on either side. From a tenth on, "has
# no end" is a sign of the chosen answers that DPO can learn by itself.
ERROR_SHARE = 0.1
"""Share of the pairs whose chosen side alone is open, from which it is an error"""


class PairSideNotTerminated(PairRule):
    code = "PREF005"
    fault = Fault.TRAINING_ANSWERS_LACK_STOP_TOKEN
    symptoms = ("never-stops", "dpo-without-effect")
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.stops = tuple(stop.token for stop in setup.probes.stops)
        self.open = {"chosen": 0, "rejected": 0}
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the pairs of a batch of which one side alone ends with a stop token."""
        if batch.pairs is None:
            return
        self.pairs += len(batch.pairs.chosen.examples)
        chosen, rejected = batch.pairs
        for i, (good, bad) in enumerate(zip(chosen.examples, rejected.examples, strict=True)):
            ended = self._ends_with_stop(good)
            # A side without a span has nothing to learn, and rejected-side-empty or
            # no-supervised-token tells it.
            if ended != self._ends_with_stop(bad) and good.rendering.spans and bad.rendering.spans:
                name, side = ("rejected", rejected) if ended else ("chosen", chosen)
                self.open[name] += 1
                if len(self.cases) < MAX_CASES:
                    text = f"the {name} side ends with {side.examples[i].rendering.text[-40:]!r}"
                    self.cases.append(
                        case_in_example(
                            side, i, int(side.lengths[i]) - 1, text, side=side_of_pair_name(name)
                        )
                    )

    def _ends_with_stop(self, example: Example) -> bool:
        """Does an example end with a stop token? Of a chat, does each turn that is learned?"""
        rendering = example.rendering
        if example.row.is_chat:
            trained = {span.turn for span in rendering.spans}
            return all(turn.stop_start >= 0 for turn in rendering.turns if turn.message in trained)
        return rendering.text.rstrip().endswith(self.stops)

    def measurement_if_clean(self) -> Measurement:
        """How many pairs have a stop token at the end of one side alone."""
        return make_count_measurement(
            "pairs with a stop token at the end of only one side",
            sum(self.open.values()),
            self.pairs,
        )

    def findings(self) -> Iterator[Finding]:
        count = sum(self.open.values())
        if count:
            eos = self.tokenizer.special.get("eos")
            yield self.finding(
                f"{count:,} of {self.pairs:,} pairs have a stop token at the end of only one side, which then tells"
                " the sides apart",
                f"end both sides with {eos.token if eos else 'the EOS token'}; if your trainer appends it (TRL"
                " does), change nothing and run this check with --append-eos",
                severity="error" if self.open["chosen"] >= ERROR_SHARE * self.pairs else "warning",
                evidence=[
                    f"it is missing on the {name} side in {n:,} pairs"
                    for name, n in self.open.items()
                    if n
                ],
                cases=self.cases,
                count=count,
                total=self.pairs,
            )
