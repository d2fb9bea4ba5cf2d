"""Sound reward functions, as people write them, get no error and no warning; broken ones get the rule that names it.

Each function is really called, in its confined process. The functions stand in files of their own, as users' do.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.findings import Finding
from truetune.rewards.answer_forms import answer_forms
from truetune.rewards.check_reward import check_reward
from truetune.rewards.forms_shown_in_prompts import forms_shown_in_prompts
from truetune.rewards.reward_report import RewardReport
from truetune.rewards.trial_in_progress import TrialOptions

FUNCTIONS = Path(__file__).parent / "functions"
SUMS = (
    ("Tom has 5 apples and buys 7. How many?", "12"), ("What is 30 times 41?", "1230"),
    ("What is 9 minus 4?", "5"), ("Half of 17?", "8.5"), ("What is 2 - 9?", "-7"), ("What is 3?", "3"),
    ("What is 1000 * 2?", "2000"), ("How many is a dozen dozens?", "144"),
)  # fmt: skip
WHOLE = tuple((question, answer) for question, answer in SUMS if answer.isdigit())
QUIZ = (
    ("Which city is the capital of France?", "Paris"), ("Which gas do we breathe?", "oxygen"),
    ("Who found relativity?", "Albert Einstein"), ("Which mountain is highest?", "Mount Everest"),
)  # fmt: skip
PROSE = (
    ("When is it open?", "The lighthouse is open from nine to five on weekdays."),
    ("How long is a refund?", "Our refund takes up to ten working days to arrive."),
    ("What do bees do?", "Bees tell each other where flowers are by a dance."),
)
LETTERS = tuple(
    (f"{question}\nA. x\nB. y\nC. z\nD. w", letter)
    for (question, _), letter in zip(SUMS, "ABCDCBAD", strict=True)
)
COUNTDOWN = tuple(
    {"prompt": "Make it.", "target": target, "nums": numbers}
    for target, numbers in ((24, [4, 6, 1]), (10, [5, 5]))
)


def rows_of(pairs: tuple[tuple[str, str], ...], column: str = "answer") -> list[dict[str, Any]]:
    return [{"prompt": question, column: answer} for question, answer in pairs]


def chats_of(pairs: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    return [
        {"prompt": [{"role": "user", "content": question}], "answer": answer}
        for question, answer in pairs
    ]


def gsm8k_of(pairs: tuple[tuple[str, str], ...]) -> list[dict[str, Any]]:
    return [
        {"question": question, "answer": f"We count <<1+1=2>>.\n#### {answer}"}
        for question, answer in pairs
    ]


def report_on(
    file: str, function: str, rows: list[dict[str, Any]], folder: Path, **options: Any
) -> RewardReport:
    """The report on a function of one of the files."""
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return check_reward(
        f"{FUNCTIONS / file}:{function}", [str(data)], options=TrialOptions(**options)
    )


SOUND: dict[str, list[dict[str, Any]]] = {
    "boxed": gsm8k_of(SUMS),
    "boxed_number": rows_of(SUMS, "solution"),
    "hashes": gsm8k_of(SUMS),
    "xml_correct": chats_of(SUMS),
    "xml_integer": chats_of(SUMS),
    "xml_strict": chats_of(SUMS),
    "xml_soft": chats_of(SUMS),
    "xml_count": chats_of(SUMS),
    "solution_tags": rows_of(SUMS),
    "solution_number": rows_of(SUMS),
    "last_number": rows_of(SUMS, "ground_truth"),
    "last_number_behind_thoughts": chats_of(SUMS),
    "choice": rows_of(LETTERS),
    "boxed_choice": rows_of(LETTERS),
    "json_valid": rows_of(SUMS),
    "json_field": rows_of(SUMS),
    "exact_words": rows_of(QUIZ),
    "overlap": rows_of(PROSE),
    "wanted_length": rows_of(SUMS),
    "short": rows_of(SUMS),
    "code_fence": rows_of(SUMS),
    "think_answer_format": rows_of(SUMS),
    "tag_count": rows_of(SUMS),
    "steps": rows_of(SUMS),
    "shorter_of_group": rows_of(SUMS),
    "equation": list(COUNTDOWN),
    "awaited": rows_of(SUMS),
    "weighted": rows_of(SUMS),
    "only_some": rows_of(SUMS),
    "from_kwargs": rows_of(SUMS),
    "right_and_formatted": rows_of(QUIZ),
    "json_result": [
        {**row, "prompt": f'{row["prompt"]} Reply as JSON: {{"result": NUMBER}}'}
        for row in rows_of(SUMS)
    ],
    "near_number_gets_half": rows_of(SUMS),
    "tag_behind_thoughts": rows_of(SUMS),
    "remembers_rightly": rows_of(SUMS),
}
"""Function of sound.py -> the rows that it is for"""
BROKEN: dict[str, tuple[list[dict[str, Any]], set[str]]] = {
    "contained_both_ways": (rows_of(SUMS), {"RWD001", "RWD003"}),
    "mentioned": (rows_of(SUMS), {"RWD003"}),
    "begins_with": (rows_of(SUMS), {"RWD001", "RWD003"}),
    "first_number": (rows_of(SUMS), {"RWD006"}),
    "any_number": (rows_of(SUMS), {"RWD004"}),
    "no_number_is_none": (rows_of(SUMS), {"RWD012"}),
    "unreadable_is_paid": (rows_of(SUMS), {"RWD001", "RWD002"}),
    "blanks_removed": (rows_of(SUMS), {"RWD008"}),
    "sign_ignored": (rows_of(WHOLE), {"RWD008"}),
    "counts_matches": (rows_of(SUMS), {"RWD010"}),
    "first_letter": (rows_of(LETTERS), {"RWD006"}),
    "whole_reference": (gsm8k_of(SUMS), {"RWD011"}),
    "text_as_messages": (rows_of(SUMS), {"RWD011"}),
    "type_differs": (rows_of(SUMS), {"RWD011"}),
    "integers_alone": (rows_of(SUMS), {"RWD012"}),
    "first_gold_for_all": (rows_of(SUMS), {"RWD021"}),
    "first_completion_alone": (rows_of(SUMS), {"RWD021"}),
    "one_score": (rows_of(SUMS), {"RWD018"}),
    "bare_score": (rows_of(SUMS), {"RWD018"}),
    "forgets_to_return": (rows_of(SUMS), {"RWD018"}),
    "nested_scores": (rows_of(SUMS), {"RWD018"}),
    "text_scores": (rows_of(SUMS), {"RWD018"}),
    "none_always": (rows_of(SUMS), {"RWD015"}),
    "not_a_number": (rows_of(SUMS), {"RWD019"}),
    "ranked": (rows_of(SUMS), {"RWD021"}),
    "by_place": (rows_of(SUMS), {"RWD021"}),
    "shuffled": (rows_of(SUMS), {"RWD020"}),
    "noisy": (rows_of(SUMS), {"RWD020"}),
    "decays": (rows_of(SUMS), {"RWD020"}),
    "new_ones_alone": (rows_of(SUMS), {"RWD020"}),
    "order_of_a_set": (rows_of(SUMS), {"RWD020"}),
    "raises_without_box": (rows_of(SUMS), {"RWD016"}),
    "raises_on_odd_numbers": (rows_of(SUMS), {"RWD016"}),
    "raises_always": (rows_of(SUMS), {"RWD016"}),
    "backtracks": (rows_of(WHOLE), {"RWD017"}),
    "loops": (rows_of(SUMS), {"RWD017"}),
    "asks_a_server": (rows_of(SUMS), {"RWD022"}),
    "writes_samples": (rows_of(SUMS), {"RWD023"}),
    "same_for_all": (rows_of(SUMS), {"RWD015"}),
    "ignores_its_reference": (rows_of(SUMS), {"RWD002"}),
    "takes_no_more": (rows_of(SUMS), {"RWD024"}),
    "in_the_prompt": (rows_of(LETTERS), {"RWD004"}),
    "first_box": (rows_of(SUMS), {"RWD006"}),
    "remembers_by_prompt": (rows_of(SUMS), {"RWD020"}),
    "remembers_by_completion": (rows_of(SUMS), {"RWD020"}),
    "mention_gets_half": (rows_of(SUMS), {"RWD003"}),
    "listed_number_gets_some": (rows_of(SUMS), {"RWD004"}),
    "key_words": (rows_of(PROSE), {"RWD009"}),
}
"""Function of broken.py -> (the rows that it is for, codes that it must get among others)"""
MEANT = {"RWD023"}
"""Notes by severity: what is told and is no fault"""
HANGING = ("backtracks", "loops")
"""Each call with a completion that hangs burns all the seconds that it may take"""


def grave(report: RewardReport) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity != "info"]


@pytest.mark.parametrize("function", SOUND)
def test_a_sound_function_gets_notes_alone(function: str, tmp_path: Path) -> None:
    report = report_on("sound.py", function, SOUND[function], tmp_path)
    assert grave(report) == []
    assert report.trial.was_scored
    # A function that pays for an equation can't be known by forms of its target: that is said, and not called fine.
    assert report.exit_code() == (3 if function == "equation" else 0)


@pytest.mark.parametrize("function", ["think_format", "overlong", "repetition"])
def test_functions_of_trl_get_notes_alone(function: str, tmp_path: Path) -> None:
    pytest.importorskip("trl.rewards", exc_type=ImportError)
    report = report_on("of_trl.py", function, chats_of(SUMS), tmp_path, max_seconds=300)
    assert (grave(report), report.exit_code()) == ([], 0)
    assert report.trial.depends_on == "form"


def test_trls_accuracy_reward_gets_notes_alone(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    rows = [{"prompt": chat["prompt"], "solution": chat["answer"]} for chat in chats_of(SUMS)]
    report = report_on("of_trl.py", "accuracy", rows, tmp_path, max_seconds=300)
    assert (grave(report), report.exit_code()) == ([], 0)
    assert report.trial.best_form == "\\boxed{X}"


def test_a_function_that_runs_code_is_paid_for_code(tmp_path: Path) -> None:
    report = report_on("sound.py", "runs", rows_of(WHOLE[:2]), tmp_path)
    assert grave(report) == []
    assert report.trial.best_form.startswith("```python print(X)")
    assert [finding.code for finding in report.findings if finding.code in MEANT] == ["RWD023"]


@pytest.mark.parametrize("function", BROKEN)
def test_a_broken_function_is_named(function: str, tmp_path: Path) -> None:
    rows, codes = BROKEN[function]
    seconds = 0.4 if function in HANGING else 5.0
    report = report_on("broken.py", function, rows, tmp_path, seconds=seconds)
    found = {finding.code for finding in report.findings}
    assert codes <= found, [finding.message for finding in report.findings]
    is_note = codes == {"RWD023"}
    assert is_note or {finding.code for finding in grave(report)} & codes


def test_the_first_tag_is_read_by_most_functions_and_is_a_note(tmp_path: Path) -> None:
    """A completion has one such tag, and a policy gains nothing by a second; boxes stand at steps of a solution too."""
    report = report_on("broken.py", "first_tag", rows_of(SUMS), tmp_path)
    assert grave(report) == []
    assert "RWD006" in {finding.code for finding in report.findings}


OF_LISTS = """
import re
def near_fifty(completions, **kwargs):
    return [-abs(50 - len(completion)) for completion in completions]
