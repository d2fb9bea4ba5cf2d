"""Templates and rows through one Renderer, its recipes warm, and through transformers.

`python -m tests.render.against_transformers 5000` compares that many generated templates and counts the differences by
the rule of the grammar that is left when the template is made as small as it can be.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jinja2
from jinja2 import nodes

from tests.render import grammar
from tests.render.conversations import SPECIAL
from truetune.data.conversation import Conversation
from truetune.errors import TemplateError
from truetune.render.inference_contract import make_stop_patterns
from truetune.render.renderer import Renderer
from truetune.render.rendering import Rendering
from truetune.render.template import Template
from truetune.settings.run_spec import RunSpec

CLOCK = datetime.datetime(2026, 3, 1, 12, 30)
STOPS = make_stop_patterns(("</s>", "<|im_end|>"), ("<|im_start|>",))
ROWS = 40
History = Literal["as-served", "single"]
DEFECT = "defect of truetune"
"""What a rendering that found itself wrong says; never a refusal."""


class Difference(NamedTuple):
    """A row for which truetune does not what transformers does."""

    kind: str
    """text, span, raised, not raised, crash"""
    row: int
    expected: str
    got: str


@dataclass
class Outcome:
    """All rows of one template."""

    rendered: int = 0
    """Rows that transformers renders."""
    raised: int = 0
    """Rows that transformers refuses."""
    refused: int = 0
    """Rows that only truetune refuses, of a template that uses what it says to refuse."""
    filled: int = 0
    """Rows that a recipe was filled from."""
    differences: list[Difference] = field(default_factory=list)


def compare(source: str, rows: list[Conversation], history: History = "single") -> Outcome:
    """Render all rows, one after the other, in both. Compares filled rows with the template's own rendering as well."""
    outcome = Outcome()
    may_refuse = uses_refused(source)
    renderer = _renderer(source, history)
    for i, row in enumerate(rows):
        whole = rendered_by_transformers(source, row, len(row.messages))
        if isinstance(whole, Exception):
            outcome.raised += 1
        else:
            outcome.rendered += 1
        difference = _compare_row(i, row, source, renderer, whole)
        if (
            difference
            and difference.kind == "raised"
            and may_refuse
            and DEFECT not in difference.got
        ):
            outcome.refused += 1
        elif difference:
            outcome.differences.append(difference)
    outcome.filled = renderer.filled if isinstance(renderer, Renderer) else 0
    return outcome


def _renderer(source: str, history: History) -> Renderer | Exception:
    try:
        return Renderer(
            Template(source, SPECIAL, now=lambda: CLOCK), RunSpec(history=history), STOPS
        )
    except Exception as error:
        return error


def _compare_row(
    number: int,
    row: Conversation,
    source: str,
    renderer: Renderer | Exception,
    whole: str | Exception,
) -> Difference | None:
    filled_before = renderer.filled if isinstance(renderer, Renderer) else 0
    got = renderer if isinstance(renderer, Exception) else _examples(renderer.render, row)
    if isinstance(got, Exception):
        if not isinstance(got, TemplateError):
            return Difference("crash", number, str(whole), f"{type(got).__name__}: {got}")
        return Difference("raised", number, whole, str(got)) if isinstance(whole, str) else None
    texts = [example.text for example in got]
    if isinstance(whole, Exception):
        return Difference("not raised", number, f"{type(whole).__name__}: {whole}", repr(texts))
    expected = [
        whole if example.turn is None else _through(source, row, example.turn, whole)
        for example in got
    ]
    if texts != expected:
        return Difference("text", number, repr(expected), repr(texts))
    assert isinstance(renderer, Renderer)
    if renderer.filled == filled_before:  # the template itself has just rendered it
        return None
    exact = _examples(renderer.render_by_template_with_offsets, row)
    if isinstance(exact, Exception):
        return Difference("crash", number, whole, f"exact: {type(exact).__name__}: {exact}")
    marks, wanted = (
        [(example.text, example.spans, example.turns) for example in some] for some in (got, exact)
    )
    return Difference("span", number, repr(wanted), repr(marks)) if marks != wanted else None


def _examples(
    render: Callable[[Conversation], list[Rendering]], row: Conversation
) -> list[Rendering] | Exception:
    try:
        return render(row)
    except Exception as error:
        return error


