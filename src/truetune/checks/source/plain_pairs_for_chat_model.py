"""A chat model is trained on plain strings, and another script prompts it through its chat template.

## What it does
Builds the rows that a script passes to TRL's trainer, if their file is available: prompts with completions, or with
chosen and rejected. It fires if they are plain strings without any turn markers, the model is a chat model by its name
(instruct, chat, it), and a script in the same folder prompts it through the chat template. It needs no tokenizer;
`plain-string-pair-skips-template` judges the same rows if one is given.

## Why it is bad
Trainers join such strings as they are. At inference the model then sees a format that it was never trained on: the
answers are those of the untuned model, or they break off, repeat and do not stop.

## Example
```python
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

# pairs.json: [{"prompt": "Is it open?", "chosen": "It is.", "rejected": "Who knows."}]
# chat.py: inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True); model.generate(inputs)
rows = load_dataset("json", data_files="pairs.json", split="train")
DPOTrainer("Qwen/Qwen2.5-7B-Instruct", args=DPOConfig("out"), train_dataset=rows).train()
```

## Use instead
```python
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer


def shape(row):
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "chosen": [{"role": "assistant", "content": row["chosen"]}],
        "rejected": [{"role": "assistant", "content": row["rejected"]}],
    }


# pairs.json: [{"prompt": "Is it open?", "chosen": "It is.", "rejected": "Who knows."}]
# chat.py: inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True); model.generate(inputs)
rows = load_dataset("json", data_files="pairs.json", split="train").map(shape)
DPOTrainer("Qwen/Qwen2.5-7B-Instruct", args=DPOConfig("out"), train_dataset=rows).train()
```

## Fix safety
Rows of messages go through the template, so the model must be trained again. If you also prompt the model in plain
text, the plain strings are right.

## References
- huggingface/trl#3468, huggingface/trl#3140
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.chat_model_and_turn_mark_patterns import (
    CHAT_MODEL_NAME,
    TURN_MARKS,
)
from truetune.checks.source.evidence.prompt_forms import (
    first_line_asking_model_in_chat_turns,
    scripts_beside,
)
from truetune.data.script_rows.read_rows_given_to_trainer import read_trained_text_rows
from truetune.errors import TruetuneError
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Value

TRAINERS = ("trl.*Trainer",)
PAIRS = (("prompt", "chosen", "rejected"), ("prompt", "completion"))
MAX_ROWS = 200
"""Rows that are looked at; a script shapes all in the same way"""


class PlainPairsForChatModel(SourceRule):
    code = "SRC187"
    fault = Fault.CHAT_MODEL_TRAINED_WITHOUT_TEMPLATE
    symptoms = ("garbage-output", "dpo-without-effect", "good-here-bad-there")
    severity = "warning"
    looks_at = places_of_calls("trainers of TRL", *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        trainer_and_name = next(_trainers_of_chat_models_and_names(module), None)
        if trainer_and_name is None:
            return
        trainer, name = trainer_and_name
        asking = next(_inference_scripts_using_chat_template(module), None)
        rows = _first_training_rows(module) if asking is not None else []
        plain = [row for _, _, row in rows if _is_plain_pair_without_turn_marks(row)]
        if asking is None or not rows or len(plain) < len(rows):
            return
        file, line, first = rows[0]
        columns = ", ".join(next(pair for pair in PAIRS if pair[1] in first))
        yield self.finding(
            f"{name} is a chat model, but is trained on plain strings ({columns}), which skip its chat template;"
            f" {Path(asking[0].path).name} prompts it through the template",
            f"write {columns} as lists of messages ([{{'role': 'user' or 'assistant', 'content': ...}}]), so that the"
            " trainer applies the chat template",
            cases=[
                case_of_node(module, trainer.node),
                Case(f"prompt {str(first['prompt'])[-60:]!r}", file=file, line=line),
                Case(asking[1], file=asking[0].path, line=asking[2]),
            ],
            count=len(plain),
            total=len(rows),
        )


def _trainers_of_chat_models_and_names(module: Module) -> Iterator[tuple[CallEvent, str]]:
    """The trainers of a file whose model is a chat model by its name."""
    for trace in traces_of_scripts_that_reach_file(module):
        for trainer in trace.calls(*TRAINERS):
            model = trainer.argument(0, "model")
            if trainer.home.path != module.path or model is None:
                continue
            names = _possible_model_names(model)
            if names and all(isinstance(n, str) and CHAT_MODEL_NAME.search(n) for n in names):
                yield trainer, str(names[0])


def _possible_model_names(model: Value) -> list[object]:
    """The names by which a model may be loaded, or the constant that a trainer is given in its place."""
    loads = [way.call_that_gave_origin for way in lineages_back_to_origins(model)]
    given = [load.argument(0, "pretrained_model_name_or_path") for load in loads if load]
    return [constant_of(one) for one in (given or [model]) if one is not None]


def _inference_scripts_using_chat_template(module: Module) -> Iterator[tuple[Module, str, int]]:
    """The scripts beside that ask by a chat template and train nothing, with the line that does."""
    for other in scripts_beside(module):
        if any(other.methods("train", "backward")):
            continue
        place = first_line_asking_model_in_chat_turns(other)
        if place is not None:
            yield other, place[1], place[0]


def _first_training_rows(module: Module) -> list[tuple[str, int, Mapping[str, Any]]]:
    """The first rows that a script trains, each with its file and line; none where they are not known."""
    try:
        rows = read_trained_text_rows(module.path)
    except (TruetuneError, OSError):
        return []
    return [(one.file, one.line, one.row) for one in rows.rows[:MAX_ROWS]]


def _is_plain_pair_without_turn_marks(row: Mapping[str, Any]) -> bool:
    """Are a prompt and its answers plain strings that hold no mark of a turn?"""
    pair = next((pair for pair in PAIRS if all(name in row for name in pair)), None)
    texts = [row[name] for name in pair] if pair is not None else []
    are_texts = bool(texts) and all(isinstance(text, str) for text in texts)
    return are_texts and not any(TURN_MARKS.search(text) for text in texts)
