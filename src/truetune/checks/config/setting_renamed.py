"""A setting has another name in this release, or no longer exists.

## What it does
Finds keys of earlier releases that the assumed release does not know, and says what became of them. If the notebook,
the script or the project's requirements ask for a release that still takes the old name, the rule does not fire. If
none of them names a release, the finding says from which one on it applies. In a script it is an error if the call is
sure to stop with the release that is asked for. If no file asks for one, it is a warning, listed after faults that
raise no error; it is info if notebook outputs, or logs, checkpoints and predictions next to the script, show that it
ran. Old names that are still accepted share one info finding, and so do those in a file that another program reads (see
`unknown-setting`).

## Why it is bad
A key from an old tutorial no longer does what it says. TRL's scripts silently drop `max_seq_length`, and every row is
truncated at the default of 1024 tokens. Other programs, such as the `trl` command, stop at it.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_seq_length: 4096
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  max_length: 4096
```

## Fix safety
Safe if only the name changed, the new one is not set yet, and your release is new enough.

## References
- huggingface/trl#2400, unslothai/unsloth#2904, huggingface/trl#1894, huggingface/course#974
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.renamed_setting_fix import fix_of_old_name
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    case_at_place,
    is_config_of_python_program,
    known_keys,
)
from truetune.checks.config.evidence.settings_read_by_another_program import (
    are_many_keys_of_another_program,
    describe_fate_of_unknown_key,
    describe_readers_of_old_names,
    describe_removal_release,
    keys_of_another_program,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.settings.config import RenamedKey
from truetune.settings.has_program_trained_with_these_settings import (
    has_script_trained_before,
    severity_of_name_removed_in_later_release,
)
from truetune.settings.release_pins import ReleaseAge
from truetune.settings.run_spec import Severity
from truetune.settings.stacks.known_keys import DEPRECATED_KEYS, KEYS_THAT_STOP_AXOLOTL


class SettingRenamed(ConfigRule):
    code = "CFG002"
    fault = Fault.NAMES_GONE_IN_NEWER_RELEASE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many settings have another name in the release that runs."""
        return make_count_measurement(
            "settings whose name has changed for the release that runs", 0, len(self.subject.raw)
        )

    def findings(self) -> Iterator[Finding]:
        harmless: list[RenamedKey] = []
        for old in self._old_names_in_use():
            is_lost = self._is_value_lost(old)
            if is_lost and not self._may_another_program_read_name(old):
                yield self._finding_on_old_name(old, self._severity(old))
            elif is_lost or old.now:
                harmless.append(old)
        if are_many_keys_of_another_program(self.subject):
            harmless = [old for old in harmless if not self._is_value_lost(old)]
        if len(harmless) == 1 and not self._is_value_lost(harmless[0]):
            yield self._finding_on_old_name(harmless[0], "info")
        elif harmless:
            yield self._finding_on_old_names_not_surely_lost(harmless)

    def _old_names_in_use(self) -> Iterator[RenamedKey]:
        """Old names that have a value, under a release that is not from before the change."""
        for old in self.subject.renamed:
            if (
                self.subject.raw.get(old.place.key, ...) is not None
                and self._age_of_release_against_rename(old) != "older"
            ):
                yield old

    def _is_value_lost(self, old: RenamedKey) -> bool:
        """Is the value of the old name not taken: is it dropped, or does the stack stop at it?"""
        config, key = self.subject, old.place.key
        if config.stack != "axolotl":
            return old.place in config.unknown
        return key in KEYS_THAT_STOP_AXOLOTL or (
            old.place in config.unknown and key not in DEPRECATED_KEYS
        )

    def _severity(self, old: RenamedKey) -> Severity:
        """The severity: in a program an error where the call surely stops, a note where it has run
        since.
        """
        config = self.subject
        if not is_config_of_python_program(config) or old.taken is None:
            return "warning"
        change = (old.taken.last, old.taken.gone)
        return severity_of_name_removed_in_later_release(
            config.pins, old.package, [change], config.path
        )

    def _may_another_program_read_name(self, old: RenamedKey) -> bool:
        """May a program read it that has settings of its own, or that runs with the release that took it?"""
        dated = self._age_of_release_against_rename(old) == "unknown" and old.taken is not None
        if self.subject.pins.asks_for_commit(old.package):
            return True
        return bool(keys_of_another_program(self.subject)) or (self.subject.own_keys and dated)

    def _finding_on_old_name(self, old: RenamedKey, severity: Severity) -> Finding:
        """The finding on one old name: what it is called now, what becomes of its value, and the
        fix where there is one.
        """
        config, key = self.subject, old.place.key
        names = known_keys(config)
        dated = self._age_of_release_against_rename(old) == "unknown" and old.taken is not None
        return self.finding(
            f"{key} is {old.now or 'gone'} {describe_removal_release(config, old)}",
            (f"write {old.now}" if old.now else "remove it")
            + (
                f"; {old.taken.describe_until_when_name_is_valid(old.package)}, {key} is right"
                if dated and old.taken
                else ""
            ),
            severity=severity,
            evidence=[
                self._describe_fate(old, is_sure=severity == "error"),
                self._describe_running_release(old),
            ],
            cases=[case_at_place(old.place, key)],
            is_loud=is_config_of_python_program(config) and config.pins.of(old.package) is None,
            fix=(
                fix_of_old_name(config, old)
                if old.now in names and old.now not in config.raw
                else None
            ),
        )

    def _finding_on_old_names_not_surely_lost(self, several: list[RenamedKey]) -> Finding:
        """The finding on several old names of which no value is surely lost."""
        config = self.subject
        named = ", ".join(old.place.key for old in several)
        lost = any(self._is_value_lost(old) for old in several)
        return self.finding(
            f"{named}: names from earlier releases, "
            + (
                f"which {describe_readers_of_old_names(config, several)} may still accept"
                if lost
                else "which are still accepted"
            ),
            "use the new names once your release is new enough: "
            + ", ".join(
                f"{old.place.key} is {old.now or 'gone'} {describe_removal_release(config, old)}"
                for old in several
            ),
            severity="info",
            evidence=list(
                dict.fromkeys(config.pins.describe_asked_release(old.package) for old in several)
            ),
            cases=[case_at_place(old.place, old.place.key) for old in several],
            count=len(several),
        )

    def _describe_fate(self, old: RenamedKey, *, is_sure: bool) -> str:
        """What becomes of the value of an old name, in words."""
        stops = self.subject.stack == "axolotl" and old.place.key in KEYS_THAT_STOP_AXOLOTL
        if not stops and not self._is_value_lost(old):
            return "the old name is still accepted"
        lost = "Axolotl stops at it" if stops else describe_fate_of_unknown_key(self.subject)
        if is_sure or not is_config_of_python_program(self.subject) or old.taken is None:
            return lost
        return f"{lost} from that release on"

    def _describe_running_release(self, old: RenamedKey) -> str:
        """Which release runs, as far as the project and what lies beside the program say."""
        config = self.subject
        told = config.pins.describe_asked_release(old.package)
        if (
            config.pins.of(old.package) is None
            and is_config_of_python_program(config)
            and has_script_trained_before(config.path)
        ):
            return f"{told}; files next to it show that it ran, so with an earlier release"
        return told

    def _age_of_release_against_rename(self, old: RenamedKey) -> ReleaseAge:
        """Is the release that runs from before the change?"""
        return (
            "unknown"
            if old.taken is None
            else self.subject.pins.age_of_asked_releases(old.package, *old.taken)
        )
