"""Wrong answers to formulas differ in value from the right one, as far as a text can tell."""

from __future__ import annotations

import pytest

from truetune.rewards.answer_forms import AnswerForm
from truetune.rewards.attack_completions import program_that_ends_early, wrong_answers
from truetune.rewards.rows_for_rewards import RightAnswer, right_answer_of


def answer_of(reference: str) -> RightAnswer:
    answer = right_answer_of(reference)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("reference", "other", "wrong"),
    [
        # One number in two spellings: a function that knows it must not be blamed.
        ("$\\sqrt{8}$", "$2\\sqrt{2}$", ("another digit", "\\sqrt{1}")),
        ("$2\\sqrt{2}$", "$\\sqrt{8}$", ("another digit", "2\\sqrt{5}")),
        # Nothing is divided by 0.
        ("$\\frac{\\pi}{7}$", "$\\sqrt{2}$", ("another digit", "\\frac{\\pi}{5}")),
        ("$\\pi$", "$\\tau$", ("another answer", "Something else entirely")),
        # The values of these are known.
        ("$\\frac{1}{2}$", "$\\frac{2}{3}$", ("another row's answer", "\\frac{2}{3}")),
        ("Paris", "oxygen", ("another row's answer", "oxygen")),
    ],
)
def test_another_rows_formula_is_not_taken_for_another_value(
    reference: str, other: str, wrong: tuple[str, str]
) -> None:
    answers = [answer_of(reference), answer_of(other)]
    assert wrong_answers(answers[0], answers).texts[0] == wrong


@pytest.mark.parametrize(
    ("reference", "program"),
    [
        ("def f(x):\n    return x", "import sys\n\nsys.exit(0)"),
        (
            "So:\n\n```python\ndef f(x):\n    return x\n```\nIt adds.",
            "So:\n\n```python\nimport sys\n\nsys.exit(0)\n```\nIt adds.",
        ),
        ("```\nimport os\nprint(os.getcwd())\n```", "```\nimport sys\n\nsys.exit(0)\n```"),
        ("42", None),
        ("define f as a map from A to B", None),
        ("```sql\nSELECT 1\n```", None),
        ("```\n12 34\n```", None),
    ],
)
def test_a_program_that_ends_early_is_made_of_python_alone(
    reference: str, program: str | None
) -> None:
    form = AnswerForm("X", "", "")
    attack = program_that_ends_early(form, answer_of(reference))
    assert (attack.completion if attack else None) == program
