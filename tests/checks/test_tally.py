"""The figures beside the findings are those of a plain count, whatever the batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from truetune.checks.check_data import add_token_views, check
from truetune.checks.data_file_contents_by_stretch import MAX_GROUPS, MIN_STRETCHES, FileTimeline
from truetune.checks.data_stats import LEARNED_SHARE_BINS, DataStats
from truetune.checks.preference_pair_stats import PairStats, measure_common_beginnings_and_lengths
from truetune.checks.reports import DataReport
from truetune.data.conversation import Conversation, Origin
from truetune.demo import DATA, TOKENIZER
from truetune.encoding.batch import Batch, Example
from truetune.render.rendering import Rendering
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_json
from truetune.settings.read_truetune_settings import validate_settings

MASKS = st.lists(st.booleans(), max_size=12)
ROWS = st.lists(st.tuples(MASKS, st.sampled_from(("web", "books", None))), min_size=1, max_size=400)
IDS = st.lists(st.integers(0, 2), min_size=1, max_size=8)


def batch(masks: list[list[bool]], rows: list[Conversation], ids: list[int] | None = None) -> Batch:
    """One example a row."""
    flat = np.array([value for mask in masks for value in mask], dtype=np.bool_)
    numbers = np.arange(len(flat)) if ids is None else np.array(ids)
    return Batch(
        rows=rows,
        examples=[Example(row, Rendering("", [0], (), (), [], [])) for row in rows],
        rejected=[],
        ids=numbers.astype(np.int32),
        offsets=np.cumsum([0, *map(len, masks)], dtype=np.int64),
        source=np.zeros(len(flat), dtype=np.uint8),
        supervised=flat,
        starts=np.zeros(len(flat), dtype=np.int32),
    )


def checked(**settings: str) -> DataReport:
    return check(validate_settings(settings, "test"))


def conversations(groups: list[str | None], first: int = 0) -> list[Conversation]:
    return [
        Conversation(Origin("a.jsonl", i + 1, i), "text", text="x", group=g)
        for i, g in enumerate(groups, first)
    ]


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(1, 300))
def test_shares_and_order(drawn: list[tuple[list[bool], str | None]], size: int) -> None:
    masks, groups = [mask for mask, _ in drawn], [group for _, group in drawn]
    tally = DataStats(None)
    for at in range(0, len(masks), size):
        tally.add(batch(masks[at : at + size], conversations(groups[at : at + size], at)))
    lengths = tally.lengths()
    told = tally.report_data(lengths)
    parts = [
        LEARNED_SHARE_BINS * sum(mask) // len(mask)
        for mask in masks
        if sum(mask) and sum(mask) < len(mask)
    ]
    assert told["shares"]["counts"] == [parts.count(i) for i in range(LEARNED_SHARE_BINS)]
    assert told["shares"]["none"] == sum(not any(mask) for mask in masks)
    assert told["shares"]["all"] == sum(bool(mask) and all(mask) for mask in masks)
    for i, (low, high) in enumerate(zip(lengths.edges, lengths.edges[1:], strict=False)):
        mine = [mask for mask in masks if low <= len(mask) < high]
        assert told["shares"]["tokens"][i] == sum(map(len, mine))
        assert told["shares"]["supervised"][i] == sum(map(sum, mine))
    order = told["order"]
    each = order["each"]
    assert each == next(2**k for k in range(12) if len(masks) <= 2 * MIN_STRETCHES * 2**k)
    stretches = [drawn[at : at + each] for at in range(0, len(drawn), each)]
    assert order["rows"] == order["examples"] == list(map(len, stretches))
    assert order["tokens"] == [sum(len(mask) for mask, _ in stretch) for stretch in stretches]
    assert order["supervised"] == [sum(sum(mask) for mask, _ in stretch) for stretch in stretches]
    names = set(groups) - {None}
    assert order["by"] == ("source" if len(names) > 1 else None)
    if len(names) > 1:
        counted = {
            name: [sum(g == name for _, g in stretch) for stretch in stretches] for name in names
        }
        assert order["kinds"] == counted


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(IDS, IDS, st.integers(0, 3)), min_size=1, max_size=20))
def test_what_pairs_share(pairs: list[tuple[list[int], list[int], int]]) -> None:
    """`context` tokens stand before each answer."""
    rows = [
        Conversation(Origin("a", i, i), "preference", prompt="", completion="", rejected="")
        for i in range(len(pairs))
    ]
    sides = []
    for k in (0, 1):
        masks = [
            [False] * context + [True] * len(answer)
            for *both, context in pairs
            for answer in [both[k]]
        ]
        ids = [id for *both, context in pairs for id in [7] * context + both[k]]
        sides.append(batch(masks, rows, ids))
    chosen = Batch(**{**vars(sides[0]), "rejected_sides": sides[1]})
    assert chosen.pairs is not None
    common = [
        next((i for i, (a, b) in enumerate(zip(x, y, strict=False)) if a != b), min(len(x), len(y)))
        for x, y, _ in pairs
    ]
    assert measure_common_beginnings_and_lengths(chosen.pairs)[0].tolist() == common
    pairing = PairStats()
    pairing.add(chosen, chosen.count_true_per_example(chosen.supervised))
    told = pairing.report_data()["pairs"]
    assert told["longer"] == sum(len(x) > len(y) for x, y, _ in pairs)
    assert told["shorter"] == sum(len(x) < len(y) for x, y, _ in pairs)
    assert told["identical"] == sum(x == y for x, y, _ in pairs)
    assert (
        sum(told["shared"])
        == sum(told["chosen"]["counts"])
        == told["rejected"]["count"]
        == len(pairs)
    )
    assert told["shared"][-1] == sum(
        n == min(len(x), len(y)) for n, (x, y, _) in zip(common, pairs, strict=True)
    )


def test_a_column_of_many_values_does_not_group() -> None:
    along = FileTimeline()
    rows = conversations([f"https://{i}" for i in range(MAX_GROUPS + 1)])
    along.add(batch([[True]] * len(rows), rows), np.ones(len(rows), dtype=np.int64))
    assert along.report_data()["by"] is None
    assert sum(map(len, along.kinds.values())) == 2


def test_margins_and_labels(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    scores = [(3, 1), (1, 2), (2, 2), (9, 1)]
    pair = {"chosen": "Yes, it is.", "rejected": "No."}
    rows = [
        {"prompt": f"Question {i}?", **pair, "chosen_score": good, "rejected_score": bad}
        for i, (good, bad) in enumerate(scores)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    margins = checked(data=str(path), tokenizer=str(TOKENIZER)).data["pairs"]["margins"]
    assert (margins["count"], margins["negative"], margins["zero"], margins["median"]) == (
        4,
        1,
        1,
        1.0,
    )
    assert sum(margins["counts"]) == 4
    rows = [
        {
            "prompt": f"Question {i}?",
            "completion": "Yes, it is." if i % 3 else "No.",
            "label": i % 3 > 0,
        }
        for i in range(9)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = checked(data=str(path), tokenizer=str(TOKENIZER)).data
    assert (data["labels"]["true"]["count"], data["labels"]["false"]["count"]) == (6, 3)
    assert data["labels"]["true"]["median"] > data["labels"]["false"]["median"]
    assert data["order"]["by"] == "label"


def test_copies_and_leaks(tmp_path: Path) -> None:
    said = [
        "When does the museum open on a Sunday in winter?",
        "Where do I leave my bicycle during the concert?",
    ]
    rows = [{"text": said[i]} for i in (0, 1, 0, 0, 1)]
    path, held = tmp_path / "rows.jsonl", tmp_path / "eval.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    held.write_text(
        json.dumps(rows[0])
        + "\n"
        + json.dumps({"text": "Something else entirely, never seen."})
        + "\n"
    )
    data = checked(data=str(path), eval_data=str(held), tokenizer=str(TOKENIZER)).data
    assert data["copies"]["rows"] == {"exact": 3, "normal": 0, "near": 0}
    assert data["copies"]["groups"] == 2
    assert [[place["row"] for place in group["places"]] for group in data["copies"]["largest"]] == [
        [0, 2, 3],
        [1, 4],
    ]
    assert data["leaks"] == {
        "of": 2,
        "rows": {"exact": 1, "normal": 0, "conversation": 0, "prompt": 0, "near": 0},
    }


def test_views_are_the_first_rows_and_those_of_findings(tmp_path: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yes."}]
    }
    odd = {
        "messages": [
            {"role": "user", "content": "Hi <|im_end|>?"},
            {"role": "assistant", "content": "Yes."},
        ]
    }
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(odd if i in (30, 40) else row) + "\n" for i in range(50)))
    spec = validate_settings(
        {"data": str(path), "tokenizer": str(TOKENIZER), "select": "special-token-in-content"},
        "test",
    )
    assert [view.example.row.origin.row for view in check(spec).views] == [0, 30, 40]
    more = add_token_views(check(spec), 4)
    assert [view.example.row.origin.row for view in more.views] == [0, 1, 2, 3, 30, 40]
    assert "6 of 50 rows are shown" in html_page_of_json(report_as_dict(more))
    assert len(add_token_views(more).views) == 50
    path.unlink()
    assert add_token_views(more) == more


def test_the_demo_has_all_figures() -> None:
    data = checked(data=str(DATA), tokenizer=str(TOKENIZER)).data
    assert set(data) == {"shares", "order", "copies", "learned"}
