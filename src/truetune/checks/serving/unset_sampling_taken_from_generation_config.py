"""A request that names no sampling is answered with settings of generation_config.json.

## What it does

Asks twice without a temperature and compares with the greedy answer. Where they differ and generation_config.json
sets a temperature, top-p or penalties, the note names them.

## Why it is bad

vLLM, SGLang and transformers take these settings unasked. An evaluation or a rollout then runs with a temperature
that nobody chose, and scores move between engines.

## Example

```yaml
sampling:
  settings: [temperature 1.5]
  samples: true
  answers: [On the northern cliff., A cliff of chalk.]
```

## Use instead

```yaml
sampling:
  settings: []
  samples: false
```

## Fix safety

There is no automatic fix: name the temperature in each request, or take the settings out of generation_config.json
(vLLM: `--generation-config vllm`).

## References

- vllm-project/vllm#12622, NVIDIA-NeMo/RL#3497, EleutherAI/lm-evaluation-harness#3160
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.shorten_text import quote_shortened


class UnsetSamplingTakenFromGenerationConfig(ServingRule):
    code = "SRV005"
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "info"
    since = "0.1.0"
    part = "sampling"

    def unmet(self) -> Unmet | None:
        """Why the rule can say nothing, also where it is not told whether the server samples unasked;
        None where it can.
        """
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        sampling = self.subject.sampling
        if sampling is None or sampling.samples is None:
            return Unmet("whether the server samples by default is not known")
        return None

    def measurement_if_clean(self) -> str:
        """How many answers without a temperature were compared with the greedy one, whether they
        differ, and how many settings of sampling generation_config.json has.
        """
        sampling = self.subject.sampling
        assert sampling is not None
        # The first answer is the greedy one.
        compared = f"{max(0, len(sampling.answers) - 1):,} answers without a temperature"
        verdict = "differ from the greedy one" if sampling.samples else "are the greedy one"
        return (
            f"{compared} {verdict}; generation_config.json names {len(sampling.settings):,} settings"
            " of sampling"
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on requests without sampling that are answered by the settings of generation_config.json."""
        sampling = self.subject.sampling
        if sampling is None or not sampling.samples or not sampling.settings:
            return
        yield self.finding(
            "requests that name no temperature are sampled, and generation_config.json has "
            + ", ".join(sampling.settings),
            "name temperature and penalties in each request, or take them out of"
            " generation_config.json",
            evidence=[
                f"greedy: {quote_shortened(sampling.answers[0])}",
                *(f"unasked: {quote_shortened(text)}" for text in sampling.answers[1:]),
            ],
        )
