"""Renderer: rows in, training examples as text out, with the template run only where it must be."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from truetune.data.conversation import Conversation
from truetune.errors import FastPathError, TemplateError
from truetune.render.inference_contract import StopPatterns, plan_examples
from truetune.render.recipe import Recipe, make_recipe, row_shape
from truetune.render.render_plan import Plan, fill_plan, split_by_segments
from truetune.render.rendering import Rendering, Source, Span, Turn
from truetune.render.template import Template
from truetune.render.traced_string import Trace
from truetune.spec.run import Learn, RunSpec

RECIPES_A_SHAPE = 8
SHAPES = 4096
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
            return [self._plain(row)]
        self.template_of(row)
        if self.only_reference:
            return self._reference(row)
        key = row_shape(row)
        recipes = self._recipes.get(key, [])
        for known in recipes:
            texts = known.recipe.fill(row)
            if texts is not None:
                return self._fill(known, texts, row)
        return self._record(row, key, recipes)

    def prove(self) -> None:
        """Compare the last row of each recipe that was not compared yet. To be called before rows are used for good.

        Raises FastPathError.
        """
        for recipes in self._recipes.values():
            self._prove(recipes)

    def exact(self, row: Conversation) -> list[Rendering]:
        """As `render`, by the template itself, and with the place of each character."""
        if not row.is_chat:
            return [self._plain(row)]
        made, learn = self._plans(row, Trace()), self.spec_of(row).learn
        return [
            split_by_segments(plan, fill_plan(plan, [p.literal for p in plan.pieces], learn))
            for plan in made
        ]

    def _reference(self, row: Conversation) -> list[Rendering]:
        """As `render`, by the template itself."""
        learn = self.spec_of(row).learn
        return [
            fill_plan(plan, [p.literal for p in plan.pieces], learn)
            for plan in self._plans(row, Trace())
        ]

    def _plans(self, row: Conversation, trace: Trace) -> list[Plan]:
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
        """What is learned of a row: of a pair or a verdict, what preference trainers learn."""
        return self.preference if row.is_preference else self.spec

    def _fill(
        self, known: _RecipeInUse, texts: list[list[str]], row: Conversation
    ) -> list[Rendering]:
        learn = self.spec_of(row).learn
        filled = [
            fill_plan(plan, text, learn)
            for plan, text in zip(known.recipe.plans, texts, strict=True)
        ]
        self.filled += 1
        known.fills += 1
        known.unproved = (row, filled)
        if _is_compared(known.fills):
            self._prove([known])
        return filled

    def _record(self, row: Conversation, key: Any, recipes: list[_RecipeInUse]) -> list[Rendering]:
        trace, learn = Trace(), self.spec_of(row).learn
        made = self._plans(row, trace)
        renderings = [fill_plan(plan, [p.literal for p in plan.pieces], learn) for plan in made]
        if len(recipes) < RECIPES_A_SHAPE and (recipe := make_recipe(made, trace)) is not None:
            if not recipes:
                while len(self._recipes) >= SHAPES:
                    self._prove(self._recipes.pop(next(iter(self._recipes))))
                self._recipes[key] = recipes
            recipes.append(_RecipeInUse(recipe))
        return renderings

    def _prove(self, recipes: list[_RecipeInUse]) -> None:
        for known in recipes:
            if known.unproved is not None:
                row, filled = known.unproved
                known.unproved = None
                self._compare(row, filled)

    def _compare(self, row: Conversation, filled: list[Rendering]) -> None:
        """Raises FastPathError where the template makes something else of a row than its recipe did."""
        try:
            wanted = [_comparable_facts(rendering) for rendering in self._reference(row)]
        except TemplateError as error:
            raise FastPathError(
                f"the template refuses {row.origin}, and truetune's recipe does not ({error})"
            ) from None
        if [_comparable_facts(rendering) for rendering in filled] != wanted:
            raise FastPathError(
                f"truetune's recipe renders {row.origin} differently than its template"
            )

    def _plain(self, row: Conversation) -> Rendering:
        """A row that is text, or a prompt and a completion as strings: no template, as trainers do."""
        prompt, body = (
            (row.prompt or "", row.completion or "") if row.text is None else ("", row.text)
        )
        eos = "" if self.eos is None or (self.eos_once and body.endswith(self.eos)) else self.eos
        fields = [
            (self.bos or "", Source.BOS, ""),
            (prompt, Source.USER, "prompt"),
            (
                body,
                *(
                    (Source.TEXT, "text")
                    if row.text is not None
                    else (Source.ASSISTANT, "completion")
                ),
            ),
            (eos, Source.STOP, ""),
        ]
        kept = [field for field in fields if field[0]]
        starts = [0, *accumulate(len(text) for text, _, _ in kept)]
        start = 0 if self.spec_of(row).learn.what == "all" else len(self.bos or "") + len(prompt)
        return Rendering(
            "".join(text for text, _, _ in kept),
            starts,
            tuple(source for _, source, _ in kept),
            tuple((path, 0 if path else -1) for _, _, path in kept),
            [Span(start, starts[-1], -1, 1.0)] if start < starts[-1] else [],
            [],
        )


def _is_compared(fills: int) -> bool:
    if fills <= CHECK_EVERY:
        return fills.bit_count() == 1
    return fills % CHECK_EVERY == 0


def _comparable_facts(rendering: Rendering) -> tuple[Any, ...]:
    """All that a recipe must give as the template does; where in a field a piece begins, only the template knows."""
    turns = [_without_message(turn) for turn in rendering.turns]
    return rendering.text, rendering.spans, turns, rendering.turn, _merged_fields(rendering)


def _without_message(turn: Turn) -> Turn:
    """The error message of a template may quote the row."""
    return turn._replace(skew=turn.skew and turn.skew.split(":", 1)[0])


def _merged_fields(rendering: Rendering) -> list[tuple[int, Source, str]]:
    """(end, source, path) of neighbours that are of one source and one field."""
    found: list[tuple[int, Source, str]] = []
    for run in rendering.runs:
        if found and found[-1][1:] == (run.source, run.path):
            found.pop()
        found.append((run.end, run.source, run.path))
    return found
