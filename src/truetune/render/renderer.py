"""Renderer: rows in, training examples as text out, with the template run only where it must be."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from truetune.data.conversation import Conversation
from truetune.errors import TemplateError
from truetune.render.contract import Stops, plans
from truetune.render.plan import Plan, fill, finely
from truetune.render.recipe import Recipe, record, shape
from truetune.render.rendering import Rendering, Source, Span
from truetune.render.template import Template
from truetune.render.traced import Trace
from truetune.spec.run import Learn, RunSpec

RECIPES_A_SHAPE = 8
SHAPES = 4096
CHECK_EVERY = 256
"""One in so many rows that a recipe filled is rendered by the template as well, and compared."""


class Renderer:
    """Renders the rows of one run."""

    def __init__(
        self,
        template: Template | None,
        spec: RunSpec,
        stops: Stops,
        *,
        tool_template: Template | None = None,
        bos: str | None = None,
        eos: str | None = None,
    ) -> None:
        """`tool_template` renders rows with tools, where the tokenizer has a template for them.

        `bos` and `eos` are what the tokenizer (or the trainer) writes around plain text, None where nothing.
        """
        self.template = template
        self.tool_template = tool_template or template
        self.spec = spec
        self.preference = spec.model_copy(update={"learn": Learn(what="completion"), "history": "single"})
        """What preference trainers do, whatever the run says of supervised ones"""
        self.stops = stops
        self.bos, self.eos = bos, eos
        self._recipes: dict[Any, list[Recipe]] = {}
        self.filled = 0

    def render(self, row: Conversation) -> list[Rendering]:
        """The training examples of a row. Raises TemplateError where it can't be rendered."""
        if not row.is_chat:
            return [self._plain(row)]
        self._template(row)
        key = shape(row)
        recipes = self._recipes.get(key, [])
        for recipe in recipes:
            texts = recipe.fill(row)
            if texts is not None:
                return self._fill(recipe, texts, row)
        return self._record(row, key, recipes)

    def exact(self, row: Conversation) -> list[Rendering]:
        """As `render`, by the template itself, and with the place of each character."""
        if not row.is_chat:
            return [self._plain(row)]
        made, learn = self._plans(row, Trace()), self._spec(row).learn
        return [finely(plan, fill(plan, [p.literal for p in plan.pieces], learn)) for plan in made]

    def _plans(self, row: Conversation, trace: Trace) -> list[Plan]:
        return plans(self._template(row), row, self._spec(row), self.stops, trace)

    def _template(self, row: Conversation) -> Template:
        template = self.tool_template if row.tools else self.template
        if template is None:
            raise TemplateError(
                "this row is a chat and the tokenizer has no chat template; "
                "take the tokenizer of the instruct model, or name a template file with --template"
            )
        return template

    def _spec(self, row: Conversation) -> RunSpec:
        return self.preference if row.is_preference else self.spec

    def _fill(self, recipe: Recipe, texts: list[list[str]], row: Conversation) -> list[Rendering]:
        learn = self._spec(row).learn
        filled = [fill(plan, text, learn) for plan, text in zip(recipe.plans, texts, strict=True)]
        self.filled += 1
        if self.filled % CHECK_EVERY == 1:
            self._compare(filled, self.exact(row))
        return filled

    def _record(self, row: Conversation, key: Any, recipes: list[Recipe]) -> list[Rendering]:
        trace, learn = Trace(), self._spec(row).learn
        made = self._plans(row, trace)
        renderings = [fill(plan, [p.literal for p in plan.pieces], learn) for plan in made]
        if len(recipes) < RECIPES_A_SHAPE and (recipe := record(made, trace)) is not None:
            if not recipes:
                while len(self._recipes) >= SHAPES:
                    del self._recipes[next(iter(self._recipes))]
                self._recipes[key] = recipes
            recipes.append(recipe)
        return renderings

    def _compare(self, filled: list[Rendering], exact: list[Rendering]) -> None:
        if [(r.text, r.spans, r.turns) for r in filled] != [(r.text, r.spans, r.turns) for r in exact]:
            raise TemplateError(
                "truetune's fast rendering of this row differs from the template's; this is a defect of truetune: "
                "please report the template and the row"
            )

    def _plain(self, row: Conversation) -> Rendering:
        """A row that is text, or a prompt and a completion as strings: no template, as trainers do."""
        prompt, body = (row.prompt or "", row.completion or "") if row.text is None else ("", row.text)
        fields = [
            (self.bos or "", Source.BOS, ""),
            (prompt, Source.USER, "prompt"),
            (body, *((Source.TEXT, "text") if row.text is not None else (Source.ASSISTANT, "completion"))),
            (self.eos or "", Source.STOP, ""),
        ]
        kept = [field for field in fields if field[0]]
        starts = [0, *accumulate(len(text) for text, _, _ in kept)]
        start = 0 if self._spec(row).learn.what == "all" else len(self.bos or "") + len(prompt)
        return Rendering(
            "".join(text for text, _, _ in kept),
            starts,
            tuple(source for _, source, _ in kept),
            tuple((path, 0 if path else -1) for _, _, path in kept),
            [Span(start, starts[-1], -1, 1.0)] if start < starts[-1] else [],
            [],
        )
