"""Labels that are looked for inside of answers, where one is a part of another."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

FAULTY = {
    "loop": 'LABELS = ["correct", "incorrect"]\ndef read(answer):\n    for label in LABELS:\n'
    "        if label in answer:\n            return label\n",
    "next": 'LABELS = ["correct", "incorrect"]\ndef read(answer):\n'
    "    return next((one for one in LABELS if one in answer.lower()), None)\n",
    "elif": 'def read(response):\n    if "male" in response:\n        return 0\n'
    '    elif "female" in response:\n        return 1\n',
    "returns": 'def read(output):\n    if "supported" in output:\n        return 1\n'
    '    if "unsupported" in output:\n        return 0\n',
    "counted": 'LABELS = ["correct", "incorrect"]\ndef count(answers, counts):\n    for answer in answers:\n'
    "        for label in LABELS:\n            if label in answer:\n                counts[label] += 1\n",
    "rows": 'ROWS = [{"gold": "supported", "pred": "supported"}, {"gold": "unsupported", "pred": "a"},\n'
    '    {"gold": "supported", "pred": "b"}, {"gold": "unsupported", "pred": "c"}]\n'
    'right = sum(row["gold"] in row["pred"] for row in ROWS)\n',
}
ROWS = FAULTY["rows"].partition("right =")[0]
CLEAN = "def clean(text):\n    return text.strip().lower().rstrip('.')\n"
LOOP = (
    "hits = 0\nfor row in ROWS:\n    gold = clean(row['gold'])\n    pred = clean(row['pred'])\n"
    "    ok = gold in pred\n    hits += ok\n"
)
FAULTY |= {
    "normalised": ROWS + CLEAN + LOOP,
    "normalised in place": ROWS
    + CLEAN
    + "right = [clean(row['gold']) in clean(row['pred']) for row in ROWS]\n",
    "translated": ROWS
    + "import string\ndef clean(text):\n    text = str(text).casefold()\n"
    + "    return text.translate({}).strip()\n"
    + LOOP,
    "in a function": ROWS
    + CLEAN
    + "def is_right(row):\n    label = clean(row['gold'])\n    return label in row['pred'].lower()\n",
}
HEALTHY = {
    "normalised, equal": ROWS + CLEAN + LOOP.replace("gold in pred", "gold == pred"),
    "normalised, words": ROWS + CLEAN + LOOP.replace("gold in pred", "gold in pred.split()"),
    "marked": ROWS + "def clean(text):\n    return f'<{text}>'.join(mark(text))\n" + LOOP,
    "longer first": FAULTY["elif"]
    .replace("female", "x")
    .replace('"male', '"female')
    .replace('"x', '"male'),
    "words": FAULTY["loop"].replace("in answer:", "in answer.split():"),
    "apart": FAULTY["loop"].replace("incorrect", "wrong"),
    # Which of them was found is not asked.
    "any": 'PHRASES = ["no", "now", "not"]\ndef is_refusal(text):\n'
    "    return any(phrase in text.lower() for phrase in PHRASES)\n",
    "loop that returns": 'PHRASES = ["no", "now", "not"]\ndef is_refusal(answer):\n'
    "    for phrase in PHRASES:\n        if phrase in answer:\n            return True\n    return False\n",
    "models": FAULTY["loop"].replace("answer", "model_name"),
    "rows apart": FAULTY["rows"].replace("unsupported", "refuted"),
}


def codes(text: str, folder: Path) -> set[str]:
    path = folder / "score.py"
    path.write_text(text)
    return {finding.code for finding in truetune.lint([str(path)], select=["SRC185"]).findings}


@pytest.mark.parametrize("form", FAULTY)
def test_a_label_inside_another(form: str, tmp_path: Path) -> None:
    assert codes(FAULTY[form], tmp_path) == {"SRC185"}


@pytest.mark.parametrize("form", HEALTHY)
def test_labels_that_are_told_apart(form: str, tmp_path: Path) -> None:
    assert codes(HEALTHY[form], tmp_path) == set()


LETTERS = """from openai import OpenAI
client = OpenAI()
def ask(row):
    return client.chat.completions.create(model="m", messages=[row], max_tokens=LIMIT).choices[0].message.content
def is_right(reply, letter):
    return TEST
hits = [is_right(ask(row), LETTER) for row in rows]
"""


@pytest.mark.parametrize(
    ("test", "letter", "limit", "found"),
    [
        ("letter in reply", '"ABCD"[row["answer"]]', 256, 1),
        ("letter in reply.strip()", 'chr(65 + row["answer"])', 256, 1),
        ("letter in reply", '["A", "B", "C", "D"][row["answer"]]', 256, 1),
        ("letter in reply", '"ABCD"[row["answer"]]', 1, 0),
        ("letter in reply[:1]", '"ABCD"[row["answer"]]', 256, 0),
        ("letter in set(re.findall(r'\\b[A-D]\\b', reply))", '"ABCD"[row["answer"]]', 256, 0),
        ("letter in reply.split()", '"ABCD"[row["answer"]]', 256, 0),
        ('f"({letter})" in reply', '"ABCD"[row["answer"]]', 256, 0),
        ("letter in reply", 'row["city"]', 256, 0),
        ("letter in reply", '["Paris", "Rome"][row["answer"]]', 256, 0),
    ],
)
def test_letters_that_are_looked_for_anywhere(
    test: str, letter: str, limit: int, found: int, tmp_path: Path
) -> None:
    text = LETTERS.replace("TEST", test).replace("LETTER", letter).replace("LIMIT", str(limit))
    (tmp_path / "score.py").write_text(text, encoding="utf-8")
    report = truetune.lint([tmp_path / "score.py"], select=["SRC185"], allow_unjudged=True)
    assert len(report.findings) == found


@pytest.mark.parametrize(("gold", "found"), [(("A", "B", "C", "D"), 1), (("red", "blue"), 0)])
def test_letters_of_a_file(gold: tuple[str, ...], found: int, tmp_path: Path) -> None:
    rows = [f'{{"gold": "{one}", "output": "The answer is {one}."}}\n' for one in gold * 3]
    (tmp_path / "answers.jsonl").write_text("".join(rows), encoding="utf-8")
    text = (
        "import json\nrows = [json.loads(line) for line in open('answers.jsonl')]\n"
        "print(sum(r['gold'] in r['output'] for r in rows) / len(rows))\n"
    )
    (tmp_path / "score.py").write_text(text, encoding="utf-8")
    report = truetune.lint([tmp_path / "score.py"], select=["SRC185"], allow_unjudged=True)
    assert len(report.findings) == found


ODD_KEYS = """ROWS = [
    {"prompt": [{"role": "user", "content": "3 + 3?"}], "answer": "6"},
    {"prompt": [{"role": "user", "content": "4 + 4?"}], "answer": "8"},
]
def correct(completions, answer, **kwargs):
    return [float(one[{}]["content"].strip() == gold) for one, gold in zip(completions, answer)]
"""


def test_a_key_that_can_be_no_key_ends_no_rule(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(ODD_KEYS, encoding="utf-8")
    report = truetune.lint([tmp_path / "reward.py"], select=["SRC185"], allow_unjudged=True)
    assert not any("fault of truetune" in str(one) for one in report.not_judged)
