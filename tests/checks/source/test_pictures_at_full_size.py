"""Processors without a limit of pixels, and pictures whose sizes rows, files or printed shapes tell."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.logs.console.picture_tokens_by_printed_shapes import PictureShapeReader
from truetune.settings.run_spec import RunSpec

CODE = "SRC356"
SCRIPT = """from datasets import load_dataset
from transformers import AutoModelForImageTextToText, AutoProcessor, Trainer

MODEL = "{model}"
processor = AutoProcessor.from_pretrained(MODEL{limit})
model = AutoModelForImageTextToText.from_pretrained(MODEL)
rows = load_dataset("json", data_files="rows.jsonl", split="train")


def collate(batch):
    images = [open_image(row["image"]) for row in batch]
    return processor(text=[row["answer"] for row in batch], images=images, return_tensors="pt", padding=True)


{more}
Trainer(model=model, train_dataset=rows, data_collator=collate).train()
"""
QWEN = "Qwen/Qwen2.5-VL-7B-Instruct"


def fires(
    folder: Path, rows: list[dict[str, object]], model: str = QWEN, limit: str = "", more: str = ""
) -> list[str]:
    """The messages of the rule."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    script = SCRIPT.replace("{model}", model).replace("{limit}", limit).replace("{more}", more)
    (folder / "train.py").write_text(script, encoding="utf-8")
    report = check_paths([str(folder / "train.py")], RunSpec())
    return [one.message for one in report.findings if one.code == CODE]


def sized(width: int, height: int) -> list[dict[str, object]]:
    """Rows that say the size of their picture."""
    return [
        {"image": f"{n}.jpg", "width": width, "height": height, "answer": "12.50"} for n in range(8)
    ]


@pytest.mark.parametrize(
    ("model", "width", "height", "tokens"),
    [
        (QWEN, 3024, 4032, "15,552"),
        ("Qwen/Qwen2-VL-2B-Instruct", 4032, 3024, "15,552"),
        ("Qwen/Qwen3-VL-8B-Instruct", 3024, 4032, "11,844"),
        ("unsloth/Qwen2.5-VL-7B-Instruct-bnb-4bit", 2480, 3508, "11,125"),
        ("ByteDance-Seed/UI-TARS-1.5-7B", 9000, 9000, "16,384"),
    ],
)
def test_sizes_in_columns(tmp_path: Path, model: str, width: int, height: int, tokens: str) -> None:
    found = fires(tmp_path, sized(width, height), model)
    assert len(found) == 1
    assert f"{tokens} tokens each" in found[0]


def png(path: Path, width: int, height: int) -> None:
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0"
    )


def jpeg(path: Path, width: int, height: int) -> None:
    preview = b"\xff\xe1" + struct.pack(">H", 2 + 900) + b"e" * 900
    frame = b"\xff\xc0" + struct.pack(">HBHH", 17, 8, height, width) + b"\x03" * 10
    path.write_bytes(b"\xff\xd8" + preview + frame)


def test_sizes_of_files(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for n in range(4):
        png(tmp_path / f"{n}.png", 3000, 4000)
        jpeg(tmp_path / f"{n}.jpg", 3000, 4000)
        rows += [{"images": [f"{n}.png"], "answer": "a"}, {"image": f"{n}.jpg", "answer": "b"}]
    (found,) = fires(tmp_path, rows)
    assert "3,000 x 4,000 pixels" in found


@pytest.mark.parametrize(
    ("model", "limit", "more", "size"),
    [
        (QWEN, ", max_pixels=1280 * 28 * 28", "", (3024, 4032)),
        (QWEN, "", "processor.image_processor.max_pixels = 1003520", (3024, 4032)),
        (QWEN, "", "def smaller(image):\n    image.thumbnail((1024, 1024))\n", (3024, 4032)),
        (QWEN, "", "def smaller(image):\n    return image.resize((640, 640))\n", (3024, 4032)),
        (QWEN, ", **settings", "", (3024, 4032)),
        (QWEN, "", "", (1024, 1024)),
        ("llava-hf/llava-1.5-7b-hf", "", "", (3024, 4032)),
        ("google/gemma-3-4b-it", "", "", (3024, 4032)),
        ("Qwen/Qwen2.5-7B-Instruct", "", "", (3024, 4032)),
    ],
)
def test_near_misses(
    tmp_path: Path, model: str, limit: str, more: str, size: tuple[int, int]
) -> None:
    assert fires(tmp_path, sized(*size), model, limit, more) == []


def test_sizes_that_are_not_known(tmp_path: Path) -> None:
    assert fires(tmp_path, [{"image": f"{n}.jpg", "answer": "a"} for n in range(8)]) == []
    # Sizes of something else than pictures.
    plain = [{"text": "a box", "width": 3024, "height": 4032} for _ in range(8)]
    assert fires(tmp_path, plain) == []


def test_a_module_beside_the_script_makes_them_smaller(tmp_path: Path) -> None:
    (tmp_path / "pictures.py").write_text(
        "def open_image(path):\n    return load(path).resize((512, 512))\n"
    )
    more = "from pictures import open_image"
    assert fires(tmp_path, sized(3024, 4032), more=more) == []


@pytest.mark.parametrize(
    ("lines", "tokens"),
    [
        (["{'input_ids': (1, 15686), 'pixel_values': (62208, 1176)} [[1, 288, 216]]"], 15_552),
        (["input_ids torch.Size([2, 9000])", "pixel_values torch.Size([48000, 1176])"], 12_000),
        (["input_ids.shape: [1, 12100]", "pixel_values.shape: [47376, 1536]"], 11_844),
        (["pixel_values=torch.Size([40000, 1176]), input_ids=torch.Size([1, 10400])"], 10_000),
        (["  0%| | 0/9 [00:00<?]{'pixel_values': (8000, 1176), 'input_ids': (1, 2100)}"], 2_000),
    ],
)
def test_printed_shapes(lines: list[str], tokens: int) -> None:
    reader = PictureShapeReader()
    for number, line in enumerate(lines, 1):
        reader.add_line(line, number)
    found = reader.finish()
    assert found is not None
    assert found.tokens == tokens


@pytest.mark.parametrize(
    "line",
    [
        "{'input_ids': (1, 800), 'pixel_values': (1, 3, 336, 336)}",
        "{'input_ids': (1, 800), 'pixel_values': (62208, 1176)}",
        "{'input_ids': (4, 2048), 'labels': (4, 2048)}",
        "{'input_ids': (1, 9000), 'pixel_values': (400, 1176)}",
        "pixel_values (40000, 768), input_ids (1, 10400)",
    ],
)
def test_shapes_that_say_nothing(line: str) -> None:
    reader = PictureShapeReader()
    reader.add_line(line, 1)
    assert reader.finish() is None
