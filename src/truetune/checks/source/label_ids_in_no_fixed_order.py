"""Label ids depend on the order of a set, a folder listing or first appearance: another process gets other ids.

## What it does
Finds code that numbers labels in an order that is not fixed (`enumerate(set(...))`, `list(set(...)).index(name)`,
`{name: i for i, name in enumerate(os.listdir(...))}`), if these ids outlive the process: a classifier is saved without
the names, or a trained one is loaded. Two scripts that number by first appearance (`unique()`, `factorize()`,
`dict.fromkeys`) are compared on their files. Not reported: `sorted(...)`, names that are kept in the model's config or
in a file, and a PYTHONHASHSEED in the project's jobs. A folder listing is a warning, a set an error.

## Why it is bad
The order of a set of strings differs in each Python process. The model's class 3 is then another label in the
evaluation: accuracy is near chance and different in each run. In the confusion matrix each row has one full cell, but
off the diagonal. Several processes of one training even train with different ids.

## Example
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification

rows = load_dataset("csv", data_files="train.csv", split="train")
labels = list(set(rows["intent"]))
label2id = {name: i for i, name in enumerate(labels)}
model = AutoModelForSequenceClassification.from_pretrained("out/intent/best", num_labels=len(labels))
```

## Use instead
```python
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification

rows = load_dataset("csv", data_files="train.csv", split="train")
labels = sorted(set(rows["intent"]))
label2id = {name: i for i, name in enumerate(labels)}
model = AutoModelForSequenceClassification.from_pretrained("out/intent/best", num_labels=len(labels))
```

## Fix safety
There is no automatic fix: a trained model keeps its ids. A confusion matrix on training rows shows which id is which
label. Otherwise train again with sorted names, and keep `id2label` in the config.

## References
- Python documentation, `PYTHONHASHSEED`: the hashes of texts are salted with a random value in each process
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.label_numberings_without_fixed_order import (
    APPEARANCE,
    LISTING,
    SET,
    SORTED,
    DifferentOrders,
    LabelNumbering,
    first_number_with_different_labels,
    label_numberings,
    numberings_beside,
    set_holds_numbers_only,
)
from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.checks.source.evidence.python_hash_seeds import project_fixes_hash_seed
from truetune.source.parsed_source_file import Module

CLASSIFIERS = (
    "transformers.*ForSequenceClassification.from_pretrained",
    "transformers.*ForTokenClassification.from_pretrained",
    "transformers.*ForImageClassification.from_pretrained",
    "setfit.SetFitModel.from_pretrained",
    "torch.nn.Linear",
)
SAVES = frozenset(("save_model", "save_pretrained", "push_to_hub", "save_state"))
READS_NAMES = re.compile(r"config\.(?:id2label|label2id)(?!\s*=[^=])")
WRITERS = ("json.dump", "json.dumps", "pickle.dump", "joblib.dump", "yaml.*dump", "numpy.save*")
KEPT_NAMES = re.compile(r"label|class|id2|2id|intent|categor|names|mapping|vocab", re.I)
ORDERS = {
    SET: "the order of a set, which differs in each process",
    LISTING: "the order in which a file system lists a folder, which differs from machine to machine",
}
OF_FILES = {
    APPEARANCE: "in the order in which they appear in a file",
    SORTED: "by the sorted names in each file, and one file lacks some",
}


def _possible_label_numberings(module: Module) -> Iterator[ast.AST]:
    """Where labels may be numbered."""
    for call in (
        *module.calls("enumerate", "zip", "datasets.ClassLabel", "pandas.factorize"),
        *module.methods("index", "factorize", "fit_transform", "fit"),
    ):
        yield call.node
    yield from module.nodes(ast.Subscript)


class LabelIdsInNoFixedOrder(SourceRule):
    code = "SRC350"
    fault = Fault.LABEL_NAMES_MIXED_UP
    symptoms = ("odd-metrics", "good-here-bad-there")
    severity = "error"
    looks_at = CodePlaces("places that number labels", _possible_label_numberings)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        classifies = any(
            any(part.calls(*CLASSIFIERS)) for part in module.self_and_files_run_together
        )
        if not any(_possible_label_numberings(module)) or not classifies:
            return
        numberings = list(label_numberings(module))
        yield from self._findings_on_two_numberings(numberings)
        unfixed = [
            one for one in numberings if one.kind in ORDERS and not set_holds_numbers_only(one)
        ]
        effect = _effect_of_ids_outliving_process(module) if unfixed else ""
        if effect and not project_fixes_hash_seed(module):
            yield self._finding_on_unfixed_order(unfixed[0], effect)

    def _finding_on_unfixed_order(self, first: LabelNumbering, effect: str) -> Finding:
        """The finding that ids come from an order that differs in each process."""
        module = self.subject
        others = [one for one in numberings_beside(module) if one.kind == first.kind]
        return self.finding(
            f"label ids come from {ORDERS[first.kind]}: {effect}",
            "number sorted(...) names in each script, and keep them in the model's config (id2label=, label2id=); train"
            " again, because the ids of the trained model are not known",
            # A folder on one machine is mostly listed in one order.
            severity="error" if first.kind == SET else "warning",
            evidence=[_other_script_in_words(one) for one in others[:2]],
            cases=[case_of_node(module, first.node)],
        )

    def _findings_on_two_numberings(self, numberings: list[LabelNumbering]) -> Iterator[Finding]:
        """Findings on two numberings in the order of two files."""
        own = [one for one in numberings if one.kind in OF_FILES]
        others = [one for one in numberings_beside(self.subject) if own and one.kind in OF_FILES]
        for place, here in enumerate(own):
            for other in (*own[:place], *others):
                different_orders = first_number_with_different_labels(here, other)
                if different_orders is not None:
                    yield self._finding_on_different_files(different_orders)
                    return

    def _finding_on_different_files(self, found: DifferentOrders) -> Finding:
        """The finding that one number stands for two labels."""
        module = self.subject
        (name, other_name), (file, other_file) = found.names, found.files
        return self.finding(
            f"labels are numbered {OF_FILES[found.here.kind]}: {found.number} is {name!r} in {file}, but"
            f" {other_name!r} in {other_file}",
            "number the sorted names of the training rows once, and use them in both places",
            cases=[
                case_of_node(module, found.here.node),
                case_of_node(found.other.module, found.other.node),
            ],
        )


def _effect_of_ids_outliving_process(module: Module) -> str:
    """What becomes of ids that outlive their process; empty where they do not."""
    # A helper that makes no model numbers labels for the scripts that import it.
    is_helper = not any(module.calls(*CLASSIFIERS))
    parts = module.self_and_files_run_together if is_helper else (module,)
    trainings = [part for part in parts if trains_a_model(part)]
    if any(map(_training_keeps_label_names, trainings)) or (
        is_helper and any(map(_training_keeps_label_names, parts))
    ):
        return ""
    if len(trainings) < len(parts) - is_helper or not trainings:
        is_read = any(READS_NAMES.search(part.text) for part in parts)
        return "" if is_read else "they are not the ids that the model was trained with"
    if any(map(_saves_model, trainings)):
        return "the names are not saved, and code that loads the model will number them differently"
    return ""


def _saves_model(module: Module) -> bool:
    """Does a file save a model?"""
    return any(module.methods(*SAVES)) or any(module.calls("torch.save", "joblib.dump"))


def _training_keeps_label_names(module: Module) -> bool:
    """Does a training write the names, or give them to the model's config?"""
    for call in module.all_calls:
        if {"id2label", "label2id"} & call.keywords.keys():
            return True
        is_writer = call.named(*WRITERS) or call.method in ("write_text", "dump")
        if is_writer and any(KEPT_NAMES.search(ast.unparse(one)) for one in call.args):
            return True
    return any(
        isinstance(node.targets[0], ast.Attribute)
        and node.targets[0].attr in ("id2label", "label2id")
        for node in module.nodes(ast.Assign)
    )


def _other_script_in_words(other: LabelNumbering) -> str:
    """Another script with such ids."""
    line = other.module.place(other.node)[0]
    return f"{Path(other.module.path).name}, line {line}, also numbers labels in such an order"
