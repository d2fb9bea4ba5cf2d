"""Renderer: rows in, training examples as text out, with the template run only where it must be.

How: a row whose shape is known is filled by a recipe (`reusable_render_recipe`); any other row is rendered by its
template, traced, in another process, and leaves a recipe for the rows after it. Measured for chats of four messages
with the templates of Qwen3, Llama 3 and Gemma 3, on two busy cores: 16 to 20 us a row filled, 4 to 13 ms a row
rendered.

A recipe is safe by construction, as far as the tracing is right about every template. Nobody has read all templates,
so recipes are also proved by comparison: rows that one has filled are rendered by the template as well, the first at
once and then ever fewer. One difference raises FastPathError, and all that was made since the last proof is made again
without recipes. The trade-off: a wrong recipe costs the time of the run so far and one line in the log, never a token.
`tests/encoding/test_fast_path.py` breaks recipes on purpose and holds that.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from truetune.data.conversation import Conversation
from truetune.errors import FastPathError, TemplateError
from truetune.render.inference_contract import StopPatterns, plan_examples
from truetune.render.rendering import Rendering, Source, Span, Turn
from truetune.render.reusable_render_recipe import Recipe, make_recipe, row_structure_without_texts
from truetune.render.template import Template
from truetune.render.traced_string import Trace
from truetune.render.unfilled_example_plan import (
    Plan,
    fill_plan,
    split_rendering_sources_by_segments,
)
from truetune.settings.run_spec import Learn, RunSpec

RECIPES_A_SHAPE = 8
"""Recipes that rows of one shape may have: rows of one shape differ in what a template asks (is there a `</think>`?).
Chosen, not measured: each is tried in turn, so that a template which asks of every row something else would fill its
rows ever more slowly without a bound; with half as many, templates with three independent questions lose some."""
SHAPES = 4096
"""Shapes whose recipes are kept; the oldest is dropped first. Chosen, not measured: it bounds the memory where every
row has its own shape (tool definitions of its own). Data with fewer shapes never notices it."""
CHECK_EVERY = 256
"""Rows that a recipe fills are rendered by the template as well, and compared: its 1st, 2nd, 4th, 8th, ... to its
256th, and one in so many from there on. A recipe that is wrong is mostly wrong at once, so that few rows are made
before it is found; and 1 in 256 costs less than 5 % of the time that recipes save. The last row before a shard or a
stream ends is compared too."""


@dataclass(slots=True)
class _RecipeInUse:
    """A recipe in use."""

    recipe: Recipe
    fills: int = 0
    unproved: tuple[Conversation, list[Rendering]] | None = None
    """The last row that it filled, and what came out, where that was not compared."""


class Renderer:
    """Renders the rows of one run."""

    def __init__(
        self,
        template: Template | None,
        spec: RunSpec,
        stops: StopPatterns,
        *,
        tool_template: Template | None = None,
        bos: str | None = None,
        eos: str | None = None,
        only_reference: bool = False,
        eos_once: bool = False,
    ) -> None:
        """`tool_template` renders rows with tools, where the tokenizer has a template for them.

        `bos` and `eos` are what the tokenizer (or the trainer) writes around plain text, None where nothing; with
        `eos_once`, as trainers do it, no EOS follows a text that ends with it.
        With `only_reference` every row is rendered by the template itself.
        """
        self.template = template
        self.tool_template = tool_template or template
        self.spec = spec
        self.preference = spec.model_copy(
            update={"learn": Learn(what="completion"), "history": "single"}
        )
        """What preference trainers do, whatever the run says of supervised ones"""
        self.stops = stops
        self.bos, self.eos = bos, eos
        self.eos_once = eos_once
        self.only_reference = only_reference
        self._recipes: dict[Any, list[_RecipeInUse]] = {}
        self.filled = 0

    def render(self, row: Conversation) -> list[Rendering]:
        """The training examples of a row.

        Raises TemplateError where it can't be rendered, and FastPathError where a recipe is proved wrong: then nothing
        that this renderer made since the last `prove` may be used.
        """
        if not row.is_chat:
            return [self._render_text_row(row)]
        self.template_of(row)  # raises where there is none
        if self.only_reference:
            return self._render_by_template(row)
        key = row_structure_without_texts(row)
        recipes = self._recipes.get(key, [])
        # In the order in which they were made: the guards of at most one hold, for they are answers of one template.
        for known in recipes:
            texts = known.recipe.texts_of_row_if_guards_hold(row)
            if texts is not None:
                return self._fill_and_prove(known, texts, row)
        return self._render_and_keep_recipe(row, key, recipes)

    def prove(self) -> None:
        """Prove all recipes: compare the last row of each that was not compared yet. Raises FastPathError.

        Raises FastPathError.
        """
        for recipes in self._recipes.values():
            self._compare_last_rows_with_template(recipes)

    def render_by_template_with_offsets(self, row: Conversation) -> list[Rendering]:
        """As `render`, by the template itself, and with the place of each character."""
        if not row.is_chat:
            return [self._render_text_row(row)]
        learn = self.spec_of(row).learn
        return [
            split_rendering_sources_by_segments(
                plan, _render_row_that_plan_was_made_of(plan, learn)
            )
            for plan in self._plans(row, Trace())
        ]

    def _render_by_template(self, row: Conversation) -> list[Rendering]:
        """Render a row by the template itself, as `render` does, without its recipes."""
        learn = self.spec_of(row).learn
        return [
            _render_row_that_plan_was_made_of(plan, learn) for plan in self._plans(row, Trace())
        ]

    def _plans(self, row: Conversation, trace: Trace) -> list[Plan]:
        """The plans of a row by its template; its questions go to `trace`. Raises TemplateError."""
        return plan_examples(self.template_of(row), row, self.spec_of(row), self.stops, trace)

    def template_of(self, row: Conversation) -> Template:
        """The template that renders a row. Raises TemplateError where there is none."""
        template = self.tool_template if row.tools else self.template
        if template is None:
            raise TemplateError(
                "this row is a chat and the tokenizer has no chat template; "
                "take the tokenizer of the instruct model, or name a template file with --template"
            )
        return template

    def spec_of(self, row: Conversation) -> RunSpec:
        """The spec of a row, what is learned of it: of a pair or a verdict, what preference trainers learn."""
        return self.preference if row.is_preference else self.spec

    def _fill_and_prove(
        self, known: _RecipeInUse, texts: list[list[str]], row: Conversation
    ) -> list[Rendering]:
        """Fill a recipe with the texts of a row, and prove it against the template where its turn has come."""
        learn = self.spec_of(row).learn
        filled = [
            fill_plan(plan, text, learn)
            for plan, text in zip(known.recipe.plans, texts, strict=True)
        ]
        self.filled += 1
        known.fills += 1
        # Kept until it is compared or the next one is filled: `prove` needs one row of each recipe, the last.
        known.unproved = (row, filled)
        if _is_recipe_fill_number_to_check(known.fills):
            self._compare_last_rows_with_template([known])
        return filled

    def _render_and_keep_recipe(
        self, row: Conversation, key: Any, recipes: list[_RecipeInUse]
    ) -> list[Rendering]:
        """Render a row by its template, and keep the recipe of it for rows of the same shape.

        Args:
            row: a chat that no recipe fills.
            key: its shape.
            recipes: those of its shape; not yet in `self._recipes` where there are none.
        """
        trace = Trace()
        learn = self.spec_of(row).learn
        plans = self._plans(row, trace)
        renderings = [_render_row_that_plan_was_made_of(plan, learn) for plan in plans]
        if len(recipes) >= RECIPES_A_SHAPE:
            return renderings
        recipe = make_recipe(plans, trace)
        if recipe is None:
            return renderings
        if not recipes:
            # A dropped shape is proved first: its last row may have been handed out without a comparison.
            while len(self._recipes) >= SHAPES:
                oldest = next(iter(self._recipes))
                self._compare_last_rows_with_template(self._recipes.pop(oldest))
            self._recipes[key] = recipes
        recipes.append(_RecipeInUse(recipe))
        return renderings

    def _compare_last_rows_with_template(self, recipes: list[_RecipeInUse]) -> None:
        """Compare the last row of each of these recipes, where that was not done. Raises FastPathError."""
        for known in recipes:
            if known.unproved is not None:
                row, filled = known.unproved
                known.unproved = None
                self._check_against_template(row, filled)

    def _check_against_template(self, row: Conversation, filled: list[Rendering]) -> None:
        """Raises FastPathError where the template makes something else of a row than its recipe did."""
        try:
            expected = [_comparable_facts(rendering) for rendering in self._render_by_template(row)]
        except TemplateError as error:
            raise FastPathError(
                f"the template raises on {row.origin}, and truetune's recipe does not ({error})"
            ) from None
        if [_comparable_facts(rendering) for rendering in filled] != expected:
            raise FastPathError(
                f"truetune's recipe renders {row.origin} differently than its template"
            )

    def _render_text_row(self, row: Conversation) -> Rendering:
        """A row that is text, or a prompt and a completion as strings: no template, as trainers do."""
        bos = _PlainField(self.bos or "", Source.BOS, "")
        if row.text is None:
            prompt = _PlainField(row.prompt or "", Source.USER, "prompt")
            body = _PlainField(row.completion or "", Source.ASSISTANT, "completion")
        else:
            prompt = _PlainField("", Source.USER, "prompt")
            body = _PlainField(row.text, Source.TEXT, "text")
        eos = _PlainField(self._eos_to_add_behind_text(body.text), Source.STOP, "")
        learns_all = self.spec_of(row).learn.what == "all"
        first = 0 if learns_all else len(bos.text) + len(prompt.text)
        return _render_plain([bos, prompt, body, eos], first)

    def _eos_to_add_behind_text(self, body: str) -> str:
        """The EOS that follows a plain text; empty where there is none, or where trainers see that it stands there."""
        if self.eos is None or (self.eos_once and body.endswith(self.eos)):
            return ""
        return self.eos


class _PlainField(NamedTuple):
    """One part of a row without a template."""

    text: str
    source: Source
    path: str
    """The row's field; empty for BOS and EOS"""

    @property
    def offset(self) -> int:
        """Where in the field the part begins; -1 where it is of no field."""
        return 0 if self.path else -1


