"""Labels are shifted by hand for a model that shifts them itself.

## What it does
Looks for labels that are the ids from position 1 on (`ids[1:] + [-100]`, `ids[:, 1:]`, `torch.roll(ids, -1)`) next to
the ids themselves: given to a transformers model, in a row for a trainer, in a batch of a loop that uses the model's
own loss, or given to `model.loss_function`, which shifts them too. Labels that are a field of the batch (`batch["y"]`,
`x, y = batch`) are followed to the data set or the collate function that makes them, also in another file.

## Why it is bad
The model shifts once more: each position learns the token after the next. The loss looks perfect, the output is
nonsense.

## Example
```python
from transformers import AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")


def encode(row):
    ids = tokenizer(row["text"])["input_ids"]
    return {"input_ids": ids, "labels": ids[1:] + [-100]}


trainer = Trainer(model="model", train_dataset=[encode({"text": "Hi"})])
```

## Use instead
```python
from transformers import AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")


def encode(row):
    ids = tokenizer(row["text"])["input_ids"]
    return {"input_ids": ids, "labels": list(ids)}


trainer = Trainer(model="model", train_dataset=[encode({"text": "Hi"})])
```

## Fix safety
Models of transformers, and their trainers, expect each label at the position of its own token. A trained model has to
be trained again.

## References
- huggingface/transformers#47394, huggingface/transformers#37830, InternLM/InternLM#318, allenai/open-instruct#1549
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.labels_shifted_in_code import (
    expression_leaving_first_token_out,
    leaves_last_token_out,
    sources_of_same_tokens,
)
from truetune.checks.source.evidence.shifts_of_model_loss_labels import (
    labels_of_model_losses,
    model_calls_read_without_loss,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OTHER_LOSSES = (
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.nll_loss",
    "torch.nn.CrossEntropyLoss",
    "torch.nn.NLLLoss",
)
OWN_LOSS_TEXTS = ("cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss", "compute_loss")
"""Texts of files in which a trainer may take a loss of the user's own"""
SHIFTING_LOSSES = ("transformers.*.ForCausalLMLoss", "transformers.*.ForCausalLM_loss")


class GivenLabels(NamedTuple):
    """Labels where they are given to a model, its loss or a row."""

    labels: ast.expr
    ids: ast.expr | None
    """The ids beside them; None where they are not seen"""
    to_model: bool
    """They are an argument of the model or of its loss, which shifts them without doubt"""


class LabelsShiftedByHand(SourceRule):
    code = "SRC051"
    fault = Fault.LABELS_MISALIGNED_WITH_TOKENS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces(
        "labels that are given beside their ids",
        lambda module: (*_labels_with_known_shift(module), *labels_of_model_losses(module)),
    )

    def unmet(self) -> Unmet | None:
        """Unmet with another reason where labels can't be followed to what makes them."""
        unmet = super().unmet()
        if unmet is not None and any(True for _ in _given_labels(self.subject)):
            return Unmet("the labels that the model is given can't be followed to what makes them")
        return unmet

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        followed = list(labels_of_model_losses(module))
        for shifted in followed:
            if shifted.is_shifted:
                yield self._finding_at_places(dict.fromkeys((shifted.labels, shifted.taker)))
        known = {
            line for one in followed for line in _lines_of_nodes(module, one.labels, one.taker)
        }
        for given_labels in _given_labels(module):
            if (
                given_labels.ids is not None
                and expression_leaving_first_token_out(module, given_labels.ids) is not None
            ):
                continue  # both begin at the same later token
            if module.place(given_labels.labels)[0] in known:
                continue
            if expression_leaving_first_token_out(module, given_labels.labels) is None:
                continue
            if given_labels.to_model or _model_takes_loss_of_labels(module, given_labels):
                yield self._finding_at_places((given_labels.labels,))

    def _finding_at_places(self, places: Iterable[ast.AST]) -> Finding:
        """The finding of labels at these places."""
        return self.finding(
            "labels are shifted by hand, and the model shifts them again: each position"
            " learns the token after the next",
            "do not shift labels by hand: use a copy of the ids (with -100 at positions that should not count in the"
            " loss)",
            cases=[case_of_node(self.subject, place) for place in places],
        )


def _lines_of_nodes(module: Module, *nodes: ast.AST) -> Iterator[int]:
    """The lines of a file on which expressions stand."""
    for node in nodes:
        if module.home(node).path == module.path:
            first = module.place(node)[0]
            yield from range(first, first + module.text_of(node).count("\n") + 1)


def _given_labels(module: Module) -> Iterator[GivenLabels]:
    """Labels of rows for a trainer of transformers or a model's own loss, and those that a model is called with."""
    if _makes_trainer_in_run(module) or _backpropagates_models_own_loss(module):
        yield from _labels_of_rows(module)
    unread = model_calls_read_without_loss(module)
    for call in module.all_calls:
        # An encoder-decoder that is given the ids of its decoder takes its labels as they are.
        if call.node in unread or "decoder_input_ids" in call.keywords:
            continue
        if "labels" in call.keywords and "model" in module.flow.types(call.node.func):
            yield GivenLabels(call.keywords["labels"], call.argument(0, "input_ids"), True)
        elif _is_shifting_loss(module, call):
            labels = call.argument(1, "labels")
            if labels is not None and call.lacks("shift_labels"):
                yield GivenLabels(labels, None, True)


