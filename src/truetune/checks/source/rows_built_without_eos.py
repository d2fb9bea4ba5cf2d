"""Training rows are built of prompts and answers, and nothing puts a stop token behind the answers.

## What it does
Looks at scripts that encode prompts and answers themselves for `Trainer`, for a training loop, or as ready ids for
`SFTTrainer`: labels that hide the prompt, or a prompt written by hand. It fires where the tokenizer is known to append
no EOS, every text that is encoded is made in the files (columns, f-strings, `format`), and nothing in them names an
EOS, another stop token or a chat template, but as a pad or for generation. A note where the tokenizer is not known.

## Why it is bad
Llama, Qwen, Mistral, Gemma, Phi and GPT-2 encode a text without EOS. The model learns the words of each answer and
never that it ends: it continues to the limit, often with a prompt of its own. The loss shows nothing.

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
There is no automatic fix: whether the token belongs into the text or to the ids depends on how rows are cut, and rows
that end in it already would get it twice.

## References
- tloen/alpaca-lora#357, huggingface/transformers#22794
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.row_endings import (
    appends_no_eos,
    encoded_row_texts,
    encodes_answers,
    is_text_of_the_files,
    may_end_rows,
)


class RowsBuiltWithoutEos(SourceRule):
    code = "SRC138"
    severity = "warning"
    looks_at = CodePlaces("texts that are encoded as rows of training", encoded_row_texts)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        texts = list(encoded_row_texts(module))
        if not texts or not encodes_answers(module):
            return
        if any(may_end_rows(part) for part in module.with_linked):
            return
        if not all(is_text_of_the_files(module, text) for _, text in texts):
            return
        is_known = appends_no_eos(module)
        last = texts[-1][0]
        yield self.finding(
            "no EOS is put behind the answers of the training rows, and the tokenizer appends none: the model"
            " never learns to stop"
            if is_known
            else "no EOS is put behind the answers of the training rows: unless the tokenizer appends one, the model"
            " never learns to stop",
            "append [tokenizer.eos_token_id] to the ids of each answer and to its labels, and cut rows before it"
            " is appended",
            severity="warning" if is_known else "info",
            cases=[case_at(module.home(last.node), last.node)],
        )