def _render_plain(fields: list[_PlainField], first: int) -> Rendering:
    """The rendering of fields one after the other, supervised from character `first` on."""
    # Sources of no length would stand in reports as if something came from them.
    fields = [field for field in fields if field.text]
    starts = [0, *accumulate(len(field.text) for field in fields)]
    end = starts[-1]
    return Rendering(
        text="".join(field.text for field in fields),
        starts=starts,
        sources=tuple(field.source for field in fields),
        places=tuple((field.path, field.offset) for field in fields),
        spans=[Span(first, end, -1, 1.0)] if first < end else [],
        turns=[],
    )


def _render_row_that_plan_was_made_of(plan: Plan, learn: Learn) -> Rendering:
    """The rendering of the very row that a plan was made of: each piece still has its text."""
    return fill_plan(plan, [piece.literal for piece in plan.pieces], learn)


def _is_recipe_fill_number_to_check(fills: int) -> bool:
    """Is the row that a recipe fills as its `fills`-th compared with the template? See CHECK_EVERY."""
    if fills <= CHECK_EVERY:
        return fills.bit_count() == 1  # a power of two
    return fills % CHECK_EVERY == 0


def _comparable_facts(rendering: Rendering) -> tuple[Any, ...]:
    """All that a recipe must give as the template does; where in a field a piece begins, only the template knows."""
    turns = [_turn_without_error_message(turn) for turn in rendering.turns]
    return (
        rendering.template,
        rendering.text,
        rendering.spans,
        turns,
        rendering.turn,
        _field_ends_with_neighbours_merged(rendering),
    )


def _turn_without_error_message(turn: Turn) -> Turn:
    """The error message of a template may quote the row."""
    return turn._replace(skew=turn.skew and turn.skew.split(":", 1)[0])


def _field_ends_with_neighbours_merged(rendering: Rendering) -> list[tuple[int, Source, str]]:
    """(end, source, path) of neighbours that are of one source and one field.

    A recipe may cut a field into more runs than the template did of this row: cuts inside one field are no difference.
    """
    merged: list[tuple[int, Source, str]] = []
    for run in rendering.runs_of_text_by_origin:
        if merged and merged[-1][1:] == (run.source, run.path):
            merged.pop()
        merged.append((run.end, run.source, run.path))
    return merged
