"""Runs reward functions on the rows' own references as answers, and finds those that can never
reward one.

How it works: the script is followed with its rows in hand (`truetune.data.script_rows`) up to its
GRPO or RLOO trainer. Each reward function that reads a column is called with answers that end in
the row's own result, in the usual forms and in those whose tags stand in the script. What the
function compares is noted.

The trade-off: nothing is said unless the function takes the result out of an answer, and compares
exactly that with something else. A function that reads a form which is not tried, or whose value is
not known, is left alone. Of what a `try` catches, numbers that are none are followed alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.data.script_rows.compute_dataset_methods_on_known_rows import Row, Table, make_table
from truetune.data.script_rows.row_files_of_script import RowFiles
from truetune.data.script_rows.symbolic_run_with_rows import ConcreteRun
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.interpreter import Arguments, LimitReached
from truetune.source.symbolic_execution.lists_and_dicts import plain_to_value
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Function,
    Mapping,
    Scope,
    Sequence,
    Value,
)

TRAINERS = ("trl.GRPOTrainer", "trl.RLOOTrainer", "*.GRPOTrainer", "*.RLOOTrainer")
MAX_ROWS, MIN_ROWS = 6, 3
"""Rows whose references are tried"""
GIVEN_BY_TRAINER = frozenset(("prompts", "completions", "completion_ids", "trainer_state"))
FINAL = re.compile(r"####\s*([^\n]+?)\s*$|\\boxed\{([^{}]+)\}|<answer>\s*(.*?)\s*</answer>", re.S)
NUMBERS: dict[str, type[int] | type[float]] = {"int": int, "float": float}
TAG = re.compile(r"<(\w{2,30})>")
MAX_TAGS = 4
"""Tags of a script that are tried. Chosen, not measured: prompts name two, for thoughts and answer"""
BOXED, HASHES = "\\boxed{", "####"
OF_THOUGHTS = re.compile(r"think|thought|reason|scratch|work|step|explain|explan|analy|plan", re.I)
"""Tags around what stands before the answer"""
GSM8K = [
    {
        "question": f"Ann has {n} apples and buys {n} more. How many are there?",
        "answer": f"Ann has {n} + {n} = <<{n}+{n}={2 * n}>>{2 * n} apples.\n#### {2 * n}",
    }
    for n in (3, 8, 21, 36)
]
"""Rows in the form of the set that most scripts of this kind load, which is not on this machine"""
GSM8K_NAMES = ("openai/gsm8k", "gsm8k")


@dataclass(frozen=True, slots=True)
class RewardNeverGiven:
    """A reward function that gives nothing to any row's own result."""

    function: Function
    rows: int
    taken_out: str
    """What it takes out of the answer, as Python writes it"""
    compared_with: str
    """What it compares that with"""
    node: ast.AST
    """The comparison"""


@dataclass(frozen=True, slots=True)
class PaidForm:
    """A reward function that pays a form of the answer that the prompts don't ask for, and none
    that they ask for.
    """

    function: Function
    rows: int
    asked: str
    """The form that the prompts name"""
    paid: str
    """The form that gets a reward"""
    prompt: str
    """The first prompt, as text"""


class _ConversionError(Exception):
    """Raised where a text of the run is no number, so that the run continues in the handler around
    it.
    """


