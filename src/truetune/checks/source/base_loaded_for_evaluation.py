"""A script evaluates the base model, and no script of the project loads the model that was trained from it.

## What it does
Runs the scripts of a project symbolically. It fires on a script that loads a model to generate or evaluate
(transformers, vLLM, `lm_eval`) if that model is the base of a training in the project, the script loads no adapter or
weights, and nothing else in the project loads a model or names the folder that the training writes. Not reported: files
that name the base as their subject (`baseline`, `zero_shot`, `compare`), training scripts that generate themselves, and
scripts whose answers go to a file that the training reads.

## Why it is bad
The answers are those of the base. Both names are often in the same settings, and it is easy to take the wrong one. The
training seems to have had no effect.

## Example
```python
# tune.py: import trl; trl.SFTTrainer("org/base", trl.SFTConfig("out/tuned"), train_dataset=rows).train()
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("org/base")
model.generate(**questions, max_new_tokens=100)
```

## Use instead
```python
# tune.py: import trl; trl.SFTTrainer("org/base", trl.SFTConfig("out/tuned"), train_dataset=rows).train()
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("out/tuned")
model.generate(**questions, max_new_tokens=100)
```

## Fix safety
There is no automatic fix: the base may be measured on purpose. Scores so far are those of the base.

## References
- huggingface/peft#515, substratusai/runbooks#43
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.find_servers_with_base_and_adapter import command_files_of_project
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.models_trained_and_asked import (
    AskedModels,
    TrainedModels,
    models_loaded_without_adapter,
    trainings_in_other_project_scripts,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.checks.source.evidence.prompt_forms import scripts_beside, trains_a_model
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ASKS = re.compile(r"\.generate\(|\.chat\(|pipeline\(|lm_eval")
"""Signs of a script that asks a model; others need no run"""
ABOUT_THE_BASE = re.compile(
    r"baseline|base_model_only|zero[-_ ]?shot|vanilla|untuned|untrained|before|compare|vs_|_vs|distil|teacher",
    re.I,
)
"""Signs that the base is asked on purpose"""
LOADS_WEIGHTS = (
    "peft.*.from_pretrained",
    "*.LoRARequest",
    "*.set_peft_model_state_dict",
    "safetensors.torch.load_*",
    "torch.load",
)
WRITERS = ("to_json", "to_csv", "to_parquet", "save_to_disk")
PATH_WRITERS = ("write_text", "open")
"""Methods of a path: `Path("rows.jsonl").write_text(...)`"""
WEIGHT_METHODS = ("load_adapter", "load_state_dict", "load_checkpoint", "load_lora_weights")


def _models_asked_without_training(module: Module) -> Iterator[AskedModels]:
    """The models that a script asks which trains none."""
    if trains_a_model(module) or not ASKS.search(module.text):
        return
    asked_models = models_loaded_without_adapter(module)
    if asked_models is not None and asked_models.names:
        yield asked_models


class BaseLoadedForEvaluation(SourceRule):
    code = "SRC172"
    fault = Fault.WRONG_MODEL_EVALUATED
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"
    looks_at = CodePlaces("scripts that load a model to ask it", _models_asked_without_training)

    def findings(self) -> Iterator[Finding]:
        """Findings on scripts that ask a base, where no script of the project asks what was trained on it."""
        module = self.subject
        if ABOUT_THE_BASE.search(f"{Path(module.path).name}\n{module.text}"):
            return
        if any(map(_loads_adapter_or_weights, module.self_and_files_run_together)):
            return
        for asked_models in _models_asked_without_training(module):
            for training, trained in trainings_in_other_project_scripts(module):
                if not asked_models.names.keys() <= trained.bases or _training_asks_its_model(
                    training
                ):
                    continue
                if _training_result_may_be_used_elsewhere(module, training, trained):
                    continue
                if _writes_rows_of_training(module, training):
                    continue  # its answers are what is trained: a teacher, whoever it is
                name, node = next(iter(asked_models.names.items()))
                folder = min(trained.outputs, key=len)
                yield self.finding(
                    f"{name} is the base that {Path(training.path).name} trains, and its result ({folder}) is"
                    " loaded nowhere: these answers come from the base",
                    f'load "{folder}" instead; if it is an adapter, add PeftModel.from_pretrained(model, "{folder}")'
                    f" (lm_eval: peft={folder} in model_args)",
                    cases=[case_of_node(module, node), case_of_node(training, trained.node)],
                )
                return


def _loads_adapter_or_weights(module: Module) -> bool:
    """Does a file load an adapter, or weights by themselves?"""
    return any(module.calls(*LOADS_WEIGHTS)) or any(module.methods(*WEIGHT_METHODS))


def _writes_rows_of_training(module: Module, training: Module) -> bool:
    """Does the script write a file, or a folder of rows, that the training names?"""
    names = {node.value for node in training.nodes(ast.Constant) if isinstance(node.value, str)}
    return any(
        _last_part_of_path(text) in map(_last_part_of_path, names)
        for text in _written_files(module)
    )


def _last_part_of_path(path: str) -> str:
    """The last part of a path: scripts are started in different folders."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def _written_files(module: Module) -> Iterator[str]:
    """The names of the files that a script writes rows to."""
    for call in module.all_calls:
        is_open = call.named("open", "*.open", "io.open", "codecs.open", "jsonlines.open")
        place = 0 if call.method in WRITERS or is_open else None
        if is_open and not _opens_file_for_writing(module, call):
            continue
        if place is None:
            receiver = call.receiver if call.method in PATH_WRITERS else None
            target = receiver.args[0] if isinstance(receiver, ast.Call) and receiver.args else None
        else:
            target = call.args[0] if call.args else call.keywords.get("path_or_buf")
        yield from possible_texts(module, target) if target is not None else ()


def _opens_file_for_writing(module: Module, call: Call) -> bool:
    """Does the mode of an `open` write?"""
    mode = module.flow.value(call.argument(1, "mode"))
    return isinstance(mode, str) and any(letter in mode for letter in "wax")


def _training_asks_its_model(training: Module) -> bool:
    """Does a training ask its model by itself, so that another script may ask the base to compare?"""
    return any(training.methods("generate", "predict"))


def _training_result_may_be_used_elsewhere(
    module: Module, training: Module, trained: TrainedModels
) -> bool:
    """May another file of the project use what a training writes: a script that loads models, or a command?"""
    for other in scripts_beside(module):
        if other.path == training.path or trains_a_model(other):
            continue
        if _loads_adapter_or_weights(other) or any(other.calls("*.from_pretrained", "vllm.LLM")):
            return True
    names = [Path(folder).name for folder in trained.outputs]
    return any(
        name in command.text and not _does_command_start_training(command.words, training)
        for file in command_files_of_project(Path(module.path))
        for command in file.commands
        for name in names
    )


def _does_command_start_training(words: tuple[str, ...], training: Module) -> bool:
    """Does a command start the training itself?"""
    return any(word.rpartition("/")[2] == Path(training.path).name for word in words)
