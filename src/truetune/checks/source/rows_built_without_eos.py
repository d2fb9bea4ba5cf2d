"""Training rows are built from prompts and answers, and nothing puts a stop token after the answers.

## What it does
Traces, in a symbolic run, tokenized texts to the trainer or backward pass that gets them: `Trainer`, loops, Lightning,
ready ids for `SFTTrainer`, and texts for Unsloth's trainer, which appends nothing. It fires if the rows are built from
two or more columns, every encoded text is built in the files (columns, f-strings, `format`), and nothing in them names
an EOS, another stop token or a whole chat, except as a pad token or for generation. It is a warning if the tokenizer is
known to append no EOS, else info.

Hand-written packing is found too: texts of many rows are joined (`buffer += row["text"] + "\\n"`, `"\\n".join(...)`),
encoded at once and cut into blocks, in a file that names no end token. It does not fire if each text ends in a fixed
text of the script (`### End`).

## Why it is bad
Llama, Qwen, Mistral, Gemma, Phi and GPT-2 encode a text without EOS. The model learns the words of each answer but
never that it ends: it continues to the token limit, often with a new prompt. The loss shows nothing.

## Example
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")


def encode(row):
    prompt = tokenizer(f"### Review:\\n{row['review']}\\n\\n### Reply:\\n")["input_ids"]
    reply = tokenizer(row["reply"], add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


Trainer(model, TrainingArguments("out"), train_dataset=rows.map(encode)).train()
```

## Use instead
```python
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.2-1B")
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")


def encode(row):
    prompt = tokenizer(f"### Review:\\n{row['review']}\\n\\n### Reply:\\n")["input_ids"]
    reply = tokenizer(row["reply"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return {"input_ids": prompt + reply, "labels": [-100] * len(prompt) + reply}


Trainer(model, TrainingArguments("out"), train_dataset=rows.map(encode)).train()
```

## Fix safety
There is no automatic fix: whether the token belongs in the text or in the ids depends on how rows are cut, and rows
that already end in it would get it twice. The model must be trained again.

## References
- tloen/alpaca-lora#357, huggingface/transformers#22794
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.may_stop_token_follow_training_rows import (
    all_model_families_append_no_eos,
    may_append_stop_token,
    trains_causal_model_on_own_rows,
)
from truetune.checks.source.evidence.texts_encoded_for_training import (
    EncodedRow,
    encoded_rows,
    texts_encoded_by_unsloth_trainer,
)
from truetune.checks.source.evidence.texts_packed_without_end_token import (
    encodings_of_joined_texts_cut_into_blocks,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import Trace

MIN_COLUMNS = 2
"""Columns of a row with a prompt and its answer; a text of one column may be a document that continues"""


def _texts_encoded_for_training(module: Module) -> list[object]:
    """The texts that a file encodes for a training, row by row or packed."""
    return [*_encoded_rows_of_file(module), *encodings_of_joined_texts_cut_into_blocks(module)]


def _encoded_rows_of_file(module: Module) -> list[EncodedRow]:
    """The texts that the file's runs encode for a training."""
    if not trains_causal_model_on_own_rows(module):
        return []
    return [
        row
        for trace in traces_of_scripts_that_reach_file(module)
        for row in _encoded_rows_of_run(module, trace)
    ]


def _encoded_rows_of_run(module: Module, trace: Trace) -> Iterator[EncodedRow]:
    """The texts that one run encodes for a training."""
    yield from encoded_rows(trace)
    if module.this_or_linked_file_imports_unsloth:
        yield from texts_encoded_by_unsloth_trainer(trace)


class RowsBuiltWithoutEos(SourceRule):
    code = "SRC138"
    fault = Fault.TRAINING_ANSWERS_LACK_STOP_TOKEN
    symptoms = ("never-stops",)
    severity = "warning"
    looks_at = CodePlaces("texts that are encoded as rows of training", _texts_encoded_for_training)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in encodings_of_joined_texts_cut_into_blocks(module):
            yield self.finding(
                "texts of many rows are joined, encoded at once and cut into blocks, without an end token between"
                " them: unless each row ends in one, the model learns to continue an answer with another row",
                "append tokenizer.eos_token to each row before the texts are joined",
                cases=[case_of_node(module, call.node)],
            )
            return
        rows = _encoded_rows_of_file(module)
        if not _are_columns_known_without_end_mark(rows) or any(
            may_append_stop_token(part) for part in module.self_and_files_run_together
        ):
            return
        is_known = all_model_families_append_no_eos(module)
        last = rows[-1].call
        yield self.finding(
            "the answers of the training rows have no EOS, and the tokenizer appends none: the model never learns to"
            " stop"
            if is_known
            else "the answers of the training rows have no EOS: unless the tokenizer appends one, the model never"
            " learns to stop",
            "append tokenizer.eos_token_id to the ids and labels of each answer; if you truncate rows, do it before"
            " you append it",
            severity="warning" if is_known else "info",
            cases=[case_of_node(last.home, last.node)],
        )


def _are_columns_known_without_end_mark(rows: list[EncodedRow]) -> bool:
    """Are the columns of all rows known, several of them, and does a row end in no mark?"""
    if any(row.columns is None for row in rows) or all(row.ends_in_script_text for row in rows):
        return False
    columns: frozenset[str] = frozenset().union(*(row.columns or () for row in rows))
    return len(columns) >= MIN_COLUMNS
