"""Labels are a plain copy of padded `input_ids`, so pads count in the loss.

## What it does
It finds `labels = input_ids` (copied, cloned or as it is) if the tokenizer call pads, no -100 can be on a pad, and no
collator masks pads later. A -100 on the first tokens (`labels[:prompt_length] = -100`, `[-100] * n + ids[n:]`) masks
the prompt, not the pads. In a file that trains nothing it is info, since a collator elsewhere may make the labels. In a
file that only evaluates it is a warning: a perplexity is computed from that loss.

## Why it is bad
Pads after the answer count in the loss, which falls as padding grows, and the model learns to write pads.

## Example
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("some/model")


def encode(rows):
    batch = tok(rows["text"], padding="max_length", max_length=512, truncation=True)
    batch["labels"] = batch["input_ids"].copy()
    return batch


data = load_dataset("some/rows", split="train").map(encode, batched=True)
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoTokenizer

tok = AutoTokenizer.from_pretrained("some/model")


def encode(rows):
    batch = tok(rows["text"], padding="max_length", max_length=512, truncation=True)
    batch["labels"] = [
        [token if seen else -100 for token, seen in zip(ids, mask)]
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"])
    ]
    return batch


data = load_dataset("some/rows", split="train").map(encode, batched=True)
```

## Fix safety
Safe: it masks by the attention mask, so an EOS token that is also the pad token is still learned.

## References
- wangshy31/OneRec-Think#8, JulesBelveze/bert-squeeze#80, Blaizzy/mlx-vlm#1392
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node, fix_of_changes
from truetune.checks.source.evidence.enclosing_function_and_evaluation_only_files import (
    function_around,
    only_evaluates,
)
from truetune.checks.source.evidence.exponentials_of_mean_losses import CROSS_ENTROPIES
from truetune.checks.source.evidence.generate_call_inputs import (
    DATA_LOADERS,
    does_tokenizer_call_pad,
    encoding_calls_of_dictionary,
)
from truetune.checks.source.evidence.hand_masked_labels import label_writers_and_values
from truetune.checks.source.evidence.label_masking_and_padding import (
    holds_ignored_label,
    maskings_of_pad_id,
    owner_and_column_read,
    writes_ignored_label,
)
from truetune.checks.source.evidence.labels_copied_from_padded_ids import (
    CopiedIds,
    copied_padded_ids,
    hand_padding_of_labels,
    masks_labels_by_attention_mask_elsewhere,
    masks_more_than_prompt,
    may_labels_be_changed,
    padded_ids_as_loss_targets,
    without_copying_calls,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.make_source_edits import Changes, replace_expression
from truetune.source.parsed_source_file import Module

LABEL_MAKERS = (
    "transformers.DataCollatorForLanguageModeling",
    "trl.DataCollatorForCompletionOnlyLM",
    "trl.SFTTrainer",
)
"""They make labels themselves"""


class LabelsCopyInputIds(SourceRule):
    code = "SRC015"
    fault = Fault.PADDING_IN_LOSS
    symptoms = ("garbage-output", "loss-does-not-fall")
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    looks_at = CodePlaces(
        "labels that are set", lambda module: _label_settings_and_id_target_entropies(module)
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(
            any(part.calls(*LABEL_MAKERS)) or any(maskings_of_pad_id(part))
            for part in module.self_and_files_run_together
        ):
            return
        if _only_evaluates_or_collates(module):
            yield from self._findings_on_evaluation()
            return
        # Several lines may set labels of one batch: the call that pads is one fault.
        reported: set[ast.AST] = set()
        yield from self._findings_on_labels_set_to_padded_ids(reported)
        yield from self._findings_on_targets(reported)
        yield from self._findings_on_own_padding()

    def _findings_on_labels_set_to_padded_ids(self, reported: set[ast.AST]) -> Iterator[Finding]:
        """Findings on labels that the file sets to padded ids; `reported` gets the calls that pad
        them.
        """
        module = self.subject
        for node, value in _nodes_and_values_setting_labels(module):
            copied = copied_padded_ids(module, value)
            around = function_around(module, node)
            if copied is None or copied.call.node in reported:
                continue
            if not _may_mask_pads(module, around, copied):
                reported.add(copied.call.node)
                yield self._finding_on_training_labels(node, value, copied, around)

    def _findings_on_own_padding(self) -> Iterator[Finding]:
        """Findings on labels that are a copy of ids which the file itself fills up with pads, where
        nothing leaves pads out.
        """
        module = self.subject
        linked = module.self_and_files_run_together
        if module.mentions("ignore_index") or any(
            holds_ignored_label(one, one.tree) for one in linked
        ):
            return
        for node, value in _nodes_and_values_setting_labels(module):
            pads = hand_padding_of_labels(module, value)
            if pads is not None and _makes_trainer_or_optimizer(module):
                yield self.finding(
                    "labels are a copy of padded input_ids: pads count in the loss",
                    "pad the labels with -100 instead of the pad token's id",
                    evidence=[f"the padding is added in line {module.place(pads)[0]}"],
                    cases=[case_of_node(module, node), case_of_node(module, pads)],
                )

    def _findings_on_targets(self, reported: set[ast.AST]) -> Iterator[Finding]:
        """Findings on padded ids that a cross-entropy written by hand takes as its targets."""
        module = self.subject
        for call in module.calls(*CROSS_ENTROPIES):
            copied = padded_ids_as_loss_targets(module, call)
            around = function_around(module, call.node)
            if copied is None or copied.call.node in reported:
                continue
            if not holds_ignored_label(module, around):
                reported.add(copied.call.node)
                yield self._finding_on_training_labels(call.node, call.node, copied, around)

    def _finding_on_training_labels(
        self, node: ast.AST, value: ast.expr, copied: CopiedIds, around: ast.AST
    ) -> Finding:
        """The finding on one place that sets labels; `around` is its function or the module."""
        module = self.subject
        message = "labels are a copy of padded input_ids: pads count in the loss"
        trained = _makes_trainer_or_optimizer(module)
        if not trained:
            message += ", unless the training's collator makes new labels"
        evidence = [f"the padding is added in line {module.place(copied.call.node)[0]}"]
        by_position = around is not module.tree and holds_ignored_label(module, around)
        if by_position:
            evidence.append("the -100 here covers the first tokens, but no pads")
        fix = None
        if copied.plain and not by_position:
            fix = fix_of_changes(module, _edits_that_mask_pads(module, value, copied, around))
        return self.finding(
            message,
            "set labels to -100 wherever attention_mask is 0",
            severity=self.severity if trained else "info",
            evidence=evidence,
            cases=[case_of_node(module, node), case_of_node(module, copied.call.node)],
            fix=fix,
        )

    def _findings_on_evaluation(self) -> Iterator[Finding]:
        """Findings on losses of a file that evaluates alone, over labels that hold the pads of a
        batch.
        """
        module = self.subject
        # A script that counts the labels which are not -100 masks none by that.
        if any(
            writes_ignored_label(part, part.tree) for part in module.self_and_files_run_together
        ):
            return
        if _do_all_loaders_give_single_rows(module):
            return
        for call in module.all_calls:
            labels = call.keywords.get("labels")
            if labels is None or "model" not in module.flow.types(call.node.func):
                continue
            padding = _padding_call_of_labels(module, labels)
            if padding is not None:
                yield self.finding(
                    "labels are a copy of padded input_ids: the loss, and a perplexity computed from it, include pads",
                    "set labels to -100 wherever attention_mask is 0",
                    severity="warning",
                    evidence=[f"the padding is added in line {module.place(padding.node)[0]}"],
                    cases=[case_of_node(module, labels), case_of_node(module, padding.node)],
                )
        yield from self._findings_on_batch_labels_and_loss_targets()

    def _findings_on_batch_labels_and_loss_targets(self) -> Iterator[Finding]:
        """Findings on labels of a column that the batch brings along, and targets of a
        cross-entropy by hand.
        """
        module = self.subject
        # A script that only generates may carry labels along, and takes no loss of them.
        values = (
            (value for _, value in label_writers_and_values(module))
            if _reads_or_evaluates_loss(module)
            else ()
        )
        places = [(value, copied_padded_ids(module, value)) for value in values]
        entropies = (
            call
            for call in module.calls(*CROSS_ENTROPIES)
            if not _may_loss_be_masked_later(module, call)
        )
        places.extend(
            (call.node, padded_ids_as_loss_targets(module, call, with_reduction=True))
            for call in entropies
        )
        for node, copied in places:
            around = function_around(module, node)
            if copied is None or _may_mask_pads(module, around, copied):
                continue
            yield self.finding(
                "labels are a copy of padded input_ids: the loss, and a perplexity computed from it, include pads",
                "set labels to -100 wherever attention_mask is 0, and divide by the number of labels that are left",
                severity="warning",
                evidence=[f"the padding is added in line {module.place(copied.call.node)[0]}"],
                cases=[case_of_node(module, node), case_of_node(module, copied.call.node)],
            )


def _only_evaluates_or_collates(module: Module) -> bool:
    """Does a file evaluate alone, or hold the collator of files that all do no more than that?"""
    if only_evaluates(module):
        return True
    others = module.self_and_files_run_together[1:]
    return (
        not _makes_trainer_or_optimizer(module)
        and any(only_evaluates(part) for part in others)
        and not any(
            any(part.methods("backward", "fit")) for part in module.self_and_files_run_together
        )
    )


def _do_all_loaders_give_single_rows(module: Module) -> bool:
    """Do all loaders with a collator give batches of one row, which `padding=True` pads to its own length?"""
    loaders = [
        call
        for part in module.self_and_files_run_together
        for call in part.calls(*DATA_LOADERS)
        if call.argument(6, "collate_fn") is not None
    ]
    sizes = [call.argument(1, "batch_size") for call in loaders]
    return bool(sizes) and all(size is None or module.flow.value(size) == 1 for size in sizes)


def _reads_or_evaluates_loss(module: Module) -> bool:
    """Does a script read the loss that a model gives, or let a trainer evaluate?"""
    reads = any(
        node.attr == "loss"
        for part in module.self_and_files_run_together
        for node in part.nodes(ast.Attribute)
    )
    return reads or any(
        True for part in module.self_and_files_run_together for _ in part.methods("evaluate")
    )


def _may_loss_be_masked_later(module: Module, call: Call) -> bool:
    """May a loss of each token be masked after the cross-entropy that gives it?"""
    if module.flow.value(call.keywords.get("reduction")) != "none":
        return False
    around = function_around(module, call.node)
    return "mask" in ast.unparse(around) or "!=" in ast.unparse(around)


def _padding_call_of_labels(module: Module, labels: ast.expr) -> Call | None:
    """The call of a tokenizer that padded the ids which labels are a copy of; through devices and loaders."""
    place = owner_and_column_read(module, without_copying_calls(module, labels))
    for origin in module.flow.origins(labels) if place is None else ():
        if isinstance(origin.node, ast.expr):
            place = place or owner_and_column_read(
                module, without_copying_calls(module, origin.node)
            )
    if place is None or place[1] != "input_ids":
        return None
    return next(
        (
            call
            for call in encoding_calls_of_dictionary(module, place[0])
            if does_tokenizer_call_pad(module, call)
        ),
        None,
    )


def _may_mask_pads(module: Module, around: ast.AST, copied: CopiedIds) -> bool:
    """May a -100 of this function, or one that an attention mask chooses elsewhere, be on a pad?"""
    if may_labels_be_changed(module, around, copied):
        return True
    if around is module.tree or not writes_ignored_label(module, around):
        return False
    return masks_more_than_prompt(
        module, around, copied.encoding
    ) or masks_labels_by_attention_mask_elsewhere(module, around)


def _makes_trainer_or_optimizer(module: Module) -> bool:
    """Does the file, or one that is judged with it, make a trainer or an optimizer?"""
    return any(
        {"trainer", "optimizer"} & module.flow.types(call.node)
        for part in module.self_and_files_run_together
        for call in part.all_calls
    )


def _label_settings_and_id_target_entropies(module: Module) -> Iterator[object]:
    """The labels that are set, and the cross-entropies that take ids for targets."""
    yield from _nodes_and_values_setting_labels(module)
    yield from (
        call
        for call in module.calls(*CROSS_ENTROPIES)
        if padded_ids_as_loss_targets(module, call, with_reduction=True)
    )


def _nodes_and_values_setting_labels(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Values of a `labels` column, and `labels=value` given to a model."""
    yield from label_writers_and_values(module)
    for call in module.all_calls:
        if "labels" in call.keywords and "model" in module.flow.types(call.node.func):
            yield call.keywords["labels"], call.keywords["labels"]


def _edits_that_mask_pads(
    module: Module, value: ast.expr, copied: CopiedIds, function: ast.AST
) -> Changes:
    """The changes that set labels to -100 where the attention mask is 0."""
    text, kind = (
        module.text_of(copied.encoding),
        module.flow.value(copied.call.keywords.get("return_tensors")),
    )
    ids, mask = f'{text}["input_ids"]', f'{text}["attention_mask"]'
    if kind == "pt":
        return replace_expression(module, value, f"{ids}.masked_fill({mask} == 0, -100)")
    batched = [
        module.flow.value(c.keywords.get("batched")) is True
        for c in module.methods("map")
        if (function_argument := c.argument(0, "function")) is not None
        and module.flow.function_that_expression_names(function_argument) is function
    ]
    if (kind is not None and "return_tensors" in copied.call.keywords) or len(set(batched)) != 1:
        return ()
    one = "[token if seen else -100 for token, seen in zip({}, {})]"
    if not batched[0]:
        return replace_expression(module, value, one.format(ids, mask))
    return replace_expression(
        module, value, f"[{one.format('ids', 'mask')} for ids, mask in zip({ids}, {mask})]"
    )
