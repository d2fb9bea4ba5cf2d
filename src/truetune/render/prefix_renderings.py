"""Prefix renderings: what a template makes of the first messages of a conversation, and where its characters stand.

A turn is judged by several of them: the conversation through the turn, the prompt before it, and the whole. All that
can be foreseen are asked for in one request to the template process, for a request costs as much as rendering some
turns.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate

from truetune.data.conversation import Conversation
from truetune.errors import TemplateError
from truetune.render.template import LimitError, Parts, Template
from truetune.render.template_protocol import PrefixRequest
from truetune.render.traced_string import UNKNOWN, Trace, Traced, field_path_of_expression
from truetune.render.unfilled_example_plan import Mark
from truetune.settings.run_spec import RunSpec

OWN = ("messages", "tools", "documents", "add_generation_prompt")
"""What a template is always given."""
MAX_RENDERED_TRACED = 60_000
"""Messages that the template may be run over with provenance for one long row, which takes 5 times as long as without
(see `inference_contract.MAX_RENDERED`). A long row needs it where the template rewrites its history, as Qwen3's
does."""


class RenderedText:
    """What the template made of some messages."""

    def __init__(
        self, parts: Parts, *, begins_whole: bool = False, holds_later_messages: bool = False
    ) -> None:
        self.parts = parts
        self.begins_whole = begins_whole
        """Are its parts those with which the whole conversation begins, but for where the last one ends?"""
        self.holds_later_messages = holds_later_messages
        """Does it hold later messages too, since the template refuses to end before them?"""

    @cached_property
    def plain(self) -> str:
        """The characters alone."""
        return "".join(self.parts)

    @cached_property
    def part_start_positions(self) -> list[int]:
        """The character at which each part begins, and the end."""
        return [0, *accumulate(str.__len__(part) for part in self.parts)]

    def mark_before_character(self, position: int) -> Mark:
        """The mark before a character."""
        if position >= self.part_start_positions[-1]:
            return Mark(len(self.parts), 0)
        piece = bisect_right(self.part_start_positions, position) - 1
        return Mark(piece, position - self.part_start_positions[piece])

    def position(self, mark: Mark) -> int:
        """The character that a mark stands before."""
        return self.part_start_positions[mark.piece] + mark.offset

    def parts_before_mark(self, end: Mark) -> Parts:
        """The parts before a mark."""
        if not end.offset:
            return self.parts[: end.piece]
        return (*self.parts[: end.piece], self.parts[end.piece][: end.offset])


class PrefixRenderings:
    """What the template makes of the first n messages, each rendered once."""

    def __init__(
        self,
        template: Template,
        row: Conversation,
        spec: RunSpec,
        trace: Trace,
        turns: list[int],
        *,
        is_long: bool,
    ) -> None:
        """`turns` are the assistant turns to be judged. Of a long row only the whole is rendered with provenance, and
        the others where they part from it."""
        self.template = template
        self.inputs = template.make_inputs(row.messages, row.tools, row.documents)
        self.variables = {**spec.template_kwargs, **row.template_kwargs}
        for name in self.variables:
            if name in OWN or name in template.special:
                raise TemplateError(
                    f"a variable for the template must not be called {name}, which it has already"
                )
        self.trace = trace
        self.is_long = is_long
        self.rendered_traced = 0
        self.count = len(row.messages)
        self._texts: dict[int, RenderedText] = {}
        self._results: dict[tuple[int, bool], Parts | TemplateError] = {}
        # All of them at once: each request to the template process costs as much as rendering some turns.
        # (messages, generation prompt) -> with provenance? The whole comes first: what the others share with the first
        # rendering of a request is not sent again.
        traced_by_prefix = {(self.count, False): True}
        for index in turns:
            traced_by_prefix.setdefault((index + 1, False), not is_long)
            if index:
                traced_by_prefix.setdefault((index, True), not is_long)
        self._request_and_keep_renderings(
            [PrefixRequest(*prefix, traced) for prefix, traced in traced_by_prefix.items()]
        )

    def text(self, count: int) -> RenderedText:
        """The text of the first `count` messages."""
        if count not in self._texts:
            parts = self._render_prefix_once(count, False)
            # It parts from the whole conversation: the template rewrites its history, and provenance is needed to tell
            # where the turn stands.
            if self.is_long and ends_in_unknown_origin(parts):
                parts = self._render_prefix_with_provenance(count)
            self._texts[count] = RenderedText(parts, begins_whole=count == self.count)
        return self._texts[count]

    def text_through_turn(self, index: int) -> RenderedText:
        """The text up to a turn; the whole where the template refuses to end there."""
        try:
            return self.text(index + 1)
        except LimitError:
            raise
        except TemplateError:
            whole = self.text(self.count)
            return RenderedText(whole.parts, begins_whole=True, holds_later_messages=True)

    def serving_prompt_after_messages(self, count: int) -> Parts:
        """The serving prompt of what follows the first `count` messages."""
        return self._render_prefix_once(count, True)

    def _render_prefix_once(self, count: int, generation_prompt: bool) -> Parts:
        """The rendering of a prefix, made once. Raises TemplateError where the template refuses it."""
        if (count, generation_prompt) not in self._results:
            self._request_and_keep_renderings([PrefixRequest(count, generation_prompt, True)])
        result = self._results[count, generation_prompt]
        if isinstance(result, TemplateError):
            raise result
        return result

    def _render_prefix_with_provenance(self, count: int) -> Parts:
        """Run a rendering of a prefix with provenance. Raises TemplateError where a long row needs too many of
        these.
        """
        self.rendered_traced += count
        if self.rendered_traced > MAX_RENDERED_TRACED:
            raise LimitError(
                f"the conversation has {self.count:,} messages, and the template rewrites those"
                f" before each turn: more than {MAX_RENDERED_TRACED:,} messages would be rendered"
                " to judge its turns; share it out over several rows"
            )
        self._request_and_keep_renderings([PrefixRequest(count, False, True)])
        return self._render_prefix_once(count, False)

    def _request_and_keep_renderings(self, renderings: list[PrefixRequest]) -> None:
        """Request renderings from the template in one call, and keep their results."""
        results = self.template.render_prefixes(self.inputs, self.trace, renderings, self.variables)
        for rendering, result in zip(renderings, results, strict=True):
            self._results[rendering.messages, rendering.generation_prompt] = result


def ends_in_unknown_origin(parts: Parts) -> bool:
    """Does it end in text that was rendered without provenance?"""
    return (
        bool(parts)
        and isinstance(parts[-1], Traced)
        and field_path_of_expression(parts[-1].node) == UNKNOWN
    )
