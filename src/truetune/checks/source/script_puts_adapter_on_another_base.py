"""An adapter is loaded onto a different model than the one that it was trained on.

## What it does
Traces the model that `PeftModel.from_pretrained` or `load_adapter` gets, and vLLM's `LLM(model=)` used with a
`LoRARequest`, to the name under which it was loaded, and compares it with `base_model_name_or_path` in the
adapter_config.json of the local adapter: family, generation, size, release, and whether it is instruction-tuned. If
only the command names the adapter, it is judged if all adapters next to the script have the same base. Mirrors and
quantized copies of one model count as the same; a folder of merged weights (`runs/sft-merged`) is not the published
model.

## Why it is bad
An adapter is a difference to certain weights. On another release the shapes may fit, but the answers are word salad. On
a model of another size, loading fails. On the base instead of its instruction-tuned model, answers get worse.

## Example
```python
# adapter/adapter_config.json: {"base_model_name_or_path": "mistralai/Mistral-7B-Instruct-v0.3"}
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-Instruct-v0.1")
model = PeftModel.from_pretrained(base, "adapter")
```

## Use instead
```python
# adapter/adapter_config.json: {"base_model_name_or_path": "mistralai/Mistral-7B-Instruct-v0.3"}
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-Instruct-v0.3")
model = PeftModel.from_pretrained(base, "adapter")
```

## Fix safety
There is no automatic fix: a script may load an adapter onto another model on purpose. Answers and scores change, so
evaluate again.

## References
- artidoro/qlora#28; peft documentation, `PeftModel.from_pretrained`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.identify_model_by_published_name import (
    are_base_and_instruct_model,
    base_of_adapter,
    base_of_all_adapters_below,
    explain_different_weights,
)
from truetune.checks.is_adapter_on_its_trained_base import (
    BaseBelow,
    explain_other_base_below_adapter,
)
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.adapted_models_and_loaded_names import (
    literal_or_default_text_of_expression,
    models_given_loaded_adapter,
    written_name_of_loaded_model,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.settings.run_spec import Severity
from truetune.source.call_with_resolved_names_and_arguments import Call


class ScriptPutsAdapterOnAnotherBase(SourceRule):
    code = "SRC080"
    fault = Fault.ADAPTER_PUT_ON_WRONG_BASE
    severity = "error"
    looks_at = CodePlaces("models that are given an adapter", models_given_loaded_adapter)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call, model, adapter in models_given_loaded_adapter(module):
            name, folder = (
                written_name_of_loaded_model(module, model),
                literal_or_default_text_of_expression(module, adapter),
            )
            # Where the command names the adapter, it is one of those that lie beside the script.
            base_and_file = (
                base_of_adapter(folder, module.path)
                if isinstance(folder, str)
                else base_of_all_adapters_below(Path(module.path).absolute().parent)
            )
            if name is None or base_and_file is None:
                continue
            base, file = base_and_file
            apart = explain_different_weights(name, base)
            # No difference by weights or tuning: a folder of one's own on a published base may still be a second
            # stage.
            if apart is None and not are_base_and_instruct_model(name, base):
                other = explain_other_base_below_adapter(name, base, module.path)
                if other is not None:
                    yield self._finding_on_second_stage_adapter(call, name, base, file, other)
                continue
            yield self.finding(
                f"the adapter was trained on {base}, but is loaded onto {name}: "
                + (apart or "one is instruction-tuned, the other is not"),
                f'load the model that the adapter was trained on: from_pretrained("{base}")',
                # Merged, the wrong base can't be seen any more, nor taken off.
                severity=self._severity(apart, folder),
                cases=[
                    case_of_node(module, call.node),
                    Case(f"base_model_name_or_path: {base}", file=str(file)),
                ],
            )

    def _severity(self, apart: str | None, folder: str | None) -> Severity:
        """The severity: an error where it is sure and can't be taken off: after a merge, the wrong
        base is not seen any more.
        """
        if folder is None:
            return "warning"
        return "error" if apart or any(self.subject.methods("merge_and_unload")) else "warning"

    def _finding_on_second_stage_adapter(
        self, call: Call, name: str, base: str, file: Path, other: BaseBelow
    ) -> Finding:
        """The finding on the adapter of a second stage, on the model that the first one began with."""
        return self.finding(
            f"the adapter was trained on the folder {base}, but is loaded onto {name}: {other.why}",
            f'load the model that the adapter was trained on: from_pretrained("{base}")',
            severity="error" if other.is_proved else "warning",
            cases=[
                case_of_node(self.subject, call.node),
                Case(f"base_model_name_or_path: {base}", file=str(file)),
                *other.cases,
            ],
        )
