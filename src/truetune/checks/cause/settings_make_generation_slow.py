"""Generation is slow for a reason that is in the settings: no cache, beams, or a GPU that is not used.

## What it does

Times a token after 8 and after 256 others, with the settings that are saved with the model. It fires where these
switch the cache off, where a token after the longer text takes three times as long (with a cache it hardly takes
longer), where generation_config.json asks for several beams, and where the model is on a CPU beside a GPU.

## Why it is bad

Without a cache of keys and values the whole text is computed again for each token: an answer of 256 tokens costs as
much as reading 256 texts. Trainers switch the cache off, and config.json is saved so: where no generation_config.json
says otherwise, it holds for answers too. Beams cost their number.

## Example

```yaml
speed: {short: 0.05, long: 0.9, cached: false}
```

## Use instead

```yaml
speed: {short: 0.05, long: 0.06, cached: true}
```

## Fix safety

There is no automatic fix: the answers stay the same without beams and with a cache, but for rounding. Beams may be
wanted; then say so with `--ignore settings-make-generation-slow`.

## References

- huggingface/trl#3891, turbo-llm/turbo-alignment#47
"""

from __future__ import annotations

from collections.abc import Iterator

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
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if self.subject.speed is None:
            return Unmet("no answer was timed", "leave --backend out: transformers is timed")
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
                    f"up to {pace.batch} prompts of {pace.lengths[1]} tokens were answered together",
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
            "the saved settings switch the cache off: the whole text is computed again for each"
            " token",
            'write "use_cache": true into config.json and generation_config.json',
        )
    elif is_much_slower:
        yield (
            f"a token after {pace.lengths[1]} tokens takes {pace.long_to_short_text_time_ratio:.0f} times as long as"
            f" after {pace.lengths[0]}, as if there were no cache",
            "check whether the model's code hands its cache on, and which attention it uses",
        )
    if pace.beams > 1:
        yield (
            f"generation_config.json asks for {pace.beams} beams: each token is computed"
            f" {pace.beams} times",
            'write "num_beams": 1 there, where the best of several answers is not wanted',
        )
    if pace.unused is not None:
        yield (
            f"the model is on {pace.device}, beside {pace.unused}",
            "leave --device out, or name cuda",
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