def _labels_with_known_shift(module: Module) -> Iterator[GivenLabels]:
    """The labels of which the text says how they stand beside their ids.

    A field of a batch that a model is given says nothing by itself: a data set may have shifted it.
    """
    for given_labels in _given_labels(module):
        if (
            _are_copies_of_ids(module, given_labels)
            or expression_leaving_first_token_out(module, given_labels.labels) is not None
        ):
            yield given_labels


def _are_copies_of_ids(module: Module, given_labels: GivenLabels) -> bool:
    """Are the labels the ids themselves, or a copy of them?"""
    if given_labels.ids is None:
        return False
    ids = {
        ast.unparse(node)
        for node in (given_labels.ids, *sources_of_same_tokens(module, given_labels.ids))
    }
    copied = (given_labels.labels, *sources_of_same_tokens(module, given_labels.labels))
    return any(ast.unparse(node) in ids for node in copied)


def _labels_of_rows(module: Module) -> Iterator[GivenLabels]:
    """Labels beside ids in a row or batch, and those that are put into one: `batch["labels"] = ...`."""
    rows = (*module.nodes(ast.Dict), *(call.node for call in module.calls("dict")))
    for node in rows:
        entries = _entries_of_mapping(node)
        if "labels" in entries and "input_ids" in entries:
            yield GivenLabels(entries["labels"], entries["input_ids"], False)
    written: dict[tuple[str, str], ast.Assign] = {}
    for assigned in module.nodes(ast.Assign):
        target = assigned.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            written[ast.unparse(target.value), str(target.slice.value)] = assigned
    for (row, key), labels in written.items():
        if key != "labels":
            continue
        ids = written.get((row, "input_ids"))
        if ids is not None:
            yield GivenLabels(labels.value, ids.value, False)
        elif _are_labels_made_of_ids_staying_in_row(module, labels.value, row):
            yield GivenLabels(labels.value, None, False)


def _entries_of_mapping(node: ast.AST) -> dict[str, ast.expr]:
    """The values of a row by key: `{"x": a}`, `dict(x=a)`."""
    if isinstance(node, ast.Dict):
        return {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
    if isinstance(node, ast.Call):
        return {word.arg: word.value for word in node.keywords if word.arg is not None}
    return {}


def _are_labels_made_of_ids_staying_in_row(module: Module, labels: ast.expr, row: str) -> bool:
    """Are labels made of the ids of the same row, which stay in it: `row["labels"] = row["input_ids"][1:]`?

    A speech model is given sound, and its labels are cut where their first token is one that the decoder begins with.
    """
    nodes = [labels, *(origin.node for origin in module.flow.origins(labels))]
    names = (f"{row}['input_ids']", f"{row}.input_ids")
    return any(
        isinstance(part, ast.Subscript | ast.Attribute) and ast.unparse(part) in names
        for node in nodes
        for part in ast.walk(node)
    )


def _is_shifting_loss(module: Module, call: Call) -> bool:
    """Is it the loss of transformers that shifts the labels itself: `model.loss_function(...)`?"""
    if call.method == "loss_function" and call.receiver is not None:
        return "model" in module.flow.types(call.receiver)
    return call.named(*SHIFTING_LOSSES)


def _model_takes_loss_of_labels(module: Module, given_labels: GivenLabels) -> bool:
    """Does the model take the loss of a row? Where the ids are cut to fit, a loss of the user's own may be meant."""
    if _backpropagates_models_own_loss(module):
        return True
    if module.mentions(*OWN_LOSS_TEXTS) and not _file_makes_trainer(module):
        return False
    is_cut = given_labels.ids is not None and leaves_last_token_out(module, given_labels.ids)
    return not is_cut or not module.mentions(*OWN_LOSS_TEXTS, "def forward")


def _file_makes_trainer(module: Module) -> bool:
    """Does the file itself make a trainer?"""
    return any("trainer" in module.flow.types(call.node) for call in module.all_calls)


def _makes_trainer_in_run(module: Module) -> bool:
    """Does this file make a trainer, or one that runs with it?"""
    return any(_file_makes_trainer(part) for part in module.self_and_files_run_together)


def _backpropagates_models_own_loss(module: Module) -> bool:
    """Does a loop backpropagate the loss that a model computes of a batch (`model(**batch).loss`), and no other?"""
    parts = module.self_and_files_run_together
    if any(True for part in parts for _ in part.calls(*OTHER_LOSSES)):
        return False
    return module.mentions(".backward(", "def training_step") and any(
        _reads_loss_of_whole_batch(part) for part in parts
    )


def _reads_loss_of_whole_batch(module: Module) -> bool:
    """Is the loss of a model read that was given a whole batch: `model(**batch).loss`?"""
    for node in module.nodes(ast.Attribute):
        call = module.flow.producing_call(node.value) if node.attr == "loss" else None
        if call is not None and "model" in module.flow.types(call.node.func):
            return any(word.arg is None for word in call.node.keywords)
    return False
