"""generation_config.json sets how engines sample by default.

## What it does
Lists the sampling settings in generation_config.json that are not neutral. It is info: most published models have some.

## Why it is bad
vLLM, SGLang and transformers use them by default. An evaluation or a rollout that is meant to be greedy then samples.
Scores differ between two engines, and log-probabilities in reinforcement learning do not match.

## Example
```yaml
llama: 2
generation_config: {temperature: 0.6, top_p: 0.9}
```

## Use instead
```yaml
llama: 2
generation_config: {temperature: 1.0, eos_token_id: 2}
```

## Fix safety
Set temperature, top_p, top_k and repetition_penalty in each request of an evaluation (vLLM: or start it with
`--generation-config vllm`). Answers then follow the request and not the file.

## References
- vllm-project/vllm#12622, NVIDIA-NeMo/RL#3497, OpenPipe/ART#140, EleutherAI/lm-evaluation-harness#3154
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.reasons_rules_cannot_judge import NO_GENERATION_CONFIG
from truetune.checks.rule import CheckpointRule

# transformers' own defaults; top_k is 50 there, and takes effect only where something else turns sampling on.
NEUTRAL = {
    "do_sample": False,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 50,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "length_penalty": 1.0,
}


class SamplingDefaultsFromGenerationConfig(CheckpointRule):
    code = "CKP023"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "info"
    stability = "stable"
    since = "0.1.0"
    changes_answers = False
    opens = False

    def unmet(self) -> Unmet | None:
        return None if self.subject.generation_config else NO_GENERATION_CONFIG

    def measurement_if_clean(self) -> str:
        """How many settings of sampling are named, each of them neutral."""
        named = [name for name in NEUTRAL if self.subject.generation_config.get(name) is not None]
        return f"it names {len(named):,} sampling settings, all neutral"

    def findings(self) -> Iterator[Finding]:
        values = self.subject.generation_config
        changed = [
            f"{name} {values[name]}"
            for name, neutral in NEUTRAL.items()
            if values.get(name) is not None and values[name] != neutral
        ]
        if changed:
            yield self.finding(
                f"engines sample with {', '.join(changed)} unless a request sets something else",
                "set temperature, top_p, top_k and repetition_penalty in each request of an evaluation or rollout"
                " (vLLM: or start it with --generation-config vllm)",
                count=len(changed),
            )
