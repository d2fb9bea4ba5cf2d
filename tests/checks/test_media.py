"""Rows with images, sound or video: what is said of lengths says that it leaves them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import parts
from truetune.checks.check_data import check
from truetune.checks.reports import DataReport
from truetune.data.conversation import Conversation, Origin
from truetune.data.count_media import Media, count_media
from truetune.demo import TOKENIZER
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_report
from truetune.report.report_terminal import report_as_text
from truetune.settings.run_spec import RunSpec

LENGTHS = (
    "truncation-cuts-the-terminator",
    "truncation-leaves-no-label",
    "rows-longer-than-default-max-length",
)


def chat(*contents: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user" if i % 2 == 0 else "assistant", "content": c}
        for i, c in enumerate(contents)
    ]


TEXT = {"type": "text", "text": "What is this?"}
ROWS: dict[str, tuple[dict[str, Any], Media]] = {
    "a part and its column": (
        {"messages": chat([{"type": "image"}, TEXT], "A lighthouse."), "images": ["a.png"]},
        Media(1, images=1),
    ),
    "a column alone": (
        {"messages": chat("<image><image>What?", "It is."), "images": ["a", "b"]},
        Media(1, images=2),
    ),
    "a path": ({"messages": chat("What?", "It is."), "image": "a.png"}, Media(1, images=1)),
    "a record of datasets": (
        {"messages": chat("What?", "It is."), "image": {"bytes": None, "path": "a.png"}},
        Media(1, images=1),
    ),
    "OpenAI's": (
        {"messages": chat([{"type": "image_url", "image_url": {"url": "data:,"}}, TEXT], "It is.")},
        Media(1, images=1),
    ),
    "sound and video": (
        {"messages": chat("What?", "It is."), "audios": ["a.wav"], "videos": ["b.mp4", "c.mp4"]},
        Media(1, sounds=1, videos=2),
    ),
    "an empty column": ({"messages": chat("What?", "It is."), "images": []}, Media()),
    "a null": ({"messages": chat("What?", "It is."), "image": None}, Media()),
    "an empty record": (
        {"messages": chat("What?", "It is."), "image": {"bytes": None, "path": None}},
        Media(),
    ),
    "text in parts": ({"messages": chat([TEXT], "It is.")}, Media()),
    "a marker in plain text": (
        {"messages": chat("What does <image> mean in HTML?", "Nothing.")},
        Media(),
    ),
}


def report(tmp_path: Path, rows: list[Any], **settings: Any) -> DataReport:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return check(RunSpec(data=(str(path),), tokenizer=str(TOKENIZER), **settings))


@pytest.mark.parametrize(("row", "media"), ROWS.values(), ids=ROWS)
def test_media_are_counted(row: dict[str, Any], media: Media, tmp_path: Path) -> None:
    found = report(tmp_path, [row], max_length=512)
    assert found.lengths.media == media
    judged = {part.rule for part in found.examined}
    unjudged = {part.what: part for part in found.not_judged}
    for rule in LENGTHS[:2]:
        assert (rule in judged) is not bool(media)
        if media:
            assert unjudged[rule].reason == f"the tokens of {media} are not counted"
            assert (
                unjudged[rule].unlock == "see what reaches the loss: truetune run -- YOUR COMMAND"
            )
    assert found.exit_code() == (3 if media else 0), "the user asked for this limit"


def test_it_is_said_wherever_lengths_are(tmp_path: Path) -> None:
    row, _ = ROWS["a column alone"]
    found = report(tmp_path, [row])
    says = "the tokens of 2 images are not counted"
    text = " ".join(report_as_text(found).split())
    assert f"; {says}" in text.partition("in 1 example")[2].partition("no findings")[0], (
        "in the first sentence"
    )
    assert f"longest {found.lengths.longest}; {says}" in text, "beside the lengths"
    assert report_as_dict(found)["lengths"]["media"] == {
        "rows": 1,
        "images": 2,
        "sounds": 0,
        "videos": 0,
        "says": says,
    }
    assert f"These are the tokens of the text: {says}." in html_page_of_report(found)
    assert report_as_dict(report(tmp_path, [{"text": "a"}]))["lengths"]["media"] is None


def test_an_example_that_is_too_long_without_its_image_is_found_all_the_same(
    tmp_path: Path,
) -> None:
    row = {"messages": chat("What?", "It is. " * 40), "images": ["a.png"]}
    found = report(tmp_path, [row], max_length=20)
    assert "truncation-cuts-the-terminator" in {finding.rule for finding in found.findings}


def test_of_nothing_set_lengths_are_left_open_and_the_rest_is_judged(tmp_path: Path) -> None:
    found = report(tmp_path, [ROWS["a column alone"][0]])
    (open_,) = (part for part in found.not_judged if part.what == LENGTHS[2])
    assert "2 images" in open_.reason
    assert (found.outcome, found.exit_code()) == ("no findings", 0)


def test_published_rows_with_images() -> None:
    file = parts.data("llamafactory/mllm_demo.json")
    rows = json.loads(file.read_text(encoding="utf-8"))
    found = check(RunSpec(data=(str(file),), tokenizer=str(TOKENIZER)))
    assert found.lengths.media == Media(len(rows), images=sum(len(row["images"]) for row in rows))


def test_a_row_from_no_file_has_none() -> None:
    assert count_media([Conversation(Origin("", 1, 0), "text", text="a")]) == Media()
