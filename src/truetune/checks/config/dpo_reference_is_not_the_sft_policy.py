"""The reference of a preference run is not the model that the run starts from.

## What it does
Compares the reference model with the model and the adapter that training starts from. In LLaMA-Factory an
`adapter_name_or_path` that is trained on (no `create_new_adapter`) makes the reference the model with the adapter off.

## Why it is bad
DPO and KTO hold the policy near its reference. Where that is the base without the SFT adapter, the anchor pulls back to
the base, and the rewards are not 0 at the first step (the loss is not ln 2). The curves look normal, or better.

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
`create_new_adapter` merges the SFT adapter and trains a new one on top; what is saved is then the new one only. It is
no fault where the adapter itself came from a preference run that is being continued.

## References
- hiyouga/LLaMA-Factory#8459, huggingface/trl#1193, huggingface/trl#1365, huggingface/trl#4723
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class DpoReferenceIsNotTheSftPolicy(ConfigRule):
    code = "CFG017"
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
                f"the reference is {reference}, and the policy starts from {model}",
                "leave the reference out: it is then made of the policy as it starts",
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
                f"the reference is {model} without the adapter {adapter} that training starts from",
                "set create_new_adapter: true, or ref_model and ref_model_adapters to the same two",
                cases=[
                    setting_case(config, adapter, "training.adapter"),
                    setting_case(config, training.method, "training.method"),
                ],
            )
        elif reference is not None and of_reference != raw.get("adapter_name_or_path"):
            has = f"the adapter {of_reference}" if of_reference else "no adapter"
            yield self.finding(
                f"the reference {reference} has {has}, and the policy starts with {adapter}",
                f"set ref_model_adapters: {adapter}",
                cases=[
                    setting_case(config, adapter, "training.adapter"),
                    setting_case(config, reference, "training.reference"),
                ],
            )