class ComparingRewardRun(ConcreteRun):
    """A run that notes what is compared."""

    def __init__(self, entry: Module, files: RowFiles) -> None:
        super().__init__(entry, files)
        self.compared: list[tuple[Any, Any, ast.AST]] = []
        self.is_judging = False
        """A reward function is called: its exceptions are followed into their handlers"""

    def _operate(self, sign: str, operands: tuple[Value, ...], node: ast.AST) -> Value:
        """Note the values of each equality, then compute it as any run does."""
        if sign in ("==", "!=") and len(operands) == 2:
            left, right = map(constant_of, operands)
            if left is not NO_CONSTANT and right is not NO_CONSTANT:
                self.compared.append((left, right, node))
        return super()._operate(sign, operands, node)

    def _run_try(self, node: ast.Try, scope: Scope) -> int:
        """Run a `try`; while a reward function is called, a failed conversion to a number continues
        in its handler.
        """
        if not self.is_judging:
            return super()._run_try(node, scope)
        try:
            ending = self._run_block(node.body, scope) or self._run_block(node.orelse, scope)
        except _ConversionError:
            if not node.handlers:
                raise
            ending = self._except_handler_as_alternative_arm(node.handlers[0], scope)()
        return self._run_block(node.finalbody, scope) or ending

    def _call_library(self, name: str, given: Arguments, node: ast.AST, home: Module) -> Value:
        """Call a library function.

        A failed conversion to a number raises while a reward function is called, and GSM8K is
        loaded as a few example rows.
        """
        if self.is_judging and name in NUMBERS and given.args:
            plain = constant_of(given.args[0])
            if isinstance(plain, str) and not _converts_to_number(plain, NUMBERS[name]):
                raise _ConversionError
        if name == "datasets.load_dataset" and given.args:
            if constant_of(given.args[0]) in GSM8K_NAMES:
                rows = [Row({key: Constant(text) for key, text in row.items()}) for row in GSM8K]
                is_split = "split" in given.keywords
                return make_table(rows) if is_split else Mapping({"train": make_table(rows)})
        return super()._call_library(name, given, node, home)


def _converts_to_number(text: str, kind: type[int] | type[float]) -> bool:
    """Does Python make a number of a text?"""
    try:
        kind(text)
    except ValueError:
        return False
    return True


def reward_functions_rejecting_own_references(module: Module) -> Iterator[RewardNeverGiven]:
    """The reward functions of a script that reject every row's own result."""
    for run, function, rows in reward_functions_with_rows(module):
        reward_never_given = _reward_never_given_by(run, module, function, rows)
        if reward_never_given is not None:
            yield reward_never_given


def rewards_only_for_unasked_answer_formats(module: Module) -> Iterator[PaidForm]:
    """The reward functions that pay only for a form which the prompts of the rows don't ask for."""
    for run, function, rows in reward_functions_with_rows(module):
        paid_form = _answer_format_rewarded_but_not_asked(run, module, function, rows)
        if paid_form is not None:
            yield paid_form


def reward_functions_with_columns(
    module: Module,
) -> Iterator[tuple[Function, frozenset[str]]]:
    """The reward functions of a script, each with the columns that all rows of its trainer have."""
    for _run, function, rows in reward_functions_with_rows(module):
        columns = [frozenset(named_columns_of_row(row)) for row in rows]
        yield function, frozenset.intersection(*columns)


def _first_rows(rows: list[Row]) -> list[Row]:
    """The first rows, which are enough where each row says the same."""
    return rows[:MAX_ROWS]


def reward_functions_with_rows(
    module: Module, choose: Callable[[list[Row]], list[Row]] = _first_rows
) -> Iterator[tuple[ComparingRewardRun, Function, list[Row]]]:
    """The reward functions of a script, each with some rows of its trainer.

    Args:
        module: the script.
        choose: takes some of the rows.
    """
    folder = Path(module.path).resolve().parent
    run = ComparingRewardRun(module, RowFiles((folder, Path.cwd())))
    try:
        run.run()
        for trainer in run.trace.calls(*TRAINERS):
            table = trainer.keywords.get("train_dataset")
            if isinstance(table, Table) and len(table.rows) >= MIN_ROWS:
                for function in _reward_functions(trainer):
                    yield run, function, choose(table.rows)
    except (LimitReached, RecursionError):
        return


def _answer_format_rewarded_but_not_asked(
    run: ComparingRewardRun, module: Module, function: Function, rows: list[Row]
) -> PaidForm | None:
    """The form that one function pays and no prompt asks for; None where it pays a form that one
    asks for.
    """
    asked_forms, paid_forms, first = set[str](), set[str](), ""
    for row in rows:
        columns = named_columns_of_row(row)
        prompt = _prompt_text(columns.get("prompt"))
        asked = _answer_formats_named_in_prompt(prompt)
        if len(asked) != 1:
            # With two forms a prompt may show one as a warning, or ask for one inside of the other.
            return None
        paid = _answer_formats_rewarded(run, module, function, columns)
        if not paid or any(_is_answer_format_named_in_prompt(form, prompt) for form in paid):
            return None
        asked_forms |= asked
        paid_forms |= paid
        first = first or prompt
    if len(asked_forms) != 1:
        return None
    return PaidForm(function, len(rows), min(asked_forms), min(paid_forms, key=len), first)


