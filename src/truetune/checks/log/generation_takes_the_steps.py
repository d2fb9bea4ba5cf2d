"""Nearly all of a reinforcement learning step is spent on generating completions with transformers.

## What it does
Reads the timings of a run's parts (TRL's `profiling/Time taken: GRPOTrainer.transformers.generate`, also in a table
that W&B exported). It compares the generation with the step: `step_time`, the progress bar, else the other parts
together. It reports two thirds or more as info, and warns from 80 %, if transformers generates: the timing's name says
so, or the settings beside the log leave `use_vllm` off. Without timings, and if these settings say that it is off, it
uses the tokens per second.

## Why it is bad
`generate` of transformers computes a batch until its longest completion ends, without paged attention and inside the
trainer's own wrappers. An inference engine makes the same completions several times as fast; until then the GPU is
mostly idle.

## Example
```yaml
curve:
  loss: {from: 0.01, to: 0.02, steps: 40}
  reward: {from: 0.2, to: 0.5, steps: 40, noise: 0.01}
  step_time: {from: 90, steps: 40}
  "profiling/Time taken: GRPOTrainer.transformers.generate": {from: 81, steps: 40}
```

## Use instead
```yaml
curve:
  loss: {from: 0.01, to: 0.02, steps: 40}
  reward: {from: 0.2, to: 0.5, steps: 40, noise: 0.01}
  step_time: {from: 16, steps: 40}
  "profiling/Time taken: GRPOTrainer.vLLM.generate": {from: 8, steps: 40}
```

## Fix safety
The probabilities of vLLM differ a little from the trainer's; TRL corrects that (`vllm_importance_sampling_correction`).
vLLM on the same GPU takes memory from the training: lower `vllm_gpu_memory_utilization` if memory is short.

## References
- huggingface/trl documentation, "Speeding up training with vLLM"
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import LogRule
from truetune.logs.facts_in_files_beside_log import SettingBeside
from truetune.logs.run_log import RunLog

TIMED = re.compile(r"time taken|\btiming|(?:^|[_/])times?(?:[_/]|$)|seconds|_s(?:/|$)", re.I)
"""How names of curves say that they are seconds"""
GENERATION = re.compile(r"(?<![a-z])(?:gen|generate|generation|rollouts?)(?![a-z])", re.I)
OF_TRANSFORMERS = re.compile(r"transformers\W*generate", re.I)
OF_ENGINE = re.compile(r"vllm|sglang|engine|lmdeploy", re.I)
STEP_CURVES = ("step_time", "timing_s/step", "timing/step")
MUCH, MOST = 2 / 3, 0.8
"""Shares of a step. Chosen: beside an engine, generation is a third to a half of a step in published profiles"""
MIN_STEP_S = 10.0
"""Chosen: a shorter step is no reason to look"""
MIN_RECORDS = 5
"""Records of a timing. Chosen by hand: the first steps compile and load, and a median of five is not moved by two"""
FEW_TOKENS_A_SECOND = 500.0
"""Of prompts and completions together, for a whole step. An engine on one GPU of today makes thousands"""


class _GenerationShare(NamedTuple):
    """What the generation of completions takes of a step."""

    generation: float
    step: float
    name: str
    """The curve"""
    source: str
    """What says how long the step is"""


class GenerationTakesTheSteps(LogRule):
    code = "LOG115"
    fault = Fault.GENERATION_OPTIONS_SLOW
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet where the log does not say how long the generation in its steps takes."""
        if (
            _generation_share(self.subject) is not None
            or self._tokens_per_second_without_engine() is not None
        ):
            return None
        return Unmet("it is about runs that log how long the generation in their steps takes")

    def measurement_if_clean(self) -> str:
        """The share of a step that generation takes, or the tokens per second."""
        share = _generation_share(self.subject)
        if share is not None:
            return f"generation takes {share.generation / share.step:.0%} of a step of {share.step:.0f} s"
        return f"{self._tokens_per_second_without_engine() or 0:,.0f} tokens a second"

    def findings(self) -> Iterator[Finding]:
        share = _generation_share(self.subject)
        switch = self.subject.files_beside.setting("use_vllm")
        if share is not None:
            yield from self._findings_on_timings(share, switch)
            return
        speed = self._tokens_per_second_without_engine()
        if speed is not None and speed < FEW_TOKENS_A_SECOND:
            step = _step_seconds_and_source(self.subject)
            assert step is not None, "else there is no speed"
            yield self._finding(
                f"a step takes {step[0]:.0f} s for {speed * step[0]:,.0f} tokens (only {speed:,.0f} per second): "
                "transformers generates the completions",
                switch,
                "info",
                (f"the time comes from {step[1]}; the tokens are counted by num_tokens",),
            )

    def _findings_on_timings(
        self, share: _GenerationShare, switch: SettingBeside | None
    ) -> Iterator[Finding]:
        """Findings by the timings that the run logged of its parts."""
        part = share.generation / share.step
        is_plain = OF_TRANSFORMERS.search(share.name) is not None or (
            switch is not None and switch.value is False and not OF_ENGINE.search(share.name)
        )
        if part < MUCH or share.step < MIN_STEP_S or not is_plain:
            return
        yield self._finding(
            f"generating completions with transformers takes {share.generation:.0f} of {share.step:.0f} s per step"
            f" ({part:.0%})",
            switch,
            "warning" if part >= MOST else "info",
            (f"medians of {share.name!r} and of {share.source}",),
        )

    def _finding(
        self, message: str, switch: SettingBeside | None, severity: str, evidence: tuple[str, ...]
    ) -> Finding:
        """The finding, with the advice to generate by an engine and the line beside the log that
        leaves it off.
        """
        cases = (
            []
            if switch is None
            else [Case(switch.text, file=switch.file, line=switch.line or None)]
        )
        return self.finding(
            message,
            'generate with vLLM: use_vllm=True with vllm_mode="colocate" (or on a server: `trl vllm-serve`); shorter'
            " completions (max_completion_length) or fewer of them (num_generations) are faster too, but cost quality",
            severity="warning" if severity == "warning" else "info",
            evidence=evidence,
            cases=cases,
        )

    def _tokens_per_second_without_engine(self) -> float | None:
        """Tokens of a step over its seconds, where the settings beside the log leave the engine
        off; else None.
        """
        log = self.subject
        switch = log.files_beside.setting("use_vllm")
        step, tokens = _step_seconds_and_source(log), log.curve("num_tokens").finite()
        if log.kind != "reinforcement" or switch is None or switch.value is not False:
            return None
        if step is None or step[0] < MIN_STEP_S or tokens.step.size < MIN_RECORDS:
            return None
        steps = tokens.step[-1] - tokens.step[0]
        made = float(tokens.value[-1] - tokens.value[0])
        return made / float(steps) / step[0] if steps > 0 and made > 0 else None


