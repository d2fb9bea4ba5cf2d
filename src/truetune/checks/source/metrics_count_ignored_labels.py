"""compute_metrics counts positions whose label is -100 as if they were answers.

## What it does
Looks at the function that a trainer of a causal model gets as `compute_metrics`, and into hand-written evaluation
loops. It fires if tokens picked by `argmax` are compared with labels and nothing (in the function or those that it
calls) leaves out labels of -100. The labels must be known to contain -100: a collator writes it on padding (that of
`SFTTrainer`, for example), or code writes it on prompts, here or in an imported file. Comments, docstrings and names of
functions do not count as a mask.

It also fires if labels that `DataCollatorForSeq2Seq` pads with -100 are decoded as they are: no token has that id.

## Why it is bad
Prompts and padding have the label -100, which no prediction equals. A model that gets all of its answers right scores
only the answers' share of all positions, often 0.1 to 0.3. The score then depends on prompt lengths and on the padding
of the batch, and hardly on the model. `eval_loss` leaves these positions out and still falls. Between batches
the trainer pads predictions and labels alike with -100, and these positions count as right.

## Example
```python
from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, Trainer


def compute_metrics(pred):
    logits, labels = pred
    predictions, labels = logits.argmax(-1)[:, :-1], labels[:, 1:]
    return {"accuracy": (predictions == labels).mean()}


model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, data_collator=DataCollatorForSeq2Seq(tok), compute_metrics=compute_metrics)
```

## Use instead
```python
from transformers import AutoModelForCausalLM, DataCollatorForSeq2Seq, Trainer


def compute_metrics(pred):
    logits, labels = pred
    predictions, labels = logits.argmax(-1)[:, :-1], labels[:, 1:]
    return {"accuracy": (predictions == labels)[labels != -100].mean()}


model = AutoModelForCausalLM.from_pretrained("model")
trainer = Trainer(model=model, data_collator=DataCollatorForSeq2Seq(tok), compute_metrics=compute_metrics)
```

## Fix safety
The mask changes only the score. Scores of earlier runs can't be compared with it.

## References
- huggingface/transformers examples/pytorch/language-modeling/run_clm.py (rows of one length, without -100)
- huggingface/transformers examples/pytorch/token-classification/run_ner.py (`if l != -100`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.causal_predictions_compared_with_labels import (
    COMPARISON_NOT_SEEN,
    METRICS_NOT_SEEN,
    causal_trainers_with_metrics,
    token_picking_scopes,
)
from truetune.checks.source.evidence.causal_predictions_compared_with_labels import (
    TOKEN_COMPARISONS as COMPARISONS,
)
from truetune.checks.source.evidence.label_masking_and_padding import holds_ignored_label
from truetune.checks.source.evidence.metric_functions_and_token_shifts import (
    first_label_comparison_of_picked_tokens,
    functions_seeing_logits,
    with_called_functions,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

WRITES_ON_PADS = ("transformers.DataCollatorForSeq2Seq", "trl.DataCollatorForCompletionOnlyLM")
"""Collators whose labels hold -100 wherever rows differ in length"""
MASKS_PADS = "transformers.DataCollatorForLanguageModeling"
"""Writes -100 wherever the padding token stands, unless it masks words at random"""
OF_ONE_LENGTH = (
    "group_texts",
    "block_size",
    "chunk",
    "overflowing",
    "packing=",
    "'packing'",
    '"packing"',
    "batch_size=1,",
)
"""Signs that rows have one length, or are alone, so that nothing is padded"""
MASKS = re.compile(
    # `keepdim=True` keeps a dimension, and no positions.
    r"mask|ignore|nonzero|valid(?!at)|keep(?!_?dim)|\bpad|sample_weight|!= *-|>= *0|> *-|not in",
    re.I,
)
"""Signs that positions are left out where tokens are compared"""


DECODERS = ("batch_decode", "decode")
REPLACES = re.compile(
    # `(?<!label_pad_token_id=)`: the collator's own setting is what puts -100 there, and replaces none.
    r"(?<!label_pad_token_id=)- ?100|masked_fill|\bwhere\(|< ?0\b|>= ?0\b|ignore_index|IGNORE",
    re.I,
)
"""Signs that -100 is replaced or left out before labels are decoded"""
LABELS = re.compile(r"(?:\blabels?|\blabel_ids)(?:\b|['\"]\])$")


def decoded_labels(module: Module) -> Iterator[Call]:
    """Calls that decode the labels of a batch or of a trainer, here or in a function of the file."""
    for call in module.methods(*DECODERS):
        ids = call.argument(0, "sequences") or call.keywords.get("token_ids")
        if ids is not None and any(
            _is_written_as_labels(part) for part in _decoded_expressions(module, ids)
        ):
            yield call


def _decoded_expressions(module: Module, ids: ast.expr) -> Iterator[ast.expr]:
    """The expressions that are decoded: this one, or what a function of the file is given for its
    parameter.
    """
    yield ids
    for function in module.nodes(ast.FunctionDef):
        names = [one.arg for one in function.args.args]
        if not isinstance(ids, ast.Name) or ids.id not in names or ids not in ast.walk(function):
            continue
        for call in module.all_calls:
            if module.flow.function_that_expression_names(call.node.func) is function:
                argument = call.argument(names.index(ids.id), ids.id)
                if argument is not None:
                    yield argument


def _is_written_as_labels(node: ast.expr) -> bool:
    """Is it written as labels: `batch["labels"]`, `labels`, `pred.label_ids`?"""
    text = ast.unparse(node).removesuffix(".tolist()").removesuffix(".cpu()")
    return LABELS.search(text) is not None


def _comparisons_and_decodes_of_labels(module: Module) -> Iterator[object]:
    """Where tokens are compared with labels, and where labels are decoded."""
    yield from COMPARISONS.find(module)
    yield from decoded_labels(module)


PLACES = CodePlaces(
    "comparisons with labels, and calls that decode them", _comparisons_and_decodes_of_labels
)


class MetricsCountIgnoredLabels(SourceRule):
    code = "SRC005"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    severity = "error"
    looks_at = PLACES

    def unmet(self) -> Unmet | None:
        """Also unmet where the metrics, or their comparison with labels, are not seen."""
        missing = super().unmet()
        if missing is not None:
            return missing
        module = self.subject
        for call in causal_trainers_with_metrics(module):
            functions = functions_seeing_logits(module, call)
            if functions is None:
                return METRICS_NOT_SEEN
            if (
                not _may_leave_any_labels_out(module, functions)
                and first_label_comparison_of_picked_tokens(module, functions) is None
            ):
                return COMPARISON_NOT_SEEN
        return None

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in causal_trainers_with_metrics(module):
            functions = functions_seeing_logits(module, call)
            if functions is None or _may_leave_any_labels_out(module, functions):
                continue
            where = _origin_of_ignored_labels(module, call, functions)
            compared = first_label_comparison_of_picked_tokens(module, functions)
            if where is None or compared is None:
                continue
            yield self.finding(
                "compute_metrics does not leave out labels of -100 (prompts, padding), and counts these positions"
                " as wrong",
                "compare predictions[labels != -100] with labels[labels != -100]",
                evidence=[where],
                cases=[case_of_node(module, compared)],
            )
        yield from self._findings_in_own_loops()
        yield from self._findings_on_decoded_labels()

    def _findings_on_decoded_labels(self) -> Iterator[Finding]:
        """Findings on labels that a collator pads with -100, and that are decoded as they are."""
        module = self.subject
        collators = list(module.calls(*WRITES_ON_PADS))
        kept = [one for one in collators if _pads_labels_with_ignore_index(module, one)]
        # Anything that looks like a replacement anywhere in the file: a helper may do it before the labels come here.
        if not kept or REPLACES.search(module.text):
            return
        for call in decoded_labels(module):
            yield self.finding(
                "labels are decoded together with the -100 that the collator pads them with: this raises an"
                " OverflowError, or gives texts that are not the references",
                "replace -100 before decoding: labels = np.where(labels != -100, labels, tokenizer.pad_token_id),"
                " or for a tensor labels = labels.masked_fill(labels == -100, tokenizer.pad_token_id)",
                cases=[case_of_node(module, call.node), case_of_node(module, kept[0].node)],
            )
            return

    def _findings_in_own_loops(self) -> Iterator[Finding]:
        """Findings in a hand-written loop, where the labels of a batch, -100 among them, are
        compared with its logits.
        """
        module = self.subject
        if module.mentions("ignore_index"):
            return  # a metric of torchmetrics leaves these places out by itself
        for step in token_picking_scopes(module):
            functions = with_called_functions(module, [step])
            compared = first_label_comparison_of_picked_tokens(module, functions)
            where = _origin_of_ignored_labels(module, None, functions)
            if (
                compared is not None
                and where is not None
                and not _may_leave_any_labels_out(module, functions)
            ):
                yield self.finding(
                    "the accuracy counts positions whose label is -100 (prompts, padding) as wrong",
                    "count only positions where labels != -100, in the numerator and in the denominator",
                    evidence=[where],
                    cases=[case_of_node(module, compared)],
                )


def _pads_labels_with_ignore_index(module: Module, collator: Call) -> bool:
    """Does a collator pad labels with -100, which is its default?"""
    ignored_label = collator.keywords.get("label_pad_token_id")
    return ignored_label is None or module.flow.value(ignored_label) == -100


def _may_leave_any_labels_out(module: Module, functions: Sequence[ast.AST]) -> bool:
    """Is anything left out in these functions: by -100, by a name or argument that says so, by a comparison?"""
    # A function's name says nothing where its body is read as well: `keep_argmax` keeps every position.
    names = {function.name for function in functions if isinstance(function, ast.FunctionDef)}
    for function in functions:
        if holds_ignored_label(module, function):
            return True
        words = MASKS.finditer(_code_without_comments(function))
        if any(_whole_name_around_match(match) not in names for match in words):
            return True
    return False


def _code_without_comments(function: ast.AST) -> str:
    """The code of a function without its name, comments and docstring, which say what was meant and do nothing."""
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.unparse(function)
    body = function.body if ast.get_docstring(function) is None else function.body[1:]
    return "\n".join(ast.unparse(part) for part in (function.args, *body))


def _whole_name_around_match(match: re.Match[str]) -> str:
    """The whole name in which a sign was found."""
    before = re.search(r"\w*$", match.string[: match.start()])
    behind = re.match(r"\w*", match.string[match.end() :])
    return (before[0] if before else "") + match[0] + (behind[0] if behind else "")


def _origin_of_ignored_labels(
    module: Module, trainer: Call | None, functions: Sequence[ast.AST]
) -> str | None:
    """What puts labels of -100 into the rows of this trainer or loop, in words; None where nothing
    is sure to.
    """
    inside = {node for function in functions for node in ast.walk(function)}
    for node in module.nodes(ast.UnaryOp):
        # Outside of the functions: there -100 is what they leave out, here what somebody wrote into labels.
        if node not in inside and module.flow.value(node) == -100:
            return f"line {module.place(node)[0]} writes -100 into labels"
    imported = _import_that_ignores_labels(module, inside)
    if imported is not None:
        return imported
    if module.mentions(*OF_ONE_LENGTH):
        return None
    return _origin_of_ignored_padding(module, trainer) if trainer is not None else None


def _import_that_ignores_labels(module: Module, inside: set[ast.AST]) -> str | None:
    """Where an imported file writes -100 into labels, outside of these functions; None where none does."""
    for other in module.self_and_files_run_together:
        for node in other.nodes(ast.UnaryOp) if other is not module else ():
            # What is imported may name -100 for many purposes: only a statement on labels counts.
            statement = module.statement(node)
            text = ast.unparse(statement) if statement is not None else ""
            if node not in inside and "label" in text and module.flow.value(node) == -100:
                return f"{Path(other.path).name}:{module.place(node)[0]} writes -100 into labels"
    return None


def _origin_of_ignored_padding(module: Module, trainer: Call) -> str | None:
    """What pads the labels of a trainer's batches with -100, in words; None where nothing is sure
    to.
    """
    data_collator_argument = trainer.keywords.get("data_collator")
    if data_collator_argument is None:
        is_own = trainer.named("trl.SFTTrainer") and not trainer.open
        return "the collator of SFTTrainer gives padding the label -100" if is_own else None
    collator = module.flow.producing_call(data_collator_argument)
    if collator is None:
        return None
    masks_pads = (
        collator.named(MASKS_PADS)
        and module.flow.value(collator.argument(1, "mlm") or ast.Constant(True)) is False
    )
    if masks_pads or collator.named(*WRITES_ON_PADS):
        name = collator.names[0].rpartition(".")[2]
        return f"{name} gives padding the label -100"
    return None
