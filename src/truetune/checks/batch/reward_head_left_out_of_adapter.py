"""The head that scores is neither trained nor saved with the adapter.

## What it does
Looks for a reward model whose adapter leaves out its score head, on a base that is a language model: its files hold no
such head, so that transformers gives it random weights.

## Why it is bad
The adapter learns to fit random weights, and they are not saved. When base and adapter are loaded, the head has other
random weights, and the scores mean nothing.

## Example

```python
base = reward_model(architectures=["LlamaForCausalLM"])
lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"])
run = trl.RewardTrainer(base, args=arguments(trl.RewardConfig), processing_class=tokenizer, peft_config=lora,
                        train_dataset=datasets.Dataset.from_list(pairs()))
```

## Use instead

```python
base = reward_model(architectures=["LlamaForCausalLM"])
lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], task_type="SEQ_CLS")
run = trl.RewardTrainer(base, args=arguments(trl.RewardConfig), processing_class=tokenizer, peft_config=lora,
                        train_dataset=datasets.Dataset.from_list(pairs()))
```

## Fix safety
There is no automatic fix. An adapter that was trained without its head can't be repaired: the head's weights are lost.

## References

- huggingface/trl#1379, huggingface/trl#578, huggingface/peft#577, OpenRLHF/OpenRLHF#1342
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import BatchRule

# `score` in models with a decoder, `classifier` in those with an encoder.
HEAD_NAMES = ("score", "classifier")
"""Names of the head in transformers' classes for the classification of texts"""
CLASSIFIER = "ForSequenceClassification"


class RewardHeadLeftOutOfAdapter(BatchRule):
    code = "BAT048"
    fault = Fault.TRAINED_HEAD_LOST
    symptoms = ("garbage-output",)
    severity = "error"
    needs_batches = False

    def findings(self) -> Iterator[Finding]:
        """The finding that the adapter leaves the head out."""
        model = self.subject.facts["model"]
        if self.unmet() is not None or _trained_tensors_of_head(model["trainable_names"]):
            return
        architectures = ", ".join(model["config"]["architectures"])
        yield self.finding(
            f"the score head is neither trained nor saved with the adapter, and its base is {architectures}, whose"
            " files hold no such head",
            'set task_type="SEQ_CLS" in LoraConfig, or modules_to_save=["score"]',
            evidence=[f"trained: {', '.join(model['trainable_names'][:3])} ..."],
        )

    def unmet(self) -> Unmet | None:
        """Unmet where no adapter of a reward model is trained, or where its base came with a head."""
        model = self.subject.facts["model"]
        if self.subject.kind != "reward":
            return Unmet("no reward model is trained")
        if not model["adapter"]:
            return Unmet("no adapter is trained: the head is saved with the model")
        architectures = model["config"].get("architectures") or []
        if not architectures:
            return Unmet(
                "whether the base came with a head is not known: its config names no architectures"
            )
        if any(CLASSIFIER in str(name) for name in architectures):
            return Unmet("the base came with a head")
        return None

    def measurement_if_clean(self) -> str:
        """How many tensors of the head are trained."""
        trained = _trained_tensors_of_head(self.subject.facts["model"]["trainable_names"])
        return f"trained tensors of the score head, saved with the adapter: {trained}"


def _trained_tensors_of_head(names: list[str]) -> int:
    """How many of the trained tensors are of the head."""
    return sum(any(part in HEAD_NAMES for part in name.split(".")) for name in names)
