"""A setting is given twice.

## What it does
Finds keys that are set twice in the same mapping of a YAML file. A second line with the same value changes nothing and
is not reported, unless the stack's reader rejects the file.

## Why it is bad
YAML readers silently keep the last value, so the value that you see at the top of the file is not the one that is used.
LLaMA-Factory's reader stops.

## Example
```yaml
text: |
  base_model: some/model
  learning_rate: 0.0002
  datasets: [{path: some/rows, type: alpaca}]
  micro_batch_size: 2
  learning_rate: 0.00001
```

## Use instead
```yaml
text: |
  base_model: some/model
  learning_rate: 0.0002
  datasets: [{path: some/rows, type: alpaca}]
  micro_batch_size: 2
```

## Fix safety
Only you know which of the two you meant.

## References
- yaml/pyyaml#165, rbgirshick/yacs#17
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import case_at_place
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import ConfigRule


class DuplicateSetting(ConfigRule):
    code = "CFG003"
    fault = Fault.SETTINGS_CONTRADICT
    symptoms = ("nothing-is-learned",)
    severity = "warning"
    since = "0.1.0"

    def measurement_if_clean(self) -> Measurement:
        """What was measured: how many settings are given twice."""
        return make_count_measurement("settings that are given twice", 0, len(self.subject.raw))

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        lines = config.text.splitlines() if config.repeated else []
        for first, second in config.repeated:
            said = [
                lines[one.line - 1].strip() if one.line <= len(lines) else one.key
                for one in (first, second)
            ]
            stops = config.stack == "llama-factory"
            if _single_line_value(said[0]) == _single_line_value(said[1]) is not None and not stops:
                continue
            yield self.finding(
                f"{second.key} is given twice: "
                + (
                    "LLaMA-Factory cannot read such a file" if stops else f"line {second.line} wins"
                ),
                "delete one of the two lines",
                cases=[
                    case_at_place(one, text)
                    for one, text in zip((first, second), said, strict=True)
                ],
            )


def _single_line_value(line: str) -> str | None:
    """The value in a line of YAML; None where it may be longer than the line."""
    value = line.partition(":")[2].partition(" #")[0].strip()
    return value if value and value[0] not in "|>&[{" else None
