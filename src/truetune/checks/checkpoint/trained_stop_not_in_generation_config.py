"""generation_config.json lacks the stop token that was trained.

## What it does
Compares `eos_token_id` in generation_config.json with the stop token that the run trained (run.json).

## Why it is bad
`generate` and the serving engines end an answer at the ids in generation_config.json. The model writes its stop token,
but nothing stops there: it invents the user's next turn, or repeats itself up to the limit.

## Example
```yaml
llama: 2
generation_config: {eos_token_id: 2}
files: {run.json: {format: 1, status: finished, stops: [{token: <|im_end|>, id: 5, trained: true}]}}
```

## Use instead
```yaml
llama: 2
generation_config: {eos_token_id: [2, 5]}
files: {run.json: {format: 1, status: finished, stops: [{token: <|im_end|>, id: 5, trained: true}]}}
```

## Fix safety
Adding the id is safe: the model writes this token at the end of its answers and nowhere else.

## References
- hiyouga/LlamaFactory#7454, vllm-project/vllm#4180
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NO_GENERATION_CONFIG
from truetune.checks.rule import CheckpointRule

FILE = "generation_config.json"


class TrainedStopNotInGenerationConfig(CheckpointRule):
    code = "CKP032"
    fault = Fault.GENERATION_PASSES_TRAINED_STOP
    symptoms = ("never-stops", "slow-generation", "good-here-bad-there")
    severity = "error"
    since = "0.1.0"
    opens = False

    def unmet(self) -> Unmet | None:
        if not self.subject.generation_config:
            return NO_GENERATION_CONFIG
        if not self._trained_stops():
            return Unmet(
                "no run.json names the stop tokens that were trained", "train with truetune train"
            )
        return None

    def measurement_if_clean(self) -> str:
        """How many trained stop tokens are in generation_config.json."""
        count = len(self._trained_stops())
        return f"{count:,} of {count:,} trained stop tokens are in {FILE}"

    def _trained_stops(self) -> list[dict[str, Any]]:
        """The stop tokens of run.json (`token`, `id`) that stood in labels."""
        stops = self.subject.run_record.get("stops")
        if not isinstance(stops, list):
            return []
        return [stop for stop in stops if isinstance(stop, dict) and stop.get("trained") is True]

    def findings(self) -> Iterator[Finding]:
        if not self.subject.generation_config:
            return
        value = self.subject.generation_config.get("eos_token_id")
        served = value if isinstance(value, list) else [value]
        unserved = [stop for stop in self._trained_stops() if stop.get("id") not in served]
        if not unserved:
            return
        # The ids that stand there stay: others may be trained elsewhere.
        ids = [id for id in served if id is not None] + [stop.get("id") for stop in unserved]
        first = unserved[0]
        yield self.finding(
            f"answers were trained to end with {first.get('token')} ({first.get('id')}),"
            f" but {FILE} does not stop there",
            f'set "eos_token_id": [{", ".join(map(str, ids))}] in {FILE}',
            evidence=[f"{FILE} stops at {value}"],
            cases=[Case(f"eos_token_id: {value}", file=FILE)],
        )
