"""The log shows that a large model is trained in float32 without tensor cores.

## What it does
Reads two lines of Lightning: that the GPU has Tensor Cores which `torch.set_float32_matmul_precision` would use, and
the size of the weights. It warns if these are 2 GB or more, and no line says that anything is computed in 16 bits
(`Using bfloat16 Automatic Mixed Precision (AMP)`).

## Why it is bad
Matrices are then multiplied in full float32: an A100 has 19 TFLOPS there instead of 312 in bfloat16. A step takes five
to ten times as long, and activations twice the memory.

## Example
```yaml
output: |
  GPU available: True (cuda), used: True
  You are using a CUDA device ('NVIDIA A100-SXM4-80GB') that has Tensor Cores. To properly utilize them, you should ...
  1.2 B     Total params
  4,943.258 Total estimated model params size (MB)
  Epoch 0:   1%|          | 20/3180 [0:01:04<2:49:53,  0.31it/s, v_num=3, train_loss=1.962]
  Epoch 0:   2%|          | 40/3180 [0:02:09<2:48:49,  0.31it/s, v_num=3, train_loss=1.834]
```

## Use instead
```yaml
output: |
  Using bfloat16 Automatic Mixed Precision (AMP)
  GPU available: True (cuda), used: True
  You are using a CUDA device ('NVIDIA A100-SXM4-80GB') that has Tensor Cores. To properly utilize them, you should ...
  1.2 B     Total params
  4,943.258 Total estimated model params size (MB)
  Epoch 0:   1%|          | 20/3180 [0:00:08<0:22:10,  2.45it/s, v_num=3, train_loss=1.962]
  Epoch 0:   2%|          | 40/3180 [0:00:16<0:22:01,  2.45it/s, v_num=3, train_loss=1.834]
```

## Fix safety
`bf16-mixed` keeps weights and optimizer in float32; losses differ only by rounding.

## References
- Lightning documentation, "N-Bit Precision"; `torch.set_float32_matmul_precision`; NVIDIA A100 data sheet
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import OutputRule

MIN_MEGABYTES = 2000.0
"""Half a billion weights of four bytes: smaller models are trained in minutes. Chosen, not measured"""


class TensorCoresStandIdle(OutputRule):
    code = "LOG123"
    fault = Fault.PRECISION_SLOWER_THAN_NEEDED
    symptoms = ("slow-training", "out-of-memory")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Also unmet where the output does not say how large the weights are."""
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        output = self.subject.output
        if output is None or output.settings.weight_megabytes is None:
            return Unmet("the output does not say how large the weights are (Lightning's summary)")
        return None

    def measurement_if_clean(self) -> str:
        """The size of the weights in MB."""
        output = self.subject.output
        size = output.settings.weight_megabytes if output is not None else None
        return f"{size or 0:,.0f} MB of weights"

    def findings(self) -> Iterator[Finding]:
        output = self.subject.output
        if output is None:
            return
        settings = output.settings
        size = settings.weight_megabytes or 0.0
        if not settings.cores_idle or settings.mixed or settings.brain or settings.half:
            return
        if size < MIN_MEGABYTES:
            return
        yield self.finding(
            "the training runs in float32 without tensor cores: Lightning warns of it, and no line says that anything"
            " is computed in 16 bits",
            'set precision="bf16-mixed" in the Trainer; if you need float32, torch.set_float32_matmul_precision("high")'
            " at least uses TF32 on the tensor cores",
            evidence=(f"{size:,.0f} MB of weights are {size / 4000:.1f} billion at 4 bytes each",),
        )
