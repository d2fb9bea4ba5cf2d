"""Renders rows of the data under the settings of a run, beside what they should be: labels by the inference contract,
or where the ids differ a clean copy.

A page shows what the run does with a row, and beside it what it should do, so that a fault is seen in its place. For
that a row is rendered a second time, under the same settings with one of them put right. The trade-off: each row that
is shown costs two renderings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from truetune.checks.check_data import load_tokenizer_and_template
from truetune.checks.reports import TokenView
from truetune.checks.tokens_with_text_source_and_label import make_token_views
from truetune.data.conversation import Conversation
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.render.renderer import Renderer
from truetune.report.page.json_of_one_examples_tokens import (
    TokenRow,
    kept_range_entry_if_example_is_cut,
    mask_bits,
    raw_text_in_place_of_tokens,
    row_without_tokens,
    token_row_of_checked_example,
)
from truetune.report.page.masks_by_marker_or_generation_tags import TrainerMasks
from truetune.settings.run_spec import Learn, RunSpec


class TokenRowRenderer:
    """Renders conversations to the token rows of a page, with what they should be beside them; not
    for several threads at once.
    """

    def __init__(self, spec: RunSpec) -> None:
        """Raises SpecError, TokenizerError or TemplateError."""
        # Without the fast engines: a few rows gain nothing from them, and they would have to be
        # proved first.
        self.setup = load_tokenizer_and_template(spec, only_reference=True)
        self.encoder = Encoder(self.setup.tokenizer.backend, only_reference=True)
        self.renderer = self.setup.probes.renderer()
        self.masks = TrainerMasks(self.setup)
        self._clean: dict[str, Renderer] = {}

    def make_batch(self, rows: list[Conversation], *, exact: bool = False) -> Batch:
        """A batch of rows as `truetune check` makes it."""
        return make_batch(rows, self.renderer, self.encoder, exact=exact)

    def token_rows(self, row: Conversation) -> list[TokenRow]:
        """The token rows of one conversation: its examples, both sides of a pair; one row with an
        `error` where there is none.
        """
        batch = self.make_batch([row], exact=True)
        if batch.rejected:
            return [
                row_without_tokens(
                    row.origin,
                    batch.rejected[0].reason,
                    format=row.format,
                    **raw_text_in_place_of_tokens(row.raw),
                )
            ]
        examples = [
            self._token_row(view, title) | self._expected_mask_or_twin_with_other_ids(view, title)
            for view, title in _titled_views(batch, self.encoder)
        ]
        # A row that teaches nothing is shown all the same, with the reason: else it would look
        # as if it were missing.
        if not examples:
            examples = [
                row_without_tokens(
                    row.origin,
                    "nothing of it can be trained: it has no turn to learn",
                    format=row.format,
                )
            ]
        if row.problems:
            problems = "; ".join(problem.text for problem in row.problems)
            examples = [
                example | {"error": "; ".join(filter(None, (example.get("error"), problems)))}
                for example in examples
            ]
        return examples

    def _token_row(self, view: TokenView, title: str | None) -> TokenRow:
        """One example as a token row, with the range of its tokens that the run's limit keeps."""
        return token_row_of_checked_example(view, title) | kept_range_entry_if_example_is_cut(
            view, self.setup.spec
        )

    def _expected_mask_or_twin_with_other_ids(self, view: TokenView, title: str | None) -> TokenRow:
        """What a token row needs to show how it should be: the mask that is expected, or a copy
        with other ids.
        """
        beside: TokenRow = {}
        own = self.masks.trainer_mask_if_unlike_contract(view)
        if own is not None:
            beside["supervised"] = mask_bits(own)
        name, clean = self._view_under_contract(view)
        # Other ids are another row: it is shown whole as a twin. Equal ids differ in their
        # labels only, which fit beside.
        if clean is not None and name is not None and not np.array_equal(clean.ids, view.ids):
            return beside | {"twin": self._token_row(clean, title), "twin_name": name}
        wanted = view.supervised if clean is None else clean.supervised
        if not np.array_equal(wanted, view.supervised if own is None else own):
            beside["expected"] = mask_bits(wanted)
        return beside

    def _view_under_contract(self, view: TokenView) -> tuple[str | None, TokenView | None]:
        """The same example rendered with settings that keep the inference contract, and their name;
        (None, None) where the run's settings keep it.
        """
        changes = dict(self._settings_that_restore_contract(view.example.row))
        if not changes:
            return None, None
        name = "; ".join(changes)
        # A renderer compiles a template: one for each kind of change, and not for each row.
        if name not in self._clean:
            settings: dict[str, Any] = {
                key: value for change in changes.values() for key, value in change.items()
            }
            self._clean[name] = self._renderer_with(settings)
        clean = make_batch([view.example.row], self._clean[name], self.encoder, exact=True)
        views = make_token_views(clean, self.encoder.vocabulary)
        # Of a row that is split into one example a turn, no single one is the counterpart.
        return name, views[-1] if views and view.example.rendering.turn is None else None

    def _renderer_with(self, settings: dict[str, Any]) -> Renderer:
        """A renderer with some settings changed; another template has probes of its own."""
        # Another template needs probes of its own: stop tokens and generation prompts are read
        # off it.
        if "template" not in settings:
            return self.setup.probes.renderer(**settings)
        return load_tokenizer_and_template(
            self.setup.spec.model_copy(update=settings), only_reference=True
        ).probes.renderer()

    def _settings_that_restore_contract(
        self, row: Conversation
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """(what a setting that keeps the contract does, the setting), for each one that the run
        breaks for this row.
        """
        spec, tokenizer = self.setup.spec, self.setup.tokenizer
        if not row.is_chat:
            if "eos" in tokenizer.special and not (tokenizer.adds_eos or spec.append_eos):
                yield "with the end token after it", {"append_eos": True}
            return
        if spec.template is not None and tokenizer.templates.get("default") is not None:
            yield "in the tokenizer's own template", {"template": None}
        # The sides of a pair are its last turns: `learn` and `history` do not apply.
        if row.is_preference:
            return
        if spec.learn.what == "all":
            yield "as the inference contract has it", {"learn": Learn()}
        if spec.history == "single":
            yield "as its last turn is served", {"history": "as-served"}


def render_rows_beside_contract(
    spec: RunSpec, rows: Iterable[Conversation]
) -> list[TokenRow] | None:
    """The token rows of conversations with what they should be; None where `truetune check` has
    rendered all that there is to show.
    """
    different = {row.origin.row: row for row in rows}
    altered = (
        spec.mask_by != "contract"
        or spec.template
        or spec.learn.what == "all"
        or spec.history == "single"
    )
    # Under the settings of the contract a second rendering would be the first one again:
    # `truetune check` has it already.
    if not altered and not any(
        not row.is_chat or row.rejected is not None for row in different.values()
    ):
        return None
    renderer = TokenRowRenderer(spec)
    return [example for row in different.values() for example in renderer.token_rows(row)]


def _titled_views(batch: Batch, encoder: Encoder) -> Iterator[tuple[TokenView, str | None]]:
    """(view, title) of every example of one row; a title is `chosen`, `rejected`, `wanted answer`
    or None.
    """
    for view in make_token_views(batch, encoder.vocabulary):
        row = view.example.row
        verdict = None if row.label is None else "wanted answer" if row.label else "unwanted answer"
        yield view, "chosen" if row.rejected is not None else verdict
    if batch.rejected_sides is not None:
        for view in make_token_views(batch.rejected_sides, encoder.vocabulary):
            yield view, "rejected"