def _through(source: str, row: Conversation, turn: int, whole: str) -> str:
    """What the example of one turn holds: the messages up to it, all where the template refuses to end there."""
    text = rendered_by_transformers(source, row, turn + 1)
    return whole if isinstance(text, Exception) else text


def rendered_by_transformers(source: str, row: Conversation, count: int) -> str | Exception:
    """The text of the first messages, or what was raised; with CLOCK as the time."""
    from transformers.utils import chat_template_utils

    try:
        compiled = chat_template_utils._compile_jinja_template(source)
        compiled.environment.globals["strftime_now"] = CLOCK.strftime
        variables = {**SPECIAL, **row.template_kwargs}
        rendered: Any = chat_template_utils.render_jinja_template(
            [row.messages[:count]], tools=row.tools, chat_template=source, **variables
        )
    except Exception as error:
        return error
    text: str = rendered[0][0]
    return text


@functools.cache
def _plain_environment() -> jinja2.Environment:
    return jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])


def uses_refused(source: str) -> bool:
    """Does a template use what truetune says to refuse though transformers takes it?"""
    source = source.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    try:
        tree = _plain_environment().parse(source)
    except jinja2.TemplateSyntaxError:
        return False
    filters = {node.name for node in tree.find_all(nodes.Filter)}
    methods = {node.attr for node in tree.find_all(nodes.Getattr)}
    return bool(filters & grammar.REFUSED_FILTERS or methods & grammar.REFUSED_METHODS)


class Report(NamedTuple):
    """One template that was compared, and where it differs, the smallest that still does."""

    seed: int
    outcome: Outcome
    smallest: grammar.Part
    rows: list[Conversation]
    difference: Difference | None
    """The first of the smallest"""

    def __str__(self) -> str:
        if self.difference is None:
            return f"template {self.seed}: no difference"
        contents = "\n".join(
            f"  {[message.get('content') for message in row.messages]}" for row in self.rows
        )
        return (
            f"template {self.seed}, {len(self.outcome.differences)} rows differ"
            f" ({self.difference.kind}):\n{self.smallest.text}\ncontents of the rows, in"
            f" order:\n{contents}\nrow {self.difference.row}: expected"
            f" {self.difference.expected}\nrow {self.difference.row}: got     "
            f" {self.difference.got}"
        )


def history_of(seed: int) -> History:
    """Both ways of a run, in turn."""
    return "single" if seed % 2 else "as-served"


def report(seed: int) -> Report:
    """Compare the template of a seed; make it small where it differs."""
    warnings.simplefilter(
        "ignore", SyntaxWarning
    )  # Python's, about the templates' constant expressions
    tree, rows, history = grammar.template(seed), grammar.rows(seed, ROWS), history_of(seed)
    outcome = compare(tree.text, rows, history)
    if not outcome.differences:
        return Report(seed, outcome, tree, rows, None)

    def differs(source: str, some: list[Conversation]) -> bool:
        return bool(compare(source, some, history).differences)

    smallest, few = grammar.shrink(tree, rows, differs)
    again = compare(smallest.text, few, history).differences
    if not again:  # a limit in seconds can hold once and not again
        return Report(seed, outcome, tree, rows, outcome.differences[0])
    return Report(seed, outcome, smallest, few, again[0])


def _is_operation(part: grammar.Part) -> bool:
    """Not what only carries the others, a name or a literal."""
    if part.type == "statement":
        return part.rule not in ("text", "output")
    return "«" in part.rule and part.rule not in [
        pattern for _, pattern in grammar.LEAVES.get(part.type, ())
    ]


def main() -> None:
    """Compare many templates in processes; print the differences, then the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="seed of the first template")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        for made in pool.map(
            report, range(options.first, options.first + options.count), chunksize=8
        ):
            outcome = made.outcome
            counts.update(
                {
                    "templates": 1,
                    "rows rendered by transformers": outcome.rendered,
                    "rows refused by both": outcome.raised,
                    "rows refused by truetune alone, as documented": outcome.refused,
                    "rows filled": outcome.filled,
                    "rows that differ": len(outcome.differences),
                    "templates that differ": bool(outcome.differences),
                }
            )
            if made.difference is not None:
                print(f"{made}\n", flush=True)
                rules.update(
                    {part.rule for part in made.smallest.walk() if _is_operation(part)}
                    or {"no operation"}
                )
    for name, count in counts.items():
        print(f"{count:>8,} {name}")
    for rule, count in rules.most_common():
        print(f"{count:>8,} {rule}")


if __name__ == "__main__":
    main()
