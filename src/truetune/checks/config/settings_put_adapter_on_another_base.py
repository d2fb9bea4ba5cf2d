"""An adapter is loaded on another base model than the one that it was trained on.

## What it does
Compares the model in the settings with `base_model_name_or_path` in the adapter_config.json of the adapter that they
name (`adapter_name_or_path`, `lora_model_dir`), if that is on this machine: family, generation, size, release, and
whether it is instruction-tuned. Mirrors and quantized copies of one model count as the same. If several files are
given, it also compares the model of a training with the one on which an export, a chat, a server or a script loads its
adapter.

## Why it is bad
An adapter is a change to particular weights. On another release of the model the shapes may still fit, but the change
makes no sense there: training starts from noise, and a merge or a chat gives word salad.

## Example
```yaml
files:
  first/adapter_config.json: {base_model_name_or_path: mistralai/Mistral-7B-Instruct-v0.3}
config:
  model_name_or_path: mistralai/Mistral-7B-Instruct-v0.1
  stage: sft
  do_train: true
  dataset: some
  finetuning_type: lora
  lora_rank: 16
  adapter_name_or_path: first
```

## Use instead
```yaml
files:
  first/adapter_config.json: {base_model_name_or_path: mistralai/Mistral-7B-Instruct-v0.3}
config:
  model_name_or_path: mistralai/Mistral-7B-Instruct-v0.3
  stage: sft
  do_train: true
  dataset: some
  finetuning_type: lora
  lora_rank: 16
  adapter_name_or_path: first
```

## Fix safety
There is no automatic fix, since only you know which of the two was meant.

## References
- artidoro/qlora#28; peft documentation, `PeftModel.from_pretrained`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    setting_place,
)
from truetune.checks.faults import Fault
from truetune.checks.find_uses_of_weight_folders import is_same_or_below
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import (
    are_base_and_instruct_model,
    base_of_adapter,
    explain_different_weights,
)
from truetune.checks.is_adapter_on_its_trained_base import explain_other_base_below_adapter
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.parsing.shell_commands import is_command_file
from truetune.settings.config import WeightUse

NO_ADAPTER = Unmet(
    "no adapter_config.json of the adapter that is named is on this machine",
    "lay the adapter where the settings name it",
)


class SettingsPutAdapterOnAnotherBase(ConfigRule):
    code = "CFG044"
    fault = Fault.ADAPTER_PUT_ON_WRONG_BASE
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    about = ("training.adapter",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Unmet where no other file uses the adapter, and no named adapter is here.
        """
        if self._uses_of_written_adapter():
            return None
        if (lacking := super().unmet()) is not None:
            return lacking
        return None if self._bases_of_adapters() else NO_ADAPTER

    def measurement_if_clean(self) -> str:
        """What was measured: the model, and the bases that adapters are put on or were trained on."""
        others = self._uses_of_written_adapter()
        if others:
            names = ", ".join(use.base for use in others)
            return f"model {self.subject.spec.model}; its adapter is put on {names}"
        bases = ", ".join(base for base, _ in self._bases_of_adapters())
        return f"model {self.subject.spec.model}; 1 adapter or more, of {bases}"

    def _bases_of_adapters(self) -> list[tuple[str, Path]]:
        """The bases of the adapters that are named and here, each with its file."""
        names = str(self.subject.spec.training.adapter or "").split(",")
        bases = (base_of_adapter(name.strip(), self.subject.path) for name in names if name.strip())
        return [base for base in bases if base is not None]

    def _uses_of_written_adapter(self) -> list[WeightUse]:
        """The uses that other files make of the adapter which this run writes."""
        output = self.subject.raw.get("output_dir")
        if not isinstance(output, str) or self.subject.spec.training.lora is None:
            return []
        return [
            use
            for use in self.subject.uses
            if use.base and use.file != self.subject.path
            if any(is_same_or_below(folder, output) for folder in use.folders)
        ]

    def _findings_on_other_base(self, name: str) -> Iterator[Finding]:
        """Findings on the adapter of this run, which another file puts on a model of another name."""
        for use in self._uses_of_written_adapter():
            other = explain_other_base_below_adapter(use.base, name, use.file)
            if other is None or _is_judged_by_command_rule(use):
                continue
            yield self.finding(
                f"the adapter is trained on {name}, but {Path(use.file).name} loads it on {use.base}: {other.why}",
                f"set the base model to {name} in {Path(use.file).name}",
                severity="error" if other.is_proved else "warning",
                cases=[
                    setting_case(self.subject, name, "model"),
                    Case(use.text, file=use.file, line=use.line),
                    *other.cases,
                ],
            )

    def findings(self) -> Iterator[Finding]:
        config, name = self.subject, self.subject.spec.model
        if name is None:
            return
        yield from self._findings_on_other_base(name)
        for base, file in self._bases_of_adapters():
            apart = explain_different_weights(name, base)
            if apart is None and not are_base_and_instruct_model(name, base):
                yield from self._findings_on_base_before_earlier_stage(name, base, file)
                continue
            yield self.finding(
                f"the adapter was trained on {base}, but training continues on {name}: "
                + (apart or "one is instruction-tuned, the other is not"),
                f"set {setting_place(config, 'model').key} to {base}",
                severity="error" if apart else "warning",
                cases=[
                    setting_case(config, name, "model"),
                    Case(f"base_model_name_or_path: {base}", file=str(file)),
                ],
            )

    def _findings_on_base_before_earlier_stage(
        self, name: str, base: str, file: Path
    ) -> Iterator[Finding]:
        """Findings on an adapter that was trained on a folder of an earlier stage, and is put on
        what that stage began with.
        """
        config = self.subject
        other = explain_other_base_below_adapter(name, base, config.path)
        if other is None:
            return
        yield self.finding(
            f"the adapter was trained on {base}, but is loaded on {name}: {other.why}",
            f"set {setting_place(config, 'model').key} to {base}",
            severity="error" if other.is_proved else "warning",
            cases=[
                setting_case(config, name, "model"),
                Case(f"base_model_name_or_path: {base}", file=str(file)),
                *other.cases,
            ],
        )


def _is_judged_by_command_rule(use: WeightUse) -> bool:
    """Does the adapter's own file lie beside the command that serves it, so that the command's rule tells it?"""
    if not is_command_file(Path(use.file)):
        return False
    return any(base_of_adapter(folder, use.file) is not None for folder in use.folders)
