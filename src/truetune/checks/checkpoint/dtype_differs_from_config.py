"""The weights are stored in another number format than config.json says.

## What it does
Compares `dtype` (`torch_dtype`) in config.json with the format of most values. Tensors in bfloat16 with `float16` in
config.json are a warning, other differences are info.

## Why it is bad
Loaders convert to what config.json says. bfloat16 goes up to 3e38, but float16 only to 65504, and small values become
zero: the model overflows. With float32 tensors and `bfloat16` in config.json, the file is twice as large as necessary,
and the weights are rounded on loading.

## Example
```yaml
llama: 1
config: {dtype: float16}
tensors:
  model.embed_tokens.weight: {dtype: BF16}
  lm_head.weight: {dtype: BF16}
  model.layers.0.mlp.up_proj.weight: {dtype: BF16}
  model.layers.0.mlp.down_proj.weight: {dtype: BF16}
```

## Use instead
```yaml
llama: 1
```

## Fix safety
Correcting the field in config.json is safe: it changes no weight.

## References
- huggingface/transformers#25021, https://huggingface.co/docs/transformers/main_classes/model
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checkpoint.summarise_floats_by_bits import NUMPY_TYPES
from truetune.checks.checkpoint.read_text_part_of_model_config import first_set_text_model_setting
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

SAFETENSORS_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class DtypeDiffersFromConfig(CheckpointRule):
    code = "CKP014"
    fault = Fault.WEIGHTS_IN_UNSUITABLE_FORMAT
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    changes_answers = False
    kind = "model"

    def unmet(self) -> Unmet | None:
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if self.subject.config.get("quantization_config"):
            return Unmet("the model is quantized")
        if self._dtype_of_config() is None:
            return Unmet("config.json names no dtype that is known", "write dtype into config.json")
        return (
            None if self._count_values_by_dtype() else Unmet("no tensor is stored as plain numbers")
        )

    def measurement_if_clean(self) -> str:
        """The share of the values in the commonest dtype, which config.json names."""
        counts = self._count_values_by_dtype()
        (dtype, count), *_ = counts.most_common(1)
        return f"{count / counts.total():.0%} of the values are {dtype}, as config.json says"

    def _dtype_of_config(self) -> str | None:
        """The dtype that config.json names, as safetensors spells it; None if it names none that is
        known.
        """
        dtype = first_set_text_model_setting(self.subject.config, "dtype", "torch_dtype")
        if not isinstance(dtype, str):
            return None
        return SAFETENSORS_NAMES.get(dtype.removeprefix("torch."))

    def _count_values_by_dtype(self) -> Counter[str]:
        """The number of values of each dtype.

        Values and not tensors: norms may be kept in float32, and are few.
        """
        counts: Counter[str] = Counter()
        for tensor in self.subject.tensors.values():
            if tensor.dtype in NUMPY_TYPES:
                counts[tensor.dtype] += tensor.value_count
        return counts

    def findings(self) -> Iterator[Finding]:
        config = self.subject.config
        if self.subject.kind != "model" or config.get("quantization_config"):
            return
        configured, counts = self._dtype_of_config(), self._count_values_by_dtype()
        if not configured or not counts:
            return
        (dtype, count), *_ = counts.most_common(1)
        if dtype == configured:
            return
        torch_names = {short: name for name, short in SAFETENSORS_NAMES.items()}
        spelled = torch_names[dtype]
        # Only this direction overflows; the others cost space or precision.
        may_overflow = (dtype, configured) == ("BF16", "F16")
        yield self.finding(
            f"config.json says {first_set_text_model_setting(config, 'dtype', 'torch_dtype')}, but"
            f" {count / counts.total():.0%} of the values are stored as {spelled}",
            f'set "dtype": "{spelled}" in config.json',
            severity="warning" if may_overflow else "info",
            evidence=[", ".join(f"{name}: {n:,} values" for name, n in counts.most_common())],
        )
