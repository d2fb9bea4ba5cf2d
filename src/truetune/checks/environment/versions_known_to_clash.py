"""Installed package versions are known to fail, on their own or in combination.

## What it does
Compares the installed versions of torch, transformers, trl, peft, accelerate, datasets and others with a list of
versions that are known to fail: some with an error at the first import, others by silently training something else. It
imports nothing.

## Why it is bad
pip installs such versions, because no package forbids them. You lose an hour, or a whole run.

## Example
```yaml
packages: {transformers: 5.20.0, peft: 0.17.1}
```

## Use instead
```yaml
packages: {transformers: 5.20.0, peft: 0.18.0}
```

## Fix safety
There is no automatic fix. The help line names the smallest change; other packages in the environment may pin a version
(`pip check` shows that).

## References
- Each finding names its threads; among them huggingface/peft#3333, huggingface/transformers#38339,
  huggingface/trl#6168, huggingface/transformers#35663, huggingface/transformers#48592, pytorch/pytorch#132179
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.environment.version_clashes import VERSION_CLASHES
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EnvironmentRule


class VersionsKnownToClash(EnvironmentRule):
    code = "ENV001"
    fault = Fault.PACKAGES_CLASH
    symptoms = ("loss-does-not-fall", "several-gpus")
    severity = "error"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        """Unmet where no package of the list is installed."""
        listed = {name for clash in VERSION_CLASHES for name in clash.versions}
        if listed & self.subject.packages.keys():
            return None
        return Unmet("no package of the list is installed")

    def measurement_if_clean(self) -> str:
        """That none of the known version clashes are installed, with their number."""
        return f"0 of {len(VERSION_CLASHES):,} known clashes are installed"

    def findings(self) -> Iterator[Finding]:
        packages = self.subject.packages
        for clash in VERSION_CLASHES:
            if clash.are_installed(packages):
                installed = " with ".join(f"{name} {packages[name]}" for name in clash.versions)
                yield self.finding(
                    f"{installed}: {clash.what}",
                    clash.remedy,
                    severity=clash.severity,
                    evidence=[f"see {', '.join(clash.threads)}"],
                )
