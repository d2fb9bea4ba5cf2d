"""A script picks the worse answer as chosen and the better one as rejected.

## What it does
Traces both sides of a pair (`{"chosen": ..., "rejected": ...}`) back to how they are picked: an index of a sorted list,
`max` and `min`, `argmax`, `sort_values`, or the branch of a condition that compares two scores or names a winner. It
fires if the name of the sort key says which is better (`score`, `reward`, `rating`: more; `rank`, `loss`, `toxicity`:
less), and chosen is the worse one. A key that is a function of the project (`key=mean_rank`) is traced to the column
that it reads. Sides with an unknown order are not judged.

## Why it is bad
DPO and similar methods learn the difference between the sides. If they are swapped, the model is trained towards the
worst answers, while its loss, margins and accuracies look normal.

## Example
```python
def to_pair(row):
    ranked = sorted(row["answers"], key=lambda answer: answer["score"])
    return {"prompt": row["prompt"], "chosen": ranked[0]["text"], "rejected": ranked[-1]["text"]}
```

## Use instead
```python
def to_pair(row):
    ranked = sorted(row["answers"], key=lambda answer: answer["score"], reverse=True)
    return {"prompt": row["prompt"], "chosen": ranked[0]["text"], "rejected": ranked[-1]["text"]}
```

## Fix safety
There is no automatic fix: compare some pairs before and after the change. A model that was trained on swapped pairs
must be trained again.

## References
- huggingface/trl, "Preference" in the dataset formats (`chosen` is the preferred completion)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.reversed_preference_pairs import (
    pairs_built_the_wrong_way_round,
    pairs_of_known_order,
)
from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module


def _pairs_with_known_selection_of_sides(module: Module) -> Iterator[ast.AST]:
    """The pairs that a script builds, and of which it is known how both sides were picked."""
    if "chosen" in module.text:
        yield from pairs_of_known_order(module)


class PairsBuiltTheWrongWayRound(SourceRule):
    code = "SRC181"
    fault = Fault.PREFERENCES_REVERSED
    symptoms = ("dpo-without-effect",)
    severity = "error"
    looks_at = CodePlaces(
        "pairs whose sides are ordered by a score or a rank", _pairs_with_known_selection_of_sides
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for wrong_pair in pairs_built_the_wrong_way_round(module):
            yield self.finding(
                f"chosen and rejected are swapped: {wrong_pair.why}",
                f"swap chosen and rejected, or reverse the order{_reversing_argument(wrong_pair.ordering)}",
                cases=[
                    case_of_node(module, wrong_pair.node),
                    case_of_node(module, wrong_pair.ordering),
                ],
            )


def _reversing_argument(ordering: ast.AST) -> str:
    """The argument that turns an order around, where its call has one."""
    if not isinstance(ordering, ast.Call):
        return ""
    if last_name_of_called(ordering) not in ("sort", "sorted"):
        return ""
    is_given = any(one.arg == "reverse" for one in ordering.keywords)
    return " (without reverse=True)" if is_given else " (reverse=True)"
