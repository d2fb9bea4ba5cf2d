"""The weights are stored in another number format than config.json says.

## What it does
Compares `dtype` (`torch_dtype`) of config.json with the format of most values. Tensors in bfloat16 under `float16`
are a warning, others a note.

## Why it is bad
Loaders convert to what config.json says. Values of bfloat16 reach 3e38, those of float16 end at 65504, and small ones
become zero: the model overflows. With float32 tensors under `bfloat16` the file is twice as long as it need be, and
what was trained is rounded on loading.

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

from truetune.checkpoint.float_formats import NUMPY_TYPES
from truetune.checks.checkpoint.architecture import setting
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import CheckpointRule

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class DtypeDiffersFromConfig(CheckpointRule):
    code = "CKP014"
    severity = "warning"
    stability = "stable"
    since = "0.1.0"
    changes_answers = False
    kind = "model"

    def unmet(self) -> Unmet | None:
        if unmet := super().unmet():
            return unmet
        found = self.subject
        if found.config.get("quantization_config"):
            return Unmet("the model is quantized")
        if self._wanted() is None:
            return Unmet("config.json names no dtype that is known", "write dtype into config.json")
        return None if self._stored() else Unmet("no tensor is stored as plain numbers")

    def figure(self) -> str:
        counts = self._stored()
        (dtype, count), *_ = counts.most_common(1)
        return f"{count / counts.total():.0%} of the values are {dtype}, as config.json says"

    def _wanted(self) -> str | None:
        """What config.json says, as safetensors spells it."""
        said = setting(self.subject.config, "dtype", "torch_dtype")
        return NAMES.get(said.removeprefix("torch.")) if isinstance(said, str) else None

    def _stored(self) -> Counter[str]:
        """Values by format."""
        counts: Counter[str] = Counter()
        for tensor in self.subject.tensors.values():
            if tensor.dtype in NUMPY_TYPES:
                counts[tensor.dtype] += tensor.items
        return counts

    def findings(self) -> Iterator[Finding]:
        found = self.subject
        said = setting(found.config, "dtype", "torch_dtype")
        wanted, counts = self._wanted(), self._stored()
        if (
            found.kind != "model"
            or not wanted
            or not counts
            or found.config.get("quantization_config")
        ):
            return
        (dtype, count), *_ = counts.most_common(1)
        if dtype == wanted:
            return
        spelled = {short: name for name, short in NAMES.items()}[dtype]
        yield self.finding(
            f"config.json says {said}, and {count / counts.total():.0%} of the values are stored as"
            f" {spelled}",
            f'write "dtype": "{spelled}" into config.json',
            severity="warning" if (dtype, wanted) == ("BF16", "F16") else "info",
            evidence=[", ".join(f"{name}: {n:,} values" for name, n in counts.most_common())],
        )
