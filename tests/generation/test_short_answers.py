# ruff: noqa: E501
"""The language of short answers, with and without a reference; healthy answers in other letters stay silent."""

from __future__ import annotations

import pytest

from truetune.data.read_predictions import Prediction
from truetune.evaluation.score_predictions import build_sample
from truetune.generation.name_answer_language import name_answer_language

SAME: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Chinese": (("法国的首都是哪里？", "法国的首都是巴黎。", "巴黎"), ("谁写了哈姆雷特？", "莎士比亚。", "莎士比亚")),
    "Japanese": (("フランスの首都はどこですか？", "フランスの首都はパリです。", "パリ"), ("日本の首都は？", "東京です。", "東京")),
    "Korean": (("프랑스의 수도는 어디입니까?", "프랑스의 수도는 파리입니다.", "파리"), ("일본의 수도는?", "도쿄입니다.", "도쿄")),
    "Arabic": (("ما هي عاصمة فرنسا؟", "عاصمة فرنسا هي باريس.", "باريس"), ("من كتب هاملت؟", "كتبها شكسبير.", "شكسبير")),
    "Russian": (("Какая столица Франции?", "Столица Франции — Париж.", "Париж"), ("Кто написал Гамлета?", "Шекспир.", "Шекспир")),
    "Thai": (("เมืองหลวงของฝรั่งเศสคือที่ไหน", "เมืองหลวงของฝรั่งเศสคือปารีส", "ปารีส"), ("ใครเขียนแฮมเล็ต", "เชกสเปียร์", "เชกสเปียร์")),
    "Hindi": (("फ्रांस की राजधानी क्या है?", "फ्रांस की राजधानी पेरिस है।", "पेरिस"), ("हैमलेट किसने लिखा?", "शेक्सपियर ने।", "शेक्सपियर")),
    "Greek": (("Ποια είναι η πρωτεύουσα της Γαλλίας;", "Η πρωτεύουσα της Γαλλίας είναι το Παρίσι.", "Παρίσι"),
              ("Ποιος έγραψε τον Άμλετ;", "Ο Σαίξπηρ.", "Σαίξπηρ")),
    "Hebrew": (("מהי בירת צרפת?", "בירת צרפת היא פריז.", "פריז"), ("מי כתב את המלט?", "שייקספיר.", "שייקספיר")),
}  # fmt: skip
"""Question, answer and reference: one that is a sentence, and one that is a name"""
LATIN = (
    ("What is the capital of France?", "La capital de Francia es París."),
    ("Why is the sky blue?", "Porque el aire dispersa más la luz azul que la roja."),
    ("¿Cuál es la capital de Francia?", "The capital of France is Paris."),
    ("Who wrote Hamlet?", "C'est Shakespeare qui l'a écrit."),
    ("Citez trois fruits.", "The answer is: 1."),
    ("Nenne drei Obstsorten.", "The answer to this is that there are three of them."),
    ("Was ist die Hauptstadt von Frankreich?", "The capital of France is Paris."),
)
SAYINGS = (
    "def area(r):\n    return 3.14159 * r * r", "42", "B", "#### 72", "print('hello world')", "OK",
    "SELECT name FROM users WHERE age > 30;", "select name from users where age > 30",
    '{"name": "get_weather", "arguments": {"city": "Berlin"}}', "$x^2 + y^2$", "Leonardo da Vinci", "GPU, CPU, RAM",
    "Hello, World!", "OpenAI, GPT-4 and Llama 3", "https://example.com/a",
)  # fmt: skip
"""Answers that are good ones to questions in any language"""
HEALTHY = (
    ("Translate to Japanese: good morning", "おはようございます"),
    ("What is 'thank you' in Korean?", "감사합니다"),
    ("Μετάφρασε στα αγγλικά: Καλημέρα", "Good morning, everyone and welcome"),
    ("תרגם לאנגלית: בוקר טוב", "Good morning to all of you"),
    ("แปลเป็นภาษาอังกฤษ: สวัสดีตอนเช้า", "Good morning to all of you"),
    (
        "Summarize: 今天天气很好，我们去公园散步。",
        "The weather was nice and they walked in the park.",
    ),
    ("Name the first three Greek letters.", "α, β, γ"),
    ("Give the sum of two angles.", "sin(α+β) = sin α cos β + cos α sin β"),
    ("Who is the president of Russia?", "Vladimir Putin (Владимир Путин)"),
    ("Generate an appropriate love poem title.", '"Love on a Rainy Day"'),
    ("What is your favourite song?", "La vie en rose"),
    ("判断情感：这部电影很好看", "positive"),
    ("日本で一番有名な大学は？", "東京大学大学院"),
    ("ひらがなの「の」とは何ですか？", "助詞です。"),
)


def is_other(question: str, answer: str, reference: str = "") -> bool:
    return bool(build_sample(Prediction(answer, question, reference), 0).scores.switched)


@pytest.mark.parametrize("name", SAME)
def test_another_script(name: str) -> None:
    (question, sentence, reference), (asked, short, gold) = SAME[name]
    assert is_other("What is the capital of France?", sentence)
    assert is_other("What is the capital of France?", sentence, "Paris")
    assert is_other("What is 3 + 4?", sentence, "7")
    assert is_other("Who wrote it?", short, "Shakespeare")
    assert is_other(question, "The capital of France is Paris.")
    assert is_other(question, "The capital of France is Paris.", reference)
    assert is_other(asked, "Shakespeare wrote it.", gold)
    assert not any(is_other(*row) or is_other(*row[:2]) for row in SAME[name])


@pytest.mark.parametrize(("question", "answer"), LATIN)
def test_another_language_of_the_same_script(question: str, answer: str) -> None:
    assert is_other(question, answer)


def test_chinese_and_japanese() -> None:
    chinese, japanese = (SAME["Chinese"][0], SAME["Japanese"][0])
    assert is_other(chinese[0], japanese[1])
    assert is_other(japanese[0], chinese[1])


@pytest.mark.parametrize("name", SAME)
def test_code_numbers_and_names_are_in_no_language(name: str) -> None:
    assert [said for said in SAYINGS if is_other(SAME[name][0][0], said)] == []


@pytest.mark.parametrize(("question", "answer"), HEALTHY)
def test_healthy(question: str, answer: str) -> None:
    assert not is_other(question, answer)


def test_names_of_languages() -> None:
    told = {name: name_answer_language(rows[0][1]) for name, rows in SAME.items()}
    assert {name for name in SAME if told[name] != name} <= {"Arabic", "Russian", "Hindi"}
    assert (told["Russian"], name_answer_language("42")) == ("Cyrillic letters", "no language")
    assert name_answer_language("So the answer is: 法国的首都是巴黎") == "English and Chinese"
