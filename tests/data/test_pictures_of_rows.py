"""The pictures of rows in the forms of LLaVA, LLaMA-Factory, ms-swift, TRL, OpenAI and `datasets`, and where their
files are looked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.pictures import chat, data_url, grey_png, write_rows
from truetune.data.conversation import Conversation, Origin
from truetune.data.media_of_row import count_placeholders, find_media_of_row, texts_of_row
from truetune.data.read_pictures_of_rows import PictureReader
from truetune.data.read_rows_as_conversations import read_conversations

PICTURE = grey_png(6, 4)
FORMS: dict[str, dict[str, Any]] = {
    "LLaVA": {
        "image": "a.png",
        "conversations": [
            {"from": "human", "value": "<image>\nWhat?"},
            {"from": "gpt", "value": "Grey."},
        ],
    },
    "LLaMA-Factory": {"messages": chat("<image>What?", "Grey."), "images": ["a.png"]},
    "TRL": {
        "messages": chat([{"type": "image"}, {"type": "text", "text": "What?"}], "Grey."),
        "images": ["a.png"],
    },
    "Qwen": {
        "messages": chat(
            [{"type": "image", "image": "a.png"}, {"type": "text", "text": "?"}], "Grey."
        )
    },
    "OpenAI": {
        "messages": chat([{"type": "image_url", "image_url": {"url": data_url(PICTURE)}}], "Grey.")
    },
    "datasets": {"messages": chat("What?", "Grey."), "image": {"bytes": None, "path": "a.png"}},
    "base64": {
        "messages": chat("What?", "Grey."),
        "images": [data_url(grey_png(6, 4))[22:] + "=" * 40],
    },
    "file://": {"messages": chat("What?", "Grey."), "images": ["file://{folder}/a.png"]},
}


def rows_in(folder: Path, *rows: dict[str, Any], name: str = "data.jsonl") -> list[Conversation]:
    return list(read_conversations([str(write_rows(folder / name, rows))]))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_gives_its_picture(form: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PICTURE)
    if "images" in form:
        form = {**form, "images": [form["images"][0].replace("{folder}", str(tmp_path))]}
    (row,) = rows_in(tmp_path, form)
    (picture,) = PictureReader().pictures_of_row(row).pictures
    assert picture.header is not None
    assert (picture.state, picture.header.shown_size, picture.problem) == ("read", (6, 4), "")


def test_bytes_of_a_table() -> None:
    raw = {"image": {"bytes": PICTURE, "path": "a.png"}, "text": "Grey."}
    row = Conversation(Origin("a.parquet", 1, 0), "text", text="Grey.", raw=raw)
    (picture,) = PictureReader().pictures_of_row(row).pictures
    assert (picture.state, picture.is_in_row) == ("read", True)


def test_a_part_without_a_source_takes_the_next_of_the_column() -> None:
    content = [
        {"type": "image"},
        {"type": "image", "url": "b.png"},
        {"type": "image", "text": None},
    ]
    raw = {"images": ["a.png", "c.png"]}
    row = Conversation(Origin("", 1, 0), "messages", chat(content, "x"), raw=raw)
    ordered = find_media_of_row(row).in_order("image")
    assert [reference.value for reference in ordered] == ["a.png", "b.png", "c.png"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<image><image>\nHow do they differ?", 2),
        ("<|vision_start|><|image_pad|><|image_pad|><|vision_end|>and <|image_pad|>", 2),
        ("[IMG][IMG][IMG_BREAK][IMG][IMG_END]", 1),
        ("<start_of_image> <|image|> <|image_1|>", 3),
        ("an [IMAGE] of <img src='a.png'>", 0),
    ],
)
def test_marks_in_texts(text: str, count: int) -> None:
    row = Conversation(Origin("", 1, 0), "messages", chat(text, "It is."))
    assert count_placeholders(texts_of_row(row), "image") == count


def test_files_are_looked_for_where_stacks_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("data", "media", "work"):
        (tmp_path / name).mkdir()
    for path in ("data/beside.png", "above.png", "media/named.png", "work/here.png"):
        (tmp_path / path).write_bytes(PICTURE)
    monkeypatch.chdir(tmp_path / "work")
    names = ["beside.png", "above.png", "named.png", "here.png", "nowhere.png"]
    (row,) = rows_in(tmp_path / "data", {"messages": chat("?", "!"), "images": names})
    states = [p.state for p in PictureReader(str(tmp_path / "media")).pictures_of_row(row).pictures]
    assert states == ["read"] * 4 + ["missing"]


def test_nothing_is_fetched_and_nothing_hangs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    names = ["https://example.org/a.png", "s3://a/b.png", "pipe.png", "a\0b", "x" * 5000, "."]
    (row,) = rows_in(tmp_path, {"messages": chat("?", "!"), "images": names})
    states = [p.state for p in PictureReader().pictures_of_row(row).pictures]
    assert states == ["remote", "remote", *["missing"] * 4]


def test_a_file_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PICTURE)
    rows = rows_in(tmp_path, *[{"messages": chat("?", "!"), "images": ["a.png"]}] * 2)
    reader = PictureReader()
    first = reader.pictures_of_rows(rows)
    (tmp_path / "a.png").unlink()
    assert reader.pictures_of_rows(rows) is first
    assert reader.pictures_of_rows(list(rows))[1].pictures[0].state == "read"
