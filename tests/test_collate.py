"""Collators pad by place: every row comes out as it went in, whatever the pad id is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truetune.collate import PaddingCollator, PaddingFreeCollator, weighted_loss
from truetune.errors import DataError, TokenizerError, UsageError

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
Row = dict[str, Any]
ROW: Row = {"input_ids": [5, 6, 7, 2], "labels": [-100, -100, 7, 2]}
IDS = st.integers(0, 9)
WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, 2.0])


@st.composite
def documents(draw: st.DrawFn) -> Row:
    """A few ids, some of them supervised, the first too now and then."""
    pairs = draw(st.lists(st.tuples(IDS, st.booleans(), WEIGHTS), min_size=1, max_size=9))
    return {
        "input_ids": [id for id, _, _ in pairs],
        "labels": [id if learned else -100 for id, learned, _ in pairs],
        "loss_weights": [weight for _, _, weight in pairs],
    }


def pack(parts: list[Row]) -> Row:
    """Documents in one row, with both columns that tell them apart."""
    lengths = [len(part["input_ids"]) for part in parts]
    return {
        **{name: [value for part in parts for value in part[name]] for name in parts[0]},
        "position_ids": [place for length in lengths for place in range(length)],
        "seq_lengths": lengths,
        "file": ["a.jsonl"] * len(parts),
    }


BATCHES = st.lists(documents(), min_size=1, max_size=5)
PACKS = st.lists(st.lists(documents(), min_size=1, max_size=4).map(pack), min_size=1, max_size=4)
SIDES = st.sampled_from(["right", "left"])


def learnable(row: Row) -> list[int]:
    """The labels of a row; nothing stands before the first token of a document, from which it could be predicted."""
    starts = [0, *np.cumsum(row.get("seq_lengths", [])).tolist()]
    return [-100 if place in starts else label for place, label in enumerate(row["labels"])]


@settings(deadline=None)
@given(rows=BATCHES | PACKS, side=SIDES, multiple=st.sampled_from([None, 1, 4, 16]), pad=IDS)
def test_padding(rows: list[Row], side: Any, multiple: int | None, pad: int) -> None:
    batch = PaddingCollator(pad, side, multiple)(rows)
    packed = "seq_lengths" in rows[0]
    longest = max(len(row["input_ids"]) for row in rows)
    width = next(w for w in range(longest, longest + 17) if w % (multiple or 1) == 0)
    for i, row in enumerate(rows):
        length = len(row["input_ids"])

        def padded(values: list[Any], fill: float, pads: int = width - length) -> list[Any]:
            return values + [fill] * pads if side == "right" else [fill] * pads + values

        expected = {
            "input_ids": padded(row["input_ids"], pad),
            "labels": padded(learnable(row), -100),
            "loss_weights": padded(row["loss_weights"], 0),
        }
        if packed or side == "left":
            expected["position_ids"] = padded(row.get("position_ids", list(range(length))), 0)
        if not packed:
            expected["attention_mask"] = padded([1] * length, 0)
        got = {name: value[i].tolist() for name, value in batch.items() if name != "use_cache"}
        assert got == expected
    assert ("use_cache" in batch) == packed


@settings(deadline=None)
@given(rows=BATCHES | PACKS, side=SIDES, pads=st.tuples(IDS, IDS))
def test_the_pad_id_changes_no_label(rows: list[Row], side: Any, pads: tuple[int, int]) -> None:
    one, other = (PaddingCollator(pad, side)(rows) for pad in pads)
    for name in one.keys() - {"input_ids", "use_cache"}:
        assert torch.equal(one[name], other[name])


@settings(deadline=None)
@given(packs=st.lists(st.lists(documents(), min_size=1, max_size=4), min_size=1, max_size=4))
def test_flat_packed_rows_are_their_documents(packs: list[list[Row]]) -> None:
    flat = PaddingFreeCollator(varlen=True)
    packed, apart = (
        flat([pack(parts) for parts in packs]),
        flat([part for parts in packs for part in parts]),
    )
    _same(packed, apart)
    parts = [part for parts in packs for part in parts]
    assert packed["input_ids"].tolist() == [[id for part in parts for id in part["input_ids"]]]
    assert packed["labels"].tolist() == [[label for part in parts for label in learnable(part)]]
    assert packed["loss_weights"].tolist() == [
        [weight for part in parts for weight in part["loss_weights"]]
    ]
    borders = packed["cu_seq_lens_q"].tolist()
    lengths = [len(part["input_ids"]) for part in parts]
    assert borders == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert packed["max_length_k"] == max(lengths)
    for i, length in enumerate(lengths):
        assert packed["position_ids"][0, borders[i] : borders[i + 1]].tolist() == list(
            range(length)
        )
        assert packed["seq_idx"][0, borders[i] : borders[i + 1]].tolist() == [i] * length
    assert "attention_mask" not in packed
    assert packed["cu_seq_lens_k"].dtype == packed["seq_idx"].dtype == torch.int32


@settings(deadline=None)
@given(rows=PACKS, gone=st.sampled_from(["position_ids", "seq_lengths"]))
def test_either_column_tells_the_documents(rows: list[Row], gone: str) -> None:
    fewer = [{name: value for name, value in row.items() if name != gone} for row in rows]
    for collator in (PaddingCollator(0), PaddingFreeCollator(varlen=True)):
        _same(collator(rows), collator(fewer))


@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple])
def test_columns_of_any_kind(make: Any) -> None:
    rows = [{name: make(values) for name, values in row.items()} for row in (ROW, ROW)]
    before = [label for row in rows for label in row["labels"]]
    for collator in (PaddingCollator(0), PaddingFreeCollator()):
        _same(collator([ROW, ROW]), collator(rows))
    assert [label for row in rows for label in row["labels"]] == before


def _same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name])


def test_a_pad_that_is_the_stop_token() -> None:
    batch = PaddingCollator(2)([ROW, {"input_ids": [5, 2], "labels": [-100, 2]}])
    assert batch["input_ids"].tolist() == [[5, 6, 7, 2], [5, 2, 2, 2]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 2], [-100, 2, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": [7, 2]}, "a.jsonl:3 has 2 labels and 4 input_ids; expected as many"),
        (
            {"labels": None},
            "a.jsonl:3 has no labels; its columns are input_ids, labels, file, line",
        ),
        ({"loss_weights": [1.0]}, "a.jsonl:3 has 1 loss_weights and 4 input_ids"),
        ({"seq_lengths": [2, 3]}, "a.jsonl:3 has documents of 5 tokens in all, and 4 input_ids"),
        ({"seq_lengths": [4, 0]}, "a.jsonl:3 has documents of 4 tokens"),
        ({"position_ids": [0, 1]}, "a.jsonl:3 has 2 position_ids and 4 input_ids"),
        ({"position_ids": [4, 5, 0, 1]}, "a.jsonl:3 has"),
        (
            {"position_ids": [0, 1, 2, 3], "seq_lengths": [2, 2]},
            "a.jsonl:3 has position_ids that do not count up",
        ),
        ({"position_ids": [0, 2, 0, 1]}, "a.jsonl:3 has position_ids that do not count up from 0"),
        ({"input_ids": [], "labels": []}, "a.jsonl:3 holds no token"),
    ],
)
def test_a_row_whose_columns_disagree(changed: Row, message: str) -> None:
    row = ROW | {"file": "a.jsonl", "line": 3} | changed
    for collator in (PaddingCollator(0), PaddingFreeCollator()):
        with pytest.raises(DataError) as caught:
            collator([row])
        assert str(caught.value).startswith(message.split(":")[0])
        assert message in str(caught.value)


def test_a_row_without_a_file_is_counted() -> None:
    with pytest.raises(DataError, match="row 2 of the batch has no loss_weights"):
        PaddingCollator(0)([ROW | {"loss_weights": [1.0] * 4}, ROW])


def test_settings_that_make_no_sense() -> None:
    for wrong in (
        {"pad_id": -1},
        {"pad_id": 0, "side": "top"},
        {"pad_id": 0, "pad_to_multiple_of": 0},
    ):
        with pytest.raises(UsageError):
            PaddingCollator(**wrong)
    with pytest.raises(UsageError, match="no rows"):
        PaddingFreeCollator()([])


class Tokenizer:
    def __init__(self, pad: int | None, eos: int | None) -> None:
        self.pad_token_id, self.eos_token_id, self.padding_side = pad, eos, "left"


def test_the_pad_of_a_tokenizer() -> None:
    assert PaddingCollator.of(Tokenizer(0, 2)) == PaddingCollator(0)
    assert PaddingCollator.of(Tokenizer(None, 2), side="left") == PaddingCollator(2, "left")
    with pytest.raises(TokenizerError, match="neither"):
        PaddingCollator.of(Tokenizer(None, None))


@settings(deadline=None)
@given(rows=BATCHES, items=st.none() | st.integers(1, 20))
def test_weighted_loss(rows: list[Row], items: int | None) -> None:
    batch = PaddingCollator(0)(rows)
    logits = torch.randn(*batch["labels"].shape, 10, generator=torch.Generator().manual_seed(0))
    loss = weighted_loss(logits, batch["labels"], 10, items, batch["loss_weights"], extra=1)
    surprise = -logits.log_softmax(-1)
    terms = [
        surprise[i, t - 1, label].item() * rows[i]["loss_weights"][t]
        for i, row in enumerate(rows)
        for t, label in enumerate(row["labels"])
        if t and label != -100
    ]
    assert loss.item() == pytest.approx(sum(terms) / max(items or len(terms), 1), abs=1e-4)


def test_weighted_loss_needs_weights_and_whole_sequences() -> None:
    logits, labels = torch.zeros(1, 4, 10), torch.tensor([ROW["labels"]])
    with pytest.raises(UsageError, match="no loss_weights"):
        weighted_loss(logits, labels, 10)
    with pytest.raises(UsageError, match="shifts the labels itself"):
        weighted_loss(logits, labels, 10, loss_weights=torch.ones(1, 4), shift_labels=labels)


def test_importing_it_loads_no_torch() -> None:
    code = "import sys, truetune.collate; print('torch' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "False\n"
    )
