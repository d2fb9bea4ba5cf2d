"""Weights or optimizer states are offloaded to host memory although they would fit on the GPU.

## What it does
Reads from the console output that DeepSpeed or FSDP offloads (`cpu_adam` is loaded, `offload_optimizer` or
`offload_param` with a device, `fsdp_offload_params: true`), and how many parameters there are and are trained. It fires
if the weights in bfloat16, with gradients and optimizer states of what is trained, take less than 8 GiB (every GPU that
trains such a model has more), or less than half of the GPU that the output names or nvidia-smi measured. Offloading
does not free memory for activations, which are what grows with rows and length.

## Why it is bad
Each step waits for copies between host memory and the GPU, and for an optimizer on the CPU. It takes many times as
long, on any number of GPUs.

## Example
```yaml
output: |
  trainable params: 18,464,768 || all params: 1,562,179,072 || trainable%: 1.1820
  Loading extension module cpu_adam...
  Time to load cpu_adam op: 2.4271 seconds
  {'loss': 1.6856, 'grad_norm': 0.6721, 'learning_rate': 6.67e-06, 'epoch': 0.02}
    1%|          | 1/150 [00:41<101:49, 41.57s/it]
  {'train_runtime': 6235.5, 'train_samples_per_second': 0.38, 'train_loss': 1.31, 'epoch': 3.0}
```

## Use instead
```yaml
output: |
  trainable params: 18,464,768 || all params: 1,562,179,072 || trainable%: 1.1820
  {'loss': 1.6856, 'grad_norm': 0.6721, 'learning_rate': 6.67e-06, 'epoch': 0.02}
    1%|          | 1/150 [00:02<05:19, 2.14s/it]
  {'train_runtime': 321.2, 'train_samples_per_second': 7.47, 'train_loss': 1.31, 'epoch': 3.0}
```

## Fix safety
The gradients are the same without offloading. `truetune plan SETTINGS --gpu SIZE` shows beforehand whether the model
fits.

## References
- deepspeed.ai/docs/config-json (offload_optimizer, offload_param); Ren et al. 2021 (ZeRO-Offload), arXiv 2101.06840
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.find_gpus_in_files_beside import smallest_memory_of_gpu_gb
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import OutputRule
from truetune.logs.share_of_time_beside_training import step_seconds_without_evaluations

GIB = float(1 << 30)
FITS = 8.0
"""GiB: GPUs that are used for training have 16 and more, and activations take the rest"""
SHARE_OF_GPU = 0.5
"""Of a GPU that is known: activations have the other half"""
GB = 1e9
"""Bytes"""
WEIGHT, TRAINED = 2, 16
"""Bytes: a weight in bfloat16; of one that is trained its copy, gradient and two states in float32"""
SLOW_STEP_S = 10.0
"""From here on the seconds of a step are worth a word"""


class OffloadWithoutNeed(OutputRule):
    code = "LOG036"
    fault = Fault.NEEDLESS_OFFLOADING
    symptoms = ("slow-training",)
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Also unmet where nothing is said of offloading, or the number of parameters is not known."""
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        output = self.subject.output
        if output is not None and not output.settings.offload:
            return Unmet("the output does not say that anything is offloaded")
        if self._gib_of_weights_gradients_and_states() is None:
            return Unmet("the output does not say how many parameters there are")
        return None

    def measurement_if_clean(self) -> str:
        """GiB of weights and states without offloading; empty where that is not known."""
        need = self._gib_of_weights_gradients_and_states()
        return f"weights and states take {need:.1f} GiB without offloading" if need else ""

    def findings(self) -> Iterator[Finding]:
        output, need = self.subject.output, self._gib_of_weights_gradients_and_states()
        if (
            output is None
            or not output.settings.offload
            or need is None
            or need > self._gib_allowed_for_weights_and_states()
        ):
            return
        settings = output.settings
        seconds = step_seconds_without_evaluations(self.subject)
        took = f"; a step takes {seconds:.0f} s" if seconds and seconds > SLOW_STEP_S else ""
        yield self.finding(
            "weights or optimizer states are offloaded to host memory, although they only take"
            f" {need:.1f} GiB{self._gpu_memory_in_words()}{took}",
            "remove offload_param and offload_optimizer from the DeepSpeed file (or set fsdp_offload_params: false);"
            " a LoRA of a model that fits on one GPU needs no sharding: use ZeRO stage 0 to 2, or torchrun without"
            " DeepSpeed; `truetune plan SETTINGS --gpu SIZE` shows whether it fits",
            evidence=(
                f"{settings.parameters or 0:,} parameters, {settings.trained or 0:,} of them trained",
                *self._measured_gpu_evidence(),
            ),
        )

    def _gib_allowed_for_weights_and_states(self) -> float:
        """GiB that weights and states may take: half of a GPU whose memory is known."""
        memory = self._smallest_gpu_gib()
        return max(FITS, SHARE_OF_GPU * memory) if memory is not None else FITS

    def _smallest_gpu_gib(self) -> float | None:
        """GiB of the smallest GPU of the run; None where neither the output nor nvidia-smi says it."""
        measured = [gpu.total / GIB for gpu in self.subject.files_beside.gpus if gpu.total]
        if measured:
            return min(measured)
        output = self.subject.output
        size = smallest_memory_of_gpu_gb(output.settings.gpu) if output is not None else None
        return size * GB / GIB if size is not None else None

    def _gpu_memory_in_words(self) -> str:
        """The GPU's memory as the end of a sentence: `, and the GPU has 80`"""
        memory = self._smallest_gpu_gib()
        return f" and the GPU has {memory:.0f} GiB" if memory is not None else ""

    def _measured_gpu_evidence(self) -> Iterator[str]:
        """Evidence: what nvidia-smi measured of the GPUs."""
        gpus = [gpu for gpu in self.subject.files_beside.gpus if gpu.total and gpu.used]
        if not gpus:
            return
        used = max((gpu.used or 0) / GIB for gpu in gpus)
        busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
        at = f", with at most {max(busy):.0f}% utilization" if busy else ""
        yield f"nvidia-smi: {used:.1f} of {(gpus[0].total or 0) / GIB:.0f} GiB are used{at}"

    def _gib_of_weights_gradients_and_states(self) -> float | None:
        """GiB of weights, gradients and states; None where the output does not say their number."""
        output = self.subject.output
        if output is None or output.settings.parameters is None or output.settings.trained is None:
            return None
        settings = output.settings
        return (WEIGHT * (settings.parameters or 0) + TRAINED * (settings.trained or 0)) / GIB
