"""Help on exchanged sides names the line that orders the answers; KTO's weights have the names of the stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.find_script_line_ranking_pairs import find_ranking_line
from truetune.settings.run_spec import RunSpec

BUILD = """import json
rows = [json.loads(line) for line in open("raw.jsonl")]
for row in rows:
    {line}
    out = {{"chosen": best["text"], "rejected": worst["text"]}}
open("pairs.jsonl", "w").write(json.dumps(out))
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "line",
    [
        'best = max(row["answers"], key=lambda a: a["rank"])',
        'row["answers"].sort(key=lambda a: a["rank"], reverse=True)',
        'best, worst = sorted(row["answers"], key=itemgetter("rank"))[::-1]',
        'best = frame.loc[frame["rank"].idxmax()]',
        'best, worst = (a, b) if a["rank"] > b["rank"] else (b, a)',
    ],
)
def test_the_line_that_orders_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, "build.py", BUILD.format(line=line))
    found = find_ranking_line(str(tmp_path / "pairs.jsonl"), "rank")
    assert found is not None
    assert found.place == "build.py:4"
    assert found.text == line


@pytest.mark.parametrize(
    "text",
    [
        BUILD.format(line="best, worst = row['answers']"),
        BUILD.format(line='best = max(row["answers"], key=lambda a: a["length"])'),
        BUILD.format(line='# best = max(row["answers"], key=lambda a: a["rank"])'),
        BUILD.format(line='best = max(a["rank"])').replace("pairs.jsonl", "other.jsonl"),
        'frame = open("pairs.jsonl")\nbest = max(frame["rank"])\n',
    ],
)
def test_other_scripts_name_no_line(tmp_path: Path, text: str) -> None:
    write(tmp_path, "build.py", text)
    assert find_ranking_line(str(tmp_path / "pairs.jsonl"), "rank") is None


def test_the_help_of_exchanged_sides(tmp_path: Path) -> None:
    line = 'best = max(row["answers"], key=lambda a: a["rank"])'
    write(tmp_path, "build.py", BUILD.format(line=line))
    rows = [
        {
            "prompt": f"Question {n}?",
            "chosen": f"a poor answer {n}.",
            "rejected": f"a good answer {n}.",
            "chosen_rank": 3,
            "rejected_rank": 1,
        }
        for n in range(20)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path = write(tmp_path, "data/pairs.jsonl", lines)
    findings = check_paths([str(path)], RunSpec()).findings
    (found,) = [one for one in findings if one.code == "PREF002"]
    assert "build.py:4" in str(found.remedy)
    assert "not what is trained" in str(found.remedy)


@pytest.mark.parametrize(
    ("trainer", "key"),
    [
        ("llama-factory", "kto_rejected_weight"),
        ("axolotl", "kto_undesirable_weight"),
        ("trl", " undesirable_weight"),
    ],
)
def test_weights_have_the_names_of_the_stack(tmp_path: Path, trainer: str, key: str) -> None:
    rows = [
        {"prompt": f"Question {n}?", "completion": f"Answer {n}.", "label": n % 20 > 0}
        for n in range(60)
    ]
    path = write(tmp_path, "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    spec = RunSpec.model_validate({"trained_by": trainer})
    (found,) = [one for one in check_paths([str(path)], spec).findings if one.code == "PREF010"]
    assert key in str(found.remedy)