def _generation_share(log: RunLog) -> _GenerationShare | None:
    """The seconds of the slowest timing of a generation beside those of a step; None where none is
    logged.
    """
    timed = _median_seconds_by_part(log)
    named = {
        name: value
        for name, value in timed.items()
        if GENERATION.search(_last_part_of_timing_name(name))
    }
    if not named:
        return None
    name = max(named, key=lambda one: named[one])
    step = _step_seconds_and_source(log)
    if step is not None and step[0] >= named[name]:
        return _GenerationShare(named[name], step[0], name, step[1])
    # Parts that take longer hold the generation themselves (`_prepare_inputs`).
    others = [value for one, value in timed.items() if one not in named and value < named[name]]
    if not others:
        return None
    return _GenerationShare(
        named[name], named[name] + sum(others), name, "the other timed parts together"
    )


def _last_part_of_timing_name(name: str) -> str:
    """`profiling/Time taken: GRPOTrainer.transformers.generate` -> `generate`"""
    return re.split(r"[./: ]", name)[-1]


def _median_seconds_by_part(log: RunLog) -> Mapping[str, float]:
    """Median seconds of each timed part of a step, of the curves that have records enough."""
    return {
        name: float(np.median(curve.finite().value))
        for name, curve in log.curves.items()
        if TIMED.search(name)
        and name not in STEP_CURVES
        and curve.finite().step.size >= MIN_RECORDS
    }


def _step_seconds_and_source(log: RunLog) -> tuple[float, str] | None:
    """Seconds of a step, and what says so."""
    for name in STEP_CURVES:
        values = log.curve(name).finite().value
        if values.size >= MIN_RECORDS:
            return float(np.median(values)), name
    if log.output is not None and log.output.step_seconds:
        return log.output.step_seconds, "the progress bar"
    return None
