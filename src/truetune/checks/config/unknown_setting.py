"""The stack does not know a setting.

## What it does
Compares each key with those of the stack's release. A misspelling of a known key is a warning. Any other key is info,
because a newer release, a plug-in or your own script may know it. Three or more such keys, or one that is known from
such scripts (`dataset_mixer`), show that another program reads the file too. Only that program knows its keys, so they
are not reported. Settings of an Axolotl plug-in (`liger_rope`) that `plugins` does not list are a warning.

## Why it is bad
Axolotl silently drops a key that it does not know, and so do TRL's own scripts (`trl/scripts/sft.py --config`): with
`learning_rte: 5.0e-4`, the run uses its default learning rate. `trl sft`, LLaMA-Factory, `TrainingArguments` and
truetune stop.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rte: 0.0002
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: alpaca}]
  sequence_len: 2048
  micro_batch_size: 2
  num_epochs: 3
  learning_rate: 0.0002
```

## Fix safety
Only you know which key was meant; the suggestion is the most similar known name.

## References
- huggingface/trl#2400, unslothai/unsloth#2904, pydantic's `extra` setting, which ignores unknown keys by default
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from truetune.checks.config.evidence.axolotl_settings_of_unlisted_plugins import (
    keys_of_unlisted_plugins,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    case_at_place,
    is_config_of_python_program,
    known_keys,
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.config.evidence.settings_read_by_another_program import (
    DATA_SET_LISTS,
    describe_fate_of_unknown_key,
    is_unknown_keyword_refused,
    keys_of_another_program,
    likely_meant_key,
    unknown_keys,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule
from truetune.errors import format_name_list
from truetune.settings.stacks.known_keys import load_known_keys
from truetune.settings.suggest_spelling import find_misspelt_key

# Chosen, not measured: a line of a terminal holds about so many; the rest is counted.
MAX_NAMES_SHOWN = 8
"""Names in one message"""


class UnknownSetting(ConfigRule):
    code = "CFG001"
    fault = Fault.SETTINGS_NOT_USED
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many settings the stack's release does not know."""
        what = (
            f"settings that {self.subject.stack} {self.subject.version} does not know, by an old"
            " name either"
        )
        return make_count_measurement(what, 0, len(self.subject.raw))

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        names = known_keys(config)
        strange = []
        unlisted = keys_of_unlisted_plugins(config)
        yield from self._findings_on_unlisted_plugins(unlisted)
        ignored = {key for keys in unlisted.values() for key in keys}
        for place in unknown_keys(config):
            if place.key in ignored:
                continue
            likely = likely_meant_key(place, names)
            if likely is None:
                strange.append(case_at_place(place, place.key))
            else:
                empty = config.raw.get(place.key, ...) is None
                yield self._finding_on_misspelling(
                    place.key, "setting", likely, case_at_place(place, place.key), empty=empty
                )
        yield from self._findings_on_unknown_axolotl_data_set_keys()
        if strange and not keys_of_another_program(config):
            yield self._finding_on_strange_keys(strange)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where another program reads the file, which alone knows its settings.
        """
        own = keys_of_another_program(self.subject)
        if own:
            return Unmet(
                f"{format_name_list(own)}: a program with settings of its own reads this file, and it"
                " alone knows them"
            )
        return super().unmet()

    def _findings_on_unlisted_plugins(self, unlisted: Mapping[str, list[str]]) -> Iterator[Finding]:
        """Findings on settings of plug-ins that are not loaded."""
        config = self.subject
        for plugin, keys in unlisted.items():
            have, them = ("have", "them") if len(keys) > 1 else ("has", "it")
            yield self.finding(
                f"{format_name_list(keys)} {have} no effect: plugins does not list {plugin}",
                f"add {plugin} to plugins, or remove {them}",
                evidence=[describe_fate_of_unknown_key(config)],
                cases=[setting_case(config, config.raw[key], key) for key in keys],
            )

    def _findings_on_unknown_axolotl_data_set_keys(self) -> Iterator[Finding]:
        """Findings on keys of Axolotl's data sets, which it drops as well."""
        config = self.subject
        names = load_known_keys("axolotl").classes["dataset"] if config.stack == "axolotl" else {}
        lists = DATA_SET_LISTS if names else ()
        strange = []
        for key, index, item in [
            (listed, *pair) for listed in lists for pair in numbered_tables_of_list(config, listed)
        ]:
            for name in map(str, item):
                if name in names:
                    continue
                place = setting_case(config, item[name], f"{key}.{index}.{name}")
                likely = find_misspelt_key(name, names)
                if likely is None:
                    strange.append(place)
                else:
                    yield self._finding_on_misspelling(
                        name, "data set setting", likely, place, empty=item[name] is None
                    )
        if strange:
            yield self._finding_on_strange_keys(strange)

    def _finding_on_misspelling(
        self, key: str, what: str, likely: str, case: Case, *, empty: bool
    ) -> Finding:
        """The finding on a key that is likely a misspelling of a known one; a note where its value
        is empty.
        """
        config = self.subject
        return self.finding(
            f"{key} is not a {what} of {config.stack} {config.version}; did you mean {likely}?",
            f"write {likely}, or remove it",
            severity="info" if empty else "warning",
            evidence=[describe_fate_of_unknown_key(config)],
            cases=[case],
        )

    def _finding_on_strange_keys(self, cases: list[Case]) -> Finding:
        """The finding on keys that resemble no known key: of a newer release, a plug-in or a
        script; or of nothing.
        """
        config = self.subject
        keys = ", ".join(
            case.text.partition(":")[0].rpartition(".")[2] for case in cases[:MAX_NAMES_SHOWN]
        )
        rest = f" and {len(cases) - MAX_NAMES_SHOWN} more" if len(cases) > MAX_NAMES_SHOWN else ""
        release = f"{config.stack} {config.version}"
        return self.finding(
            f"{keys}{rest}: unknown to {release}, the release against which keys are checked",
            (
                f"remove it, unless a newer release knows it: {describe_fate_of_unknown_key(config)}"
                if is_config_of_python_program(config)
                else (
                    "keep the keys that your script, a plug-in or a newer release reads, and remove the rest:"
                    f" {describe_fate_of_unknown_key(config)}"
                )
            ),
            severity="warning" if is_unknown_keyword_refused(config) else "info",
            evidence=[f"no key of {release} has a similar name"],
            cases=cases,
            count=len(cases),
        )
