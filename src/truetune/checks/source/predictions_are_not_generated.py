"""A metric scores texts that were not generated: each token is predicted after the reference's own tokens.

## What it does
Looks at a `Seq2SeqTrainer` whose `compute_metrics` decodes its predictions, and whose `Seq2SeqTrainingArguments` do not
set `predict_with_generate=True`. This is an error. If the function picks tokens by `argmax`, and so uses logits on
purpose, it is info, or a warning if it scores their texts.

It also warns about a `Trainer` or `SFTTrainer` of a causal model, which never generates, if the tokens that `argmax`
picks are decoded, and the texts are scored by their overlap with the reference (ROUGE, BLEU, an edit distance), or an
answer is extracted from them. A test whether the whole answer equals its reference is not reported: it is true only if
each token is predicted right, and then the model also generates this answer.

## Why it is bad
Without it the predictions are the logits of one forward pass over the reference answer. Decoding them fails or gives
garbage. Their `argmax` predicts each token after the reference's tokens, which scores far higher than what the model
generates by itself.

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


args = Seq2SeqTrainingArguments("out", eval_strategy="epoch", predict_with_generate=True, generation_max_length=128)
trainer = Seq2SeqTrainer(model, args, eval_dataset=rows, compute_metrics=compute_metrics)
```

## Fix safety
There is no automatic fix: an evaluation that generates takes longer, and `generation_max_length` must be long enough
for the answers. The scores usually fall; only the new ones show what the model writes.

## References
- https://huggingface.co/docs/transformers/main_classes/trainer (Seq2SeqTrainingArguments)
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
from truetune.checks.source.evidence.causal_predictions_compared_with_labels import (
    causal_trainers_with_metrics,
)
from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    functions_seeing_logits,
    picks_one_token_per_position,
)
from truetune.checks.source.evidence.possible_values_of_expressions import possible_texts
from truetune.settings.run_spec import Severity
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

TRAINERS = ("transformers.Seq2SeqTrainer",)
ARGUMENTS = ("transformers.Seq2SeqTrainingArguments", "transformers.TrainingArguments")
DECODES = ("decode", "batch_decode")
OVERLAP = re.compile(
    r"rouge|bleu|meteor|chrf|bert_?score|(?<![a-z])[wc]er(?![a-z])|levenshtein|edit_?dist|lcs|jaccard|ratio\(|nltk",
    re.I,
)
"""Scores that grow with each token that is right"""
EXTRACTIONS = re.compile(
    r"re\.(search|findall|match)\(|json\.loads\(|\.split\('####|extract_\w+\(|parse_\w+\("
)
"""What reads an answer out of a text: the reasoning before it is then the reference's own"""
LOADS_METRIC = ("evaluate.load", "evaluate.combine", "datasets.load_metric")


class PredictionsAreNotGenerated(SourceRule):
    code = "SRC110"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    severity = "error"
    looks_at = CodePlaces(
        "trainers of Seq2Seq and causal models with compute_metrics",
        lambda module: (
            *(call for call in module.calls(*TRAINERS) if "compute_metrics" in call.keywords),
            *causal_trainers_with_metrics(module),
        ),
    )

    def findings(self) -> Iterator[Finding]:
        yield from self._findings_on_causal_models()
        module = self.subject
        for call in module.calls(*TRAINERS):
            arguments = call.argument(1, "args")
            settings = module.flow.producing_call(arguments) if arguments is not None else None
            functions = functions_seeing_logits(module, call)
            # Without the arguments nothing is known, and without the functions no decoding is.
            if (
                settings is None
                or not functions
                or not _lacks_predict_with_generate(module, settings)
            ):
                continue
            decoded = next(_decoding_calls(module, functions), None)
            if decoded is None:
                continue
            picks = any(
                picks_one_token_per_position(node)
                for function in functions
                for node in ast.walk(function)
            )
            yield self.finding(
                "the metric decodes predictions that were not generated: predict_with_generate is not"
                " set, so they are logits over the reference answer"
                + (", and each token is picked after the right ones" if picks else ""),
                "in Seq2SeqTrainingArguments set predict_with_generate=True and generation_max_length to the tokens of"
                " the longest answer (e.g. 256)",
                severity=_severity_of_picked_tokens(module, functions) if picks else "error",
                cases=[case_of_node(module, decoded), case_of_node(module, settings.node)],
            )

    def _findings_on_causal_models(self) -> Iterator[Finding]:
        """Findings on trainers of causal models whose metric scores the texts of picked tokens."""
        module = self.subject
        for call in causal_trainers_with_metrics(module):
            functions = functions_seeing_logits(module, call)
            if not functions or not _functions_score_texts(module, functions):
                continue
            picked = [
                n
                for function in functions
                for n in ast.walk(function)
                if picks_one_token_per_position(n)
            ]
            decoded = next(_decoding_calls(module, functions), None)
            if decoded is None or not picked or _functions_ask_a_model(functions):
                continue
            yield self.finding(
                "the metric scores texts that were not generated: argmax picks each token after the reference's own"
                " tokens, so the score is far higher than that of generated answers",
                "compute this metric on answers from model.generate (for some rows, in a TrainerCallback or after"
                " training); in compute_metrics report only token accuracy",
                severity="warning",
                cases=[case_of_node(module, decoded), case_of_node(module, picked[0])],
            )


def _severity_of_picked_tokens(module: Module, functions: list[ast.AST]) -> Severity:
    """How bad it is to score tokens that are picked after the right ones: texts come out far too good."""
    return "warning" if _functions_score_texts(module, functions) else "info"


def _functions_score_texts(module: Module, functions: list[ast.AST]) -> bool:
    """Do these functions score texts by their overlap, or read an answer out of them?"""
    texts = [ast.unparse(function) for function in functions]
    if any(OVERLAP.search(text) or EXTRACTIONS.search(text) for text in texts):
        return True
    computes = any(".compute(" in text or ".add_batch(" in text for text in texts)
    loaded = (
        name
        for call in module.calls(*LOADS_METRIC)
        for name in possible_texts(module, call.argument(0, "path"))
    )
    return computes and any(OVERLAP.search(name) for name in loaded)


def _functions_ask_a_model(functions: list[ast.AST]) -> bool:
    """Do these functions ask a model themselves?"""
    return any(".generate(" in ast.unparse(function) for function in functions)


def _lacks_predict_with_generate(module: Module, arguments: Call) -> bool:
    """Are these arguments all known, without predict_with_generate, and set so nowhere else?"""
    if not arguments.named(*ARGUMENTS) or arguments.open:
        return False
    value = module.flow.value(arguments.keywords.get("predict_with_generate"))
    is_off = "predict_with_generate" not in arguments.keywords or value is False
    # An assignment may switch it on later: `args.predict_with_generate = True`.
    return is_off and ".predict_with_generate" not in module.text


def _decoding_calls(module: Module, functions: list[ast.AST]) -> Iterator[ast.Call]:
    """Calls in these functions that decode ids."""
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and module.flow.call(node).method in DECODES:
                yield node
