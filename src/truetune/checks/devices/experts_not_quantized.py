"""Quantization skips the experts, which are most of the model.

## What it does
If a mixture of experts is loaded in 4 or 8 bits, counts what bitsandbytes quantizes: linear layers. In transformers 5,
the experts of a layer are one three-dimensional tensor, not linear layers.

## Why it is bad
There is no warning, and the model takes nearly its full size: QLoRA of a 30B mixture needs 60 GB instead of 17.

## Example
```yaml
config: {stack: trl, training: {load_in: 4, lora: {r: 8}}}
model: {model_type: qwen3_moe, hidden_size: 2048, num_hidden_layers: 48, num_attention_heads: 32,
        num_key_value_heads: 4, head_dim: 128, num_experts: 128, num_experts_per_tok: 8, moe_intermediate_size: 768,
        intermediate_size: 6144, vocab_size: 151936}
```

## Use instead
```yaml
config: {stack: trl, training: {load_in: 4, lora: {r: 8}}}
model: {model_type: qwen3, hidden_size: 4096, num_hidden_layers: 36, num_attention_heads: 32, num_key_value_heads: 8,
        head_dim: 128, intermediate_size: 12288, vocab_size: 151936}
```

## Fix safety
Axolotl's `quantize_moe_experts` quantizes the experts while they are loaded. With other stacks, plan for their full
size, shard the model, or take a dense one.

## References
- transformers/integrations/bitsandbytes.py: `replace_with_bnb_linear` takes nn.Linear and Conv1D alone
- bitsandbytes-foundation/bitsandbytes#1849, unslothai/unsloth#4032, unslothai/unsloth#5344
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.experts_of_run_model import uses_unsloth
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.devices.read_architecture_and_row_count import find_local_architecture
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import DeviceRule
from truetune.memory.estimate_memory import GIB
from truetune.memory.matrices_and_parameters_from_config import Architecture, parse_architecture
from truetune.memory.memory_settings import flatten_stack_settings
from truetune.memory.published_model_shapes import published_config
from truetune.trainers.experts_of_model_types import FIRST_TRANSFORMERS_WITH_FUSED_EXPERTS

FUSING_STACKS = ("truetune", "trl", "transformers", "axolotl")
"""Stacks on transformers 5, which fuses the experts of a layer into one tensor"""


class ExpertsNotQuantized(DeviceRule):
    code = "DEV012"
    fault = Fault.MODEL_NOT_QUANTIZED_AS_INTENDED
    symptoms = ("out-of-memory", "slow-generation")
    severity = "warning"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        if self.training.load_in is None or not self._has_fused_experts():
            return
        model = find_local_architecture(self.config) or self._published_architecture()
        if model is None:
            return
        other = flatten_stack_settings(self.training.other)
        # A matrix of which a layer has several copies is one of experts.
        expert_weights = sum(
            matrix.weight_parameter_count for matrix in model.matrices() if matrix.copies > 1
        )
        if not expert_weights or other.get("quantize_moe_experts"):
            return
        yield self.finding(
            f"{expert_weights / 1e9:,.1f} of {model.parameters / 1e9:,.1f} billion parameters are experts, which"
            f" load_in_{self.training.load_in}bit does not quantize: at 16 bits they take"
            f" {2 * expert_weights / GIB:,.0f} GiB",
            (
                "with Axolotl, set quantize_moe_experts: true; with other stacks, plan for that size (truetune"
                " plan)"
            ),
            cases=[setting_case(self.config, self.training.load_in, "training.load_in")],
        )

    def _has_fused_experts(self) -> bool:
        """Does the run load experts as one tensor: by transformers 5, without Unsloth, which quantizes them itself?"""
        is_old = self.config.pins.is_release_surely_before(
            "transformers", FIRST_TRANSFORMERS_WITH_FUSED_EXPERTS
        )
        return self.config.stack in FUSING_STACKS and not is_old and not uses_unsloth(self.config)

    def _published_architecture(self) -> Architecture | None:
        """The architecture of the published model of this name; None where it is not known."""
        config = published_config(self.config.spec.model or "")
        return None if config is None else parse_architecture(config)
