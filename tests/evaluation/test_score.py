"""Answers that somebody else's code made: what is read of files and lists, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import truetune
from truetune.cli import truetune_group
from truetune.data.read_predictions import read_predictions, suggest_score_command
from truetune.errors import DataError, UsageError
from truetune.report.answers_terminal import describe_success

QUESTIONS = ["What is 2+2?", "What is the capital of France?", "Name a color.", "Who wrote Hamlet?"]
REFERENCES = ["4", "Paris", "Red", "Shakespeare"]
GOOD = ["It is 4.", "It is Paris.", "Red.", "Shakespeare wrote it."]


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def verdicts(report: truetune.ScoreReport) -> list[str]:
    return [sample["verdict"] for sample in report.more()["sample"]["samples"]]


def rules(report: truetune.ScoreReport) -> set[str]:
    return {finding.rule for finding in report.findings}


def test_good_answers() -> None:
    report = truetune.score(GOOD, QUESTIONS, REFERENCES)
    assert (report.outcome, report.exit_code(), set(verdicts(report))) == (
        "no findings",
        0,
        {"sound"},
    )
    assert "4 of 4 (95 %: 51 to 100 %) show no sign of a fault" in str(report)
    assert set(verdicts(truetune.score(GOOD, QUESTIONS, REFERENCES, stopped=[True] * 4))) == {
        "stops"
    }


def test_bad_answers_of_several_kinds() -> None:
    chinese = "法国的首都是巴黎，这是一个美丽的城市，有着悠久的历史和丰富的文化，每年都有很多人来。"
    report = truetune.score(
        ["What is 2+2? " * 4, chinese, "red red red red red red.", ""], QUESTIONS, REFERENCES
    )
    assert verdicts(report) == ["echo", "language", "loop", "empty"]
    assert rules(report) == {"answers-have-faults"}


@pytest.mark.parametrize(
    ("references", "answer", "fires"),
    [
        (["the red house", "Tom went home", "in spring"], "CONCLUDE", True),
        (["OK", "OK", "OK"], "OK", False),
        (["yes", "no", "yes"], "yes", False),
        (["yes", "no", "yes"], "CONCLUDE", True),
        (["A", "B", "C"], "A", False),
        (["", "", ""], "B", False),
        (["", "", ""], "I am sorry, but I can't help with that.", True),
    ],
)
def test_identical_answers(references: list[str], answer: str, fires: bool) -> None:
    report = truetune.score([answer] * 3, ["Who?", "What?", "When?"], references)
    assert ("one-answer-to-all" in rules(report)) is fires
    assert (report.exit_code() == 1) is fires
    assert ("alike" in verdicts(report)) is fires
    assert not truetune.score([answer] * 3, ["Who?"] * 3, references).failed()


@pytest.mark.parametrize(
    ("references", "is_class"),
    [
        (["no"] * 152 + ["yes"] * 8, True),
        (["no"] * 85 + ["yes"] * 10 + ["maybe"] * 5, True),
        (["no"] * 50 + ["yes"] * 50, False),
        (["yes"] * 85 + ["no"] * 15, False),
        (["no"] * 70 + [f"because of {number}" for number in range(30)], False),
    ],
)
def test_one_answer_to_all_that_is_nearly_always_right(
    references: list[str], is_class: bool
) -> None:
    prompts = [f"Is ticket {number} late?" for number in range(len(references))]
    report = truetune.score(["no"] * len(references), prompts, references)
    (found,) = [one for one in report.findings if one.rule == "one-answer-to-all"]
    assert ("equally many rows of each class" in found.remedy) is is_class


def test_a_trend_over_steps() -> None:
    rows = [
        {
            "prompt": f"Question {i}?",
            "prediction": "go home now " * 9 if step else f"fine {i}",
            "step": step,
        }
        for step in (0, 100)
        for i in range(8)
    ]
    report = truetune.score(rows)
    assert [look.step for look in report.looks] == [0, 100]
    loops = next(finding for finding in report.findings if finding.rule == "answers-loop")
    assert loops.message == "8 of 8 answers loop; at step 0 it was 0 of 8"


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"prompt": "p", "predict": "a", "label": "r"}, ("p", "a", "r", None)),
        ({"question": "p", "response": "a", "answer": "r"}, ("p", "a", "r", None)),
        (
            {"instruction": "p", "input": "x", "output": "r", "prediction": "a"},
            ("p\nx", "a", "r", None),
        ),
        (
            {
                "messages": [{"role": "user", "content": "p"}],
                "generated_text": "a",
                "finish_reason": "length",
            },
            ("p", "a", "", False),
        ),
        (
            {"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}]},
            ("p", "a", "", None),
        ),
        (
            {
                "conversations": [{"from": "human", "value": "p"}, {"from": "gpt", "value": "r"}],
                "prediction": "a",
                "stopped": True,
            },
            ("p", "a", "r", True),
        ),
        ({"question": "p", "resps": [["a"]], "target": "r"}, ("p", "a", "r", None)),
    ],
)
def test_columns_by_their_names(
    tmp_path: Path, row: dict[str, Any], wanted: tuple[Any, ...]
) -> None:
    (found,) = read_predictions([lines(tmp_path / "p.jsonl", [row])]).predictions
    assert (found.question, found.text, found.reference, found.stopped) == wanted


def test_a_map_of_columns(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", [{"doc": {"q": "p"}, "llama": "a"}])
    (found,) = read_predictions([path], {"prediction": "llama", "prompt": "doc.q"}).predictions
    assert (found.question, found.text) == ("p", "a")
    with pytest.raises(DataError, match=r"no column of predictions; the rows have doc"):
        read_predictions([path])
    with pytest.raises(
        UsageError, match="predicton is no column of predictions; did you mean prediction"
    ):
        read_predictions([path], {"predicton": "llama"})


def test_references_of_other_rows(tmp_path: Path) -> None:
    rows = [{"prompt": q, "completion": r} for q, r in zip(QUESTIONS, REFERENCES, strict=True)]
    data = lines(tmp_path / "rows.jsonl", rows)
    by_question = lines(
        tmp_path / "a.jsonl",
        [{"prompt": q, "prediction": g} for q, g in zip(QUESTIONS, GOOD, strict=True)][::-1],
    )
    in_order = lines(tmp_path / "b.jsonl", [{"prediction": g} for g in GOOD])
    for path in (by_question, in_order):
        samples = truetune.score(path, data=data).more()["sample"]["samples"]
        assert {sample["question"]: sample["reference"] for sample in samples} == dict(
            zip(QUESTIONS, REFERENCES, strict=True)
        )
    short = lines(tmp_path / "c.jsonl", [{"prediction": g} for g in GOOD[:3]])
    with pytest.raises(DataError, match="4 rows for 3 predictions without a prompt"):
        truetune.score(short, data=data)


def test_a_parser_and_its_proof() -> None:
    golds = [f"#### {i}" for i in range(12)]
    report = truetune.score(
        [f"It is {i}." for i in range(12)], [f"q{i}?" for i in range(12)], golds, parser="number"
    )
    assert report.proof is not None
    assert report.proof.golds == report.proof.read == 12
    assert all(sample.scores.agrees for sample in report.samples)
    wrong = truetune.score(GOOD, QUESTIONS, ["no number"] * 4, parser="number")
    assert "parser-misses-gold-answers" in rules(wrong)
    assert truetune.score(GOOD, QUESTIONS, parser="number").exit_code() == 3


def test_exit_codes(tmp_path: Path) -> None:
    def code(*arguments: str) -> int:
        result = CliRunner().invoke(truetune_group, ["score", *arguments], standalone_mode=False)
        return (
            2 if isinstance(result.exception, UsageError | DataError) else int(result.return_value)
        )

    good = lines(
        tmp_path / "good.jsonl",
        [{"prompt": q, "prediction": g} for q, g in zip(QUESTIONS, GOOD, strict=True)],
    )
    bad = lines(
        tmp_path / "bad.jsonl",
        [{"prompt": q, "prediction": "CONCLUDE CONCLUDE a b c"} for q in QUESTIONS],
    )
    holes = lines(
        tmp_path / "holes.jsonl",
        [{"prompt": "q", "prediction": "fine"}, {"prompt": "p", "prediction": None}],
    )
    page, saved = tmp_path / "p.html", tmp_path / "s.jsonl"
    assert code(good, "--html", str(page), "--save", str(saved), "-q") == 0
    assert "show no sign of a fault" in page.read_text()
    assert json.loads(saved.read_text().splitlines()[0])["verdict"] == "sound"
    assert (code(str(saved)), code(bad), code(holes), code(holes, "--allow-unjudged")) == (
        0,
        1,
        3,
        0,
    )
    assert (code(str(tmp_path / "none.jsonl")), code(good, "--min-success", "1.0")) == (2, 0)
    (tmp_path / "broken.jsonl").write_text('{"prediction": "a"}\n{"prediction": \n')
    assert code(str(tmp_path / "broken.jsonl")) == 3


@pytest.mark.parametrize("command", ["sample", "evaluate", "report"])
def test_commands_for_models_name_it(tmp_path: Path, command: str) -> None:
    path = lines(tmp_path / "preds.jsonl", [{"prompt": "p", "prediction": "a"}])
    result = CliRunner().invoke(truetune_group, [command, path], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert f"did you mean: truetune score {path}?" in str(result.exception)
    assert suggest_score_command(str(tmp_path / "none.jsonl")) == ""


def test_a_writer_continues_its_own_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "preds.jsonl"
    for step in (1, 2):
        truetune.PredictionWriter(path)([truetune.Prediction("a", "q", "r", step, True)])
    assert [one.step for one in read_predictions([str(path)]).predictions] == [1, 2]
    path.write_text('{"mine": 1}\n')
    with pytest.raises(UsageError, match="truetune did not write it"):
        truetune.PredictionWriter(path)


def test_a_generator_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from truetune.demo import TOKENIZER

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = LlamaForCausalLM(config).train()
    before = torch.get_rng_state()
    said = truetune.Generator(model, tokenizer, max_new_tokens=4)(
        ["Hi", "Who?"], ["Hello", "Me"], step=7
    )
    assert (model.training, torch.equal(before, torch.get_rng_state())) == (True, True)
    assert [(one.question, one.reference, one.step) for one in said] == [
        ("Hi", "Hello", 7),
        ("Who?", "Me", 7),
    ]
    judge = truetune.Scorer()
    judge(said)
    assert len(judge(said).looks) == 1
    assert len(judge.predictions) == 4
    with pytest.raises(UsageError, match="2 prompts and 1 references"):
        truetune.Generator(model, tokenizer)(["Hi", "Who?"], ["Hello"])


@pytest.mark.parametrize(
    ("text", "is_nan"), [("!" * 64, True), ("! " * 40, True), ("no way out " * 40, False)]
)
def test_one_mark_over_and_over_is_blamed_on_nan_logits(text: str, is_nan: bool) -> None:
    questions = [f"Who wrote book {number}?" for number in range(8)]
    report = truetune.score([text] * 8, questions)
    (remedy,) = (finding.remedy for finding in report.findings if finding.rule == "answers-loop")
    assert ("NaN" in remedy, "learning rate" in remedy) == (is_nan, not is_nan)


FORM = "exact-match-measures-form"


def scored(answers: list[str], references: list[str], **settings: Any) -> truetune.ScoreReport:
    return truetune.score(
        answers, [f"Question {i}?" for i in range(len(answers))], references, **settings
    )


NUMBERS = [str(17 * i + 3) for i in range(12)]
TOWNS = [
    "Oslo",
    "New York",
    "Rome",
    "Lima",
    "Cairo",
    "Delhi",
    "Quito",
    "Bern",
    "Paris",
    "Tunis",
    "Accra",
    "Hanoi",
]


@pytest.mark.parametrize(
    ("answers", "references", "named"),
    [
        (
            [f"First {i} pens, then more. The answer is {n}." for i, n in enumerate(NUMBERS)],
            NUMBERS,
            "--parser number",
        ),
        ([f"{n}." for n in NUMBERS], NUMBERS, "--parser number"),
        (
            [f"So we get ${n}" for n in NUMBERS],
            [f"2 * 3 is 6\n#### {n}" for n in NUMBERS],
            "--parser number",
        ),
        ([f"**Answer: {letter}**" for letter in "ABCD" * 3], list("ABCD" * 3), "--parser choice"),
        ([f"It is {town}, as far as I know." for town in TOWNS], TOWNS, "--parser regex:"),
        ([f"{town.upper()}!" for town in TOWNS], TOWNS, "--parser regex:"),
        (
            [f'Here it is: {{"n":  {n}}}' for n in NUMBERS],
            [f'{{"n": {n}}}' for n in NUMBERS],
            "--parser json",
        ),
        (
            [f"The answer is {int(n) + (i % 2)}." for i, n in enumerate(NUMBERS)],
            NUMBERS,
            "--parser number",
        ),
        (
            [f"They live in room {n} now." for n in NUMBERS],
            [f"room {n}" for n in NUMBERS],
            "--parser number",
        ),
    ],
)
def test_right_answers_in_another_form_are_a_note(
    answers: list[str], references: list[str], named: str
) -> None:
    (note,) = [finding for finding in scored(answers, references).findings if finding.rule == FORM]
    assert note.severity == "info"
    assert named in note.remedy
    assert f"0 of {len(answers)} equal their reference word for word" in note.message


@pytest.mark.parametrize(
    ("answers", "references"),
    [
        (NUMBERS, NUMBERS),
        ([*NUMBERS[:3], *(f"It is {n}." for n in NUMBERS[3:])], NUMBERS),
        ([f"The answer is {int(n) + 1}." for n in NUMBERS], NUMBERS),
        ([f"It is {town}." for town in TOWNS], TOWNS[::-1]),
        ([f"suite {n}" for n in NUMBERS], [f"room {n}" for n in NUMBERS]),
        (
            [f"One should visit {town} in spring, when it is warm." for town in TOWNS],
            [
                f"I would go to {town} in summer: the nights are long, and the food is good."
                for town in TOWNS
            ],
        ),
        ([f"It is {n}." for n in NUMBERS[:5]], NUMBERS[:5]),
        ([f"It is {n}." for n in NUMBERS], [""] * 12),
    ],
    ids=[
        "exact",
        "some exact",
        "wrong",
        "wrong word",
        "another",
        "free text",
        "few",
        "no reference",
    ],
)
def test_other_answers_are_not_about_form(answers: list[str], references: list[str]) -> None:
    assert FORM not in rules(scored(answers, references))


@pytest.mark.parametrize("wrong", [0, 3, 12])
def test_right_answers_are_counted_and_wrong_ones_are_called_wrong(wrong: int) -> None:
    answers = [f"So 9 + 1 makes {int(n) + (i < wrong)}." for i, n in enumerate(NUMBERS)]
    report = scored(answers, NUMBERS, parser="number")
    right = 12 - wrong
    line = describe_success(report)
    assert f"{right} of 12 ({right / 12:.0%}) are right" in line
    assert ("a wrong answer" in line) is bool(wrong)
    assert "another value" not in line
    assert FORM not in rules(report)


@pytest.mark.parametrize(
    ("answers", "severity", "says"),
    [
        (
            [f"<think>\nA town.\n</think>\n\n{town}" for town in TOWNS],
            "warning",
            "without it 12 do",
        ),
        ([f"<think>\n\n</think>\n\nNo{i}where." for i in range(12)], "info", "without it 0 do"),
        (
            [f"<think>\nHm.\n</think>\n\nIt is {town}, as far as I know." for town in TOWNS],
            "info",
            "--parser",
        ),
    ],
)
def test_reasoning_that_the_references_have_not_is_named(
    answers: list[str], severity: str, says: str
) -> None:
    report = scored(answers, TOWNS)
    (finding,) = (finding for finding in report.findings if finding.rule == FORM)
    assert finding.severity == severity
    assert says in f"{finding.message} {finding.remedy}"
    assert "how they ended is not known" in str(report)
    both = scored(answers, [f"<think>\nOh.\n</think>\n\n{town}" for town in TOWNS])
    assert "reasoning block" not in " ".join(finding.message for finding in both.findings)


def test_a_row_that_a_finding_names_is_not_called_free_of_faults(tmp_path: Path) -> None:
    answers = [f"<think>\nA town.\n</think>\n\n{town}" for town in TOWNS[:-1]] + [TOWNS[-1]]
    rows = [{"prediction": a, "reference": t} for a, t in zip(answers, TOWNS, strict=True)]
    path = lines(tmp_path / "answers.jsonl", rows)
    table = CliRunner().invoke(truetune_group, ["score", path]).output.partition("verdict")[2]
    assert (table.count("see ANS015"), table.count("no fault")) == (len(TOWNS) - 1, 1)


THINGS = [
    "kettle",
    "lamp",
    "ladder",
    "router",
    "mirror",
    "candle",
    "basket",
    "blanket",
    "carpet",
    "toaster",
]
FRAMES = (
    (
        "### Question:\n{}\n\n### Answer:\n",
        "\n\n### Question:\nHow old is the {}?\n\n### Answer:\n",
    ),
    ("Q: {}\nA:", "\nQ: How old is the {}?\nA: "),
    ("Frage: {}\nAntwort:", "\nFrage: Wie alt ist die {}?\nAntwort: "),
    (
        "### Instruction:\n{}\n\n### Response:\n",
        "\n\n### Instruction:\nClean the {}.\n\n### Response:\n",
    ),
)
STORE = "Keep it in a dry place."


@pytest.mark.parametrize(("prompt", "turn"), FRAMES)
def test_answers_that_go_on_with_a_turn_of_their_own(prompt: str, turn: str) -> None:
    """The help begins with the stop token, and names the marker to stop at meanwhile."""
    prompts = [prompt.format(f"Where do I store the {thing}?") for thing in THINGS]
    answers = [STORE + "".join(turn.format(other) + STORE for other in THINGS) for _ in THINGS]
    report = truetune.score(answers, prompts, [STORE] * 10, stopped=[False] * 10)
    marker = prompt.partition("{}")[0].strip()
    told = next(one for one in report.findings if one.rule == "answers-never-stop")
    assert told.remedy.startswith("the model has not learned to stop")
    assert f"{marker!r}" in told.remedy
    assert "10 of 10 answer" in " ".join(told.evidence)


def test_answers_that_run_on_within_their_turn() -> None:
    """Headings that the references have as well, and answers that repeat the marker of the answer."""
    prompts = [f"### Question:\n{thing}\n\n### Answer:\n" for thing in THINGS]
    long = "\n".join(f"### Answer:\nStep {number} of it." for number in range(60))
    report = truetune.score(["Yes.\n" + long] * 10, prompts, [STORE] * 10, stopped=[False] * 10)
    told = next(one for one in report.findings if one.rule == "answers-never-stop")
    assert told.remedy.startswith("first check that the prompt is the one of training")
    headed = [f"Summary: {thing}\nAnswer:" for thing in THINGS]
    long = "It is red.\nSummary: so it is.\n" + " ".join(f"word{number}" for number in range(300))
    references = ["It is red.\nSummary: so it is."] * 10
    report = truetune.score([long] * 10, headed, references, stopped=[False] * 10)
    assert "stop string" not in str(report)


AMOUNTS = [1234 * i + 1000 for i in range(1, 41)]


@pytest.mark.parametrize(
    ("spelled", "fires"),
    [
        ([f"{n:,}.00" for n in AMOUNTS[:10]], True),
        ([f"{n:,}" for n in AMOUNTS[:10]], True),
        ([f"${n}" for n in AMOUNTS[:10]], True),
        ([f"{n}.0" for n in AMOUNTS[:10]], True),
        ([f"{n + 1:,}.00" for n in AMOUNTS[:10]], False),
        ([str(n + 1) for n in AMOUNTS[:10]], False),
        ([f"room {n}" for n in AMOUNTS[:10]], False),
        ([f"{n:,}.00" for n in AMOUNTS[:5]] + [str(n) for n in AMOUNTS[5:10]], False),
        ([str(n) for n in AMOUNTS[:10]], False),
    ],
)
def test_numbers_of_another_spelling(spelled: list[str], fires: bool) -> None:
    exact = [str(n) for n in AMOUNTS[10:]]
    report = scored([str(n) for n in AMOUNTS], spelled + exact)
    said = [one.message for one in report.findings if one.rule == FORM]
    assert any("same number" in one for one in said) == fires


def test_answers_that_differ_from_all_references_are_not_called_free_of_faults() -> None:
    wishes = [f"List the orders of region {n} that are still open today" for n in range(12)]
    wanted = [f"<sql>select id from orders where region = {n}</sql>" for n in range(12)]
    written = [text.replace("<sql>", "<plan>") for text in wanted]
    shown = str(truetune.score(written, wishes, wanted))
    assert "which says nothing of whether they are right" in shown
    assert "no fault" not in shown
    assert "no sign of a fault" not in shown
    # The same answers as their references, and answers without any.
    assert "no sign of a fault" in str(truetune.score(wanted, wishes, wanted))
    assert "no sign of a fault" in str(truetune.score(written, wishes))
