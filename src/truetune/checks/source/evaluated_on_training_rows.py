"""The evaluation data are part of the training data.

## What it does
Compares `eval_dataset` with `train_dataset` of a trainer. It reports the same data set, or rows selected from it that
stay in it; overlapping slices or ranges of the same rows (`train[:90%]`, `train[80%:]`); and a split of rows that were
repeated before (`concatenate_datasets([rows, rare, rare])`), so that copies are on both sides. In hand-written loops it
compares the loader that is named for training with those named for validation. It also reads the commands that start
the script, for one file in `--train_file` and `--validation_file`. In a cross-validation it finds a model that is
created before the loop over the folds and trained further in each of them. In a script that loads a model and trains
none, it finds a split of the data file that a training beside it splits as well, if one of the two has no seed: the
test part is then another one, and most of its rows were trained on. A trainer that only evaluates is not
reported.

## Why it is bad
The evaluation loss follows the training loss and says nothing about new data: overfitting can't be seen, and the best
checkpoint is the one that memorised its rows best.

## Example
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train")
trainer = SFTTrainer(model="model", train_dataset=rows, eval_dataset=rows.select(range(100)))
```

## Use instead
```python
from datasets import load_dataset
from trl import SFTTrainer

rows = load_dataset("json", data_files="chats.jsonl", split="train").train_test_split(100, seed=0)
trainer = SFTTrainer(model="model", train_dataset=rows["train"], eval_dataset=rows["test"])
```

## Fix safety
A split removes rows from training: with few rows, keep the evaluation part small. Evaluation scores get worse, because
they are now measured on new rows.

## References
- OpenRLHF/OpenRLHF#1089, huggingface/datasets#4261, lm-sys/FastChat#1522
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces, places_of_calls_with_keywords
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.held_out_loaders_sharing_training_rows import (
    evaluation_file_options,
    files_given_to_train_and_evaluate,
    held_out_loaders_of_trained_rows,
    loaders_of_held_out_rows,
)
from truetune.checks.source.evidence.models_trained_on_in_each_fold import (
    fold_loops,
    models_trained_in_each_fold,
)
from truetune.checks.source.evidence.shared_rows_of_data_sets import (
    RowStep,
    common_division_and_earlier_repetition,
    do_data_sets_share_rows,
    steps_from_source_to_rows,
)
from truetune.checks.source.evidence.splits_drawn_again_without_seed import (
    split_calls,
    splits_drawn_again,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Mapping, Value, options_of_choice

TRAINERS = ("transformers.*Trainer", "trl.*Trainer", "unsloth.*Trainer")
EVALUATES = frozenset(("evaluate", "predict"))
DATA_SETS = ("train_dataset", "eval_dataset")


def _trainers_loaders_and_file_options(module: Module) -> Iterator[object]:
    """Trainers with both data sets, loaders of held-out rows, and options of files."""
    yield from places_of_calls_with_keywords("", DATA_SETS, *TRAINERS).find(module)
    yield from loaders_of_held_out_rows(module)
    yield from evaluation_file_options(module)
    yield from fold_loops(module)
    yield from (call.node for call in split_calls(module))


class EvaluatedOnTrainingRows(SourceRule):
    code = "SRC054"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    symptoms = ("odd-metrics",)
    severity = "warning"
    since = "0.1.0"
    looks_at = CodePlaces(
        "trainers and loaders with rows to evaluate on", _trainers_loaders_and_file_options
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on evaluation data that are part of the training data."""
        judged: set[object] = set()
        yield from self._findings_on_loaders()
        yield from self._findings_on_one_file_for_train_and_eval()
        yield from self._findings_on_one_model_in_all_folds()
        yield from self._findings_on_splits_drawn_again()
        for trace in traces_of_scripts_that_reach_file(self.subject):
            for trainer in trace.calls(*TRAINERS):
                if trainer.home.path != self.subject.path or trainer.node in judged:
                    continue
                judged.add(trainer.node)
                train, held = (trainer.keywords.get(name) for name in DATA_SETS)
                if train is not None and held is not None and not _only_evaluates(trace, trainer):
                    yield from self._findings_on_trainer(trainer, train, held)

    def _findings_on_loaders(self) -> Iterator[Finding]:
        """Findings on loaders of a hand-written loop."""
        pairs = {pair.held: pair for pair in held_out_loaders_of_trained_rows(self.subject)}
        for pair in pairs.values():
            yield self.finding(
                f"`{pair.name}` contains the training rows: its loss follows the training loss and says nothing"
                " about new"
                " rows",
                "build it from held-out rows: split them with random_split before training, or use a separate file",
                cases=[
                    case_of_node(self.subject, pair.held),
                    case_of_node(self.subject, pair.train),
                ],
            )

    def _findings_on_one_model_in_all_folds(self) -> Iterator[Finding]:
        """Findings on cross-validations that train one model in all folds."""
        for one in models_trained_in_each_fold(self.subject):
            yield self.finding(
                f"each fold continues with the `{one.name}` of the folds before it, which was trained on the rows"
                " that this fold holds out: from the second fold on the scores are too good",
                f"create a new `{one.name}` inside the loop over the folds, or reload its initial weights there",
                cases=[
                    case_of_node(self.subject, place)
                    for place in (one.training, one.made, one.loop.iter)
                ],
            )

    def _findings_on_splits_drawn_again(self) -> Iterator[Finding]:
        """Findings on splits that are not those of the training, because one of the two has no seed."""
        for one in splits_drawn_again(self.subject):
            script = Path(one.training.path).name
            yield self.finding(
                f"these rows are split again, and {script} holds out other rows ({one.unseeded}): most of the rows that"
                " are evaluated here were trained on",
                "give both splits the same seed (seed=0; random_state=0 in scikit-learn; a seeded generator for"
                " random_split), train again, or save the held-out rows in the training and load them here",
                cases=[
                    case_of_node(self.subject, one.asked),
                    case_of_node(one.training, one.trained),
                ],
            )

    def _findings_on_one_file_for_train_and_eval(self) -> Iterator[Finding]:
        """Findings on one file for both in the command that starts the script."""
        for shared in files_given_to_train_and_evaluate(self.subject):
            yield self.finding(
                f"`{shared.option}` is the training file: the evaluation follows the training loss and says nothing"
                " about"
                " new rows",
                f"pass {shared.option} a file of held-out rows",
                cases=[shared.case],
            )

    def _findings_on_trainer(
        self, trainer: CallEvent, train: Value, held: Value
    ) -> Iterator[Finding]:
        """The finding on one trainer's rows; `held` may be a dictionary of several data sets."""
        data_sets = list(held.entries.values()) if isinstance(held, Mapping) else [held]
        for one in data_sets:
            way, other = steps_from_source_to_rows(train), steps_from_source_to_rows(one)
            if way is not None and other is not None and do_data_sets_share_rows(way, other):
                yield self._finding_on_shared_rows(trainer, way, other, one)
                return
            divided = common_division_and_earlier_repetition(train, one)
            if divided is not None:
                division, repeats = divided
                yield self.finding(
                    "rows are repeated before they are split: copies of the same row are in the training and the"
                    " evaluation part",
                    "split the rows first, and repeat only rows of the training part",
                    cases=[
                        case_of_node(self.subject, division.node),
                        case_of_node(self.subject, repeats.node),
                    ],
                )
                return

    def _finding_on_shared_rows(
        self, trainer: CallEvent, train: tuple[RowStep, ...], held: tuple[RowStep, ...], data: Value
    ) -> Finding:
        """The finding on rows that both sets hold."""
        place = _node_that_made(data) or trainer.node
        ranges = [_range_in_words(steps) for steps in (train, held)]
        if None not in ranges:
            return self.finding(
                f"{ranges[0]} and {ranges[1]} overlap: evaluation rows are training rows",
                "start the second slice where the first one ends",
                cases=[case_of_node(self.subject, place), case_of_node(self.subject, trainer.node)],
            )
        return self.finding(
            "the evaluation rows are also training rows: the evaluation says nothing about new rows",
            'split them first: rows.train_test_split(0.1, seed=0); train on its "train" part, and evaluate on its'
            ' "test" part',
            cases=[case_of_node(self.subject, place)],
        )


