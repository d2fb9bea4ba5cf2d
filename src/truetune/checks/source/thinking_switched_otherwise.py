"""The model is trained with reasoning off and prompted with reasoning on, or the other way round.

## What it does
Runs the training and the scripts that prompt its model symbolically, and compares `enable_thinking` of
`apply_chat_template`, and of `chat_template_kwargs` in requests to a server. It fires if all training rows are rendered
with reasoning off and a prompt is not (True, or not set for a family that reasons by default: Qwen3, SmolLM3, GLM-4.5),
and if rows are written with reasoning (`<think>`) and a prompt switches it off.

## Why it is bad
With reasoning off, the prompt ends in an empty `<think>` block. If training and inference differ here, the model starts
its answer after a text that it never saw in training: it reasons at length, or not at all.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-4B")
texts = [tokenizer.apply_chat_template(chat, tokenize=False, enable_thinking=False) for chat in chats]
trainer = SFTTrainer("Qwen/Qwen3-4B", SFTConfig(output_dir="out", max_length=2048), train_dataset=rows_of(texts))
trainer.train()
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")
print(trainer.model.generate(prompt, max_new_tokens=200))
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-4B")
texts = [tokenizer.apply_chat_template(chat, tokenize=False, enable_thinking=False) for chat in chats]
trainer = SFTTrainer("Qwen/Qwen3-4B", SFTConfig(output_dir="out", max_length=2048), train_dataset=rows_of(texts))
trainer.train()
prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, enable_thinking=False, return_tensors="pt")
print(trainer.model.generate(prompt, max_new_tokens=200))
```

## Fix safety
There is no automatic fix: the other side may be the intended one. If you change the training side, train again.

## References
- Qwen3 model cards, "Switching Between Thinking and Non-Thinking Mode"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompt_forms import (
    imported_scripts_beside,
    is_model_in_written_folders,
    loaded_model_names,
    model_folders_written,
    training_scripts_beside,
    trains_a_model,
)
from truetune.checks.source.evidence.reasoning_switches_of_chat_templates import (
    ReasoningSwitch,
    model_reasons_by_default,
    reasoning_switch_of_training_rows,
    reasoning_switches_of_rendered_questions,
)
from truetune.checks.source.evidence.served_model_folders import folders_answering_requests_of_file
from truetune.source.parsed_source_file import Module


def _questions_that_may_reason(module: Module) -> Iterator[ReasoningSwitch]:
    """The questions of a file that may reason or not."""
    yield from reasoning_switches_of_rendered_questions(module)


class ThinkingSwitchedOtherwise(SourceRule):
    code = "SRC173"
    fault = Fault.REASONING_TRAINED_IN_ANOTHER_FORM
    symptoms = ("garbage-output", "good-here-bad-there")
    severity = "warning"
    looks_at = CodePlaces("questions to a model by a chat template", _questions_that_may_reason)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        reasoning_switches = list(reasoning_switches_of_rendered_questions(module))
        if not reasoning_switches:
            return
        for training in _trainings_of_asked_model(module):
            found = _training_file_and_thinking_switch(training)
            if found is None:
                continue
            home, trained = found
            for question in reasoning_switches:
                thinks = question.thinks
                if thinks is None and trained.thinks_by_default:
                    thinks = True
                if thinks is None or thinks is trained.thinks:
                    continue
                where = "above" if home is module else f"of {Path(home.path).name}"
                state, other = ("off", "on") if thinks else ("on", "off")
                yield self.finding(
                    f"the training rows {where} are rendered with reasoning {state}, but this prompt with reasoning"
                    f" {other}: it differs from those in training",
                    f"set enable_thinking={trained.thinks} in apply_chat_template, as in training (in requests to a"
                    f' server: extra_body={{"chat_template_kwargs": {{"enable_thinking": {trained.thinks}}}}})',
                    cases=[case_of_node(module, question.node), case_of_node(home, trained.node)],
                )
                return


def _training_file_and_thinking_switch(training: Module) -> tuple[Module, ReasoningSwitch] | None:
    """How a training renders its rows, itself or in the one file beside it that it takes them from; and where."""
    own = reasoning_switch_of_training_rows(training)
    if own is not None:
        return training, own
    if any(training.methods("apply_chat_template")):
        return None
    makers = [
        (other, reasoning_switch_of_training_rows(other))
        for other in imported_scripts_beside(training)
    ]
    known = [(other, thinking) for other, thinking in makers if thinking is not None]
    if len(known) != 1:
        return None
    home, thinking = known[0]
    by_default = thinking.thinks_by_default or model_reasons_by_default(training)
    return home, replace(thinking, thinks_by_default=by_default)


def _trainings_of_asked_model(module: Module) -> Iterator[Module]:
    """The files that trained the model that a file asks: the file itself, or scripts beside that
    write what it loads.
    """
    if trains_a_model(module):
        yield module
        return
    names = loaded_model_names(module) | folders_answering_requests_of_file(module)
    for training in training_scripts_beside(module):
        folders = model_folders_written(training)
        if any(is_model_in_written_folders(name, folders) for name in names):
            yield training
