"""The reward functions of a run, by their names in the settings.

`FILE.py:FUNCTION` and `MODULE:FUNCTION` are the user's own, called as TRL calls them. `exact` and `agrees:PARSER` are
built in: they compare an answer with the reference of its row, by the words or by what a parser reads of both. The
trade-off: the user's function runs in the process that trains, as it would under TRL, since it may hold a model;
`truetune reward` and the check before the run try it in a confined process first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from truetune.errors import SpecError, UsageError
from truetune.generation.answer_parsers_named_by_user import (
    are_readings_equal_and_not_none,
    import_file,
    import_from_working_folder,
    make_parser,
    try_parse,
)
from truetune.rewards.reward_process import RewardTarget, parse_target
from truetune.training.reward_names import AGREES, EXACT, is_built_in
from truetune.training.rollout_rows import ROW_NUMBER, RolloutRows

RewardFunction = Callable[..., list[float | None]]


def make_reward_functions(names: Sequence[str], rows: RolloutRows) -> list[RewardFunction]:
    """The functions, in the order of their names.

    Raises:
        SpecError: there is no such file, module, function or parser.
        UsageError: a built-in reward has no reference to compare with.
    """
    return [
        _make_built_in(name, rows) if is_built_in(name) else _load_own(parse_target(name))
        for name in names
    ]


def _make_built_in(name: str, rows: RolloutRows) -> RewardFunction:
    """A reward that compares with the references."""
    if not any(row.prompt.reference for row in rows.rows):
        raise UsageError(
            f"training.rewards: {name} compares with the answers of the rows, and no row has one;"
            " name a function of your own (FILE.py:FUNCTION), or say which column holds the answer"
            " (map)"
        )
    same = _are_words_equal if name == EXACT else _make_comparison(name.removeprefix(AGREES))

    def reward(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        references = [rows.rows[number].prompt.reference for number in columns[ROW_NUMBER]]
        # None where a row has no reference: TRL leaves such an answer out.
        return [
            float(same(_text_of(completion), reference)) if reference else None
            for completion, reference in zip(completions, references, strict=True)
        ]

    # TRL names a reward's curves by its function.
    reward.__name__ = name
    return reward


def _text_of(completion: Any) -> str:
    """The text of a completion: of messages the content of the last one."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    return content if isinstance(content, str) else ""


def _are_words_equal(text: str, reference: str) -> bool:
    """Is an answer its reference, white space aside?"""
    return text.split() == reference.split()


def _make_comparison(parser: str) -> Callable[[str, str], bool]:
    """A test: does the parser read the same of both? Raises SpecError where there is no such parser."""
    parse = make_parser(parser)

    def agree(text: str, reference: str) -> bool:
        return are_readings_equal_and_not_none(try_parse(parse, text), try_parse(parse, reference))

    return agree


def _load_own(target: RewardTarget) -> RewardFunction:
    """The user's function. Raises SpecError where it can't be loaded, with what its file raised."""
    try:
        owner = (
            import_file(Path(target.source))
            if target.is_file
            else import_from_working_folder(target.source)
        )
        function: RewardFunction = getattr(owner, target.function)
    except Exception as error:
        # Importing runs the user's file, which may raise anything; an ImportError says itself what it is.
        is_plain = isinstance(error, ImportError | AttributeError | OSError)
        what = str(error) if is_plain else f"{type(error).__name__}: {error}"
        raise SpecError(f"training.rewards: {target}: {what}") from None
    if not callable(function):
        raise SpecError(f"training.rewards: {target}: {target.function} is no function")
    return function
