"""The references are passed to a corpus metric in the list format of another library.

## What it does
Inspects the shape of the references in calls of `sacrebleu.corpus_bleu`, `corpus_chrf` and `corpus_ter`, of the
`corpus_score` of sacrebleu's metrics, and of NLTK's `corpus_bleu`. sacrebleu expects one list for each set of
references, as long as the predictions. It fires if sacrebleu gets a flat list of one text per row (`refs`) or a list of
one-element lists (`[[r] for r in refs]`), and if NLTK gets the words of one reference per row instead of a list of
references (`[r.split() for r in refs]`), or texts that are not split into words. It does not judge shapes that the code
does not show.

## Why it is bad
sacrebleu reads `[[r] for r in refs]` as many reference sets of one segment each, and scores only the first prediction:
BLEU is 100 or 0, whatever the model wrote. NLTK reads each word as a reference. Neither raises an error.

## Example
```python
import sacrebleu

references = [[row["reference"]] for row in rows]
bleu = sacrebleu.corpus_bleu(predictions, references)
```

## Use instead
```python
import sacrebleu

references = [row["reference"] for row in rows]
bleu = sacrebleu.corpus_bleu(predictions, [references])
```

## Fix safety
There is no automatic fix. Scores reported before covered only one segment, and must be computed again.

## References
- mjpost/sacrebleu README, "Using SacreBLEU from Python"
- NLTK documentation, `nltk.translate.bleu_score.corpus_bleu`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.file_rows_behind_values import local_rows_of_value
from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)

SACREBLEU = ("sacrebleu.corpus_*", "sacrebleu.*.corpus_*")
SACREBLEU_METRICS = ("sacrebleu.BLEU", "sacrebleu.CHRF", "sacrebleu.TER", "sacrebleu.metrics.*")
TEXT_METHODS = frozenset(
    ("strip", "lower", "upper", "replace", "join", "decode", "capitalize", "removeprefix")
)
ROW_PARSERS = ("json.loads", "orjson.loads", "ujson.loads")
ROW_READERS = ("datasets.load_dataset", "datasets.load_from_disk", "csv.DictReader", "json.load")
NLTK = ("nltk.*.corpus_bleu", "nltk.corpus_bleu")


def _corpus_score_calls(module: Module) -> Iterator[Call]:
    """Calls that score a corpus by sacrebleu or NLTK."""
    yield from module.calls(*SACREBLEU, *NLTK)
    for call in module.methods("corpus_score"):
        made = module.flow.producing_call(call.receiver)
        if made is not None and made.named(*SACREBLEU_METRICS):
            yield call


class ReferencesNestedWrongly(SourceRule):
    code = "SRC269"
    fault = Fault.METRIC_GETS_WRONG_INPUTS
    symptoms = ("odd-metrics",)
    severity = "error"
    looks_at = CodePlaces("corpus scores of sacrebleu and NLTK", _corpus_score_calls)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in _corpus_score_calls(module):
            if call.named(*NLTK):
                yield from self._findings_on_nltk(call)
                continue
            references = call.argument(1, "references")
            shape = None if references is None else _one_element_list_per_row(module, references)
            flat = None if references is None else _maker_of_text_per_row(module, references)
            if flat is not None:
                yield self.finding(
                    "sacrebleu gets the references as one flat list, and reads each text as a whole set of references"
                    " with one character per row: the score is meaningless",
                    "wrap the list in a list: corpus_bleu(predictions, [references])",
                    cases=[case_of_node(module, call.node), case_of_node(module, flat)],
                )
            if shape is None:
                continue
            yield self.finding(
                "sacrebleu gets one list per row, and reads each as a whole set of references: it scores only the"
                " first row",
                "pass one list with the references of all rows, wrapped in a list: corpus_bleu(predictions,"
                " [[r1, r2, ...]])",
                evidence=[
                    "the printed hyp_len is then that of one sentence, however many rows there are"
                ],
                cases=[case_of_node(module, call.node), case_of_node(module, shape)],
            )

    def _findings_on_nltk(self, call: Call) -> Iterator[Finding]:
        """Findings on references that are split into words, where NLTK takes a list of references."""
        module = self.subject
        references = call.argument(0, "list_of_references")
        shape = None if references is None else _words_per_row(module, references)
        texts = None if shape is not None else _element_that_is_text(module, call)
        if texts is not None:
            yield self.finding(
                "NLTK's corpus_bleu gets texts instead of lists of words, and reads each character as a word or a"
                " reference: the score is meaningless",
                "split both: corpus_bleu([[r.split()] for r in references], [p.split() for p in predictions]); or"
                " sacrebleu.corpus_bleu(predictions, [references]), which takes texts",
                cases=[case_of_node(module, call.node), case_of_node(module, texts)],
            )
        if shape is not None:
            yield self.finding(
                "NLTK's corpus_bleu gets the words of one reference per row, and reads each word as a separate"
                " reference: the score is meaningless",
                "pass a list of references per row: [[r.split()] for r in references]",
                cases=[case_of_node(module, call.node), case_of_node(module, shape)],
            )


def _comprehensions_making_argument(module: Module, node: ast.expr) -> Iterator[ast.ListComp]:
    """The list comprehensions of one loop that an argument is made by, where it is made by nothing else."""
    origins = [origin.node for origin in module.flow.origins(node) if not origin.path]
    makers = [node] if isinstance(node, ast.ListComp) else origins
    lists = [one for one in makers if isinstance(one, ast.ListComp)]
    if len(lists) == len(makers):
        yield from (one for one in lists if len(one.generators) == 1)


def _one_element_list_per_row(module: Module, node: ast.expr) -> ast.ListComp | None:
    """`[[row["reference"]] for row in rows]`, a list for each row; None for anything else."""
    for rows in _comprehensions_making_argument(module, node):
        inner = rows.elt
        if not isinstance(inner, ast.List) or len(inner.elts) != 1:
            continue
        # `[[*column] for column in streams]` has a whole stream in each list.
        if not isinstance(inner.elts[0], ast.Starred):
            return rows
    return None


def _maker_of_text_per_row(module: Module, references: ast.expr) -> ast.AST | None:
    """What makes the references, where they are certainly one text, or one entry, for each row; None for any other."""
    for element in _elements_per_row(module, references):
        if _is_made_by_text_method(module, element):
            return element
    for rows in _comprehensions_making_argument(module, references):
        if field_name_read(rows.elt) is not None and _is_rows_of_a_file(
            module, rows.generators[0].iter
        ):
            return rows
    makers = [origin.node for origin in module.flow.origins(references) if not origin.path]
    if len(makers) != 1 or not isinstance(makers[0], ast.Call):
        return None
    return makers[0] if _is_text_per_row(module.flow.call(makers[0])) else None


def _is_text_per_row(made: Call) -> bool:
    """Does a call give one text for each row: `batch_decode(...)`, or a column as a list
    (`list(rows["reference"])`)?
    """
    if made.method == "batch_decode":
        return True
    listed = made.receiver if made.method in ("tolist", "to_list") else None
    if made.named("list") and len(made.args) == 1:
        listed = made.args[0]
    return listed is not None and field_name_read(listed) is not None


def _is_rows_of_a_file(module: Module, rows: ast.expr) -> bool:
    """Is the expression a list of rows: `[json.loads(line) for line in file]`, `load_dataset(...)`,
    `csv.DictReader(file)`?
    """
    makers = [origin.node for origin in module.flow.origins(rows) if not origin.path]
    if len(makers) != 1:
        return False
    made = makers[0].elt if isinstance(makers[0], ast.ListComp) else makers[0]
    if not isinstance(made, ast.Call):
        return False
    call = module.flow.call(made)
    return call.named(*(ROW_PARSERS if isinstance(makers[0], ast.ListComp) else ROW_READERS))


def _words_per_row(module: Module, node: ast.expr) -> ast.ListComp | None:
    """`[r.split() for r in references]`, the words of each row; None for anything else."""
    for rows in _comprehensions_making_argument(module, node):
        words = rows.elt
        if not isinstance(words, ast.Call) or not isinstance(words.func, ast.Attribute):
            continue
        if words.func.attr == "split":
            return rows
    return None


def _element_that_is_text(module: Module, call: Call) -> ast.expr | None:
    """An element of the references or predictions that is certainly a text; None where none is."""
    for place, name in enumerate(("list_of_references", "hypotheses")):
        argument = call.argument(place, name)
        for element in () if argument is None else _elements_per_row(module, argument):
            if _is_made_by_text_method(module, element) or _is_column_of_texts(
                module, call, place, element
            ):
                return element
    return None


def _elements_per_row(module: Module, node: ast.expr) -> Iterator[ast.expr]:
    """The expression for each row of a list, of a comprehension or of `append`."""
    for rows in _comprehensions_making_argument(module, node):
        yield rows.elt
    made = [origin.node for origin in module.flow.origins(node) if not origin.path]
    if len(made) != 1 or not isinstance(made[0], ast.List) or made[0].elts:
        return
    for added in module.methods("append"):
        origins = [] if added.receiver is None else module.flow.origins(added.receiver)
        if added.args and any(origin.node is made[0] for origin in origins):
            yield added.args[0]


def _is_made_by_text_method(module: Module, node: ast.expr) -> bool:
    """Is the value made by a method that gives a text: `row["a"].strip()`, `tokenizer.decode(ids)`?"""
    if isinstance(node, ast.JoinedStr):
        return True
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in TEXT_METHODS


def _is_column_of_texts(module: Module, call: Call, place: int, node: ast.expr) -> bool:
    """Is the argument a column of a file beside the script, which holds texts?"""
    column = module.flow.value(node.slice) if isinstance(node, ast.Subscript) else None
    if not isinstance(column, str):
        return False
    for trace in traces_of_scripts_that_reach_file(module):
        for event in trace.calls(*NLTK):
            if event.node is not call.node or len(event.args) <= place:
                continue
            file_rows = local_rows_of_value(module, event.args[place])
            if file_rows is not None and all(
                isinstance(row.get(column), str) for row in file_rows.rows
            ):
                return True
    return False
