"""A bfloat16 model is trained in float16, where its activations can overflow.

## What it does
Compares `fp16` (or `dtype: float16`) with the data type of the weights in the checkpoint's config.json. If the model is
not on this machine, it is judged by its name, if its family is known to overflow (Gemma 2 and 3, T5). It also checks
`fp16_full_eval` in runs that only evaluate (`do_eval`, `do_predict`).

## Why it is bad
The largest float16 number is 65,504. bfloat16 has the range of float32, and models that were trained in it use that
range. If an activation overflows, the loss becomes NaN (0.0 in some logs), or the scaler skips step after step and the
loss stays flat.

## Example
```yaml
files:
  model/config.json: {model_type: llama, dtype: bfloat16}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  fp16: true
```

## Use instead
```yaml
files:
  model/config.json: {model_type: llama, dtype: bfloat16}
config:
  model_name_or_path: model
  dataset_name: some/rows
  max_length: 2048
  bf16: true
```

## Fix safety
On a GPU without bfloat16 (T4, V100), load the weights as float32 instead and watch the log for a loss of 0.0.

## References
- Lightning-AI/lit-llama#294, huggingface/transformers#25021, hiyouga/LLaMA-Factory#3353
- huggingface/transformers#4586 (T5), huggingface/transformers#9295 (mT5); unsloth documentation, "Gemma 3" (float16)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.facts_from_model_folder import stored_dtype
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_MODEL
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import family_known_to_overflow_float16
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

FULL_EVAL = "fp16_full_eval"
EVALUATES = ("do_eval", "do_predict")
"""Settings of an evaluation after the training, for which the Trainer casts the weights; during a training it leaves
them as they are"""


def _model_name(config: Config) -> str:
    """The model as the settings name it."""
    return str(config.spec.model or config.spec.tokenizer or "")


class Bf16ModelRunInFp16(ConfigRule):
    code = "CFG011"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    reads = ("training.fp16", "training.bf16", "training.dtype")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where a run in float16 has a model of an unknown dtype and family.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        training = self.subject.spec.training
        half = training.fp16 or (
            training.dtype == "float16" and not training.bf16 and not training.load_in
        )
        unknown = (
            stored_dtype(self.subject) is None
            and family_known_to_overflow_float16(_model_name(self.subject)) is None
        )
        return NO_MODEL if half and unknown else None

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        if training.fp16 and training.dtype == "bfloat16":
            yield self.finding(
                "the weights are loaded in bfloat16 but trained in float16, whose largest number is 65,504: larger"
                " activations make the loss NaN",
                "set bf16: true and fp16: false",
                cases=[
                    setting_case(config, True, "training.fp16"),
                    setting_case(config, "bfloat16", "training.dtype"),
                ],
            )
        elif _trains_in_float16(config):
            yield from self._findings_on_bfloat16_model()
        elif _evaluates_in_float16(config):
            yield from self._findings_on_float16_evaluation()

    def _findings_on_float16_evaluation(self) -> Iterator[Finding]:
        """Findings on weights that are cast to float16 for the evaluation after the training."""
        config = self.subject
        family = family_known_to_overflow_float16(_model_name(config))
        is_wide = stored_dtype(config) == "bfloat16" or config.spec.training.bf16
        if family is None and not is_wide:
            return
        what = (
            f"{family} has larger activations, which make the loss NaN"
            if family is not None
            else "the model was trained in bfloat16: larger activations make the loss NaN"
        )
        yield self.finding(
            f"the evaluation runs in float16, whose largest number is 65,504, and {what}",
            f"set bf16_full_eval: true instead of {FULL_EVAL}",
            severity="warning" if family is not None else "info",
            cases=[setting_case(config, True, FULL_EVAL)],
        )

    def _findings_on_bfloat16_model(self) -> Iterator[Finding]:
        """Findings on a model that was trained in bfloat16, by its config.json or, where that is
        not here, by its name.
        """
        config, training = self.subject, self.subject.spec.training
        field = "training.fp16" if training.fp16 else "training.dtype"
        switch = setting_case(config, training.fp16 or training.dtype, field)
        stored = stored_dtype(config)
        if stored == "bfloat16":
            path = f"{config.spec.model or config.spec.tokenizer}/config.json"
            yield self.finding(
                "a bfloat16 model is trained in float16, whose largest number is 65,504: larger activations make"
                " the loss NaN",
                "set bf16: true and fp16: false",
                cases=[switch, Case("dtype: bfloat16", file=path)],
            )
            return
        family = family_known_to_overflow_float16(_model_name(config)) if stored is None else None
        if family is not None:
            yield self.finding(
                f"{family} overflows in float16, whose largest number is 65,504: gradients become NaN,"
                " and steps are skipped",
                "set bf16: true and fp16: false; on a GPU without bfloat16 load the weights as"
                " float32 (torch_dtype), and train without fp16",
                cases=[switch, setting_case(config, _model_name(config), "model", "tokenizer")],
            )


def _evaluates_in_float16(config: Config) -> bool:
    """Is the model cast to float16 for an evaluation that is run apart from the training?"""
    raw = config.raw
    return raw.get(FULL_EVAL) is True and any(raw.get(name) is True for name in EVALUATES)


def _trains_in_float16(config: Config) -> bool:
    """Does a run compute in float16: by fp16, or by weights of that dtype that nothing quantizes?"""
    training = config.spec.training
    is_dtype = training.dtype == "float16" and not training.bf16 and not training.load_in
    return bool(training.fp16 or is_dtype)
