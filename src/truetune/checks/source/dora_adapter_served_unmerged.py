"""An adapter with DoRA is served unmerged: each forward pass computes the norms of all adapted weights again.

## What it does
Reads the `adapter_config.json` of each adapter that a file loads from a local folder. It fires if that has `use_dora`,
and the file generates with the adapter and neither merges nor trains it.

## Why it is bad
DoRA divides by the norm of the weight with its adapter. A merged adapter costs nothing. Unmerged, each layer computes
that weight and its norm in each forward pass, and a token takes several times as long as with LoRA. Users measured 100
s instead of 20 s for 1,000 tokens of an 8B model.

## Example
```python
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("model")
model = get_peft_model(base, LoraConfig(r=8, use_dora=True))
model.load_adapter("adapter", "default")
out = model.generate(**batch, max_new_tokens=20)
```

## Use instead
```python
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("model")
model = get_peft_model(base, LoraConfig(r=8, use_dora=True))
model.load_adapter("adapter", "default")
model = model.merge_and_unload()
out = model.generate(**batch, max_new_tokens=20)
```

## Fix safety
Merging into a 4-bit base rounds the weights: load the base in bfloat16 before you merge. If you switch between several
adapters at run time, train them without DoRA.

## References
- huggingface/peft#2651, huggingface/peft#957
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.which_place_surely_runs_first import training_places
from truetune.errors import TruetuneError
from truetune.settings import located_document
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ADAPTER_LOADS = ("peft.PeftModel*.from_pretrained", "peft.AutoPeftModel*.from_pretrained")
MERGING_METHODS = ("merge_and_unload", "merge_adapter")
ADAPTER_CONFIG = "adapter_config.json"


def _calls_loading_or_making_adapters(module: Module) -> Iterator[Call]:
    """Adapters that are loaded, or put on a model with a configuration."""
    yield from module.calls(*ADAPTER_LOADS, "peft.get_peft_model")


class DoraAdapterServedUnmerged(SourceRule):
    code = "SRC032"
    fault = Fault.GENERATION_OPTIONS_SLOW
    symptoms = ("garbage-output", "slow-generation", "good-here-bad-there")
    severity = "warning"
    looks_at = CodePlaces("adapters that are loaded or made", _calls_loading_or_making_adapters)

    def findings(self) -> Iterator[Finding]:
        """Findings on adapters with DoRA that are served without being merged."""
        module = self.subject
        if module.mentions(*MERGING_METHODS) or any(training_places(module)):
            return
        if not any(module.methods("generate")):
            return
        for call in _calls_loading_or_making_adapters(module):
            says = _evidence_of_dora(module, call)
            if says is not None:
                yield self.finding(
                    "a DoRA adapter generates unmerged: the norms of all adapted weights are"
                    " computed again in each forward pass, which makes each token several times slower",
                    "merge it once after loading: model = model.merge_and_unload()",
                    evidence=[says],
                    cases=[case_of_node(module, call.node)],
                )


def _evidence_of_dora(module: Module, call: Call) -> str | None:
    """What says that the adapter has DoRA: its configuration in the file, or the one in its folder."""
    if call.named("peft.get_peft_model"):
        config = module.flow.producing_call(call.argument(1, "peft_config"))
        has_dora = config is not None and module.flow.value(config.keywords.get("use_dora")) is True
        return "use_dora=True" if has_dora else None
    is_auto = call.named(*ADAPTER_LOADS[1:])
    model_id_argument = call.argument(0 if is_auto else 1, "model_id")
    folder = module.flow.value(model_id_argument) if model_id_argument is not None else None
    return _dora_setting_of_folder(module, folder) if isinstance(folder, str) else None


def _dora_setting_of_folder(module: Module, folder: str) -> str | None:
    """`use_dora` of the adapter in a folder, which is named from the script's folder or from the current one."""
    for base in (Path(module.path).absolute().parent, Path()):
        path = base / folder / ADAPTER_CONFIG
        if path.is_file():
            try:
                config = located_document.read_located_document(path).value
            except (TruetuneError, OSError, ValueError):
                return None
            has_dora = isinstance(config, dict) and config.get("use_dora") is True
            return f"use_dora is true in {folder}/{ADAPTER_CONFIG}" if has_dora else None
    return None
