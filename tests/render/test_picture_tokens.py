"""Tokens of pictures are those that transformers' own processors make.

`picture_token_counts.json` holds what the processors made of 298 sizes each (`python -m bench.picture_tokens --record`,
with torchvision and num2words installed); a part of the sizes is asked again of the processors that run without these.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.picture_tokens import (
    ALL,
    EDGES,
    RECORDED,
    Settings,
    compare,
    most_frequent,
    own_tokens,
    small_tokenizer,
)
from truetune.render.pictures.picture_expansion import PictureExpansion, PictureRefusedError, Piece
from truetune.render.pictures.picture_families import (
    PictureTokenizer,
    UnknownProcessor,
    load_picture_tokenizer,
)
from truetune.render.pictures.render_with_picture_tokens import Replacement, replace_in_rendering
from truetune.render.rendering import Rendering, Repeat, Source, Span, Turn

RECORDED_COUNTS: dict[str, list[list[int]]] = json.loads(RECORDED.read_text(encoding="utf-8"))
NEEDS_MORE_PACKAGES = ("PixtralProcessor", "Llama4Processor", "SmolVLMProcessor")
LIVE = [one for one in ALL if one.processor not in NEEDS_MORE_PACKAGES]
QWEN = {"processor_class": "Qwen2_5_VLProcessor", "patch_size": 14, "merge_size": 2}


@pytest.mark.parametrize("settings", ALL, ids=lambda one: one.model)
def test_counts_are_those_that_the_processors_made(settings: Settings) -> None:
    own, tokenizer = own_tokens(settings), small_tokenizer(settings)
    different = []
    for width, height, total, of_picture in RECORDED_COUNTS[settings.model]:
        try:
            expansion = own.expand(width, height)
        except PictureRefusedError:
            expansion = PictureExpansion(())
        ids = tokenizer.encode(expansion.written_out()).ids
        if (len(ids), most_frequent(ids)) != (total, of_picture):
            different.append((width, height, total, len(ids)))
    assert different == []
    assert len(RECORDED_COUNTS[settings.model]) > 290


def test_some_sizes_are_refused_and_some_are_not() -> None:
    counts = {model: sum(not row[2] for row in rows) for model, rows in RECORDED_COUNTS.items()}
    assert counts["Qwen2-VL"] > 0
    assert counts["LLaVA 1.5"] == 0


# 4 s of processor time: real pictures go through real processors.
@pytest.mark.parametrize("settings", LIVE, ids=lambda one: one.model)
def test_ids_are_those_of_the_processor_that_is_installed(settings: Settings) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("transformers")
    sizes = [size for size in EDGES if size[0] * size[1] < 300_000][::5]
    assert compare(settings, sizes, with_torchvision=False).different == []


def folder_with(folder: Path, preprocessor: Any = None, processor: Any = None) -> Path:
    for name, value in (("preprocessor_config", preprocessor), ("processor_config", processor)):
        if value is not None:
            (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def test_settings_of_both_releases_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "four").mkdir()
    (tmp_path / "five").mkdir()
    images = {"image_processor_type": "Qwen2VLImageProcessorFast", "max_pixels": 50176, **QWEN}
    four = load_picture_tokenizer(folder_with(tmp_path / "four", images), {})
    nested = {"processor_class": "Qwen2_5_VLProcessor", "image_processor": images}
    five = load_picture_tokenizer(folder_with(tmp_path / "five", None, nested), {})
    assert isinstance(four, PictureTokenizer)
    assert isinstance(five, PictureTokenizer)
    # 50,176 pixels are 64 squares of 28 x 28.
    assert four.expand(2000, 2000) == five.expand(2000, 2000)
    assert four.expand(2000, 2000).pieces == (Piece("<|image_pad|>", 64),)


@pytest.mark.parametrize(
    ("preprocessor", "processor", "says"),
    [
        (None, None, "no preprocessor_config.json"),
        ({"processor_class": "NanoProcessor"}, None, "does not know how a processor NanoProcessor"),
        ({}, None, "a processor without a name"),
        (
            {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "NanoProcessor"},
            None,
            "NanoProcessor",
        ),
        ({**QWEN, "patch_size": "14"}, None, "patch_size is '14'"),
        ({**QWEN, "patch_size": -1}, None, "patch_size is -1"),
        ({"processor_class": "LlavaProcessor", "crop_size": 336}, {}, "patch_size"),
        ({"processor_class": "LlavaNextProcessor", "size": 336}, {}, "image_grid_pinpoints"),
        ([], None, "expected a JSON object"),
    ],
)
def test_what_is_not_known_is_said(
    preprocessor: Any, processor: Any, says: str, tmp_path: Path
) -> None:
    found = load_picture_tokenizer(folder_with(tmp_path, preprocessor, processor), {})
    assert isinstance(found, UnknownProcessor)
    assert says in found.reason


def test_a_replaced_text_keeps_its_sources_spans_and_turns() -> None:
    text = "<u>I?<a>It is.<e>"
    rendering = Rendering(
        text=text,
        starts=[0, 3, 5, 8, 14, 17],
        sources=(Source.TEMPLATE, Source.USER, Source.TEMPLATE, Source.ASSISTANT, Source.STOP),
        places=(
            ("", -1),
            ("messages[0].content", 0),
            ("", -1),
            ("messages[1].content", 0),
            ("", -1),
        ),
        spans=[Span(8, 17, 1, 1.0)],
        turns=[Turn(1, 8, 14, 17, None), Turn(3, -1, -1, -1, "skew")],
    )
    picture = PictureExpansion.of([Piece("<s>"), Piece("<i>", 5), Piece("<z>")])
    found = replace_in_rendering(rendering, [Replacement(3, 4, picture)])
    assert found.text == "<u><s><i><z>?<a>It is.<e>"
    runs = [
        (found.text[run.start : run.end], run.source, run.path, run.offset)
        for run in found.runs_of_text_by_origin
    ]
    assert runs == [
        ("<u>", Source.TEMPLATE, "", -1),
        ("<s><i><z>", Source.IMAGE, "", -1),
        ("?", Source.USER, "messages[0].content", 1),
        ("<a>", Source.TEMPLATE, "", -1),
        ("It is.", Source.ASSISTANT, "messages[1].content", 0),
        ("<e>", Source.STOP, "", -1),
    ]
    assert [found.text[span.start : span.end] for span in found.spans] == ["It is.<e>"]
    assert found.turns == [Turn(1, 16, 22, 25, None), Turn(3, -1, -1, -1, "skew")]
    assert found.repeats == (Repeat(6, 5),)
