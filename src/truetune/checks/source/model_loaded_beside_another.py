"""A second model is loaded onto the GPU while the first one, which is no longer used, still occupies it.

## What it does
Tracks which names refer to a language model on the GPU: the model itself, its wrappers, a trainer, an optimizer. It
fires if another model is loaded onto the same GPU (to merge an adapter, to evaluate, for the next stage, in the next
pass of a loop) before these names are deleted, reassigned or moved to the CPU. It also fires if a method of a callback
(`on_evaluate`) loads a model while the trainer holds its own. A model that is used again after the load (a teacher, a
reference, a comparison) is needed there and not reported. In a notebook, or if the size of the second model is unknown,
the finding is info; a small second model is not reported.

## Why it is bad
Python frees a model only when no name refers to it any more. A trainer holds its model, the gradients and the
optimizer's states. The second model must fit into what is left. Otherwise a run that trained well ends with CUDA out of
memory, or with `device_map="auto"` a part of the second model is put into CPU memory.

## Example
```python
import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", device_map={"": 0})
trainer = SFTTrainer(model=model, train_dataset=rows, peft_config=LoraConfig(r=16))
trainer.train()
trainer.save_model("adapter")
base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype=torch.bfloat16, device_map={"": 0})
PeftModel.from_pretrained(base, "adapter").merge_and_unload().save_pretrained("merged")
```

## Use instead
```python
import gc

import torch
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", device_map={"": 0})
trainer = SFTTrainer(model=model, train_dataset=rows, peft_config=LoraConfig(r=16))
trainer.train()
trainer.save_model("adapter")
del model, trainer
gc.collect()
torch.cuda.empty_cache()
base = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B", dtype=torch.bfloat16, device_map="cpu")
PeftModel.from_pretrained(base, "adapter").merge_and_unload().save_pretrained("merged")
```

## Fix safety
There is no automatic fix: make sure that what you delete is not needed below. A merge on the CPU needs CPU memory for
one model.

## References
- https://docs.pytorch.org/docs/stable/notes/faq.html#my-gpu-memory-isn-t-freed-properly
- https://huggingface.co/docs/accelerate/package_reference/utilities#accelerate.utils.release_memory
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.unused_models_held_while_loading_another import (
    HeldModel,
    SecondLoad,
    loads_in_callbacks,
    second_loads_beside_unused_models,
    whole_language_model_loads,
)
from truetune.errors import TruetuneError
from truetune.memory.matrices_and_parameters_from_config import parse_architecture
from truetune.memory.published_model_shapes import published_config
from truetune.settings.run_spec import Severity
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

MIN_GB, MIN_LARGE_GB = 3.0, 8.0
"""GB of a second model's weights from which it is a note, and a warning. Chosen, not measured: a third of a card of 24
GB that a training has to leave free"""
BYTES_OF_WEIGHT = 2.0
"""Of a parameter in 16 bits"""
# 1 and 0.5 of the quantized weights. The rest is estimated: embeddings, which stay in 16 bits, are about a tenth.
BYTES_IN_8_BITS, BYTES_IN_4_BITS = 1.1, 0.65
MAX_NAMES = 4
"""Names that a message lists"""
SIZE_IN_NAME = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,2})?)(?:x(\d{1,2}))?[bB](?![a-zA-Z])")
"""`7B`, `0.5b`, `8x7B` in a model's name"""
MILLIONS_IN_NAME = re.compile(r"(?<![\w.])\d{2,3}[mM](?![a-zA-Z])")
SMALL_NAMES = re.compile(r"gpt2|tiny|distil|t5-small|t5-base|opt-350m|smollm", re.I)


class ModelLoadedBesideAnother(SourceRule):
    code = "SRC272"
    fault = Fault.GPU_MEMORY_TAKEN_BY_ANOTHER_MODEL
    symptoms = ("out-of-memory",)
    severity = "warning"
    looks_at = CodePlaces("loads of language models", whole_language_model_loads)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for one in second_loads_beside_unused_models(module):
            size = second_model_gb(module, one)
            if size is not None and size < MIN_GB:
                continue
            yield self.finding(
                _message(module, one),
                _remedy(module, one),
                severity=_severity_by_gb(module, size),
                cases=[case_of_node(module, one.second.node), case_of_node(module, one.first.node)],
            )
        yield from self._findings_on_callbacks()

    def _findings_on_callbacks(self) -> Iterator[Finding]:
        """Findings on models that a callback loads beside the one that its trainer holds."""
        module = self.subject
        for call in loads_in_callbacks(module):
            size = _callback_model_gb(module, call)
            if size is not None and size < MIN_GB:
                continue
            yield self.finding(
                "a callback loads a second model onto the GPU, where the trainer already holds the trained model, its"
                " gradients and optimizer states: both must fit",
                'generate with the model that the callback gets (kwargs["model"]): call its eval(), generate under'
                " torch.no_grad(), then call its train()",
                severity=_severity_by_gb(module, size),
                cases=[case_of_node(module, call.node)],
            )


