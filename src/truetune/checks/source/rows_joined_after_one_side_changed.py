"""Rows are joined by position after only one side was filtered, sorted or divided.

## What it does
Traces the sides of `zip`, of `pandas.concat(axis=1)`, and of columns added to a frame or data set, back to what was
read, and records each filter, `dropna`, `drop_duplicates`, mask, sort, shuffle and `rows[rank::world]` on the way. It
fires if one of them went through a step that the other did not, and both sides come from one source, or from two files
whose rows belong together as they are read (the same ids, row by row). Frames join by their index: there it fires if
one was renumbered (`reset_index`) or is a plain array (`.values`).

Two files next to the script are compared by their ids if both have them and neither side is shuffled or filtered after
a sort by a column. Listings of files (`glob`) are reported if one is sorted by name and one by number, or neither is
sorted. Two files that are each filtered by their own field (the state or the text of an answer) and then joined into
one record are a warning: each drops other rows. Two files of questions and answers of which only one is shuffled are an
error.

## Why it is bad
From the first row that is dropped or moved, each prompt gets another row's answer or label. `zip` stops silently at the
shorter side. Each row looks fine on its own, and the model learns answers to other questions.

## Example
```python
import json

rows = [json.loads(line) for line in open("rows.jsonl")]
prompts = [row["prompt"] for row in rows]
answers = [row["answer"] for row in rows if row["answer"].strip()]
pairs = [{"prompt": prompt, "completion": answer} for prompt, answer in zip(prompts, answers)]
```

## Use instead
```python
import json

rows = [json.loads(line) for line in open("rows.jsonl")]
rows = [row for row in rows if row["answer"].strip()]
prompts = [row["prompt"] for row in rows]
answers = [row["answer"] for row in rows]
pairs = [{"prompt": prompt, "completion": answer} for prompt, answer in zip(prompts, answers)]
```

## Fix safety
There is no automatic fix. Filter and sort whole rows before you split them into columns, or join by a key
(`merge(on="id")`). `zip(..., strict=True)` raises an error if the lengths differ. Rows built before must be built
again.

## References
- Python's documentation of `zip` (`strict`); pandas user guide, "Merge, join, concatenate" (index alignment)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.files_joined_in_different_order import (
    FilesInOtherOrder,
    files_in_other_order,
)
from truetune.checks.source.evidence.joins_after_only_one_side_changed import WrongJoin, wrong_joins
from truetune.checks.source.evidence.joins_of_sides_filtered_apart import (
    joins_of_filtered_files,
    joins_of_shuffled_file,
)
from truetune.checks.source.evidence.listings_joined_by_position import (
    AS_GIVEN,
    WORDS,
    Listing,
    listings_joined_in_different_orders,
)
from truetune.checks.source.evidence.lists_compared_row_by_row import lists_compared_row_by_row
from truetune.source.parsed_source_file import Module

DONE = {
    "filter": "only one side drops rows",
    "order": "only one side is sorted or shuffled",
    "parts": "one side has the processes' round-robin parts one after another",
}


def _joins_by_position(module: Module) -> Iterator[ast.AST]:
    """Where rows are joined by position."""
    for call in module.calls("zip", "pandas.concat"):
        yield call.node
    for call in module.methods("assign", "add_column"):
        yield call.node
    for node in module.nodes(ast.Assign):
        if isinstance(node.targets[0], ast.Subscript):
            yield node


class RowsJoinedAfterOneSideChanged(SourceRule):
    code = "SRC183"
    fault = Fault.ANSWERS_PAIRED_WITH_WRONG_QUESTIONS
    symptoms = ("nothing-is-learned", "loss-does-not-fall", "odd-metrics")
    severity = "error"
    looks_at = CodePlaces("joins by position", _joins_by_position)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # answers-beside-other-references is about sorts of answers and references.
        scored = {pair.node for pair in lists_compared_row_by_row(module)}
        reported_nodes: set[ast.AST] = set()
        for wrong_join in wrong_joins(module):
            reported_nodes.add(wrong_join.node)
            if wrong_join.change.kind != "order" or wrong_join.node not in scored:
                yield self._finding_on_join(wrong_join)
        for join in files_in_other_order(module):
            if join.node not in reported_nodes and (join.what == "zip" or join.node not in scored):
                yield self._finding_on_files(join)
        yield from self._findings_on_shuffled_files()
        yield from self._findings_on_filtered_files()
        yield from self._findings_on_folders_in_two_orders()

    def _finding_on_join(self, found: WrongJoin) -> Finding:
        """The finding on two sides of one source, of which one went through a step that the other
        did not.
        """
        module = self.subject
        return self.finding(
            f"{found.what} joins rows by position, but {DONE[found.change.kind]}: rows get values of other rows",
            _remedy(found),
            # Without ids only the numbers of rows say that the files belong together.
            severity="warning" if found.files is not None and not found.files.column else None,
            evidence=[] if found.files is None else [found.files.describe()],
            cases=[case_of_node(module, found.node), case_of_node(module, found.change.node)],
        )

    def _finding_on_files(self, join: FilesInOtherOrder) -> Finding:
        """The finding on two files whose ids stand in another order."""
        one, other = join.files
        return self.finding(
            f"{join.what} joins {one} and {other} by position, and their `{join.column}` differs at"
            f" {join.different:,} of {join.rows:,} positions ({join.first[0]} next to {join.first[1]}): these rows get"
            " another row's answer or reference",
            f'join by `{join.column}`: by_id = {{row["{join.column}"]: row for row in rows}}, and look each row up',
            cases=[case_of_node(self.subject, join.node)],
        )

    def _findings_on_shuffled_files(self) -> Iterator[Finding]:
        """Findings on questions and answers of two files, of which one was shuffled."""
        module = self.subject
        for shuffled in joins_of_shuffled_file(module):
            yield self.finding(
                "zip joins two files by position, but one of them was shuffled: each question gets another one's"
                " answer",
                "join the files first, and shuffle the joined rows",
                cases=[
                    case_of_node(module, shuffled.node),
                    case_of_node(module, shuffled.change.node),
                ],
            )

    def _findings_on_filtered_files(self) -> Iterator[Finding]:
        """Findings on two files that were each filtered by their own rows."""
        module = self.subject
        for two in joins_of_filtered_files(module):
            yield self.finding(
                f"{two.what} joins two files by position, but each was filtered by its own field: after the first row"
                " that only one of them drops, rows get values of other rows",
                'join by a field that both have (an id, the question): by_question = {row["question"]: row for row in'
                " rows}, look each row up, and filter the joined rows",
                severity="warning",
                cases=[
                    case_of_node(module, two.node),
                    *(case_of_node(module, one.node) for one in two.changes),
                ],
            )

    def _findings_on_folders_in_two_orders(self) -> Iterator[Finding]:
        """Findings on files of two folders that are joined in two orders."""
        module = self.subject
        for join in listings_joined_in_different_orders(module):
            one, other = join.sides
            is_unsorted = one.order == other.order == AS_GIVEN
            orders = (
                "each in the order of the file system, which is not fixed"
                if is_unsorted
                else f"one {_describe_order(one)}, the other {_describe_order(other)}"
            )
            unless = (
                ""
                if join.is_seen or is_unsorted
                else ", unless all names have the same number of digits"
            )
            yield self.finding(
                f"two listings of files are joined by position, {orders}: each file gets another one's partner{unless}",
                "sort both by the same key, or join by the name: by_stem = {path.stem: path for path in paths}, and"
                " look each one up; then build the rows again",
                severity="error" if join.is_seen else "warning",
                cases=[
                    case_of_node(module, join.node),
                    *(case_of_node(module, side.node) for side in join.sides),
                ],
            )


def _describe_order(listing: Listing) -> str:
    """The order of a listing in words: `by name (1, 10, 100, 2), from the end`."""
    return WORDS[listing.order] + (", from the end" if listing.is_reversed else "")


def _remedy(found: WrongJoin) -> str:
    """The remedy: what keeps the sides together."""
    if found.files is not None and found.files.column:
        key = found.files.column
        return f'join by the key: one.merge(other, on="{key}"), and filter and sort the joined rows'
    if found.change.kind == "parts":
        return (
            "undo the round-robin split: flat = [None] * total, then flat[rank::world] = part for each rank; or join"
            " by a row id"
        )
    whole = "filter and sort whole rows before you split them into columns, or join by a row id"
    return (
        f"{whole} (merge(on=...)); reset_index or .values on only one side loses the match"
        if found.is_by_index
        else whole
    )
