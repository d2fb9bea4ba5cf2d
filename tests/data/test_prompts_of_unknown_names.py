"""Which columns of an unknown name are taken for the prompts of predictions."""

from __future__ import annotations

import pytest

from truetune.data.recognise_prediction_columns import recognise_prediction_columns

ANSWER = {"reference": "yes", "prediction": "no, it is not"}


def prompt_column(column: str, text: str, *, behind: bool = False) -> str | None:
    rows = []
    for number in range(12):
        own = {column: text.format(number)}
        rows.append({**ANSWER, **own} if behind else {**own, **ANSWER})
    return recognise_prediction_columns(rows, {}, "p.jsonl").get("prompt")


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("ticket", "Printer {} prints nothing at all"),
        ("email_body", "Dear team, order {} is late"),
        ("contract", "This agreement No. {} is made between A and B"),
        ("clinical_note", "Patient {} has had a fever since Monday"),
        ("utterance", "play song {} in the kitchen"),
    ],
)
def test_sentences_that_differ_are_prompts(column: str, text: str) -> None:
    expected = None if "note" in column else column
    assert prompt_column(column, text) == expected


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("sku", "A-{}"),
        ("customer", "Ann Smith {}"[:9]),
        ("batch", "the same text in every row"),
        ("judge_comment", "this answer {} is not right"),
        ("model_name", "my tuned model of day {}"),
        ("explanation", "it is wrong since row {} says so"),
    ],
)
def test_names_labels_and_judgements_are_none(column: str, text: str) -> None:
    assert prompt_column(column, text) is None


def test_what_stands_behind_the_prediction_is_none() -> None:
    assert prompt_column("ticket", "Printer {} prints nothing at all", behind=True) is None


def test_of_two_candidates_none_is_taken() -> None:
    rows = [
        {"subject": f"a printer of room {n}", "body": f"it prints nothing in room {n}", **ANSWER}
        for n in range(9)
    ]
    assert "prompt" not in recognise_prediction_columns(rows, {}, "p.jsonl")


SENTENCE = "First four and four are eight, then one more. So the answer is"
WHICH_IS_THE_ANSWER = {
    "a number beside a text": (
        [{"prompt": f"{n}?", "completion": f"{SENTENCE} {n}.", "answer": f"{n}"} for n in range(9)],
        "completion",
    ),
    "a question, and what ended the reply": (
        [
            {"question": f"{n}?", "answer": f"{n}", "completion": f"{n}", "finish_reason": "stop"}
            for n in range(9)
        ],
        "completion",
    ),
    "texts of one length": (
        [
            {"prompt": f"{n}?", "completion": f"{SENTENCE} {n}.", "answer": f"{SENTENCE} 0."}
            for n in range(9)
        ],
        "answer",
    ),
    "a text beside a value that is the reference": (
        [{"prompt": f"{n}?", "completion": f"{n}", "answer": f"{SENTENCE} {n}."} for n in range(9)],
        "answer",
    ),
    "a surer name": (
        [
            {"question": "?", "response": "8", "answer": SENTENCE, "finish_reason": "stop"}
            for _ in range(9)
        ],
        "response",
    ),
}


@pytest.mark.parametrize(("rows", "name"), WHICH_IS_THE_ANSWER.values(), ids=WHICH_IS_THE_ANSWER)
def test_which_of_completion_and_answer_the_model_wrote(
    rows: list[dict[str, str]], name: str
) -> None:
    assert recognise_prediction_columns(rows, {}, "preds.jsonl")["prediction"] == name
