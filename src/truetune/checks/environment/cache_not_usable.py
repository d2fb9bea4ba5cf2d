"""The cache of models and data sets is not writable, nearly full, or offline.

## What it does
Looks at the folder that huggingface_hub would use (HF_HUB_CACHE, HF_HOME, or ~/.cache/huggingface/hub): whether it is
writable, how much free space its disk has, and whether variables forbid downloads.

## Why it is bad
A download that fails at 99 % has wasted an hour. Offline, a model that is not in the cache is reported as missing.

## Example
```yaml
cache: {path: /models/hub, writable: false, free_gb: 500}
```

## Use instead
```yaml
cache: {path: /models/hub, writable: true, free_gb: 500}
```

## Fix safety
Moving the cache (HF_HOME) does not move its contents.

## References
- huggingface_hub's documentation, "Environment variables": HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import EnvironmentRule

GB = 10**9
# Both chosen, not measured, after what is downloaded most: a model of 8 billion parameters in bf16 takes 16 GB, one of
# 2 billion 4 GB. Half would stay quiet where such a download fails; double would tell every notebook in the cloud.
FREE_GB_TO_NOTE = 20
FREE_GB_TO_WARN = 5
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
# Libraries differ in what they take as true (huggingface_hub: 1, on, yes, true); in what is surely false they agree.
FALSE_VALUES = ("", "0", "false", "no", "off")


class CacheNotUsable(EnvironmentRule):
    code = "ENV007"
    fault = Fault.DOWNLOAD_CACHE_UNUSABLE
    symptoms = ("cached-data",)
    severity = "error"
    since = "0.1.0"

    def measurement_if_clean(self) -> str:
        """The cache, its free room, and that it can be written and downloads are not forbidden."""
        free = self.subject.cache_free
        room = "its free room is not known" if free is None else f"{free / GB:,.0f} GB are free"
        return f"{self.subject.cache} can be written, {room}, and 0 variables forbid downloads"

    def findings(self) -> Iterator[Finding]:
        environment = self.subject
        if not environment.cache_writable:
            yield self.finding(
                f"the cache {environment.cache} is not writable: nothing can be downloaded",
                "get write permission for it, or set HF_HOME to a folder that you can write to",
            )
        free_bytes = environment.cache_free
        if free_bytes is not None and free_bytes < FREE_GB_TO_NOTE * GB:
            yield self.finding(
                f"only {free_bytes / GB:.1f} GB are free for the model cache ({environment.cache})",
                (
                    "free some space (`hf cache ls` lists the cached files), or set HF_HOME to a folder on a larger"
                    " disk"
                ),
                severity="warning" if free_bytes < FREE_GB_TO_WARN * GB else "info",
            )
        offline = [
            f"{name}={environment.variables[name]}"
            for name in OFFLINE_VARIABLES
            if environment.variables.get(name, "").lower() not in FALSE_VALUES
        ]
        if offline:
            yield self.finding(
                f"{' and '.join(offline)}: models and data sets that are not in the cache can't be downloaded",
                "unset it if you need to download",
                severity="info",
            )
