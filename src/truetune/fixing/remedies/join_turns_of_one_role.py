"""Joins consecutive turns of one role, and removes leading answers, where the template refuses the
order of turns.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.base_of_row_remedies import Attempt, Remedy, RowView, Stage
from truetune.fixing.judge_rows_before_and_after_edits import JudgedRows
from truetune.fixing.remedies.rename_role_aliases import standard_role_of_name
from truetune.fixing.row_edits import Edit, PutValue, RemoveEntry
from truetune.fixing.row_messages_with_paths import TEXT_KEYS, Turn

JOINABLE = ("user", "assistant", "system")


class OrderTurns(Remedy):
    """Joins turns of one role that follow each other, and removes answers before the first
    question.
    """

    rule = "template-rejects-rows"
    what = "join turns of one role, and drop answers before the first question"
    safe = False
    stage = Stage.TEMPLATE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Attempts: with joined turns, then without the leading answers, then both."""
        turns = [turn for turn in row.turns if len(turn.path) == 2]
        if row.rejected is None or len({turn.path[0] for turn in turns}) != 1:
            return
        first = _leading_answers(turns)
        joined = _edits_that_join_runs(turns)
        if joined:
            yield joined
        if first:
            yield _edits_that_remove_turns(first)
            rest = [turn for turn in turns if turn not in first]
            joined_rest = _edits_that_join_runs(rest)
            if joined_rest:
                # The answers stand before all others: removed last, they move no path of the joined turns.
                yield [*joined_rest, *_edits_that_remove_turns(first)]

    def count_faults(self, judged_rows: JudgedRows) -> int:
        """How many rows the template refuses."""
        return len(judged_rows.template_refusal_reason_by_row)


def _edits_that_join_runs(turns: list[Turn]) -> list[Edit]:
    """Edits that make each run of turns of one role its first turn; turns that are merged are
    removed from the last on.
    """
    puts: list[Edit] = []
    gone: list[Turn] = []
    # Run by run, so that a turn is joined with the first of its run alone.
    at = 0
    while at < len(turns):
        run = _joinable_run_from(turns, at)
        if len(run) > 1:
            key = _text_key(run[0])
            puts.append(
                PutValue(
                    (*run[0].path, key), "\n\n".join(turn.message[_text_key(turn)] for turn in run)
                )
            )
            gone += run[1:]
        at += len(run)
    return [*puts, *_edits_that_remove_turns(gone)]


def _joinable_run_from(turns: list[Turn], first: int) -> list[Turn]:
    """A turn and those after it that can be joined with it."""
    run = [turns[first]]
    if not _is_text_only_turn(turns[first]):
        return run
    for turn in turns[first + 1 :]:
        if not _is_text_only_turn(turn) or standard_role_of_name(
            turn.role
        ) != standard_role_of_name(run[0].role):
            break
        run.append(turn)
    return run


def _is_text_only_turn(turn: Turn) -> bool:
    """Is it a turn of text alone?"""
    # Calls and results have an order of their own, which joining would break.
    known = standard_role_of_name(turn.role) in JOINABLE and not turn.message.get("tool_calls")
    return known and isinstance(turn.message.get(_text_key(turn)), str)


def _text_key(turn: Turn) -> str:
    """The key under which a turn holds its text."""
    return next((key for key in TEXT_KEYS if key in turn.message), TEXT_KEYS[0])


def _leading_answers(turns: list[Turn]) -> list[Turn]:
    """The answers before the first question."""
    answers = []
    for turn in turns:
        role = standard_role_of_name(turn.role)
        if role == "assistant":
            answers.append(turn)
        elif role != "system":
            break
    return answers if len(answers) < len(turns) else []


def _edits_that_remove_turns(turns: list[Turn]) -> list[Edit]:
    """Edits that remove turns, the last first, so that the places of the others hold."""
    return [RemoveEntry(turn.path) for turn in reversed(turns)]
