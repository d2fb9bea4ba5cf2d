"""An installed package requires another version of an installed package.

## What it does
Reads what torch, transformers, trl, peft, axolotl, unsloth, vllm and similar packages require of each other, and
compares it with the installed versions, as `pip check` does. It imports nothing.

## Why it is bad
A later `pip install` replaced a version that an earlier one had chosen. The combination is untested at best. For
example, a torchvision that does not fit torch breaks the import of transformers.

## Example
```yaml
packages: {torch: 2.8.0, torchvision: 0.21.0}
requirements: [[torchvision, torch, ==2.6.0]]
```

## Use instead
```yaml
packages: {torch: 2.6.0, torchvision: 0.21.0}
requirements: [[torchvision, torch, ==2.6.0]]
```

## Fix safety
There is no automatic fix: reinstall both in one command, so that pip finds versions that fit.

## References
- pytorch/pytorch#157648, pytorch/vision#9174, meta-llama/llama-cookbook#710
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import EnvironmentRule
from truetune.doctor.environment_record_types import Requirement


class RequirementNotMet(EnvironmentRule):
    code = "ENV002"
    fault = Fault.PACKAGES_CLASH
    symptoms = ("slow-generation",)
    severity = "warning"
    since = "0.1.0"

    def unmet(self) -> Unmet | None:
        if self.subject.requirements:
            return None
        return Unmet("no package with requirements on another one is installed")

    def measurement_if_clean(self) -> str:
        """How many requirements of one package on another are met."""
        return f"{len(self.subject.requirements):,} requirements of one package on another are met"

    def findings(self) -> Iterator[Finding]:
        packages = self.subject.packages
        unmet = [need for need in self.subject.requirements if not self._is_met_or_unknown(need)]
        for need in unmet:
            yield self.finding(
                f"{need.package} {packages.get(need.package, '')} requires {need.of}{need.specifier}, but"
                f" {packages[need.of]} is installed",
                f"pip install {need.package} '{need.of}{need.specifier}'",
            )

    def _is_met_or_unknown(self, need: Requirement) -> bool:
        """Does the installed version fulfil a requirement?

        True also if the package is not installed, or its version can't be read: those are no matter
        of this rule.
        """
        try:
            # Builds of containers and of one's own are prereleases (`2.9.0a0+git`), and pip counts them as installed.
            return SpecifierSet(need.specifier).contains(
                self.subject.packages[need.of], prereleases=True
            )
        except (InvalidSpecifier, InvalidVersion, KeyError):
            return True
