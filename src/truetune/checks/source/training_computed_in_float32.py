"""A large model is trained in float32, without the GPU's tensor cores.

## What it does
Determines the precision of a training: that of the trainer (Lightning's `precision`, Fabric's, `bf16` and `fp16` of
TrainingArguments, Accelerate's `mixed_precision`, `autocast` in a hand-written loop), the dtype in which the weights
are loaded (transformers before 5 loads float32 if none is set), and TF32. It warns if all of these give float32 for a
model with half a billion parameters or more by its name. It is info if Accelerate's own configuration, which is outside
the project, may say otherwise.

## Why it is bad
GPUs since 2017 multiply 16-bit matrices with tensor cores. In float32 without TF32 these are idle: an A100 has 19
TFLOPS instead of 312, and a step takes five to ten times as long. Weights and activations take twice the memory.

## Example
```python
# !pip install transformers==4.55.4
import lightning as L
from transformers import AutoModelForCausalLM

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("org/model-1B")

trainer = L.Trainer(max_epochs=1, devices=1)
trainer.fit(Model(), loader)
```

## Use instead
```python
# !pip install transformers==4.55.4
import lightning as L
from transformers import AutoModelForCausalLM

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("org/model-1B")

trainer = L.Trainer(max_epochs=1, devices=1, precision="bf16-mixed")
trainer.fit(Model(), loader)
```

## Fix safety
bf16 autocast keeps weights and optimizer in float32, and losses differ only by rounding. TF32
(`torch.set_float32_matmul_precision("high")`) changes the results less, but saves less time. A T4 or V100 has no
bfloat16: use float16 there.

## References
- https://pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html; Lightning documentation, "N-Bit
  Precision"; NVIDIA A100 data sheet
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.find_servers_with_base_and_adapter import shell_commands_of_project
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.may_weights_have_float32_copy import WIDE
from truetune.checks.source.evidence.trace_answering_models_to_load import BILLIONS_IN_NAME
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Library, Value

LOADS = (
    "transformers.AutoModel*.from_pretrained",
    "transformers.*ForCausalLM.from_pretrained",
    "transformers.*ForConditionalGeneration.from_pretrained",
)
LIGHTNING = ("lightning.*Trainer", "pytorch_lightning.*Trainer")
FABRIC = ("lightning.*Fabric", "lightning_fabric.Fabric")
ACCELERATOR = ("accelerate.Accelerator",)
TRAINING_ARGUMENTS = ("transformers.*TrainingArguments",)
TRL_ARGUMENTS = ("trl.*Config",)
MIN_BILLIONS = 0.5
"""Chosen, not measured: smaller models are trained in minutes, and tests train them anyhow"""
SWITCHED_OFF = re.compile(
    r"(?:\b(?:bf16|fp16|tf32|bf16_full_eval|fp16_full_eval|allow_tf32)\s*=\s*False"
    r"|mixed_precision\s*=\s*[\"']no[\"']"
    r"|set_float32_matmul_precision\(\s*[\"']highest[\"']\s*\))"
)
"""What names a narrow precision to switch it off"""
LAUNCHED_OTHERWISE = re.compile(r"bf16|fp16|precision|deepspeed|fsdp")
"""What a command may give every trainer that is built on Accelerate"""
COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
NARROWS = re.compile(
    r"autocast|set_float32_matmul_precision|tf32|fp32_precision|bf16|fp16|bfloat16|float16|\.half\(|mixed_precision"
    r"|[dD]eep[sS]peed|fsdp|FSDP|GradScaler|unsloth|load_in_|quantization_config|MixedPrecision|HfArgumentParser"
    r"|transformer_engine|torch_xla|is_bf16|dtype\s*=\s*[\"']auto|amp\.",
)
"""What may make a part of the training compute in another precision"""
ON_CPU = re.compile(r"no_cuda|use_cpu|accelerator\s*=\s*[\"'](?:cpu|mps|tpu)|device\s*=\s*[\"']cpu")
ON_GPU = re.compile(r"\.cuda\(|[\"']cuda|device_map")
MIXED_IN_FILE = re.compile(r"(?m)^[ \t]*mixed_precision\s*:\s*[\"']?(?:bf16|fp16|fp8)")
MAX_FILES = 40
"""Files of settings that are read. Chosen, not measured: a project has a handful"""
FLOAT32_PRECISIONS = (32, "32", "32-true", None)
"""Precisions of Lightning that are float32"""


class _Float32Training(NamedTuple):
    """A training that computes in float32, and how its precision is set."""

    place: CallEvent
    default: str
    """Why it computes in float32"""
    remedy: str
    is_certain: bool = True


class TrainingComputedInFloat32(SourceRule):
    code = "SRC277"
    fault = Fault.PRECISION_SLOWER_THAN_NEEDED
    symptoms = ("slow-training", "out-of-memory")
    severity = "warning"
    looks_at = places_of_calls("models that are loaded", *LOADS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if not _names_no_other_precision(module):
            return
        seen: set[object] = set()
        for trace in traces_of_scripts_that_reach_file(module):
            load = _large_float32_load(module, trace)
            training = _float32_training(module, trace) if load is not None else None
            if load is None or training is None or training.place.node in seen:
                continue
            seen.add(training.place.node)
            given = "dtype" in load.keywords or "torch_dtype" in load.keywords
            weights = (
                "the weights are loaded as float32"
                if given
                else "from_pretrained of transformers before 5 loads float32 if no dtype is set"
            )
            yield self.finding(
                f"training runs in float32 without tensor cores: {training.default}, {weights}, and TF32 is off",
                training.remedy
                + '; or only switch on TF32: torch.set_float32_matmul_precision("high")',
                severity="warning" if training.is_certain else "info",
                cases=[
                    case_of_node(training.place.home, training.place.node),
                    case_of_node(load.home, load.node),
                ],
            )


def _names_no_other_precision(module: Module) -> bool:
    """Does nothing in the code, or in what launches it, name another precision than float32?"""
    texts = [COMMENT.sub("", part.text) for part in module.self_and_files_run_together]
    text = "\n".join(SWITCHED_OFF.sub("", one) for one in texts)
    if NARROWS.search(text) or ON_CPU.search(text):
        return False
    path = Path(module.path)
    launched = " ".join(command.text for command in shell_commands_of_project(path))
    if LAUNCHED_OTHERWISE.search(launched):
        return False
    return not any(map(_is_accelerate_config_with_mixed_precision, _yaml_files_beside(path)))


def _yaml_files_beside(path: Path) -> list[Path]:
    """The YAML files in the folder of a script and directly below."""
    files = itertools.chain(path.parent.glob("*.y*ml"), path.parent.glob("*/*.y*ml"))
    try:
        return list(itertools.islice(files, MAX_FILES))
    except OSError:
        return []


def _is_accelerate_config_with_mixed_precision(file: Path) -> bool:
    """Is a file one of Accelerate's settings with a narrow precision?"""
    try:
        data = read_bytes_within_limit(file, SETTINGS)
    except (OSError, InputLimitError):
        return False
    return MIXED_IN_FILE.search(data.decode("utf-8", "replace")) is not None


