"""Teacher and student of a distillation have different vocabularies, or are the same model.

## What it does
Reads the names of the student and the teacher of a Kullback-Leibler divergence, or of TRL's GKDTrainer,
DistillationTrainer and MiniLLMTrainer. It fires if the published families of both have different tokenizers, and for
these trainers also if both have one name. GOLDTrainer, which aligns two tokenizers, is left alone.

## Why it is bad
The teacher reads the student's token ids. With another tokenizer, it sees another text, mostly nonsense, and its
distribution is over other tokens. Where the sizes of the vocabularies differ, the loss fails. Where they agree, or
one was resized, nothing does. A teacher that is the student has nothing to teach.

## Example
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
teacher = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-3B")
for batch in batches:
    own = student(**batch).logits
    with torch.no_grad():
        wanted = teacher(**batch).logits
    given, target = F.log_softmax(own, -1), F.softmax(wanted, -1)
    F.kl_div(given.flatten(0, 1), target.flatten(0, 1), reduction="batchmean").backward()
```

## Use instead
```python
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B")

for batch in batches:
    own = student(**batch).logits
    with torch.no_grad():
        wanted = teacher(**batch).logits
    given, target = F.log_softmax(own, -1), F.softmax(wanted, -1)
    F.kl_div(given.flatten(0, 1), target.flatten(0, 1), reduction="batchmean").backward()
```

## Fix safety
There is no automatic fix. Take a teacher of the student's family, train on texts that the teacher wrote, or use a
method that aligns two tokenizers (TRL's GOLDTrainer).

## References
- huggingface/trl#4562, huggingface/trl#2215, arcee-ai/DistillKit#7, arcee-ai/DistillKit#29
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.distillation_losses import (
    distillation_losses,
    divergences_of_file,
)
from truetune.checks.source.evidence.shared_vocabularies import vocabulary_group
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Value

DISTILLING_TRAINERS = ("trl.*GKDTrainer", "trl.*DistillationTrainer", "trl.*MiniLLMTrainer")


def _divergences_and_trainers(module: Module) -> Iterator[object]:
    """The calls of a file that may distil."""
    yield from divergences_of_file(module)
    yield from module.calls(*DISTILLING_TRAINERS)


class TeacherOfAnotherVocabulary(SourceRule):
    code = "SRC587"
    fault = Fault.DISTILLATION_LEARNS_WRONG_TOKENS
    symptoms = ("garbage-output", "nothing-is-learned")
    severity = "error"
    looks_at = CodePlaces("divergences and trainers that distil", _divergences_and_trainers)

    def findings(self) -> Iterator[Finding]:
        """Findings on pairs of student and teacher that do not fit."""
        module = self.subject
        for loss in distillation_losses(module):
            yield from self._findings_on_vocabularies(
                module, loss.call, loss.student.model_name, loss.teacher.model_name
            )
        for trainer in _distilling_trainers(module):
            student = _name_of_model(trainer.argument(0, "model"))
            teacher = _name_of_model(trainer.keywords.get("teacher_model"))
            yield from self._findings_on_vocabularies(module, trainer, student, teacher)
            if student and student == teacher:
                yield self.finding(
                    f"the teacher is the student, {student}: there is nothing to learn from it",
                    "name a larger model of the same family as teacher_model",
                    severity="warning",
                    cases=[case_of_node(module, trainer.node)],
                )

    def _findings_on_vocabularies(
        self, module: Module, place: CallEvent, student: str, teacher: str
    ) -> Iterator[Finding]:
        """The finding on two models whose tokenizers differ."""
        groups = (vocabulary_group(student), vocabulary_group(teacher))
        if None in groups or groups[0] == groups[1]:
            return
        yield self.finding(
            f"the teacher {teacher} has the vocabulary of {groups[1]}, the student {student} that of {groups[0]}: the"
            " teacher reads the student's token ids as another text",
            "take a teacher of the student's family, or train on texts that the teacher wrote",
            cases=[case_of_node(module, place.node)],
        )


def _distilling_trainers(module: Module) -> Iterator[CallEvent]:
    """The trainers of a file that distil, each place once."""
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for trainer in trace.calls(*DISTILLING_TRAINERS):
            if trainer.home.path == module.path and trainer.node not in seen:
                seen.add(trainer.node)
                yield trainer


def _name_of_model(value: Value | None) -> str:
    """The name of a model that is given by name or loaded; empty where it is not known."""
    if value is None:
        return ""
    plain = constant_of(value)
    if isinstance(plain, str):
        return plain
    loads = [way.call_that_gave_origin for way in lineages_back_to_origins(value)]
    names = {
        constant_of(load.argument(0, "pretrained_model_name_or_path")) for load in loads if load
    }
    name = names.pop() if len(names) == 1 else ""
    return name if isinstance(name, str) else ""