def _callback_model_gb(module: Module, call: Call) -> float | None:
    """GB of the model that a callback loads; that of the largest other one where its name is a folder's."""
    own = _parameter_count_of_loaded_model(module, call)
    sizes = [
        one
        for load in whole_language_model_loads(module)
        if (one := _parameter_count_of_loaded_model(module, load))
    ]
    parameters = own if own is not None else max(sizes, default=None)
    return None if parameters is None else parameters * BYTES_OF_WEIGHT / 1e9


def _severity_by_gb(module: Module, size: float | None) -> Severity:
    """The severity by the GB of the second model's weights: how sure it is that they are a burden."""
    # A tutorial's notebook fits the card that it was written for, and shows both models on purpose.
    is_large = size is not None and size >= MIN_LARGE_GB
    return "warning" if is_large and not module.path.endswith(".ipynb") else "info"


def _message(module: Module, one: SecondLoad) -> str:
    """The finding's message: what is loaded, and what is held there meanwhile."""
    held = "the one that was trained" if one.first.is_trained else "the first one"
    names = join_names(one.names)
    verb = "holds" if len(one.names) == 1 else "hold"
    if one.first.node is one.second.node:
        return (
            f"each pass of the loop loads a model onto the GPU while {names} still {verb} that of the pass before:"
            " both must fit"
        )
    line, _ = module.place(one.first.node)
    return (
        f"a second model is loaded onto the GPU while {names} still {verb} {held}"
        f" ({place_in_file(module, one.first.node, line)}), which nothing uses again: both must fit"
    )


def place_in_file(module: Module, node: ast.AST, line: int) -> str:
    """The place of a node in words: its cell of a notebook, else its line."""
    return module.describe_cell_and_line_of_node(node) or f"line {line}"


def _sorted_distinct_names_for_message(names: tuple[str, ...]) -> list[str]:
    """Names in the order of the alphabet, each once, no more than a message lists."""
    return sorted(set(names))[:MAX_NAMES]


def join_names(names: tuple[str, ...]) -> str:
    """Join names into one text for a sentence, in the order of the alphabet; no more than a message
    lists.
    """
    shown = _sorted_distinct_names_for_message(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _remedy(module: Module, one: SecondLoad) -> str:
    """The remedy: the edit above the second load, or a merge on the CPU."""
    names = ", ".join(_sorted_distinct_names_for_message(one.names))
    line, _ = module.place(one.second.node)
    if one.first.node is one.second.node:
        return f"at the end of the loop's body: del {names}; gc.collect(); torch.cuda.empty_cache()"
    free = f"above {place_in_file(module, one.second.node, line)}: del {names}; gc.collect(); torch.cuda.empty_cache()"
    if module.cells:
        free += " (or restart the kernel and run from this cell on)"
    if _merges_adapter(module):
        free += '; or merge on the CPU: device_map="cpu" for the second load'
    return free


def _merges_adapter(module: Module) -> bool:
    """Does the script merge an adapter?"""
    return module.mentions("merge_and_unload", "merge_adapter")


def second_model_gb(module: Module, one: SecondLoad) -> float | None:
    """Gigabytes of the second model's weights; None where its size is not known."""
    parameters = _parameter_count_of_second_model(module, one)
    if parameters is None:
        return None
    return parameters * _bytes_per_parameter(module, one.second) / 1e9


def _bytes_per_parameter(module: Module, model: HeldModel) -> float:
    """Bytes of a parameter as it is loaded."""
    call = module.flow.call(model.load)
    config = module.flow.producing_call(call.keywords.get("quantization_config"))
    given = {**(config.keywords if config is not None else {}), **call.keywords}
    if module.flow.value(given.get("load_in_4bit")) is True:
        return BYTES_IN_4_BITS
    if module.flow.value(given.get("load_in_8bit")) is True:
        return BYTES_IN_8_BITS
    is_quantized = "quantization_config" in call.keywords or call.named("unsloth.*")
    return BYTES_IN_4_BITS if is_quantized else BYTES_OF_WEIGHT


def _parameter_count_of_second_model(module: Module, one: SecondLoad) -> float | None:
    """Parameters of the second model by its name, else of the first one; None where no name says it."""
    for model in (one.second, one.first):
        known = _parameter_count_of_model(module, model)
        if known is not None:
            return known
    return None


def _parameter_count_of_model(module: Module, model: HeldModel) -> float | None:
    """Parameters of a model, by its published shape or the number in its name."""
    return _parameter_count_of_loaded_model(module, module.flow.call(model.load))


def _parameter_count_of_loaded_model(module: Module, call: Call) -> float | None:
    """Parameters of the model that a call loads."""
    argument = call.argument(0, "pretrained_model_name_or_path")
    if argument is None:
        argument = call.keywords.get("model_name", call.keywords.get("model"))
    name = module.flow.value(argument)
    if not isinstance(name, str):
        return None
    published = published_config(name)
    if published is not None:
        try:
            return float(parse_architecture(published).parameters)
        except TruetuneError:
            pass
    size = SIZE_IN_NAME.search(name)
    if size is not None:
        return float(size[1]) * float(size[2] or 1) * 1e9
    return 0.0 if MILLIONS_IN_NAME.search(name) or SMALL_NAMES.search(name) else None