def _only_evaluates(trace: Trace, trainer: CallEvent) -> bool:
    """Is a trainer asked to evaluate, and never to train? Its training rows then only satisfy the constructor."""
    asked = {
        call.method
        for call in trace.all_calls
        if call.receiver is not None
        and any(way.origin is trainer.result for way in lineages_back_to_origins(call.receiver))
    }
    return bool(asked & EVALUATES) and "train" not in asked


def _node_that_made(data: Value) -> ast.AST | None:
    """Where a data set was made; of several options, the first that is no None."""
    known = [one for one in options_of_choice(data) if constant_of(one) is not None]
    return known[0].node if known else None


def _range_in_words(steps: tuple[RowStep, ...]) -> str | None:
    """The last range of rows in words: `train[80%:]`, or `rows 8000 to 9000`; None where the last
    step is no range.
    """
    last = steps[-1]
    if last.kind != "range" or not isinstance(last.what, tuple):
        return None
    begin, end, unit = last.what
    sign = "%" if unit == "%" else ""
    first = f"{begin:.0f}{sign}" if begin else ""
    behind = "" if end == float("inf") else f"{end:.0f}{sign}"
    name = steps[-2].what if len(steps) > 1 and steps[-2].kind == "split" else "rows"
    return f"{name}[{first}:{behind}]"
