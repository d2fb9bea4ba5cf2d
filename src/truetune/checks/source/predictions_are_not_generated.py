"""Texts are scored that Seq2SeqTrainer never generated: `predict_with_generate` is not set.

## What it does
Looks at a `Seq2SeqTrainer` whose `compute_metrics` decodes its predictions, and whose `Seq2SeqTrainingArguments` do
not set `predict_with_generate=True`. A note where the function picks tokens by `argmax`, and so takes logits on
purpose.

## Why it is bad
Without it the predictions are the logits of one pass over the reference answer. Decoding them fails, or gives garbage;
their `argmax` is each next token after the true ones, which scores far higher than what the model writes by itself.

## Example
```python
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments


def compute_metrics(pair):
    predictions, labels = pair
    texts = tokenizer.batch_decode(predictions, skip_special_tokens=True)
    references = tokenizer.batch_decode(labels, skip_special_tokens=True)
    return rouge.compute(predictions=texts, references=references)


args = Seq2SeqTrainingArguments("out", eval_strategy="epoch")
trainer = Seq2SeqTrainer(model, args, eval_dataset=rows, compute_metrics=compute_metrics)
```

## Use instead
```python
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments


def compute_metrics(pair):
    predictions, labels = pair
    texts = tokenizer.batch_decode(predictions, skip_special_tokens=True)
    references = tokenizer.batch_decode(labels, skip_special_tokens=True)
    return rouge.compute(predictions=texts, references=references)


args = Seq2SeqTrainingArguments("out", eval_strategy="epoch", predict_with_generate=True)
trainer = Seq2SeqTrainer(model, args, eval_dataset=rows, compute_metrics=compute_metrics)
```

## Fix safety
There is no automatic fix: an evaluation that generates takes longer, and `generation_max_length` has to be long enough.

## References
- https://huggingface.co/docs/transformers/main_classes/trainer (Seq2SeqTrainingArguments)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import calls_with
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.metric_functions import functions_in_argument, picks_tokens
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

TRAINERS = ("transformers.Seq2SeqTrainer",)
ARGUMENTS = ("transformers.Seq2SeqTrainingArguments", "transformers.TrainingArguments")
DECODES = ("decode", "batch_decode")


class PredictionsAreNotGenerated(SourceRule):
    code = "SRC110"
    severity = "error"
    looks_at = calls_with("Seq2SeqTrainer with compute_metrics", ("compute_metrics",), *TRAINERS)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls(*TRAINERS):
            arguments = call.argument(1, "args")
            settings = module.flow.producing_call(arguments) if arguments is not None else None
            functions = functions_in_argument(module, call)
            # Without the arguments nothing is known, and without the functions no decoding is.
            if settings is None or not functions or not _lacks_generation(module, settings):
                continue
            decoded = next(_decoding_call(module, functions), None)
            if decoded is None:
                continue
            picks = any(picks_tokens(node) for function in functions for node in ast.walk(function))
            yield self.finding(
                "the metric decodes predictions that nothing generated: predict_with_generate is not"
                " set, and they are logits over the reference answer"
                + (": each token is picked behind the right ones" if picks else ""),
                "set predict_with_generate=True (and generation_max_length to the longest answer)",
                severity="info" if picks else "error",
                cases=[case_at(module, decoded), case_at(module, settings.node)],
            )


def _lacks_generation(module: Module, arguments: Call) -> bool:
    """Are these arguments all known, without predict_with_generate, and set so nowhere else?"""
    if not arguments.named(*ARGUMENTS) or arguments.open:
        return False
    value = module.flow.value(arguments.keywords.get("predict_with_generate"))
    is_off = "predict_with_generate" not in arguments.keywords or value is False
    # An assignment may switch it on later: `args.predict_with_generate = True`.
    return is_off and ".predict_with_generate" not in module.text


def _decoding_call(module: Module, functions: list[ast.AST]) -> Iterator[ast.Call]:
    """Calls in these functions that decode ids."""
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and module.flow.call(node).method in DECODES:
                yield node
