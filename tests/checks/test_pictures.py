"""Rules on pictures, each on a faulty set and its sound twin; sound sets in the forms of five stacks are silent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.picture_tokens import without_checks_of_parts
from tests import parts
from tests.pictures import chat, data_url, grey_png, write_rows
from truetune.checks.check_data import check, load_tokenizer_and_template
from truetune.checks.judgement import Judgement
from truetune.checks.reports import DataReport
from truetune.checks.rule import DataRule, Setup
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.run_data_rules import DataRules
from truetune.data.conversation import Conversation, Origin
from truetune.data.count_media import Media
from truetune.data.read_pictures_of_rows import PictureReader
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import TOKENIZER
from truetune.encoding.batch import Batch
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.render.pictures.picture_families import PictureTokenizer
from truetune.render.pictures.render_with_picture_tokens import PictureRenderer
from truetune.render.rendering import Source
from truetune.settings.run_spec import RunSpec
from truetune.trainers import TRAINERS, TrainerName

PLACES = "pictures-do-not-match-placeholders"
FILES = "pictures-missing-or-unreadable"
NARROW = "pictures-too-narrow"
SIXTEEN = "sixteen-bit-pictures-turn-white"
ONE = "one-picture-in-all-rows"
RULES = (PLACES, FILES, NARROW, SIXTEEN, ONE)
GOOD = data_url(grey_png(8, 8))
PART = {"type": "image"}
TEXT = {"type": "text", "text": "What is it?"}
NO_TOKENS = np.zeros(0, dtype=np.int64)


@pytest.fixture(scope="module")
def setup() -> Setup:
    return load_tokenizer_and_template(RunSpec(tokenizer=str(TOKENIZER)))


def judge(
    setup: Setup, folder: Path, rows: list[Any], *, trainer: TrainerName | None = None
) -> Judgement:
    """What the rules on pictures say of rows, which are not rendered."""
    path = write_rows(folder / "data.jsonl", rows)
    facts = TRAINERS[trainer] if trainer else setup.trainer
    rules = DataRules(_rules(), replace(setup, pictures=PictureReader(), trainer=facts))
    read = list(read_conversations([str(path)]))
    empty = (NO_TOKENS.astype(np.int32), np.zeros(1, dtype=np.int64), NO_TOKENS.astype(np.uint8))
    rules.judge_batch(
        Batch(read, [], [], *empty, NO_TOKENS.astype(np.bool_), NO_TOKENS.astype(np.int32))
    )
    return rules.judgement()


def _rules() -> Iterator[type[DataRule]]:
    for name in RULES:
        rule = find_rule(name)
        assert issubclass(rule, DataRule)
        yield rule


def found(judgement: Judgement) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in judgement.findings]


def llava(question: str, **columns: Any) -> dict[str, Any]:
    turns = [{"from": "human", "value": question}, {"from": "gpt", "value": "It is grey."}]
    return {"conversations": turns, **columns}


PLACES_CASES: dict[str, tuple[list[Any], TrainerName | None, list[str]]] = {
    "one picture for two marks": ([{"messages": chat("<image>a <image>b", "x"), "images": [GOOD]}], None, ["error"]),
    "two for two": ([{"messages": chat("<image>a <image>b", "x"), "images": [GOOD, GOOD]}], None, []),
    "two pictures for one mark": ([{"messages": chat("<image>a", "x"), "images": [GOOD, GOOD]}], None, ["warning"]),
    "LLaVA without a mark": ([llava("What?", image=GOOD)], None, ["warning"]),
    "LLaVA with a mark": ([llava("<image>\nWhat?", image=GOOD)], None, []),
    "chats without marks, for TRL": ([{"messages": chat("a", "x"), "images": [GOOD]}], "trl", []),
    "chats without marks, for LLaMA-Factory": (
        [{"messages": chat("a", "x"), "images": [GOOD]}], "llama-factory", ["warning"],
    ),
    "two parts and one picture": ([{"messages": chat([PART, PART, TEXT], "x"), "images": [GOOD]}], None, ["error"]),
    "a part and a picture": ([{"messages": chat([PART, TEXT], "x"), "images": [GOOD]}], None, []),
    "a part with its source": ([{"messages": chat([{**PART, "image": GOOD}, TEXT], "x")}], None, []),
    "its source in the part and in the column": (
        [{"messages": chat([{**PART, "url": "a.png"}, TEXT], "x"), "images": [GOOD]}], None, [],
    ),
    "marks of which the column is lost": ([{"messages": chat("<image>a", "x"), "img_file": "a"}], None, ["warning"]),
    "words on HTML": (
        [{"messages": chat("What is <image> in SVG?", "A tag.")}, *[{"messages": chat("a", "x")}] * 3], None, [],
    ),
    "a text row among pictures": (
        [{"messages": chat("<image>a", "x"), "images": [GOOD]}, {"messages": chat("b", "y"), "images": []}], None, [],
    ),
    "a mark in an answer": ([{"messages": chat("<image>a", "See <image>."), "images": [GOOD]}], None, ["error"]),
    "video without a file": (
        [{"messages": chat("<video>a", "x"), "videos": ["a.mp4"]}, {"messages": chat("<video>a", "x"), "videos": []}],
        None, ["warning"],
    ),
    "LLaVA's video": ([llava("<image>\nWhat?", video="a.mp4")], None, []),
    "sound": ([{"messages": chat("<audio>a", "x"), "audios": ["a.wav"]}], None, []),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "trainer", "severities"), PLACES_CASES.values(), ids=PLACES_CASES)
def test_places_and_pictures(
    rows: list[Any],
    trainer: TrainerName | None,
    severities: list[str],
    setup: Setup,
    tmp_path: Path,
) -> None:
    assert found(judge(setup, tmp_path, rows, trainer=trainer)) == [(PLACES, s) for s in severities]


def rows_of_files(*names: str) -> list[Any]:
    return [
        {"messages": chat("<image>What?", f"It is {number}."), "images": [name]}
        for number, name in enumerate(names)
    ]


FILE_CASES: dict[str, tuple[bytes | None, list[tuple[str, str]]]] = {
    "sound": (grey_png(9, 9), []),
    "missing": (None, [(FILES, "error")]),
    "empty": (b"", [(FILES, "error")]),
    "cut": (grey_png(9, 9)[:-20], [(FILES, "error")]),
    "a page of HTML": (b"<html>404</html>", [(FILES, "error")]),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1", [(FILES, "error")]),
    "narrow": (grey_png(2, 402), [(NARROW, "warning")]),
    "just wide enough": (grey_png(2, 400), []),
    "grey of 16 bits": (grey_png(9, 9, bits=16), [(SIXTEEN, "warning")]),
}


@pytest.mark.parametrize(("content", "expected"), FILE_CASES.values(), ids=FILE_CASES)
def test_files(content: bytes | None, expected: list[Any], setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(grey_png(8, 8))
    if content is not None:
        (tmp_path / "b.png").write_bytes(content)
    judged = judge(setup, tmp_path, rows_of_files("a.png", "b.png"))
    assert found(judged) == expected
    if expected:
        (case,) = judged.findings[0].cases
        assert (case.origin and case.origin.line) == 2
        assert "b.png" in case.text


def test_of_files_that_are_all_elsewhere_nothing_is_said(setup: Setup, tmp_path: Path) -> None:
    judged = judge(setup, tmp_path, rows_of_files("coco/1.jpg", "coco/2.jpg"))
    assert not judged.findings
    (part,) = (part for part in judged.not_judged if part.what == FILES)
    assert part.unlock == "name their folder: media_dir"


def test_one_picture_in_all_rows(setup: Setup, tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(16)]
    for name in names:
        (tmp_path / name).write_bytes(grey_png(8, 8))
    assert found(judge(setup, tmp_path, rows_of_files(*names))) == [(ONE, "warning")]
    assert not judge(setup, tmp_path, rows_of_files(*names[1:])).findings, "too few rows"
    same = [{"messages": chat("<image>a", "Yes."), "images": ["1.png"]}] * 16
    assert not judge(setup, tmp_path, same).findings, "one answer: copies, which another rule finds"
    (tmp_path / "7.png").write_bytes(grey_png(8, 8, shade=90))
    assert not judge(setup, tmp_path, rows_of_files(*names)).findings


QUESTIONS = (
    "What is in the picture?",
    "Which colour is it?",
    "How many people are there?",
    "Read the sign.",
)
ANSWERS = ("A harbour with boats.", "It is blue.", "Two people.", "It says: no entry.")


def stack_rows(form: str, number: int) -> dict[str, Any]:
    """A row as a stack's data sets have it."""
    name, question, answer = f"{number}.png", QUESTIONS[number], ANSWERS[number]
    if form == "LLaVA":
        turns = [
            {"from": "human", "value": f"<image>\n{question}"},
            {"from": "gpt", "value": answer},
        ]
        return {"id": str(number), "image": name, "conversations": turns}
    if form == "TRL, parts":
        return {
            "messages": chat([PART, {"type": "text", "text": question}], answer),
            "images": [name],
        }
    if form == "TRL, texts":
        return {"messages": chat(question, answer), "images": [name]}
    if form == "OpenAI":
        url = {
            "type": "image_url",
            "image_url": {"url": data_url(grey_png(224 + 64 * number, 224))},
        }
        return {"messages": chat([{"type": "text", "text": question}, url], answer)}
    return {"messages": chat(f"<image>{question}", answer), "images": [name]}