def _large_float32_load(module: Module, trace: Trace) -> CallEvent | None:
    """The load of a large model in float32; None where one load is of another dtype, or its size is not known."""
    loads = list(trace.calls(*LOADS))
    if not loads or not all(_loads_in_float32(module, load) for load in loads):
        return None
    return next((load for load in loads if _names_large_model(load)), None)


def _loads_in_float32(module: Module, load: CallEvent) -> bool:
    """Does a call load the weights as float32, whatever dtype they are stored in?"""
    if load.is_open:
        return False
    for name in ("dtype", "torch_dtype"):
        if name in load.keywords:
            return _names_float32(load.keywords[name])
    return module.pins.age_of_asked_releases("transformers", "4.99", "5.0.0") == "older"


def _names_float32(value: Value) -> bool:
    """Is it `torch.float32` or `"float32"`?"""
    name = value.name if isinstance(value, Library) else constant_of(value)
    return name in WIDE


def _names_large_model(load: CallEvent) -> bool:
    """Does the name of a model say that it has half a billion parameters or more?"""
    model_name_argument = load.argument(0, "pretrained_model_name_or_path")
    name = constant_of(model_name_argument) if model_name_argument is not None else None
    sizes = BILLIONS_IN_NAME.findall(name.replace("_", "-")) if isinstance(name, str) else []
    return any(float(size) >= MIN_BILLIONS for size in sizes)


def _float32_training(module: Module, trace: Trace) -> _Float32Training | None:
    """The training of a run that is left in float32; None where there is none, or its precision is not known."""
    float32_training = (
        _lightning_without_precision(trace)
        or _trainer_without_half_precision(trace)
        or _loop_without_autocast(module, trace)
    )
    return (
        float32_training
        if float32_training is not None and float32_training.place.home.path == module.path
        else None
    )


def _lightning_without_precision(trace: Trace) -> _Float32Training | None:
    """A trainer or Fabric of Lightning without a precision; None where there is none."""
    for names, is_used in (
        (LIGHTNING, any(trace.methods("fit"))),
        (FABRIC, any(trace.methods("backward"))),
    ):
        for call in trace.calls(*names):
            precision_argument = call.keywords.get("precision")
            is_float32 = (
                precision_argument is None or constant_of(precision_argument) in FLOAT32_PRECISIONS
            )
            if call.is_open or "plugins" in call.keywords or not is_float32 or not is_used:
                return None
            name = "the Trainer" if names is LIGHTNING else "Fabric"
            why = f"{name} of Lightning computes in 32 bits" + (
                "" if precision_argument else " by default"
            )
            return _Float32Training(
                call, why, f'give {name} precision="bf16-mixed" (or "bf16-true")'
            )
    return None


def _trainer_without_half_precision(trace: Trace) -> _Float32Training | None:
    """Arguments of a Trainer without bf16 and fp16; None where there are none."""
    if not any(trace.methods("train")):
        return None
    for call in trace.calls(*TRAINING_ARGUMENTS, *TRL_ARGUMENTS):
        is_trl = call.named(*TRL_ARGUMENTS)
        # TRL switches bf16 on by itself.
        if call.is_open or (is_trl and "bf16" not in call.keywords):
            return None
        why = f"{call.names[0].rpartition('.')[2]} has neither bf16 nor fp16"
        return _Float32Training(call, why, "set bf16=True in it (fp16=True on a T4 or V100)")
    return None


def _loop_without_autocast(module: Module, trace: Trace) -> _Float32Training | None:
    """A loop of one's own without autocast; None where there is none."""
    steps = list(trace.methods("backward"))
    if not steps:
        return None
    accelerator = next(trace.calls(*ACCELERATOR), None)
    if accelerator is not None and accelerator.is_open:
        return None
    if accelerator is not None:
        return _Float32Training(
            accelerator,
            "Accelerator() has no mixed_precision (the settings of `accelerate config` may have one)",
            'set mixed_precision="bf16" in Accelerator(...)',
            is_certain="mixed_precision" in accelerator.keywords,
        )
    if any(trace.calls("transformers.*Trainer", "trl.*")) or not ON_GPU.search(module.text):
        return None
    return _Float32Training(
        steps[0],
        "the loop has no autocast",
        'run the forward pass under torch.autocast("cuda", dtype=torch.bfloat16)',
    )
