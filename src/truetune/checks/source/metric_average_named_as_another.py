"""A score is named after one average (macro, micro, weighted) but computed with another.

## What it does
Looks at the `average=` of F1, precision and recall (scikit-learn, evaluate, torchmetrics), and at the name of the
result: the variable, the key of a dictionary, the argument. It is a warning if one says macro, micro or weighted and
the other says another of the three. Scripts next to each other are compared as well: it is info if two of them report
the same score with different averages.

## Why it is bad
With one label per row the micro average is the accuracy. A model that always predicts the largest class can have a
micro F1 of 0.88 and a macro F1 of 0.19: under the wrong name it looks good, or two reports contradict each other.

## Example
```python
from sklearn.metrics import f1_score

macro_f1 = f1_score(gold, predicted, average="micro")
print(f"macro F1 {macro_f1:.3f}")
```

## Use instead
```python
from sklearn.metrics import f1_score

macro_f1 = f1_score(gold, predicted, average="macro")
print(f"macro F1 {macro_f1:.3f}")
```

## Fix safety
There is no automatic fix: either the name or the average may be what you want. A changed average changes the score.

## References
- scikit-learn/scikit-learn#17311; scikit-learn user guide, From binary to multiclass and multilabel
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.prompt_forms import scripts_beside
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

AVERAGES = ("macro", "micro", "weighted")
FIGURES = re.compile(r"f1|fbeta|precision|recall|jaccard", re.I)
"""Functions and metrics that have an average; `evaluate.load("f1")` names it in its argument"""
MEANINGS = {
    "micro": "it weights all rows equally, and is the accuracy if each row has one label",
    "macro": "it weights all classes equally, whatever their number of rows",
    "weighted": "it weights classes by their number of rows",
}


class AveragedFigure(NamedTuple):
    """A figure that a file computes by an average."""

    call: Call
    figure: str
    """As `f1_score`"""
    average: str


def averaged_figures(module: Module) -> Iterator[AveragedFigure]:
    """The calls that compute a figure by an average."""
    for call in module.all_calls:
        average = module.flow.value(call.keywords.get("average"))
        if average not in AVERAGES:
            continue
        name = ast.unparse(call.node.func)
        maker = module.flow.producing_call(call.receiver) if call.receiver is not None else None
        whole = f"{name} {ast.unparse(maker.node) if maker is not None else ''}"
        figure = FIGURES.search(whole)
        if figure is not None:
            yield AveragedFigure(call, figure[0].lower(), str(average))


class MetricAverageNamedAsAnother(SourceRule):
    code = "SRC131"
    fault = Fault.METRIC_AVERAGED_WRONGLY
    severity = "warning"
    looks_at = CodePlaces("figures that are averaged over classes", averaged_figures)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        averages = list(averaged_figures(module))
        named = False
        for one in averages:
            other = _average_named_by_target(module, one.call.node)
            if other is not None and other != one.average:
                named = True
                yield self.finding(
                    f"a score is named {other} but uses average={one.average!r}: {MEANINGS[one.average]}",
                    f"set average={other!r}, or name the score {one.average}",
                    cases=[case_of_node(module, one.call.node)],
                )
        if not named:
            yield from self._findings_on_files_averaging_differently(averages)

    def _findings_on_files_averaging_differently(
        self, averages: list[AveragedFigure]
    ) -> Iterator[Finding]:
        """Findings on one figure that this file and one beside it average in two ways, each in one
        way alone.
        """
        module = self.subject
        own = _only_average_of_f1(averages)
        if own is None:
            return
        for other in scripts_beside(module):
            another = _only_average_of_f1(list(averaged_figures(other)))
            if another is None or another.figure != own.figure or another.average == own.average:
                continue
            # Of two files that disagree one tells it: the other would say the same of this one.
            if module.path < other.path:
                yield self.finding(
                    f"{own.figure} uses the {own.average} average here and the {another.average} average in the"
                    " script next to it:"
                    f" {own.average}: {MEANINGS[own.average]}",
                    "use the same average in both, and write its name next to each score",
                    severity="info",
                    cases=[
                        case_of_node(module, own.call.node),
                        case_of_node(other, another.call.node),
                    ],
                )


def _only_average_of_f1(averages: list[AveragedFigure]) -> AveragedFigure | None:
    """The one way in which a file averages F1; None where it has several, or none."""
    scores = [one for one in averages if one.figure in ("f1", "fbeta")]
    ways = {one.average for one in scores}
    return scores[0] if len(ways) == 1 else None


def _average_named_by_target(module: Module, call: ast.Call) -> str | None:
    """The average that the name of a figure says: of the variable, the key or the argument that it is given to."""
    # The nearest name counts: `report["macro"] = {"f1": f1_score(...)}` is named by the inner key.
    around: ast.AST = call
    for parent in module.parents(call):
        if isinstance(parent, ast.Dict):
            keys = zip(parent.keys, parent.values, strict=True)
            return next((_average_in_key(key) for key, value in keys if value is around), None)
        if isinstance(parent, ast.keyword):
            return _average_in_text(parent.arg or "")
        if isinstance(parent, ast.Assign):
            target = parent.targets[0]
            return _average_in_key(target)
        if isinstance(parent, ast.stmt):
            return None
        around = parent
    return None


def _average_in_key(node: ast.expr | None) -> str | None:
    """The average in a name, an attribute, a key or the key of a subscript."""
    if isinstance(node, ast.Subscript):
        node = node.slice
    if isinstance(node, ast.Constant):
        return _average_in_text(str(node.value))
    if isinstance(node, ast.Name):
        return _average_in_text(node.id)
    return _average_in_text(node.attr) if isinstance(node, ast.Attribute) else None


def _average_in_text(text: str) -> str | None:
    """The one average that a text names; None for none, or several."""
    names = [one for one in AVERAGES if one in text.lower()]
    return names[0] if len(names) == 1 else None