def has_box(completions, **kwargs):
    return [float("boxed{" in completion and r"\\boxed{" in completion) for completion in completions]
def equal(completions, answer, **kwargs):
    return [float(completion == gold) for completion, gold in zip(completions, answer)]
def contains(completions, answer, **kwargs):
    return [1.0 if gold in completion else -1.0 for completion, gold in zip(completions, answer)]
def long_ones(completions, **kwargs):
    return [min(len(completion), 400) / 400 for completion in completions]
def words(completions, ground_truth, **kwargs):
    return [-float(len(set(one))) if isinstance(one, str) else -1.0 for one in completions]

def takes_both(completions, **kwargs):
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [1.0 if "<zork>" in text else -1.0 for text in texts]
def other_form(completions, **kwargs):
    return [1.0 if "<zork>" in one[0]["content"] else 0.0 for one in completions]
def few_turns(completions, **kwargs):
    return [-0.1 * len(one) for one in completions]
def short(completions, environments=None, **kwargs):
    return [-0.1 * len(one) for one in completions]
def careful(completions, **kwargs):
    scores = []
    for one in completions:
        try:
            scores.append(1.0 if "<zork>" in one[-1]["content"] else -1.0)
        except TypeError:
            scores.append(-1.0)
    return scores
"""
"""Functions on completions that are lists of messages: the first six take a list for a text"""


@pytest.mark.parametrize(
    ("function", "fires"),
    [
        *((name, True) for name in ("near_fifty", "has_box", "equal", "contains", "long_ones", "words")),
        *((name, False) for name in ("takes_both", "other_form", "few_turns", "short", "careful")),
    ],
)  # fmt: skip
def test_messages_that_are_taken_for_texts(function: str, fires: bool, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OF_LISTS)
    data = tmp_path / "rows.jsonl"
    rows = [{**row, "ground_truth": row["answer"]} for row in chats_of(SUMS[:2])]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_reward(f"{tmp_path / 'own.py'}:{function}", [str(data)])
    found = [finding for finding in report.findings if finding.code == "RWD015"]
    assert bool(found) is fires
    assert (report.exit_code() == 1) is fires
    if fires:
        assert any("as texts completions get" in line for line in found[0].evidence)
        assert not {"right answers", "what it pays for"} & {one.what for one in report.not_judged}


def test_every_function_of_the_files_is_tried() -> None:
    """Else one is forgotten in silence."""
    helpers = {"text_of", "number_of", "last_box", "xml_answer", "words_of", "runs", "slow"}
    # In a test of its own: it gets a note.
    helpers.add("first_tag")
    for file, tried in (("sound.py", SOUND), ("broken.py", BROKEN)):
        text = (FUNCTIONS / file).read_text(encoding="utf-8")
        definitions = re.findall(r"^(?:async )?def (\w+)", text, re.MULTILINE)
        assert set(definitions) - helpers <= set(tried)


def test_a_slow_function_is_given_up_and_that_is_said(tmp_path: Path) -> None:
    report = report_on("broken.py", "slow", rows_of(SUMS), tmp_path, seconds=0.5, max_seconds=1.0)
    assert report.trial.hung is not None or report.trial.is_out_of_time


def test_the_smallest_example_comes_first(tmp_path: Path) -> None:
    report = report_on("broken.py", "contained_both_ways", rows_of(SUMS), tmp_path)
    empty = next(finding for finding in report.findings if finding.code == "RWD001")
    assert empty.cases[0].text == "row 1, an empty text: '' gets 1; the right answer '12' gets 1"
    raised = report_on("broken.py", "raises_without_box", rows_of(SUMS), tmp_path).findings[0]
    assert raised.cases[0].text.startswith("row 1, '': TypeError:")
    assert "broken.py:" in raised.cases[0].text


def test_what_it_catches_itself_is_evidence_where_nothing_is_paid(tmp_path: Path) -> None:
    report = report_on("broken.py", "text_as_messages", rows_of(SUMS), tmp_path)
    never = next(finding for finding in report.findings if finding.code == "RWD011")
    assert "TypeError: string indices must be integers" in never.evidence[0]


def test_a_golden_column_of_whole_completions(tmp_path: Path) -> None:
    rows = [
        {**row, "golden": f"<answer>{equation}</answer>"}
        for row, equation in zip(COUNTDOWN, ("4 * 6 * 1", "5 + 5"), strict=True)
    ]
    report = report_on("sound.py", "equation", rows, tmp_path, golden="golden")
    assert report.exit_code() == 0
    assert report.trial.depends_on == "answer"
    assert grave(report) == []


def test_golden_completions_that_get_nothing_are_an_error(tmp_path: Path) -> None:
    """The function stops at the line end, and takes a further column: without golden completions nothing is known."""
    (tmp_path / "own.py").write_text(
        "import re\n"
        "def own(completions, answer, level, **kwargs):\n"
        "    found = [re.fullmatch(r'<think>.*</think>\\s*<answer>(.*)</answer>', text) for text in completions]\n"
        "    return [float(bool(one) and one[1] == gold) for one, gold in zip(found, answer)]\n"
    )
    rows = [
        {**row, "level": 1, "full": f"<think>\nI add.\n</think>\n<answer>\n{row['answer']}\n</answer>"}
        for row in rows_of(SUMS)
    ]  # fmt: skip
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_reward(
        f"{tmp_path / 'own.py'}:own", [str(data)], options=TrialOptions(golden="full")
    )
    assert [finding.code for finding in grave(report)] == ["RWD011"]
    # A function that punishes alone gives golden completions as much as any: that is no fault.
    short = [{**row, "full": row["answer"]} for row in rows_of(SUMS)]
    report = report_on("sound.py", "short", short, tmp_path, golden="full")
    assert (grave(report), report.exit_code()) == ([], 3)
    # One that takes no column can't know whose golden completion it is.
    fenced = [{**row, "full": f"```python\n{row['answer']}\n```"} for row in rows_of(SUMS)]
    assert grave(report_on("sound.py", "code_fence", fenced, tmp_path, golden="full")) == []


def test_a_function_that_parses_completions_is_not_judged_without_its_form(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import json\n"
        "def own(completions, answer, **kwargs):\n"
        "    out = []\n"
        "    for text, gold in zip(completions, answer):\n"
        "        try:\n"
        "            out.append(float(json.loads(text)['output']['final'] == gold))\n"
        "        except Exception:\n"
        "            out.append(0.0)\n"
        "    return out\n"
    )
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows_of(SUMS)))
    name = f"{tmp_path / 'own.py'}:own"
    report = check_reward(name, [str(data)])
    assert (report.findings, report.exit_code()) == ((), 3)
    own = ('{"output": {"final": "{}"}}',)
    report = check_reward(name, [str(data)], options=TrialOptions(own_forms=own))
    assert (grave(report), report.exit_code()) == ([], 0)


def test_no_two_forms_have_one_name() -> None:
    """The results are by name: a form of the user's that differs from a built-in one in white space is its own."""
    own = ["<answer> {} </answer>", "<think>\\n...\\n</think>\\n<answer>\\n{}\\n</answer>"]
    forms = answer_forms([], own)
    assert len({form.name for form in forms}) == len(forms)
    assert len(forms) == len(answer_forms([])) + 2


