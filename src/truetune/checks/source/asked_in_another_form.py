"""A script asks the tuned model in another form than the script beside it trained it on.

## What it does
Compares how two scripts of one project write their prompts: the one that trains, and one that loads what it saved and
asks it. A form is the chat template, or a text written by hand, told by the line behind which the answer begins
(`### Response:`, `Assistant:`, `[/INST]`). Scripts that do both ways, and models from elsewhere, are left alone.

## Why it is bad
What was learned belongs to the prompt that it was learned behind. Behind another one the model answers much as its
base does: the loss fell, the adapter is loaded, and it looks as if nothing had been learned.

## Example
```python
# fit.py: import trl; P = "### Instruction: {}\\n### Response: {}"; trl.SFTTrainer(args=trl.SFTConfig(output_dir="out"))
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoPeftModelForCausalLM.from_pretrained("out")
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
model.generate(**inputs, max_new_tokens=200)
```

## Use instead
```python
# fit.py: import trl; P = "### Instruction: {}\\n### Response: {}"; trl.SFTTrainer(args=trl.SFTConfig(output_dir="out"))
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoPeftModelForCausalLM.from_pretrained("out")
inputs = tokenizer(f"### Instruction: {question}\\n### Response: ", return_tensors="pt")
model.generate(**inputs, max_new_tokens=200)
```

## Fix safety
Which of the two forms is right, the rule can't know. To train by the chat template costs a training, and serves with
every engine.

## References
- tatsu-lab/stanford_alpaca#30, hiyouga/LLaMA-Factory#1433
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.code_places import CodePlaces
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.families import family
from truetune.checks.source.places import at
from truetune.checks.source.prompt_forms import (
    PromptForm,
    asks,
    is_written,
    loaded_names,
    prompt_form,
    settings_beside,
    trainings_beside,
    words_of,
    written_folders,
)
from truetune.source.module import Module


class Trained(NamedTuple):
    """What trains the model that a script asks, and in which form."""

    path: str
    marks: frozenset[str]
    """As those of a PromptForm"""
    case: Case


def _asked(module: Module) -> Iterator[PromptForm]:
    form = prompt_form(module) if asks(module) else None
    if form is not None:
        yield form


class AskedInAnotherForm(SourceRule):
    code = "TT783"
    severity = "error"
    looks_at = CodePlaces("prompts of scripts that ask a model", _asked)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for form in _asked(module):
            trained = _trained(module)
            if trained is None or form.marks & trained.marks or not (form.marks or trained.marks):
                continue
            yield self.finding(
                f"the model is asked by {form.words}, and {Path(trained.path).name} trained it on"
                f" {words_of(trained.marks)}: another prompt than in training",
                _remedy(trained.marks),
                cases=[at(module, form.node), trained.case],
            )


def _remedy(marks: frozenset[str]) -> str:
    """What makes the two forms one: the cheaper way first, which is that of the training."""
    if not marks:
        return "ask by tokenizer.apply_chat_template as in training, or train on the text that is asked"
    shown = " or ".join(sorted(marks))
    return (
        f"write the prompt as in training, down to its line breaks, so that it ends in {shown}; or train by"
        " the chat template"
    )


def _trained(module: Module) -> Trained | None:
    """What trained the model that a file asks; None where that is not sure."""
    names = loaded_names(module)
    others = list(trainings_beside(module))
    makers = [
        other for other in others if any(is_written(name, written_folders(other)) for name in names)
    ]
    files = [
        one
        for one in settings_beside(module)
        if any(is_written(name, frozenset((one.output,))) for name in names)
    ]
    if not makers and len(files) == 1:
        return Trained(files[0].path, files[0].form, Case(files[0].key, file=files[0].path, line=1))
    if not makers and len(others) == 1 and any(_is_tuned_here(name, others[0]) for name in names):
        makers = others
    forms = [(other, prompt_form(other)) for other in makers]
    found = [
        Trained(other.path, form.marks, at(other, form.node))
        for other, form in forms
        if form is not None
    ]
    return found[0] if len(found) == len(makers) == 1 and not files else None


def _is_tuned_here(name: str, training: Module) -> bool:
    """May it be what the one training of the project made: a local folder, and no model that is published?"""
    is_local = name.startswith((".", "/", "~")) or name.count("/") != 1
    return is_local and family(name) is None and name not in loaded_names(training)
