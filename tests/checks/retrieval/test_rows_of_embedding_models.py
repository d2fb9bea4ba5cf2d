"""Rows of embedding models and rerankers: which files are some, and what is found in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.check_paths import check_paths
from truetune.checks.inspect_retrieval_rows import RETRIEVAL_KIND
from truetune.checks.reports import Report
from truetune.data.retrieval_rows import Layout, layout_of_row, read_retrieval_rows
from truetune.settings.run_spec import RunSpec


def said(text: str) -> list[dict[str, str]]:
    """A text as a list of messages."""
    return [{"role": "user", "content": text}]


LAYOUTS: list[tuple[dict[str, Any], Layout | None]] = [
    ({"anchor": "a", "positive": "b", "negative": "c"}, "sentence-transformers"),
    ({"query": "a", "positive": "b", "negative_1": "c"}, "sentence-transformers"),
    ({"sentence1": "a", "sentence2": "b", "score": 0.5}, "sentence-transformers"),
    ({"premise": "a", "hypothesis": "b", "label": "2"}, "sentence-transformers"),
    ({"query": "a", "pos": ["b"], "neg": ["c"]}, "FlagEmbedding"),
    ({"query": "a", "positive_passages": [{"text": "b"}], "negative_passages": []}, "Tevatron"),
    ({"messages": said("a"), "positive_messages": [said("b")]}, "ms-swift"),
    # Columns that other trainings have, too.
    ({"question": "a", "answer": "b"}, None),
    ({"query": "a", "response": "b"}, None),
    ({"prompt": "a", "chosen": "b", "rejected": "c"}, None),
    ({"text": "a", "label": 1}, None),
    ({"sentence1": "a", "sentence2": "b"}, None),
    ({"messages": said("a")}, None),
]


@pytest.mark.parametrize(("row", "layout"), LAYOUTS)
def test_columns_tell_the_layout(row: dict[str, Any], layout: Layout | None) -> None:
    assert layout_of_row(row) == layout


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    """A file of rows."""
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def judged(*paths: str) -> Report:
    """What a check of paths says."""
    return check_paths(list(paths), RunSpec())


def found(report: Report) -> list[str]:
    """The rules on such rows that found something."""
    return [one.rule for one in report.findings if one.code.startswith("RET")]


@pytest.mark.parametrize(
    ("layout", "row"),
    [
        ("FlagEmbedding", {"query": "a?", "pos": ["b b", "c"], "neg": ["d"]}),
        (
            "Tevatron",
            {
                "query": "a?",
                "positive_passages": [{"text": "b b", "title": ""}, {"text": "c"}],
                "negative_passages": [{"text": "d"}],
            },
        ),
        (
            "ms-swift",
            {
                "messages": said("a?"),
                "positive_messages": [said("b b"), said("c")],
                "negative_messages": [said("d")],
            },
        ),
    ],
)
def test_each_layout_gives_the_same_row(
    layout: Layout, row: dict[str, Any], tmp_path: Path
) -> None:
    (made,) = read_retrieval_rows([write(tmp_path, "rows.jsonl", [row])], layout).rows
    assert (made.query, made.positives, made.negatives) == ("a?", ("b b", "c"), ("d",))


TOPICS = ["the pool", "the shop", "the station", "the library", "the museum", "the park"]
SOUND = [
    {
        "query": f"When does {topic} open?",
        "pos": [f"{topic} opens at {n + 6}."],
        "neg": [f"{topic} is large."],
    }
    for n, topic in enumerate(TOPICS)
]


def changed(number: int, **columns: Any) -> list[dict[str, Any]]:
    """The sound rows, with other columns in one of them."""
    return [{**row, **columns} if n == number else row for n, row in enumerate(SOUND)]


FAULTS = {
    "positive-is-also-a-negative": changed(2, neg=["x", "The Station  opens at 8."]),
    "query-is-its-own-positive": changed(1, pos=["when does the shop open?"]),
    "pair-labelled-both-ways": [*SOUND, {**SOUND[0], "pos": ["At six."], "neg": SOUND[0]["pos"]}],
    "role-prefix-on-part-of-the-texts": [
        {**row, "query": row["query"] if n == 3 else f"query: {row['query']}"}
        for n, row in enumerate(SOUND)
    ],
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_found_by_its_rule_alone(rule: str, tmp_path: Path) -> None:
    assert found(judged(write(tmp_path, "rows.jsonl", FAULTS[rule]))) == [rule]


FINE: dict[str, list[dict[str, Any]]] = {
    "sound": SOUND,
    "each text with itself": [{"anchor": topic, "positive": topic} for topic in TOPICS],
    "prefixes on both sides": [
        {
            "query": f"query: {row['query']}",
            "pos": [f"passage: {row['pos'][0]}"],
            "neg": ["passage: no"],
        }
        for row in SOUND
    ],
    "an instruction before queries": [
        {**row, "query": f"Instruct: find the answer\nQuery: {row['query']}"} for row in SOUND
    ],
    "one text that quotes a prefix": changed(1, pos=["query: is what E5 wants."]),
    "scores of one pair that are near": [
        {"sentence1": "the pool", "sentence2": "a place", "score": score} for score in (0.6, 1.0)
    ]
    + [{"sentence1": topic, "sentence2": "a house", "score": 0.0} for topic in TOPICS],
}


@pytest.mark.parametrize("name", FINE)
def test_sound_rows_have_no_finding(name: str, tmp_path: Path) -> None:
    report = judged(write(tmp_path, "rows.jsonl", FINE[name]))
    assert found(report) == []
    assert [one.kind for one in report.subjects] == [RETRIEVAL_KIND]


def test_a_prefix_on_one_side_of_a_model_of_two_is_found(tmp_path: Path) -> None:
    rows = [{**row, "query": f"query: {row['query']}"} for row in SOUND]
    (finding,) = judged(write(tmp_path, "rows.jsonl", rows)).findings
    assert finding.message.startswith(
        "the queries begin with 'query: ', and no one of 12 texts with 'passage: '"
    )


def test_the_held_out_file_of_a_folder_is_compared_with_the_rows(tmp_path: Path) -> None:
    write(tmp_path, "train.jsonl", SOUND)
    write(tmp_path, "test.jsonl", SOUND[:2])
    assert found(judged(str(tmp_path))) == ["held-out-pairs-are-trained"]
    write(tmp_path, "train.jsonl", SOUND[2:])
    assert found(judged(str(tmp_path))) == []


def test_chats_beside_such_rows_are_judged_as_chats(tmp_path: Path) -> None:
    chats = [{"messages": [*said("Is it open?"), {"role": "assistant", "content": "Yes."}]}]
    report = judged(write(tmp_path, "a.jsonl", SOUND), write(tmp_path, "b.jsonl", chats))
    assert len(report.subjects) == 2
    assert report.subjects[0].kind == RETRIEVAL_KIND


def test_a_line_without_a_query_is_not_judged_and_said(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.jsonl", [*SOUND, {"query": None, "pos": []}])
    report = judged(path)
    assert found(report) == []
    assert ("1 lines", f"{path}:7") in [(one.what, one.place) for one in report.not_judged]


def test_natural_language_inference_is_no_file_of_predictions(tmp_path: Path) -> None:
    rows = [
        "premise,hypothesis,label",
        *(f"{topic},it is open,{n % 3}" for n, topic in enumerate(TOPICS)),
    ]
    (tmp_path / "train.csv").write_text("\n".join(rows), encoding="utf-8")
    assert [one.kind for one in judged(str(tmp_path)).subjects] == [RETRIEVAL_KIND]