@pytest.mark.parametrize(
    ("prompt", "form"),
    [
        ('Reply as JSON: {"result": NUMBER}', '{"result": 7}'),
        (
            'Give {"why": "...", "label": "<label>", "sure": 0.9}.',
            '{"why": "T", "label": "7", "sure": 0.9}',
        ),
        ('End with a line "RESULT => N <=".', "RESULT => 7 <="),
        ("Put it as [[LETTER]].", "[[7]]"),
        ("Finish with: Final = <your answer>", "Final = 7"),
        ("Write your result in \\boxed{...}", "\\boxed{7}"),
    ],
)
def test_forms_that_prompts_show(prompt: str, form: str) -> None:
    shown = [text.replace("{}", "7") for text in forms_shown_in_prompts([prompt], "T")]
    assert form in shown


def test_prompts_that_show_no_form() -> None:
    prompts = ["What is X if f(X) = 3?", 'The set {"a": 1} has how many keys?', "Add 3 + 4."]
    shown = forms_shown_in_prompts(prompts, "T")
    # An object may be an example of the question: that it is tried costs two completions.
    assert shown == ['{"a": {}}', '{"a": "{}"}']


def test_a_form_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def own(completions, answer, **kwargs):\n"
        "    return [1.0 if text == 'So: ' + gold + '!!' else 0.0 for text, gold in zip(completions, answer)]\n"
    )
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows_of(SUMS)))
    name = f"{tmp_path / 'own.py'}:own"
    assert "RWD011" in {f.code for f in check_reward(name, [str(data)]).findings}
    report = check_reward(name, [str(data)], options=TrialOptions(own_forms=("So: {}!!",)))
    assert (report.trial.best_form, grave(report)) == ("So: X!!", [])


