"""The router of a mixture of experts is quantized to four bits or fewer.

## What it does
Looks for routers that are stored as packed whole numbers (`mlp.gate.qweight`) in models that GPTQ or AWQ has quantized
to four bits or fewer.

## Why it is bad
A router has a row for each expert: it is a thousandth of the weights, so quantizing it saves nothing. A small error in
its scores sends a token to other experts. Published mixtures leave it in 16 bits.

## Example
```yaml
llama: 1
config: {model_type: qwen3_moe, num_experts: 2, quantization_config: {quant_method: gptq, bits: 4}}
tensors:
  model.layers.0.mlp.gate.qweight: {shape: [4, 2]}
  model.layers.0.mlp.experts.0.up_proj.qweight: {shape: [4, 16]}
  model.layers.0.mlp.experts.1.up_proj.qweight: {shape: [4, 16]}
```

## Use instead
```yaml
llama: 1
config: {model_type: qwen3_moe, num_experts: 2, quantization_config: {quant_method: gptq, bits: 4}}
tensors:
  model.layers.0.mlp.gate.weight: {shape: [2, 8]}
  model.layers.0.mlp.experts.0.up_proj.qweight: {shape: [4, 16]}
  model.layers.0.mlp.experts.1.up_proj.qweight: {shape: [4, 16]}
```

## Fix safety
Quantize again with the router left out: `modules_to_not_convert: [gate]` of AWQ, `dynamic` of GPTQModel.

## References
- ModelCloud/GPTQModel#1604, vllm-project/vllm#25923, ml-explore/mlx-lm#349
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checkpoint.expert_tensors import configured_expert_count, find_expert_tensors
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

MAX_BITS = 4
"""With 8 bits, routers lose little: mlx-lm quantizes them so by default"""


class RouterIsQuantized(CheckpointRule):
    code = "CKP062"
    fault = Fault.MODEL_NOT_QUANTIZED_AS_INTENDED
    symptoms = ("garbage-output",)
    severity = "warning"
    kind = "model"

    def unmet(self) -> Unmet | None:
        """Unmet where config.json describes no quantized mixture of experts."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if configured_expert_count(self.subject.config) is None:
            return Unmet("config.json describes no mixture of experts")
        return None if self._bits() is not None else Unmet("the model is not quantized to few bits")

    def measurement_if_clean(self) -> str:
        """How many routers are stored as plain numbers."""
        routers = find_expert_tensors(self.subject.tensors).routers
        return f"{len(routers):,} routers are plain numbers"

    def findings(self) -> Iterator[Finding]:
        bits = self._bits()
        if bits is None or configured_expert_count(self.subject.config) is None:
            return
        routers = find_expert_tensors(self.subject.tensors).routers
        packed = [name for name in routers if name.endswith(".qweight")]
        if not packed:
            return
        yield self.finding(
            f"{len(packed):,} of {len(routers):,} routers are in {bits} bits: rounding sends tokens to other experts",
            "quantize again and leave the routers out (AWQ: modules_to_not_convert; GPTQModel: dynamic)",
            cases=[Case(name) for name in packed],
            count=len(packed),
            total=len(routers),
        )

    def _bits(self) -> int | None:
        """The bits of a weight, where they are few; None where the model is not quantized so."""
        settings = self.subject.config.get("quantization_config")
        bits = settings.get("bits", settings.get("w_bit")) if isinstance(settings, dict) else None
        return bits if type(bits) is int and 0 < bits <= MAX_BITS else None