def named_columns_of_row(row: Row) -> dict[str, Value]:
    """The columns of a row that have a name."""
    return {name: value for name, value in row.entries.items() if isinstance(name, str)}


def _answer_formats_rewarded(
    run: ComparingRewardRun, module: Module, function: Function, columns: dict[str, Value]
) -> set[str]:
    """The forms of a row's result that get a reward; none where all do, or where it is not known."""
    final = final_result_of_row(columns)
    if final is None:
        return set()
    by_form = _answers_by_form(module.text, final)
    rewards = rewards_for_answers(run, function, columns, list(by_form.values()))
    if len(rewards) != len(by_form):
        return set()
    paid = {form for form, reward in zip(by_form, rewards, strict=True) if reward > 0}
    return paid if len(paid) < len(by_form) else set()


def _prompt_text(value: Value | None) -> str:
    """The texts of a prompt, of all its messages; empty where they are not known."""
    plain = constant_of(value) if value is not None else None
    if isinstance(plain, list):
        contents = [one.get("content") for one in plain if isinstance(one, dict)]
        return "\n".join(text for text in contents if isinstance(text, str))
    return plain if isinstance(plain, str) else ""


def _answer_formats_named_in_prompt(prompt: str) -> set[str]:
    """The forms of the final answer that a prompt names."""
    tags = {f"<{tag}>" for tag in TAG.findall(prompt) if f"</{tag}>" in prompt}
    # Thoughts stand beside the answer in any form.
    tags = {tag for tag in tags if not OF_THOUGHTS.search(tag)}
    return tags | {mark for mark in (BOXED, HASHES) if mark in prompt}


def _is_answer_format_named_in_prompt(form: str, prompt: str) -> bool:
    """Does a prompt name a form, by its mark or in words: `in answer tags`?"""
    word = re.escape(form.strip("<>"))
    in_words = rf"\b{word}\W{{0,3}}(?:\s+\w+)?\s+tags?\b" if form.startswith("<") else word
    return form in prompt or re.search(in_words, prompt, re.I) is not None


def _answers_by_form(text: str, final: str) -> dict[str, str]:
    """The mark of each form -> an answer in that form, with thoughts before it as the script's tags
    have them.
    """
    tags = list(dict.fromkeys(TAG.findall(text)))[:MAX_TAGS]
    thoughts = [tag for tag in tags if OF_THOUGHTS.search(tag)]
    before = "".join(f"<{tag}>\nI add.\n</{tag}>\n" for tag in thoughts)
    forms = {BOXED: f"\\boxed{{{final}}}", HASHES: f"#### {final}"}
    for tag in ("answer", *(tag for tag in tags if tag not in thoughts)):
        forms[f"<{tag}>"] = f"<{tag}>\n{final}\n</{tag}>"
    return {mark: f"{before}{form}" for mark, form in forms.items()}


def _reward_functions(trainer: CallEvent) -> list[Function]:
    """The functions of the project that score answers."""
    reward_funcs_argument = trainer.argument(1, "reward_funcs")
    items = (
        reward_funcs_argument.items
        if isinstance(reward_funcs_argument, Sequence)
        else [reward_funcs_argument]
    )
    return [one for one in items if isinstance(one, Function)]


def _reward_never_given_by(
    run: ComparingRewardRun, module: Module, function: Function, rows: list[Row]
) -> RewardNeverGiven | None:
    """What one function says of the rows' own results; None where it rewards one, or it is not
    known.
    """
    shown: tuple[Any, Any, ast.AST] | None = None
    for row in rows:
        columns = named_columns_of_row(row)
        final = final_result_of_row(columns)
        if final is None:
            return None
        run.compared.clear()
        rewards = rewards_for_answers(run, function, columns, answers_ending_in(module.text, final))
        if not rewards or any(reward > 0 for reward in rewards):
            return None
        mismatch = _comparison_never_equal(run.compared, final)
        if mismatch is None:
            return None
        shown = shown or mismatch
    if shown is None:
        return None
    left, right, node = shown
    return RewardNeverGiven(
        function, len(rows), _shortened_repr(left), _shortened_repr(right), node
    )