def test_references_that_name_several_right_answers(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def own(completions, answer, **kwargs):\n"
        "    return [float(text in gold.split('|')) for text, gold in zip(completions, answer)]\n"
        "def whole(completions, answer, **kwargs):\n"
        "    return [float(text == gold.split('|')[0] == gold) for text, gold in zip(completions, answer)]\n"
    )
    names = ("Nepal", "Vienna|Wien", "Oslo", "Prague|Praha", "Rome", "Paris", "Madrid", "Lima")
    data = tmp_path / "rows.jsonl"
    rows = [{"prompt": f"What is place {n}?", "answer": name} for n, name in enumerate(names)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_reward(f"{tmp_path / 'own.py'}:own", [str(data)])
    assert "RWD012" not in [finding.code for finding in grave(report)]
    report = check_reward(f"{tmp_path / 'own.py'}:whole", [str(data)])
    assert "RWD012" in [finding.code for finding in grave(report)]


PROGRAMS = """import contextlib, io, re

def block(text):
    blocks = re.findall(r"```python\\n(.*?)```", text, re.S)
    return blocks[-1] if blocks else ""

def exit_code(program):
    try:
        exec(program, {})
    except SystemExit as end:
        return end.code or 0
    except Exception:
        return 1
    return 0

def by_exit_code(completions, tests, **kwargs):
    pairs = zip(completions, tests)
    return [float(bool(block(text)) and exit_code(block(text) + test) == 0) for text, test in pairs]

def by_mark(completions, tests, **kwargs):
    scores = []
    for text, test in zip(completions, tests):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.suppress(BaseException):
            exec(block(text) + test + "\\nprint('all passed')", {})
        scores.append(float(shown.getvalue().endswith("all passed\\n")))
    return scores

def in_its_own_process(completions, tests, **kwargs):
    scores = []
    for text, test in zip(completions, tests):
        try:
            exec(block(text) + test, {})
            scores.append(float(bool(block(text))))
        except Exception:
            scores.append(0.0)
    return scores
"""


@pytest.mark.parametrize(
    ("function", "code"),
    [("by_exit_code", "RWD002"), ("by_mark", ""), ("in_its_own_process", "RWD016")],
)
def test_programs_that_end_before_their_tests(function: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PROGRAMS)
    rows = [
        {
            "prompt": f"Write a function that adds {n}.",
            "tests": f"\nassert add_{n}(5) == {5 + n}",
            "full": f"```python\ndef add_{n}(x):\n    return x + {n}\n```",
        }
        for n in (1, 2)
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check_reward(
        f"{tmp_path / 'own.py'}:{function}", [str(data)], options=TrialOptions(golden="full")
    )
    assert [finding.code for finding in grave(report)] == ([code] if code else [])
