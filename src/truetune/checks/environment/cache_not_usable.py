"""The cache of models and data sets can't be written, is nearly full, or is cut off from the hub.

## What it does
Looks at the folder that huggingface_hub would use (HF_HUB_CACHE, HF_HOME, or ~/.cache/huggingface/hub): may it be
written, how much room has its disk, and do variables forbid downloads?

## Why it is bad
A download that ends at 99 % has taken an hour; offline, a model that is not there yet is said not to exist.

## Example
```yaml
cache: {path: /models/hub, writable: false, free_gb: 500}
```

## Use instead
```yaml
cache: {path: /models/hub, writable: true, free_gb: 500}
```

## Fix safety
Moving the cache (HF_HOME) does not move what is in it.

## References
- huggingface_hub's documentation, "Environment variables": HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.rule import EnvironmentRule

GB = 10**9
ROOM = 20
"""GB: a model of 8 billion parameters in bf16, and a little"""
LEAST = 5
"""GB: a model of 2 billion"""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
OFF = ("", "0", "false", "no", "off")


class CacheNotUsable(EnvironmentRule):
    code = "ENV007"
    severity = "error"
    since = "0.1.0"

    def figure(self) -> str:
        free = self.subject.cache_free
        room = "its free room is not known" if free is None else f"{free / GB:,.0f} GB are free"
        return f"{self.subject.cache} can be written, {room}, and 0 variables forbid downloads"

    def findings(self) -> Iterator[Finding]:
        here = self.subject
        if not here.cache_writable:
            yield self.finding(
                f"{here.cache} can't be written: nothing can be downloaded",
                "give yourself the right to write there, or set HF_HOME to a folder of your own",
            )
        if here.cache_free is not None and here.cache_free < ROOM * GB:
            yield self.finding(
                f"{here.cache_free / GB:.1f} GB are free where models are kept ({here.cache})",
                "make room (`hf cache ls` lists what is there), or set HF_HOME to a larger disk",
                severity="warning" if here.cache_free < LEAST * GB else "info",
            )
        off = [name for name in OFFLINE if here.variables.get(name, "").lower() not in OFF]
        if off:
            yield self.finding(
                f"{' and '.join(f'{name}={here.variables[name]}' for name in off)}: models and data"
                " sets that are not in the cache can't be found",
                "unset it where a download is wanted",
                severity="info",
            )
