"""Requests without sampling settings use those of generation_config.json.

## What it does
Sends two requests without a temperature and compares the answers with the greedy one. If they differ and
generation_config.json sets a temperature, top-p or penalties, the info lists these.

## Why it is bad
vLLM, SGLang and transformers use these settings by default. An evaluation or a rollout then runs at a temperature that
nobody chose, and scores differ between engines.

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
There is no automatic fix: set the temperature in each request, or remove the settings from generation_config.json
(vLLM: `--generation-config vllm`). Scores change.

## References

- vllm-project/vllm#12622, NVIDIA-NeMo/RL#3497, EleutherAI/lm-evaluation-harness#3160
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ServingRule
from truetune.checks.shorten_text import quote_shortened


class UnsetSamplingTakenFromGenerationConfig(ServingRule):
    code = "SRV005"
    fault = Fault.SAMPLING_SETTINGS_DISTORT_ANSWERS
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
            "requests without a temperature are sampled with the settings of generation_config.json: "
            + ", ".join(sampling.settings),
            "set temperature, top_p and penalties in each request, or remove them from generation_config.json"
            " (vLLM: start with --generation-config vllm)",
            evidence=[
                f"greedy: {quote_shortened(sampling.answers[0])}",
                *(
                    (f"without a temperature: {quote_shortened(text)}")
                    for text in sampling.answers[1:]
                ),
            ],
        )
