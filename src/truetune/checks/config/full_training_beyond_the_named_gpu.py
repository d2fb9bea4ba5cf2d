"""Full training does not fit on the one GPU that the run's files name.

## What it does
Multiplies the model's parameters (by its published name) by the bytes that weights, gradients and optimizer states take
at least (AdamW: 8 in pure bfloat16, 16 in float32). It compares the product with the GPU that the run's own files name:
in a job's request (`--gres=gpu:rtx4090:1`) or in a comment (`# 1x A10G`). It does not fire with LoRA, quantized or
frozen weights, offloading, sharding or several GPUs.

## Why it is bad
The run ends with `CUDA out of memory`, mostly at the first optimizer step, after the weights were loaded.

## Example
```yaml
text: |
  # one RTX 4090
  model_name_or_path: Qwen/Qwen3-8B
  stage: sft
  do_train: true
  dataset: some
  finetuning_type: full
  bf16: true
  learning_rate: 0.00001
```

## Use instead
```yaml
text: |
  # one H200
  model_name_or_path: Qwen/Qwen3-8B
  stage: sft
  do_train: true
  dataset: some
  finetuning_type: full
  bf16: true
  learning_rate: 0.00001
```

## Fix safety
Take a larger GPU, or train LoRA with `finetuning_type: lora` and a learning rate of 1e-4 to 5e-4. LoRA changes what the
model can learn. `truetune plan` says how much memory each option needs.

## References
- docs/plan.md: the formulas and their sources
- huggingface/transformers documentation, "GPU memory usage"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    setting_case,
)
from truetune.checks.faults import Fault
from truetune.checks.find_only_gpu_named_in_files import NamedGpu, find_only_named_gpu
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import model_identity
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

ADAMW_NAMES = ("adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused")
"""Optimizers with two states in the dtype of the weights"""
BYTES_PER_PARAMETER = {"float32": 16.0}
"""Weight, gradient and two states; else two bytes for each of them, which is the least"""
LEAST_BYTES = 8.0
"""Bytes for each parameter in a dtype of two bytes: weight, gradient and two states"""
PARTS_TRAINED = re.compile(
    r"peft|lora|unfrozen|freeze|requires_grad|galore|apollo|badam|spectrum|offload", re.I
)
"""In the settings or the program: other or fewer weights may be trained, or not all of them lie on the GPU"""
# Chosen: a gigabyte of a label is at most a GiB, and the smallest reserve that CUDA takes.
MARGIN = 1.05
"""Times the GPU's memory that the least must reach: rounding of sizes in names never decides"""


class FullTrainingBeyondTheNamedGpu(ConfigRule):
    code = "CFG063"
    fault = Fault.RUN_EXCEEDS_GPU_MEMORY
    symptoms = ("out-of-memory",)
    severity = "error"
    methods = ("sft", "dpo", "orpo", "cpo", "kto", "pretrain")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet where the size of the model or its one GPU is not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if self._min_gigabytes() is None:
            return Unmet("it is about AdamW on all weights of a model whose name says its size")
        if self._named_gpu() is None:
            return Unmet("no file of the run names its one GPU")
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: the gigabytes that the run needs at least, beside those of the GPU."""
        gpu = self._named_gpu()
        assert gpu is not None, "else the rule is not judged"
        return f"{self._min_gigabytes():.0f} GB at least, and {gpu.name} has {gpu.gigabytes:g}"

    def findings(self) -> Iterator[Finding]:
        config, least, gpu = self.subject, self._min_gigabytes(), self._named_gpu()
        if least is None or gpu is None or least < gpu.gigabytes * MARGIN:
            return
        yield self.finding(
            f"training all weights of {config.spec.model} with AdamW needs at least {least:.0f} GB, but the run's"
            f" one GPU ({gpu.name}) has {gpu.gigabytes:g} GB",
            (
                "train with LoRA (if needed with the base model in 4 bits), or shard the weights over several GPUs"
                " with FSDP or ZeRO-3"
            ),
            evidence=[
                f"weights, gradients and two optimizer states: {self._bytes_per_parameter():g} bytes per parameter"
            ],
            cases=[
                Case(gpu.text, file=gpu.file, line=gpu.line),
                setting_case(config, config.spec.model, "model"),
            ],
        )

    def _named_gpu(self) -> NamedGpu | None:
        """The one GPU of the run."""
        return find_only_named_gpu(self.subject.path, self.subject.text)

    def _bytes_per_parameter(self) -> float:
        """Bytes for each parameter, at least."""
        return BYTES_PER_PARAMETER.get(str(self.subject.spec.training.dtype), LEAST_BYTES)

    def _min_gigabytes(self) -> float | None:
        """The gigabytes that the run needs at least; None where not all weights are trained by
        AdamW, or their number is unknown.
        """
        config, training = self.subject, self.subject.spec.training
        is_full = config.stack != "llama-factory" or config.raw.get("finetuning_type") == "full"
        if (
            not is_full
            or str(training.optim or "adamw") not in ADAMW_NAMES
            or _needs_less_than_full_training_memory(config)
        ):
            return None
        # A program may wrap the model in ways that its settings do not show.
        said = (
            config.text
            if is_config_of_python_program(config)
            else _lines_not_switched_off(config.text)
        )
        if PARTS_TRAINED.search(said):
            return None
        billions = _billions_of_parameters(config.spec.model or "")
        return billions * self._bytes_per_parameter() if billions is not None else None


def _needs_less_than_full_training_memory(config: Config) -> bool:
    """Are fewer weights trained, or smaller ones, or shared out over several GPUs?"""
    training = config.spec.training
    is_shared = bool(training.fsdp or training.deepspeed_stage or training.device_map)
    is_part = training.lora is not None or training.load_in is not None or config.freezes_by_hand
    return is_shared or is_part


def _lines_not_switched_off(text: str) -> str:
    """The lines of settings that are not switched off: `enable_activation_offloading: False` offloads nothing."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return "\n".join(
        line for line in lines if not re.search(r":\s*(?:false|null|none)\s*$", line, re.I)
    )


def _billions_of_parameters(name: str) -> float | None:
    """Billions of parameters by a model's name; None where it says none."""
    identity = model_identity(name)
    size = identity.size if identity is not None else ""
    if not size.endswith("b") or "x" in size:
        return None
    return float(size[:-1])
