"""The search for signs itself: what it may leave out, and how long it takes on hostile and on long files."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetune.checks.explaining.guides import GUIDES
from truetune.troubleshooting.project_words import ProjectText
from truetune.troubleshooting.rank_causes import _causes_of_guide_and_if_listed
from truetune.troubleshooting.signs.find_signs_in_statements import (
    SIGNS,
    find_signs,
    signs_belonging_to_cause_text,
)
from truetune.troubleshooting.signs.literals_required_by_sign_patterns import (
    literals_of_which_one_is_required,
)
from truetune.troubleshooting.signs.sign_rarity import (
    COUNTS,
    UNCOUNTED_SHARE,
    count_key_of_sign,
    rarity_of_sign,
)
from truetune.troubleshooting.split_files_into_statements import (
    MAX_OF_A_SHAPE,
    MAX_STATEMENT_CHARACTERS,
    list_statements,
)

PATTERNS = sorted({pattern for sign in SIGNS for pattern in sign[1:] if pattern})
HOSTILE = (
    "a", "(", " ", "a=1, ", "labels ", "x['a']", "-100 ", "model.generate(", "'prompt': 'x', ", '{"a": "b"} ', "a.b.c(",
    "max_length = ", "lr: 1e-", '"--a", ', "[:, :-1] ", "dataset.map(lambda ", "/mnt/a/", "input_ids labels = [ids] ",
)  # fmt: skip


def statements_of(text: str, name: str = "a.py") -> list[str]:
    return [one.text for one in list_statements([ProjectText(Path(name), text, True)])]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("f(\n    a=1,  # why\n    b=2,\n)\n", "a.py", ["f(a=1, b=2,)"]),
        ('def f():\n    """Of it."""\n    return 1\n', "a.py", ["def f():", "return 1"]),
        ("x = 1\ny = (\n", "a.py", ["x = 1", "y = ("]),
        ("torchrun \\\n  --nproc 8 \\\n  a.py\n# no\n", "run.sh", ["torchrun --nproc 8 a.py"]),
        ("lr: 1e-5  # high\nepochs: 3\n", "a.yaml", ["lr: 1e-5", "epochs: 3"]),
        ("", "a.py", []),
    ],
)
def test_statements(text: str, name: str, expected: list[str]) -> None:
    assert statements_of(text, name) == expected


def test_records_of_a_log_are_read_some_times() -> None:
    records = "".join(f"{{'loss': {i}.5, 'lr': {i}e-5}}\n" for i in range(50))
    assert statements_of(f"start\n{records}end\n", "a.log")[:: MAX_OF_A_SHAPE + 1] == [
        "start",
        "end",
    ]


def test_a_line_of_a_statement_is_the_one_that_shows_the_sign() -> None:
    text = "args = TrainingArguments(\n    'out',\n    eval_steps=10,\n)\n"
    (lines,) = (
        lines
        for sign, lines in find_signs([ProjectText(Path("a.py"), text, True)]).items()
        if sign.words.startswith("^an evaluation, or saving")
    )
    assert [line.place for line in lines] == ["a.py:3"]


def test_each_pattern_is_quick_on_hostile_statements() -> None:
    """The slowest takes 6 ms of processor time; one that is quadratic takes more than a second."""
    texts = [(part * MAX_STATEMENT_CHARACTERS)[:MAX_STATEMENT_CHARACTERS] for part in HOSTILE]
    for pattern in PATTERNS:
        compiled = re.compile(pattern, re.MULTILINE)
        began = time.process_time()
        for text in texts:
            compiled.search(text)
        assert time.process_time() - began < 1, pattern


@given(st.text(alphabet="abelsor(=1:.'[]\n", max_size=60))
@pytest.mark.parametrize(
    "pattern",
    [r"\blabels?\s*=", r"(?i:LABELS|base)\(", r"a(?:bc|lo)+s", r"(?=.*sale)[a-z]", r"[ab]so|re"],
)
def test_a_match_holds_a_required_literal(pattern: str, text: str) -> None:
    literals = literals_of_which_one_is_required(pattern)
    if literals and re.search(pattern, text, re.MULTILINE):
        assert any(literal in text.lower() for literal in literals)


def test_the_signs_of_all_causes_are_told_quickly() -> None:
    """There are more patterns of words than `re` keeps compiled: by its cache alone it took 25 s."""
    texts = {
        cause.text for guide in GUIDES for cause, _ in _causes_of_guide_and_if_listed(guide.name)
    }
    began = time.process_time()
    for text in texts:
        signs_belonging_to_cause_text.__wrapped__(text)
    assert time.process_time() - began < 5


def test_most_patterns_require_a_literal() -> None:
    assert sum(
        bool(literals_of_which_one_is_required(pattern)) for pattern in PATTERNS
    ) > 0.9 * len(PATTERNS)


def test_signs_are_counted() -> None:
    """`python -m bench.sign_counts` after a change of the tables; a few new ones may wait for it."""
    counted = json.loads(COUNTS.read_text(encoding="utf-8"))["counts"]
    assert sum(count_key_of_sign(sign) in counted for sign in SIGNS) > 0.95 * len(SIGNS)


def test_rare_signs_say_more() -> None:
    rarities = {rarity_of_sign(sign) for sign in SIGNS}
    assert min(rarities) > 0
    assert max(rarities) > 2 * min(rarities)
    assert rarity_of_sign(SIGNS[0]._replace(shown_by="of no count")) == pytest.approx(
        rarity_of_sign(SIGNS[1]._replace(shown_by="nor this"))
    )
    assert 0 < UNCOUNTED_SHARE < 0.1
    assert count_key_of_sign(SIGNS[0]) == count_key_of_sign(SIGNS[0]._replace(words="others"))
