"""Rows of one document, conversation or patient are split one by one, so they are in both training and test.

## What it does
Finds random splits of rows (`train_test_split` of scikit-learn and datasets, `random.shuffle` with slices, torch's
`random_split`) if the rows have a column that says what belongs together (`doc_id`, `conversation_id`, `patient`,
`session`). It looks in the file that the script reads, and in the train and test files that it writes, where it counts
the shared values. Rows with the same long answer to several prompts belong together, too. Not reported: a script that
names the column, splits by groups, or splits the groups themselves.

## Why it is bad
Neighbours of a test row were trained on, so the test measures how well they are recalled. The score is high, and drops
on new documents or customers.

## Example
```python
from sklearn.model_selection import train_test_split

rows = [
    {"doc_id": "d0", "text": "part 0", "label": "a"},
    {"doc_id": "d0", "text": "part 1", "label": "b"},
    {"doc_id": "d0", "text": "part 2", "label": "a"},
    {"doc_id": "d1", "text": "part 3", "label": "b"},
    {"doc_id": "d1", "text": "part 4", "label": "a"},
    {"doc_id": "d1", "text": "part 5", "label": "b"},
    {"doc_id": "d2", "text": "part 6", "label": "a"},
    {"doc_id": "d2", "text": "part 7", "label": "b"},
    {"doc_id": "d2", "text": "part 8", "label": "a"},
    {"doc_id": "d3", "text": "part 9", "label": "b"},
    {"doc_id": "d3", "text": "part 10", "label": "a"},
    {"doc_id": "d3", "text": "part 11", "label": "b"},
    {"doc_id": "d4", "text": "part 12", "label": "a"},
    {"doc_id": "d4", "text": "part 13", "label": "b"},
    {"doc_id": "d4", "text": "part 14", "label": "a"},
    {"doc_id": "d5", "text": "part 15", "label": "b"},
    {"doc_id": "d5", "text": "part 16", "label": "a"},
    {"doc_id": "d5", "text": "part 17", "label": "b"},
    {"doc_id": "d6", "text": "part 18", "label": "a"},
    {"doc_id": "d6", "text": "part 19", "label": "b"},
    {"doc_id": "d6", "text": "part 20", "label": "a"},
    {"doc_id": "d7", "text": "part 21", "label": "b"},
    {"doc_id": "d7", "text": "part 22", "label": "a"},
    {"doc_id": "d7", "text": "part 23", "label": "b"},
    {"doc_id": "d8", "text": "part 24", "label": "a"},
    {"doc_id": "d8", "text": "part 25", "label": "b"},
    {"doc_id": "d8", "text": "part 26", "label": "a"},
    {"doc_id": "d9", "text": "part 27", "label": "b"},
    {"doc_id": "d9", "text": "part 28", "label": "a"},
    {"doc_id": "d9", "text": "part 29", "label": "b"},
]
train, test = train_test_split(rows, test_size=0.2, random_state=0)
```

## Use instead
```python
from sklearn.model_selection import GroupShuffleSplit

rows = [
    {"doc_id": "d0", "text": "part 0", "label": "a"},
    {"doc_id": "d0", "text": "part 1", "label": "b"},
    {"doc_id": "d0", "text": "part 2", "label": "a"},
    {"doc_id": "d1", "text": "part 3", "label": "b"},
    {"doc_id": "d1", "text": "part 4", "label": "a"},
    {"doc_id": "d1", "text": "part 5", "label": "b"},
    {"doc_id": "d2", "text": "part 6", "label": "a"},
    {"doc_id": "d2", "text": "part 7", "label": "b"},
    {"doc_id": "d2", "text": "part 8", "label": "a"},
    {"doc_id": "d3", "text": "part 9", "label": "b"},
    {"doc_id": "d3", "text": "part 10", "label": "a"},
    {"doc_id": "d3", "text": "part 11", "label": "b"},
    {"doc_id": "d4", "text": "part 12", "label": "a"},
    {"doc_id": "d4", "text": "part 13", "label": "b"},
    {"doc_id": "d4", "text": "part 14", "label": "a"},
    {"doc_id": "d5", "text": "part 15", "label": "b"},
    {"doc_id": "d5", "text": "part 16", "label": "a"},
    {"doc_id": "d5", "text": "part 17", "label": "b"},
    {"doc_id": "d6", "text": "part 18", "label": "a"},
    {"doc_id": "d6", "text": "part 19", "label": "b"},
    {"doc_id": "d6", "text": "part 20", "label": "a"},
    {"doc_id": "d7", "text": "part 21", "label": "b"},
    {"doc_id": "d7", "text": "part 22", "label": "a"},
    {"doc_id": "d7", "text": "part 23", "label": "b"},
    {"doc_id": "d8", "text": "part 24", "label": "a"},
    {"doc_id": "d8", "text": "part 25", "label": "b"},
    {"doc_id": "d8", "text": "part 26", "label": "a"},
    {"doc_id": "d9", "text": "part 27", "label": "b"},
    {"doc_id": "d9", "text": "part 28", "label": "a"},
    {"doc_id": "d9", "text": "part 29", "label": "b"},
]
split = GroupShuffleSplit(test_size=0.2, random_state=0)
train, test = next(split.split(rows, groups=[row["doc_id"] for row in rows]))
```

## Fix safety
There is no automatic fix: the test gets other rows, and the score drops to what new documents will give.

## References
- scikit-learn, "Cross-validation iterators for grouped data" (`GroupShuffleSplit`, `GroupKFold`)
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from itertools import permutations
from typing import Any, NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rows_made_from_one_source import (
    GROUP_COLUMN,
    MAX_GROUP_SHARE,
    MIN_GROUPS,
    MIN_ROWS_PER_GROUP,
    SiblingRows,
)
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.scored_rows import rows_in_script_or_named_files
from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.source.parsed_source_file import Module

SPLITS_GROUPS = re.compile(r"Group(?:Shuffle|K)|StratifiedGroup|\bgroups\s*=|groupby|hashlib|crc32")
ANSWERS = "answer"
"""What the groups are called where no column names them"""
CHAT_COLUMNS = (*COLUMN_ALIASES["messages"], *COLUMN_ALIASES["conversations"])
ANSWER_COLUMNS = COLUMN_ALIASES["output"]
PROMPT_COLUMNS = (*COLUMN_ALIASES["instruction"], *COLUMN_ALIASES["input"])
IS_GROUPS = re.compile(
    r"(?:^|_)(?:ids?|keys|groups?|documents|docs|dialogs|dialogues|users|patients|sessions|files|paths|urls)$"
    r"|\bset\(|unique|\.keys\(|^\{.* for ",
    re.I,
)
TRAINED, TESTED = re.compile(r"train", re.I), re.compile(r"test|val|dev|eval|hold", re.I)
MIN_SHARED = 0.5
"""Share of the test rows whose group is trained on, from which the two files are said to share them. Chosen, not
measured: a split by groups shares none, and one by rows nearly all"""
MAX_TEXT = 500
"""Characters of an expression that are read; a list of rows can be a whole file"""


class RowGroups(NamedTuple):
    """A column that says which rows belong together, and what the rows in the files show."""

    column: str
    evidence: str


def _random_splits(module: Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    """Random splits and what they split."""
    for call in module.calls("sklearn.*.train_test_split", "torch.utils.data.random_split"):
        if call.args and module.flow.value(call.keywords.get("shuffle")) is not False:
            yield call.node, call.args[0]
    for call in module.methods("train_test_split"):
        if (
            call.receiver is not None
            and module.flow.value(call.keywords.get("shuffle")) is not False
        ):
            yield call.node, call.receiver
    for call in module.calls("random.shuffle", "numpy.random.shuffle"):
        if call.args and _has_head_and_tail_slices(module, call.args[0]):
            yield call.node, call.args[0]


def _has_head_and_tail_slices(module: Module, rows: ast.expr) -> bool:
    """Are both `rows[:n]` and `rows[n:]` taken?"""
    slices = [
        node.slice
        for node in module.nodes(ast.Subscript)
        if isinstance(node.slice, ast.Slice) and ast.unparse(node.value) == ast.unparse(rows)
    ]
    stops = {
        ast.unparse(one.upper) for one in slices if one.upper is not None and one.lower is None
    }
    return any(one.lower is not None and ast.unparse(one.lower) in stops for one in slices)


def _random_splits_and_splitters(module: Module) -> Iterator[ast.AST]:
    """Random splits, and splitters of scikit-learn."""
    yield from (node for node, _ in _random_splits(module))
    yield from (call.node for call in module.calls("sklearn.model_selection.*Group*"))


class GroupsOnBothSidesOfASplit(SourceRule):
    code = "SRC305"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    symptoms = ("odd-metrics",)
    severity = "warning"
    looks_at = CodePlaces("splits of rows", _random_splits_and_splitters)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if SPLITS_GROUPS.search(module.text):
            return
        for node, rows in _random_splits(module):
            if _splits_groups(module, rows):
                continue
            groups = _groups_of_shared_or_single_file(module)
            if groups is None:
                return
            yield self.finding(
                f"rows are split one by one, although `{groups.column}` says which belong together: {groups.evidence}",
                f"split by `{groups.column}`: GroupShuffleSplit(test_size=0.2, random_state=0).split(rows,"
                f' groups=[row["{groups.column}"] for row in rows])',
                cases=[case_of_node(module, node)],
            )
            return


def _splits_groups(module: Module, rows: ast.expr) -> bool:
    """Are groups split, and not rows: `train_test_split(doc_ids)`?"""
    texts = [
        ast.unparse(rows),
        *(ast.unparse(one.node)[:MAX_TEXT] for one in module.flow.origins(rows)),
    ]
    return any(IS_GROUPS.search(text) for text in texts)


def _groups_of_shared_or_single_file(module: Module) -> RowGroups | None:
    """The groups that both written files share, else those of the one file that is read."""
    files = rows_in_script_or_named_files(module)
    for trained, tested in permutations(files, 2):
        is_test = TESTED.search(tested) and not TRAINED.search(tested)
        if TRAINED.search(trained) and is_test:
            return _shared_groups(files[trained], tested, files[tested])
    if len(files) != 1:
        return None
    name, rows = next(iter(files.items()))
    named = _texts_except_dictionary_keys(module)
    for column, counts in _group_columns(rows):
        if column not in named:
            evidence = (
                f"{len(rows):,} rows of {name} have only {len(counts):,} values, which end up in both"
                " training and test"
            )
            return RowGroups(column, evidence)
    return _groups_by_long_answer(name, rows, named)


def _groups_by_long_answer(
    name: str, rows: list[Mapping[str, Any]], named: set[str]
) -> RowGroups | None:
    """The groups of rows with one long answer; the columns that the code names are what it may split by."""
    siblings = SiblingRows()
    for row in rows:
        prompt, answer = _prompt_and_last_answer(row)
        siblings.add(answer, prompt, row)
    groups = siblings.groups()
    if groups is None or not groups.has_same_answers:
        return None
    if groups.row_count_with_sibling < MIN_SHARED * groups.rows or (
        groups.column and groups.column in named
    ):
        return None
    evidence = (
        f"{groups.row_count_with_sibling:,} of {groups.rows:,} rows of {name} have the same answer as other rows with"
        f" another question ({len(groups.sizes):,} groups)"
    )
    return RowGroups(groups.column or ANSWERS, evidence)


def _prompt_and_last_answer(row: Mapping[str, Any]) -> tuple[str, str]:
    """The prompt of a raw row, as text, and its last answer; the answer is empty where none is found."""
    chat = next((row[name] for name in CHAT_COLUMNS if isinstance(row.get(name), list)), None)
    if chat:
        last = chat[-1]
        texts = list(last.values()) if isinstance(last, Mapping) else []
        answer = max((one for one in texts if isinstance(one, str)), key=len, default="")
        return repr(chat[:-1]), answer
    column = next((name for name in ANSWER_COLUMNS if isinstance(row.get(name), str)), None)
    if column is None:
        return "", ""
    return repr([row.get(name) for name in PROMPT_COLUMNS]), str(row[column])


def _shared_groups(
    trained: list[Mapping[str, Any]], name: str, tested: list[Mapping[str, Any]]
) -> RowGroups | None:
    """The groups of the test file that stand in the training file too."""
    for column, counts in _group_columns([*trained, *tested]):
        known = {row.get(column) for row in trained}
        shared = sum(row.get(column) in known for row in tested)
        if shared >= MIN_SHARED * len(tested) and len(counts) >= MIN_GROUPS:
            return RowGroups(
                column,
                f"{shared:,} of {len(tested):,} rows of {name} have a value that was trained on",
            )
    return None


def _group_columns(rows: list[Mapping[str, Any]]) -> Iterator[tuple[str, Counter[Hashable]]]:
    """Columns that put the rows into many small groups."""
    for column in rows[0] if rows else ():
        if not GROUP_COLUMN.fullmatch(column):
            continue
        cells = [row.get(column) for row in rows]
        if not all(isinstance(cell, str | int) and cell != "" for cell in cells):
            continue
        counts: Counter[Hashable] = Counter(cells)
        is_small = counts.most_common(1)[0][1] <= MAX_GROUP_SHARE * len(rows)
        if len(counts) >= MIN_GROUPS and len(rows) >= MIN_ROWS_PER_GROUP * len(counts) and is_small:
            yield column, counts


def _texts_except_dictionary_keys(module: Module) -> set[str]:
    """The texts of a script that are no keys of a dictionary that it writes down."""
    keys = {key for node in module.nodes(ast.Dict) for key in node.keys if key is not None}
    attributes = {node.attr for node in module.nodes(ast.Attribute)}
    return attributes | {
        node.value
        for node in module.nodes(ast.Constant)
        if isinstance(node.value, str) and node not in keys
    }