FORMS = ("LLaVA", "LLaMA-Factory and ms-swift", "TRL, parts", "TRL, texts", "OpenAI")
# Qwen3-VL's: squares of 32 x 32, and 64 at least.
TOKENS = sum(7 * round((224 + 64 * number) / 32) for number in range(4))
MINIMUM = {"shortest_edge": 1024, "longest_edge": 16777216}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer whose template takes pictures, and the settings of its processor."""
    folder = tmp_path_factory.mktemp("model")
    for path in parts.folder("qwen3.5").iterdir():
        shutil.copy(path, folder / path.name)
    settings = {
        "processor_class": "Qwen3VLProcessor",
        "patch_size": 16,
        "merge_size": 2,
        "size": MINIMUM,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def report(model: Path, folder: Path, rows: list[Any], **settings: Any) -> DataReport:
    for number in range(4):
        (folder / f"{number}.png").write_bytes(grey_png(224 + 64 * number, 224))
    path = write_rows(folder / "data.jsonl", rows)
    return check(RunSpec(data=(str(path),), tokenizer=str(model), **settings))


@pytest.mark.parametrize("form", FORMS)
def test_lengths_hold_the_tokens_of_pictures(form: str, model: Path, tmp_path: Path) -> None:
    rows = [stack_rows(form, number) for number in range(4)]
    # The pictures have 49, 63, 77 and 91 tokens: the limit cuts two of them, and the answers of the others.
    judged = report(model, tmp_path, rows, max_length=70, select=(*RULES, "LEN", "unused-columns"))
    images = judged.ledger.counts[Source.IMAGE]
    assert images.tolist() == [TOKENS, 0]
    assert not judged.lengths.media
    counts = {finding.rule: finding.count for finding in judged.findings}
    # In this form the picture stands behind the question.
    assert counts.pop("truncation-cuts-pictures") == (3 if form == "OpenAI" else 2)
    assert set(counts) <= {"truncation-leaves-no-label", "truncation-cuts-the-terminator"}
    whole = report(model, tmp_path, rows, max_length=512, select=(*RULES, "LEN", "unused-columns"))
    assert not whole.findings
    assert whole.exit_code() == 0


def test_a_picture_of_unknown_size_leaves_its_row_uncounted(model: Path, tmp_path: Path) -> None:
    rows = [stack_rows("TRL, parts", number) for number in range(4)]
    rows[3]["images"] = ["https://example.org/3.png"]
    judged = report(model, tmp_path, rows, select=RULES)
    assert judged.lengths.media == Media(1, images=1)
    told = {part.what: part for part in judged.not_judged if part.always_told}
    assert told["pictures"].reason == "1 of 4 are at addresses, which truetune does not fetch"
    assert "the tokens of 1 image are not counted" in told["lengths of rows with media"].reason


def test_for_llama_factory_tokens_are_not_counted(model: Path, tmp_path: Path) -> None:
    rows = [stack_rows("LLaMA-Factory and ms-swift", number) for number in range(4)]
    judged = report(model, tmp_path, rows, select=RULES, trained_by="llama-factory")
    assert judged.lengths.media == Media(4, images=4)
    assert not judged.findings
    (part,) = (part for part in judged.not_judged if part.always_told)
    assert "image_max_pixels" in part.reason


def test_without_a_processor_the_verdict_says_what_is_missing(tmp_path: Path) -> None:
    rows = [stack_rows("LLaMA-Factory and ms-swift", number) for number in range(4)]
    judged = report(TOKENIZER, tmp_path, rows, select=(*RULES, "unused-columns"))
    (part,) = (part for part in judged.not_judged if part.always_told)
    assert part.reason.endswith("the folder of the tokenizer has no preprocessor_config.json")
    assert "images" not in {part.figure for part in judged.examined}
    assert not any("unused" in part.figure and "images" in part.figure for part in judged.examined)


def test_equal_questions_on_other_pictures_are_no_copies(setup: Setup) -> None:
    rows = [
        Conversation(
            Origin("", n, n), "messages", chat("Is it open?", "Yes."), raw={"image": f"{n}.png"}
        )
        for n in range(2)
    ]
    prints = make_batch(
        rows, setup.probes.renderer(), Encoder(setup.tokenizer.backend)
    ).fingerprints
    assert len(set(prints.exact.tolist())) == len(set(prints.prompt.tolist())) == 2
    assert prints.phrases[0].tolist() != prints.phrases[1].tolist()
    assert len(set(prints.answer.tolist())) == 1


# 6 s of processor time: transformers loads a tokenizer with 248,000 entries, and its own processor cuts the pictures.
def test_whole_rows_have_the_ids_of_the_processor(model: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    transformers = pytest.importorskip("transformers")
    processor = without_checks_of_parts(transformers.Qwen3VLProcessor)(
        image_processor=transformers.Qwen2VLImageProcessorPil(
            patch_size=16, merge_size=2, size=MINIMUM
        ),
        tokenizer=transformers.AutoTokenizer.from_pretrained(str(model)),
    )
    setup = load_tokenizer_and_template(RunSpec(tokenizer=str(model)))
    assert isinstance(setup.picture_tokens, PictureTokenizer)
    renderer = PictureRenderer(setup.probes.renderer(), setup.picture_tokens, setup.pictures)
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(grey_png(224 + 64 * number, 224))
    path = write_rows(
        tmp_path / "data.jsonl", [stack_rows("TRL, parts", number) for number in range(4)]
    )
    rows = list(read_conversations([str(path)]))
    batch = make_batch(rows, renderer, Encoder(setup.tokenizer.backend))
    for number, row in enumerate(rows):
        text = processor.tokenizer.apply_chat_template(row.messages, tokenize=False)
        picture = image.open(tmp_path / f"{number}.png").convert("RGB")
        expected = processor(images=[picture], text=[text])["input_ids"][0]
        own = batch.ids[batch.offsets[number] : batch.offsets[number + 1]]
        assert own.tolist() == list(expected)
