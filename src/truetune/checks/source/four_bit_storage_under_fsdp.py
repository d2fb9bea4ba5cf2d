"""FSDP gets 4-bit weights stored as uint8, which it can't shard.

## What it does
Looks for `BitsAndBytesConfig(load_in_4bit=True)` without `bnb_4bit_quant_storage`. It is an error if a launch command
of the project runs the script under FSDP (`ACCELERATE_USE_FSDP`, an accelerate configuration with `distributed_type:
FSDP`), and a warning if only the code mentions FSDP (`is_fsdp_enabled`, `fsdp_plugin`). If a trainer's arguments name
FSDP, `fsdp-quantized-weights` reports it.

## Why it is bad
bitsandbytes stores 4-bit weights as uint8 by default. FSDP flattens parameters of one dtype together, and stops with
"Cannot flatten integer dtype tensors" or "Must flatten tensors with uniform dtype".

## Example
```python
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantized = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
)
model = AutoModelForCausalLM.from_pretrained("model", quantization_config=quantized)
if trainer.is_fsdp_enabled:
    trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantized = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_compute_dtype=torch.bfloat16,
    bnb_4bit_quant_storage=torch.bfloat16,
)
model = AutoModelForCausalLM.from_pretrained(
    "model", quantization_config=quantized, dtype=torch.bfloat16
)
if trainer.is_fsdp_enabled:
    trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
```

## Fix safety
The storage dtype changes how the same 4 bits are laid out, but no value. It has to be the dtype of the other weights.

## References
- bitsandbytes documentation, "FSDP-QLoRA"; huggingface/peft#1432, huggingface/trl#1375
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.errors import SpecError
from truetune.settings import located_document
from truetune.settings.stacks.find_who_reads_config_or_starts_script import commands_that_launch
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_quantization_configs_and_readers import quantization_configs_that_are_read
from truetune.source.parsed_source_file import Module
from truetune.source.settings_of_script_as_configs import extract_configs

FSDP_IN_CODE = re.compile(r"is_fsdp_enabled|fsdp_plugin|FullyShardedDataParallel|\bfully_shard\b")
FSDP_IN_COMMAND = re.compile(r"ACCELERATE_USE_FSDP=[\"']?(?:1|true)|--use_fsdp|--fsdp[= ]", re.I)
CONFIG_FILE_OPTION = re.compile(r"--config_file[= ]([^\s\"']+)")


def _four_bit_configs(module: Module) -> Iterator[Call]:
    """The configurations of a file that quantize to 4 bits."""
    for call in quantization_configs_that_are_read(module):
        if module.flow.value(call.keywords.get("load_in_4bit")) is True:
            yield call


class FourBitStorageUnderFsdp(SourceRule):
    code = "SRC081"
    fault = Fault.WEIGHTS_REFUSED_BY_DDP_OR_FSDP
    symptoms = ("out-of-memory", "several-gpus")
    severity = "error"
    looks_at = CodePlaces("weights that are quantized to 4 bits", _four_bit_configs)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        calls = [
            call
            for call in _four_bit_configs(module)
            if call.lacks("bnb_4bit_quant_storage")
            or module.flow.value(call.keywords.get("bnb_4bit_quant_storage")) == "uint8"
        ]
        command = _fsdp_command(module) if calls else None
        in_code = FSDP_IN_CODE.search(module.text)
        sign = command or (in_code[0] if in_code is not None else None)
        if sign is None or any(config.spec.training.fsdp for config in extract_configs(module)):
            return
        for call in calls:
            yield self.finding(
                "4-bit weights are stored as uint8, which FSDP cannot shard together with the other weights: it stops",
                "set bnb_4bit_quant_storage=torch.bfloat16 in BitsAndBytesConfig, and dtype=torch.bfloat16"
                " (torch_dtype before"
                " transformers 4.56) in from_pretrained",
                severity="error" if command is not None else "warning",
                evidence=[f"the run uses FSDP: {sign}"],
                cases=[case_of_node(module, call.node)],
            )


def _fsdp_command(module: Module) -> str | None:
    """The launch command of the project that runs the script under FSDP; None where there is none."""
    for command in commands_that_launch(Path(module.path)):
        if FSDP_IN_COMMAND.search(command) or _launch_config_starts_fsdp(
            CONFIG_FILE_OPTION.search(command), Path(module.path)
        ):
            return command
    return None


def _launch_config_starts_fsdp(named: re.Match[str] | None, script: Path) -> bool:
    """Is it a launch configuration of accelerate that starts FSDP?"""
    if named is None:
        return False
    for folder in [Path(), *list(script.absolute().parents)[:3]]:
        try:
            value = located_document.read_located_document(folder / named[1]).value
        except SpecError:
            continue
        return isinstance(value, dict) and str(value.get("distributed_type")).upper() == "FSDP"
    return False
