"""The model that is saved as the tuned one is an untouched base.

## What it does
Looks at files that train a model, or put an adapter on one, and at what they save (`save_pretrained`, Unsloth's
`save_pretrained_merged`, `push_to_hub`). It fires if the only saved model is one that the same file loads by its
published name and uses nowhere else: no adapter, no trainer, no optimizer, no change of its weights.

## Why it is bad
The merged or trained model is in another variable, or was overwritten by a second load, and is lost when the process
ends. The served folder contains the base: its answers are those before training.

## Example
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
tuned = PeftModel.from_pretrained(base, "adapter").merge_and_unload()
model.save_pretrained("merged")
```

## Use instead
```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
tuned = PeftModel.from_pretrained(base, "adapter").merge_and_unload()
tuned.save_pretrained("merged")
```

## Fix safety
Safe: the folder then contains the trained model.

## References
- PEFT documentation, "Model merging"; Unsloth documentation, "Saving to VLLM"
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import family_of_model
from truetune.checks.source.evidence.which_place_surely_runs_first import trains_anything
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.shorten_qualified_names import spelling_of_variable

LOADS = (
    "transformers.AutoModel*.from_pretrained",
    "transformers.*For*LM.from_pretrained",
    "unsloth.Fast*Model.from_pretrained",
)
OF_MODELS = (
    "save_pretrained",
    "save_pretrained_merged",
    "save_pretrained_gguf",
    "push_to_hub",
    "push_to_hub_merged",
    "push_to_hub_gguf",
)
OTHERS = ("save_model", "save_checkpoint", "save_state", "save_adapter", "save_16bit_model")
"""Methods of trainers and engines that save what was trained"""
LEAVE_WEIGHTS = frozenset((*OF_MODELS, "eval", "to", "cuda", "cpu", "generate", "half", "bfloat16"))
"""Methods of a model that leave its weights what they were, up to their dtype"""
NO_MODELS = frozenset(("tokenizer", "processor", "dataset", "lora"))


def _saves_of_tuned_model(module: Module) -> Iterator[Call]:
    """The saves of a file that makes a tuned model; nothing of a file that makes none."""
    makes = any(module.calls("peft.*PeftModel*.from_pretrained", "peft.get_peft_model"))
    if makes or trains_anything(module):
        for call in module.methods(*OF_MODELS):
            if call.receiver is not None and not NO_MODELS & module.flow.types(call.receiver):
                yield call


class UntouchedBaseSaved(SourceRule):
    code = "SRC002"
    fault = Fault.SAVED_MODEL_IS_THE_BASE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("what is saved where a model is tuned", _saves_of_tuned_model)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        saves = list(_saves_of_tuned_model(module))
        # Another save of the file may hold what was trained.
        if any(module.methods(*OTHERS)) or any(module.calls("torch.save", "*.save_file")):
            return
        loads = [_load_call_if_model_only_loaded(module, call.receiver) for call in saves]
        for load in loads:
            if (
                load is None
                or not _is_published_model(module, load)
                or not _is_untouched(module, load)
            ):
                return
        if saves and loads[0] is not None:
            yield self.finding(
                f"{module.text_of(saves[0].node.func)} saves the base as it was loaded: it was not trained,"
                " and has no adapter",
                f"call {saves[0].method} on the variable with the trained or merged model",
                cases=[case_of_node(module, saves[0].node), case_of_node(module, loads[0].node)],
            )


def _load_call_if_model_only_loaded(module: Module, model: ast.expr | None) -> Call | None:
    """The call that loads a model; None where it is more than loaded, or comes from elsewhere."""
    origins = (
        module.flow.origins(model) if model is not None and spelling_of_variable(model) else ()
    )
    calls = [origin.node for origin in origins if isinstance(origin.node, ast.Call)]
    if len(origins) != 1 or len(calls) != 1:
        return None
    call = module.flow.call(calls[0])
    return call if call.named(*LOADS) else None


def _is_published_model(module: Module, load: Call) -> bool:
    """Is the model loaded by the name of a published model, and from no folder of one's own?"""
    names = possible_texts(module, load.argument(0, "pretrained_model_name_or_path"))
    names = names or possible_texts(module, load.keywords.get("model_name"))
    return bool(names) and all(
        name.count("/") == 1
        and not name.startswith((".", "/", "~"))
        and family_of_model(name) is not None
        for name in names
    )


def _is_untouched(module: Module, load: Call) -> bool:
    """Is the model handed to nothing, and asked for nothing that changes its weights?"""
    for name in module.variable_reads():
        if not _is_model_of_load(module, name, load):
            continue
        around = module.scopes.parent.get(name)
        if not isinstance(around, ast.Attribute) or around.attr not in LEAVE_WEIGHTS:
            return False
    return True


def _is_model_of_load(module: Module, name: ast.Name | ast.Attribute, load: Call) -> bool:
    """Is the model of a load what a name stands for, and not its tokenizer?"""
    return any(
        # unsloth returns (model, tokenizer): the first of them is the model.
        origin.node is load.node and origin.path in ((), (0,))
        for origin in module.flow.origins(name)
    )
