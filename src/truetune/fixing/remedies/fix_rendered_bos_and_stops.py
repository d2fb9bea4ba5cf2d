"""Removes or adds BOS and stop tokens in text that was rendered beforehand, where the trainer would
write them twice or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    Remedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue


def _texts_of_columns(row: RowView, *columns: str) -> Iterator[tuple[str, str]]:
    """(column, text) of those columns that hold text."""
    names = {alias: name for name in columns for alias in COLUMN_ALIASES[name]} | dict(
        row.context.truetune_column_by_file_column
    )
    for column, value in row.value.items():
        if names.get(column) in columns and isinstance(value, str):
            yield column, value


class RemoveLeadingBos(Remedy):
    """Removes BOS from the beginning of rendered text, where the tokenizer writes one of its own."""

    rule = "render-then-retokenize-double-bos"
    what = "remove BOS from the beginning of rendered text"
    safe = False
    stage = Stage.TOKENS

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that removes BOS from the beginning of all columns that a prompt may begin
        in.
        """
        assert row.context.setup is not None
        bos = row.context.setup.tokenizer.special.get("bos")
        if bos is not None:
            columns = _texts_of_columns(row, "text", "prompt", "instruction")
            yield from combine_into_one_attempt(
                PutValue((name,), text.removeprefix(bos.token))
                for name, text in columns
                # A text that is BOS alone would become empty, which is another fault.
                if text != bos.token and text.startswith(bos.token)
            )


class RemoveTrailingStop(Remedy):
    """Removes the stop token from the end of rendered text, where the tokenizer, or the trainer
    that `--append-eos` speaks of, writes one.
    """

    rule = "duplicate-eos"
    what = "remove the stop token from the end of rendered text"
    safe = False
    stage = Stage.TOKENS

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that removes the stop token from the end of all columns that an answer may
        end in.
        """
        assert row.context.setup is not None
        stops = [stop.token for stop in row.context.setup.probes.stops]
        yield from combine_into_one_attempt(self._edits_without_stop(row, stops))

    def _edits_without_stop(self, row: RowView, stops: list[str]) -> Iterator[Edit]:
        """Edits that remove the stop token at the end of each text, with the space after it."""
        for name, text in _texts_of_columns(row, "text", "completion", "output"):
            # A line break behind the stop token is the template's as well.
            bare = text.rstrip()
            stop = next((stop for stop in stops if bare.endswith(stop)), None)
            if stop is not None:
                yield PutValue((name,), bare.removesuffix(stop))


class EndBothSides(Remedy):
    """Ends both sides of a pair with the token that one of them ends with."""

    rule = "pair-side-not-terminated"
    what = "end both answers of a pair with the stop token of the one"
    safe = True
    stage = Stage.TOKENS

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that puts the token of the side that has one after the side that has none."""
        assert row.context.setup is not None
        stops = [stop.token for stop in row.context.setup.probes.stops]
        sides = list(_texts_of_columns(row, "chosen", "rejected"))
        ends = [
            next((stop for stop in stops if text.rstrip().endswith(stop)), None)
            for _, text in sides
        ]
        # Neither side ends with one: which token would be right is then a question to the template.
        stop = next(filter(None, ends), None)
        if len(sides) == 2 and stop is not None:
            yield from combine_into_one_attempt(
                PutValue((name,), text + stop)
                for (name, text), end in zip(sides, ends, strict=True)
                if not end
            )


class MoveSpaceToAnswer(Remedy):
    """Moves a space at the prompt's end to the answer. The text of both together stays; the prompt
    that is served must lose its space too.
    """

    rule = "boundary-token-merge"
    what = "move the space from the prompt's end to the answer's beginning"
    safe = False
    stage = Stage.TOKENS

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that moves the space at the prompt's end in front of each answer."""
        prompts = list(_texts_of_columns(row, "prompt"))
        answers = list(_texts_of_columns(row, "completion", "chosen", "rejected"))
        # One prompt: of several columns nobody knows which one the answer follows.
        if len(prompts) == 1 and answers:
            (name, text), bare = prompts[0], prompts[0][1].rstrip(" ")
            space = text[len(bare) :]
            if space:
                yield [
                    PutValue((name,), bare),
                    *(PutValue((column,), space + answer) for column, answer in answers),
                ]


class EndTextWithEos(Remedy):
    """Puts EOS at the end of texts, for trainers that append none; for the others, say
    `--append-eos`.
    """

    rule = "eos-not-appended-by-tokenizer"
    what = "end rows of plain text with the EOS token"
    safe = False
    stage = Stage.TOKENS

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that puts EOS after each text that is learned."""
        assert row.context.setup is not None
        eos = row.context.setup.tokenizer.special.get("eos")
        if eos is not None:
            columns = (
                _texts_of_columns(row, "text")
                if row.conversation.text is not None
                else _texts_of_columns(row, "completion", "chosen")
            )
            yield from combine_into_one_attempt(
                PutValue((name,), text + eos.token) for name, text in columns
            )
