"""The reference model of a preference run is not the model that the run starts from.

## What it does
Compares the reference model with the model and the adapter that training starts from. In LLaMA-Factory, if training
continues an adapter (`adapter_name_or_path` without `create_new_adapter`), the reference is the model with that adapter
switched off.

## Why it is bad
DPO and KTO keep the policy close to its reference. If the reference is the base without the SFT adapter, training pulls
the policy back to the base. The rewards are not 0 at the first step, and the loss is not ln 2. The curves look normal,
or even better.

## Example
```yaml
config:
  model_name_or_path: some/model
  adapter_name_or_path: saves/sft
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: lora
  learning_rate: 0.000005
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  adapter_name_or_path: saves/sft
  create_new_adapter: true
  stage: dpo
  do_train: true
  dataset: pairs
  finetuning_type: lora
  learning_rate: 0.000005
```

## Fix safety
`create_new_adapter` merges the SFT adapter and trains a new one on top; only the new one is saved. If the adapter came
from a preference run that you are continuing, nothing is wrong.

## References
- hiyouga/LLaMA-Factory#8459, huggingface/trl#1193, huggingface/trl#1365, huggingface/trl#4723
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class DpoReferenceIsNotTheSftPolicy(ConfigRule):
    code = "CFG017"
    fault = Fault.REFERENCE_IS_NOT_THE_START
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    methods = ("dpo", "kto")
    reads = ("training.reference", "model", "training.adapter")

    def findings(self) -> Iterator[Finding]:
        config, training, raw = self.subject, self.subject.spec.training, self.subject.raw
        if training.method not in ("dpo", "kto"):
            return
        model = raw.get("model_name_or_path") or raw.get("base_model") or config.spec.model
        reference = training.reference
        is_another = reference is not None and reference not in (model, config.spec.model)
        if is_another and model is not None:
            yield self.finding(
                f"the reference model is {reference}, but training starts from {model}",
                "remove the setting of the reference model: the starting model is then the reference",
                cases=[
                    setting_case(config, reference, "training.reference"),
                    setting_case(config, model, "model"),
                ],
            )
        elif config.stack == "llama-factory" and training.lora is not None:
            yield from self._findings_on_reference_without_adapter(str(model))

    def _findings_on_reference_without_adapter(self, model: str) -> Iterator[Finding]:
        """Findings on a reference of LLaMA-Factory that lacks the adapter which the policy starts
        with.
        """
        config, training, raw = self.subject, self.subject.spec.training, self.subject.raw
        reference, adapter = training.reference, training.adapter
        if adapter is None:
            return
        of_reference = raw.get("ref_model_adapters")
        if reference is None and not raw.get("create_new_adapter"):
            yield self.finding(
                f"the reference model is {model} without the adapter {adapter} that training starts from",
                (
                    "set create_new_adapter: true, or set ref_model and ref_model_adapters to the same model and"
                    " adapter"
                ),
                cases=[
                    setting_case(config, adapter, "training.adapter"),
                    setting_case(config, training.method, "training.method"),
                ],
            )
        elif reference is not None and of_reference != raw.get("adapter_name_or_path"):
            has = f"the adapter {of_reference}" if of_reference else "no adapter"
            yield self.finding(
                f"the reference model {reference} has {has}, but training starts from {adapter}",
                f"set ref_model_adapters: {adapter}",
                cases=[
                    setting_case(config, adapter, "training.adapter"),
                    setting_case(config, reference, "training.reference"),
                ],
            )
