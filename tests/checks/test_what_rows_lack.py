"""Rows that lack the text, the form or the gold answer that they speak of, or repeat their own turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.parts import data

Row = dict[str, Any]
SYSTEM = {
    "role": "system",
    "content": "Reason between <think> and </think>, then use <answer> and </answer>.",
}
WORDS = (
    "harbour",
    "pilot",
    "crane",
    "anchor",
    "island",
    "lantern",
    "rudder",
    "ferry",
    "buoy",
    "keel",
    "mast",
    "net",
)


def _findings(folder: Path, rows: list[Row], code: str) -> list[Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [one for one in truetune.check(path).findings if one.code == code]


def _answer(word: str) -> str:
    return f"The {word} is shut on Mondays, and opens at nine on all other days."


def _chat(word: str, question: str, answer: str, *before: Row) -> Row:
    return {
        "messages": [
            *before,
            {"role": "user", "content": question.format(word=word)},
            {"role": "assistant", "content": answer},
        ]
    }


@pytest.mark.parametrize(
    "instruction",
    [
        "Summarize the following article about the {word}.",
        "Translate the text below on the {word} into French",
        "Correct this paragraph provided by the {word} office.",
        "Fasse den folgenden Bericht über {word} zusammen.",
        "请总结以下文章，主题是{word}。",
    ],
)
def test_instructions_without_their_text(instruction: str, tmp_path: Path) -> None:
    rows = [
        {"instruction": instruction.format(word=word), "input": "", "output": _answer(word)}
        for word in WORDS
    ]
    (found,) = _findings(tmp_path, rows, "ROW074")
    assert found.severity == "error"
    assert "`input` is empty in 12" in found.message


@pytest.mark.parametrize(
    "instruction",
    [
        "Summarize the following article: the {word} is shut today, and nobody says why.",
        "Translate the following sentence.\nThe {word} is shut.",
        "Is 'the {word} is shut today' a given sentence that is right?",
        "Write a text about the {word}.",
        "Analyze the given phrase in terms of its meaning.Wild {word} chase",
        "Correct the following sentence. The {word} are shut since a week.",
        "Given a list of {word}s, write a function that sorts them.",
        "What do I do with the following day?",
    ],
)
def test_instructions_with_their_text(instruction: str, tmp_path: Path) -> None:
    rows = [_chat(word, instruction, _answer(word)) for word in WORDS]
    assert not _findings(tmp_path, rows, "ROW074")


@pytest.mark.parametrize(
    "instruction",
    [
        "Summarize this article.\nhttps://news.example.com/{word}-shut",
        "Give me the key points of www.example.com/{word} please.",
        "Translate the document into French: {word}.pdf",
        "Article: https://example.com/{word}\nSummarize it in a sentence.",
        "What does the author say? Be brief.\n\nURL: <https://example.com/{word}?id=3>",
        "Fasse den Artikel zusammen: https://example.de/{word}",
        "R\u00e9sume cette page : https://example.fr/{word}",
        "\u8bf7\u603b\u7ed3\uff1ahttps://example.cn/{word}",
    ],
)
def test_a_link_in_place_of_the_text(instruction: str, tmp_path: Path) -> None:
    rows = [_chat(word, instruction, _answer(word)) for word in WORDS]
    (found,) = _findings(tmp_path, rows, "ROW074")
    assert "12 give only a link" in found.message
    assert "where the link is" in found.remedy


@pytest.mark.parametrize(
    ("instruction", "answer"),
    [
        (
            "Shorten this URL of an article: https://example.com/{word}",
            "It is long, so cut all of it.",
        ),
        (
            "How do I cite this page? https://example.com/{word}",
            "Give the author, the year and the title first.",
        ),
        (
            "Why is the {word} shut? https://example.com/{word}",
            "It is shut since nobody is there on Mondays.",
        ),
        (
            "Summarize this article. https://example.com/{word}",
            "I can't open links; please paste the text of it here.",
        ),
        ("Which section is this article from? https://example.com/{word}/x", "News"),
        (
            "Summarize this article.\nThe {word} is shut today, and nobody says why it is.\nSource: https://example.com",
            "It is shut today, and nobody knows the reason.",
        ),
        (
            "Write a script that downloads this page: https://example.com/{word}",
            "Use curl with the option -o and a name.",
        ),
    ],
)
def test_a_link_that_is_enough(instruction: str, answer: str, tmp_path: Path) -> None:
    rows = [_chat(word, instruction, f"{answer}") for word in WORDS]
    assert not _findings(tmp_path, rows, "ROW074")


def test_a_text_in_an_earlier_turn_or_a_picture(tmp_path: Path) -> None:
    first = (
        {"role": "user", "content": "The boat left."},
        {"role": "assistant", "content": "I see."},
    )
    rows = [_chat(word, "Summarize the text above.", _answer(word), *first) for word in WORDS]
    picture = {
        "role": "user",
        "content": [{"type": "image"}, {"type": "text", "text": "Read the following text."}],
    }
    rows += [
        {"messages": [picture, {"role": "assistant", "content": _answer(word)}]} for word in WORDS
    ]
    assert not _findings(tmp_path, rows, "ROW074")


def test_answers_without_the_tags_asked_for(tmp_path: Path) -> None:
    rows = [_chat(word, "Is the {word} open?", _answer(word), SYSTEM) for word in WORDS]
    (found,) = _findings(tmp_path, rows, "ROW075")
    assert "<answer>" in found.message
    assert found.count == 12


@pytest.mark.parametrize(
    "answer",
    ["<think>It is {}.</think><answer>No</answer>", "It is {}.</think>\n<answer>No</answer>"],
)
def test_answers_with_the_tags_asked_for(answer: str, tmp_path: Path) -> None:
    rows = [_chat(word, "Is the {word} open?", answer.format(word), SYSTEM) for word in WORDS]
    assert not _findings(tmp_path, rows, "ROW075")


@pytest.mark.parametrize(
    "question",
    [
        f"Use the context.\n<context>\n{'The {word} is old. ' * 8}</context>\nIs it open?",
        "<question>Is the {word} open?</question>",
        f"Call what is in <tools></tools>: <tools>{'[get_{word}, close_{word}] ' * 6}</tools>",
    ],
)
def test_tags_around_texts_of_the_prompt_ask_for_nothing(question: str, tmp_path: Path) -> None:
    rows = [_chat(word, question.replace("{word}", word), _answer(word)) for word in WORDS]
    assert not _findings(tmp_path, rows, "ROW075")


@pytest.mark.parametrize(
    "instruction",
    [
        "<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>",
        "Write <answer> your answer here </answer>.",
        "Put reasoning in <think> </think> tags and the result in <answer> </answer> tags.",
    ],
)
def test_a_form_that_is_shown_is_asked_for(instruction: str, tmp_path: Path) -> None:
    system = {"role": "system", "content": instruction}
    rows = [_chat(word, "Is the {word} open?", _answer(word), system) for word in WORDS]
    assert len(_findings(tmp_path, rows, "ROW075")) == 1


def test_reasoning_in_a_field_of_its_own(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Reason between <think> and </think>."}
    rows = [_chat(word, "Is the {word} open?", _answer(word), system) for word in WORDS]
    for row in rows:
        row["messages"][-1]["reasoning_content"] = "It is Monday."
    assert not _findings(tmp_path, rows, "ROW075")


def _for_sampling() -> list[Row]:
    """Prompts with gold answers, as trainers take them that sample their answers."""
    return [
        {
            "prompt": [SYSTEM, {"role": "user", "content": f"Is the {word} open?"}],
            "answer": f"no, the {word} is shut",
        }
        for word in WORDS
    ]


def test_gold_answers_need_no_tags(tmp_path: Path) -> None:
    assert not _findings(tmp_path, _for_sampling(), "ROW075")


def test_a_training_that_samples_its_answers_learns_none_of_the_rows(tmp_path: Path) -> None:
    rows = _for_sampling()
    for row in rows:
        row["completion"] = row.pop("answer")
    assert _findings(tmp_path, rows, "ROW075")
    (tmp_path / "grpo.yaml").write_text(
        "# trl grpo --config grpo.yaml\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\ndatasets:\n"
        "  - path: json\n    data_files: rows.jsonl\nnum_generations: 8\n",
        encoding="utf-8",
    )
    assert not [one for one in truetune.check(tmp_path).findings if one.code == "ROW075"]


def _golds(**columns: Any) -> list[Row]:
    return [
        {"prompt": f"How many {word}s are {n} and {n}?", **{k: v(n) for k, v in columns.items()}}
        for n, word in enumerate(WORDS)
    ]


def test_gold_answers_that_are_empty(tmp_path: Path) -> None:
    rows = _golds(answer=lambda n: str(2 * n), solution=lambda n: "" if n % 4 else str(2 * n))
    (found,) = _findings(tmp_path, rows, "ROW076")
    assert "`solution` is empty in 9 of 12" in found.message


def test_a_column_that_is_left_over_is_no_finding(tmp_path: Path) -> None:
    rows = _golds(answer=lambda n: str(2 * n), solution=lambda _: "")
    assert not _findings(tmp_path, rows, "ROW076")


def test_gold_answers_that_contradict(tmp_path: Path) -> None:
    rows = _golds(answer=lambda n: str(2 * n)) + _golds(answer=lambda n: str(2 * n + 1))
    (found,) = _findings(tmp_path, rows, "ROW076")
    assert "12 of 24" in found.message
    rows = _golds(answer=lambda n: str(2 * n)) * 2
    assert not _findings(tmp_path, rows, "ROW076")


@pytest.mark.parametrize("column", ["image", "context"])
def test_one_question_about_many_pictures_or_texts(column: str, tmp_path: Path) -> None:
    rows = [
        {"prompt": "Find x.", column: f"about the {word}", "answer": str(n)}
        for n, word in enumerate(WORDS)
    ]
    assert not _findings(tmp_path, rows, "ROW076")
    same = [{**row, column: "about the harbour"} for row in rows]
    assert len(_findings(tmp_path, same, "ROW076")) == 1


@pytest.mark.parametrize(
    "word", ["proof", "notfound", "Not found", "see solution", "TODO", "[N/A]", "no_answer"]
)
def test_gold_answers_that_are_a_word_for_none(word: str, tmp_path: Path) -> None:
    rows = _golds(answer=lambda n: str(2 * n) if n % 3 else word)
    (found,) = _findings(tmp_path, rows, "ROW076")
    assert "4 of 12 prompts have a word for no answer" in found.message


@pytest.mark.parametrize(
    "word", ["no solution", "None", "nan", "undefined", "infinity", "the proof is short", "no", "x"]
)
def test_words_that_may_be_an_answer(word: str, tmp_path: Path) -> None:
    rows = _golds(answer=lambda n: str(2 * n) if n % 3 else word)
    assert not _findings(tmp_path, rows, "ROW076")


def test_words_for_no_answer_that_are_asked_for_or_stand_among_words(tmp_path: Path) -> None:
    rows = _golds(answer=lambda n: str(2 * n) if n % 3 else "not found")
    for row in rows:
        row["prompt"] += " Say `not found` where there are none."
    assert not _findings(tmp_path, rows, "ROW076")
    rows = _golds(answer=lambda n: WORDS[n] if n % 3 else "missing")
    assert not _findings(tmp_path, rows, "ROW076")


def test_gold_answers_in_two_forms(tmp_path: Path) -> None:
    rows = _golds(answer=lambda n: f"Add {n} and {n}.\n#### {2 * n}" if n % 2 else str(2 * n))
    (found,) = _findings(tmp_path, rows, "ROW076")
    assert "6 of 12 gold answers" in found.message


def test_prompts_that_end_with_the_gold_answer(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": [
                {"role": "user", "content": f"{n} and {n}?"},
                {"role": "assistant", "content": f"It is {2 * n}."},
            ],
            "answer": str(2 * n),
        }
        for n in range(12)
    ]
    (found,) = _findings(tmp_path, rows, "ROW076")
    assert "end with an assistant turn" in found.message


def _two_turns(word: str, second_question: str, second_answer: str) -> Row:
    first = (
        {"role": "user", "content": f"Where is the {word}?"},
        {"role": "assistant", "content": _answer(word)},
    )
    return _chat(word, second_question, second_answer, *first)


def test_one_answer_in_all_turns(tmp_path: Path) -> None:
    rows = [_two_turns(word, "And what does the {word} cost?", _answer(word)) for word in WORDS]
    (found,) = _findings(tmp_path, rows, "ROW077")
    assert "the same text" in found.message


def test_stock_answers_may_come_again_in_a_chat(tmp_path: Path) -> None:
    refusal = "I am sorry, but I can not help with that."
    rows = [_two_turns(word, "Why is the {word} shut?", refusal) for word in WORDS]
    for row in rows:
        row["messages"][1]["content"] = refusal
    assert not _findings(tmp_path, rows, "ROW077")


def test_questions_that_hold_the_history(tmp_path: Path) -> None:
    rows = [
        _two_turns(
            word, f"User: Where is the {word}?\nAssistant: {_answer(word)}\nWhy?", "It is Monday."
        )
        for word in WORDS
    ]
    (found,) = _findings(tmp_path, rows, "ROW077")
    assert "contains the turns" in found.message


def test_turns_that_differ(tmp_path: Path) -> None:
    rows = [
        _two_turns(word, "Why is the {word} shut?", f"The {word} needs paint.") for word in WORDS
    ]
    rows.append(_two_turns("harbour", "And the harbour?", _answer("harbour")))
    assert not _findings(tmp_path, rows, "ROW077")


@pytest.mark.parametrize(
    ("turned", "column"), [(True, "rating"), (False, "rating"), (True, "score"), (False, "rank")]
)
def test_labels_of_kto_against_a_score(turned: bool, column: str, tmp_path: Path) -> None:
    better, worse = (1, 5) if column == "rank" else (5, 1)
    rows = [
        {
            "prompt": f"Is the {word} open?",
            "completion": _answer(word) if is_good else "No idea.",
            "label": is_good is not turned,
            column: (better if is_good else worse) + n % 2,
        }
        for n, word in enumerate(WORDS)
        for is_good in (True, False)
    ]
    assert len(_findings(tmp_path, rows, "PREF030")) == turned


def test_negative_scores_keep_their_sign(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"Is the {word} open?", "completion": text, "label": label, "reward": reward}
        for word in WORDS
        for text, label, reward in ((_answer(word), False, -1.5), ("No idea.", True, -4.5))
    ]
    (found,) = _findings(tmp_path, rows, "PREF030")
    assert "mean -4.5 with true, -1.5 with false" in found.message


@pytest.mark.parametrize(
    "name",
    [
        "alpaca_en_demo.json",
        "alpaca_zh_demo.json",
        "glaive_toolcall_en_demo.json",
        "kto_en_demo.json",
    ],
)
def test_published_rows_have_no_finding(name: str) -> None:
    codes = {one.code for one in truetune.check(data(f"llamafactory/{name}")).findings}
    assert codes.isdisjoint({"ROW074", "ROW075", "ROW076", "ROW077", "PREF030"})
