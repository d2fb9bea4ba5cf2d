"""Patterns of one character that take a part of a word or number, and patterns or rows in which they do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.checks.source.pattern_takes_part_of_a_word import text_around

IN_WORDS = ["Answer: C", "Because of it, D", "C", "Answer: B", "After all, A", "D", "B"] * 3
ALONE = ["C", "(D) is right", "C.", "option B", "A", "D", "B"] * 3
MARKS = ["Score: 10", "Score: 7", "8/10", "It deserves 10 points", "6", "10", "9"] * 3
SMALL_MARKS = ["Score: 4", "5", "3/5", "2 of 5", "1", "4", "5"] * 3

READ = """import json, re
right = 0
for line in open("preds.jsonl"):
    row = json.loads(line)
    found = re.search(r"PATTERN", row["answer"])
    right += bool(found) and found.group() == row["gold"]
"""
COMPILED = """import json, re
LETTER = re.compile(r"PATTERN")
rows = [json.loads(line) for line in open("preds.jsonl")]
def pick(text):
    m = LETTER.search(text)
    return m.group(0) if m else None
print(sum(pick(r["answer"]) == r["gold"] for r in rows))
"""
VARIABLE = """import json, re
for line in open("preds.jsonl"):
    row = json.loads(line)
    out = row["answer"].strip()
    print(int(re.search(r"PATTERN", out).group(0)))
"""
WRITTEN = """import json, re
from judge import ask
with open("preds.jsonl", "w") as f:
    for row in map(json.loads, open("questions.jsonl")):
        reply = ask(row)
        f.write(json.dumps({"answer": reply, "gold": re.search(r"PATTERN", reply).group()}) + "\\n")
"""
MATCH = READ.replace("re.search", "re.fullmatch")


def messages(folder: Path, script: str, texts: list[str]) -> list[str]:
    """What the rule says of a script beside its rows."""
    rows = [json.dumps({"answer": one, "gold": "C"}) + "\n" for one in texts]
    (folder / "preds.jsonl").write_text("".join(rows), encoding="utf-8")
    (folder / "score.py").write_text(script, encoding="utf-8")
    report = lint([str(folder / "score.py")])
    return [one.message for one in report.findings if one.code == "SRC273"]


@pytest.mark.parametrize("script", [READ, COMPILED, VARIABLE, WRITTEN])
@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("[ABCD]", IN_WORDS),
        ("([A-D])", IN_WORDS),
        (r"\\d", MARKS),
        ("[0-9]", MARKS),
        (r"(\\d)", MARKS),
    ],
)
def test_a_part_is_taken(tmp_path: Path, script: str, pattern: str, texts: list[str]) -> None:
    script = script.replace("PATTERN", pattern.replace(r"\\d", r"\d"))
    assert len(messages(tmp_path, script, texts)) == 1


@pytest.mark.parametrize(
    ("script", "pattern", "texts"),
    [
        (READ, "[ABCD]", ALONE),
        (READ, r"\b[ABCD]\b", IN_WORDS),
        (READ, r"\d+", MARKS),
        (READ, r"\d", SMALL_MARKS),
        (READ, r"Answer: ([A-D])", IN_WORDS),
        (READ, "[ABCD]", [*ALONE, "Answer: B"]),
        (MATCH, "[ABCD]", IN_WORDS),
        (READ.replace("answer", "other"), "[ABCD]", IN_WORDS),
    ],
)
def test_a_whole_is_taken(tmp_path: Path, script: str, pattern: str, texts: list[str]) -> None:
    assert messages(tmp_path, script.replace("PATTERN", pattern), texts) == []


def test_the_excerpt_holds_the_word_that_is_taken() -> None:
    text = "Lithium calls for a check of the sodium intake and serum level. Answer: C"
    assert "Answer" in text_around(text, text.index("Answer"))
    assert text_around("A short one", 0) == "A short one"
