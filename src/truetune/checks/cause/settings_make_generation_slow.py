"""Generation is slow because of a setting: no cache, beam search, or a GPU that is not used.

## What it does
Measures the time per token after 8 and after 256 tokens, with the settings saved with the model. It fires if

- these switch the cache off,
- a token takes three times as long after the longer text (with a cache it takes hardly longer),
- generation_config.json sets several beams,
- the model runs on the CPU although there is a GPU.

## Why it is bad
Without a key-value cache, the whole text is computed again for each token: an answer of 256 tokens costs as much as
reading 256 texts. Trainers switch the cache off, and that is saved in config.json. Unless generation_config.json says
otherwise, it applies to generation too. Beam search multiplies the cost by the number of beams.

## Example

```yaml
speed: {short: 0.05, long: 0.9, cached: false}
```

## Use instead

```yaml
speed: {short: 0.05, long: 0.06, cached: true}
```

## Fix safety
There is no automatic fix. Without beams the answers may change; with a cache they stay the same except for rounding. If
you want beams, ignore the rule (`--ignore settings-make-generation-slow`).

## References

- huggingface/trl#3891, turbo-llm/turbo-alignment#47
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CauseRule
from truetune.generation.backends.backend import GenerationSpeed

# How many times as long a token may take behind the longer text. Chosen between a cache (about 1) and none: 32 times
# the text, of which small models hide a part behind fixed costs. At 1.5 a busy machine would do, at 6 a small model
# without cache would pass.
MAX_GROWTH = 3.0
# Seconds that it must take longer: less is noise of the clock and of other programs.
MIN_EXTRA_SECONDS = 0.005


class SettingsMakeGenerationSlow(CauseRule):
    code = "CAU013"
    fault = Fault.GENERATION_OPTIONS_SLOW
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if self.subject.speed is None:
            return Unmet(
                "no answer was timed", ("omit --backend, so that transformers is used and timed")
            )
        return None

    def measurement_if_clean(self) -> str:
        """How long a token takes behind a short and a long text, and on which device."""
        pace = self.subject.speed
        assert pace is not None
        return f"a token takes {_describe_token_times(pace)}, on {pace.device}"

    def findings(self) -> Iterator[Finding]:
        pace = self.subject.speed
        if pace is None:
            return
        for reason, remedy in _reasons_with_remedies(pace):
            yield self.finding(
                reason,
                remedy,
                evidence=[
                    f"a token takes {_describe_token_times(pace)}"
                    f" ({pace.long_to_short_text_time_ratio:.1f} times as long), on"
                    f" {pace.device}",
                    f"up to {pace.batch} prompts of {pace.lengths[1]} tokens were answered in one batch",
                ],
            )


def _reasons_with_remedies(pace: GenerationSpeed) -> Iterator[tuple[str, str]]:
    """(what makes generation slow, what to do) for each reason."""
    is_much_slower = (
        pace.long_to_short_text_time_ratio >= MAX_GROWTH
        and pace.long - pace.short >= MIN_EXTRA_SECONDS
    )
    if pace.cached is False:
        yield (
            "the saved settings switch the cache off (use_cache: false): the whole text is computed again for each"
            " token",
            'write "use_cache": true into config.json and generation_config.json',
        )
    elif is_much_slower:
        yield (
            f"a token after {pace.lengths[1]} tokens takes {pace.long_to_short_text_time_ratio:.0f} times as long as"
            f" after {pace.lengths[0]}, as if there were no cache",
            "check that the model's own code returns past_key_values and uses them in the next step",
        )
    if pace.beams > 1:
        yield (
            f"generation_config.json asks for {pace.beams} beams: each token is computed"
            f" {pace.beams} times",
            'set "num_beams": 1 in generation_config.json, unless you want beam search',
        )
    if pace.unused is not None:
        yield (
            f"the model is on {pace.device}, although {pace.unused} is available",
            "omit --device, or pass --device cuda",
        )


def _describe_token_times(pace: GenerationSpeed) -> str:
    """How long a token takes after the shorter and after the longer text."""
    near, far = pace.lengths
    return (
        f"{_format_seconds(pace.short)} after {near} tokens and {_format_seconds(pace.long)}"
        f" after {far}"
    )


def _format_seconds(seconds: float) -> str:
    """A time as text: in milliseconds below a second, else in seconds."""
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