def final_result_of_row(columns: dict[str, Value]) -> str | None:
    """The result that a row's reference ends in; None where no column has one."""
    for name, value in columns.items():
        plain = constant_of(value)
        if name in ("prompt", "question", "problem", "instruction"):
            continue
        if isinstance(plain, int | float) and not isinstance(plain, bool):
            return str(plain)
        if isinstance(plain, str) and plain.strip():
            marked = FINAL.search(plain)
            if marked is not None:
                return next(part for part in marked.groups() if part is not None).strip()
            if len(plain) < 20 and plain.strip()[-1:].isdigit():
                return plain.strip()
    return None


def answers_ending_in(text: str, final: str) -> list[str]:
    """Answers that end in a result, in the usual forms and with the tags that stand in the script."""
    answers = [
        final,
        f"#### {final}",
        f"The answer is {final}",
        f"Final answer: {final}",
        f"Answer: {final}",
        f"So it is \\boxed{{{final}}}.",
        f"<answer>{final}</answer>",
        f"<think>\nI add.\n</think>\n<answer>\n{final}\n</answer>",
        f"<reasoning>\nI add.\n</reasoning>\n<answer>\n{final}\n</answer>\n",
    ]
    tags = list(dict.fromkeys(TAG.findall(text)))[:MAX_TAGS]
    answers += [f"<{tag}>{final}</{tag}>" for tag in tags]
    if len(tags) > 1:
        before = "\n".join(f"<{tag}>\nI add.\n</{tag}>" for tag in tags[:-1])
        answers.append(f"{before}\n<{tags[-1]}>\n{final}\n</{tags[-1]}>")
    return answers


def rewards_for_answers(
    run: ComparingRewardRun, function: Function, columns: dict[str, Value], answers: list[str]
) -> list[float]:
    """The rewards that a function gives for these answers to one row; empty where one is not known."""
    given = _arguments_of_reward(columns, answers)
    arguments = function.definition.args
    if arguments.kwarg is None:
        taken = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
        if not taken <= GIVEN_BY_TRAINER | given.keys():
            return []  # it fails at its first call, and says so
        given = {name: value for name, value in given.items() if name in taken}
    run.is_judging = True
    try:
        result = run.call_script_function(function, (), given)
    except _ConversionError:
        return []  # no handler: the run ends there, and says so
    finally:
        run.is_judging = False
    plain = constant_of(result)
    is_known = isinstance(plain, list) and all(isinstance(one, int | float) for one in plain)
    return [float(one) for one in plain] if is_known and len(plain) == len(answers) else []


def _arguments_of_reward(columns: dict[str, Value], answers: list[str]) -> dict[str, Value]:
    """What the trainer calls a reward function with: prompts, completions, and each column once for
    each answer.
    """
    prompt = columns.get("prompt", Constant(""))
    completions = [
        plain_to_value([{"role": "assistant", "content": answer}])
        if isinstance(prompt, Sequence)
        else Constant(answer)
        for answer in answers
    ]
    repeated = {**columns, "prompts": prompt}
    given: dict[str, Value] = {
        name: Sequence("list", [value] * len(answers))
        for name, value in repeated.items()
        if name != "prompt"
    }
    return {**given, "completions": Sequence("list", completions)}


def _comparison_never_equal(
    compared: list[tuple[Any, Any, ast.AST]], final: str
) -> tuple[Any, Any, ast.AST] | None:
    """The comparison of a result, taken out of an answer, with something that it never equals; None
    without one.
    """
    for left, right, node in compared:
        for taken, other in ((left, right), (right, left)):
            if _is_final_result(taken, final) and taken != other and not _is_fixed_text(other):
                return taken, other, node
    return None


def _is_final_result(taken: Any, final: str) -> bool:
    """Is it the result, as a text or a number?"""
    if isinstance(taken, str):
        return taken.strip().replace(",", "") == final.replace(",", "")
    if isinstance(taken, int | float) and not isinstance(taken, bool):
        try:
            return float(final.replace(",", "")) == taken
        except ValueError:
            return False
    return False


def _is_fixed_text(other: Any) -> bool:
    """Is it a fixed text of the code, as of `if extracted == ""`?"""
    return isinstance(other, str) and (
        not other.strip() or other.strip().lower() in ("none", "n/a")
    )


def _shortened_repr(plain: Any) -> str:
    """A value as Python writes it, with its middle left out where it is long."""
    text = repr(plain)
    return text if len(text) <= 60 else f"{text[:20]}...{text[-36:]}"
