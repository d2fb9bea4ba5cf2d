"""`python -m bench.picture_tokens [FAMILY...]`: are the tokens of pictures those of transformers' own processors?

Each processor is built from its class with the settings of a published model and a small tokenizer, and is given real
pictures of some hundred sizes: odd, tiny, square, and as narrow as it takes. The ids that it makes are compared with
those of truetune's text under the same tokenizer, and the times of both are measured in the same run. `--record` writes
the counts for the tests, `--table` the table of docs/pictures.md.

Needs Pillow; the processors of Pixtral and Llama 4 need torchvision, and SmolVLM's needs num2words too. What is missing
is named, and left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from truetune.render.pictures.picture_expansion import PictureExpansion, PictureRefusedError
from truetune.render.pictures.picture_families import PictureTokenizer, load_picture_tokenizer

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "tests" / "render" / "picture_token_counts.json"
SIZES = 300
"""Pictures for each family and its settings"""
MAX_SIDE, MAX_AREA = 4000, 2_500_000
"""Pixels of a picture that is made: larger ones only take longer"""
EDGES = (
    (4, 4), (5, 700), (700, 5), (28, 28), (27, 29), (42, 42), (56, 56), (14, 2800), (2800, 14), (10, 2000),
    (2000, 10), (7, 1393), (7, 1407), (13, 2613), (336, 336), (337, 336), (336, 337), (224, 448), (384, 384),
    (364, 364), (365, 364), (512, 512), (513, 511), (896, 896), (1024, 1024), (1025, 1024), (1456, 364),
    (364, 1457), (640, 480), (480, 640), (1280, 720), (720, 1280), (1920, 1080), (1080, 1920), (1000, 1000),
    (999, 1001), (672, 336), (1008, 336), (300, 899), (448, 1344), (1344, 448), (896, 448), (448, 898),
    (256, 512), (257, 511), (307, 256), (308, 256), (2000, 1200),
)  # fmt: skip
"""Sizes at which processors decide otherwise"""
BOS = "[BOS]"


@dataclass(frozen=True)
class Settings:
    """The settings of one processor."""

    family: str
    model: str
    """A model whose published settings these are"""
    processor: str
    """Its class in transformers"""
    image_processor: str
    """Its class, without the suffix of a backend"""
    of_images: Mapping[str, Any]
    of_processor: Mapping[str, Any]
    placeholder: str
    tokens: Mapping[str, str]
    """Tokens that the tokenizer names"""
    others: tuple[str, ...] = ()
    """Further tokens that the processor writes"""


ROWS_AND_COLUMNS = tuple(
    f"<row_{row}_col_{column}>" for row in range(1, 9) for column in range(1, 9)
)
IDEFICS_TOKENS = ("<fake_token_around_image>", "<image>", "<global-img>", *ROWS_AND_COLUMNS)
QWEN_TOKENS = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
PIXTRAL_TOKENS = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
LLAMA4_TOKENS = (
    "<|image|>", "<|patch|>", "<|image_start|>", "<|image_end|>", "<|tile_x_separator|>", "<|tile_y_separator|>",
)  # fmt: skip
INTERN_TOKENS = {
    "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}  # fmt: skip
GEMMA_TOKENS = {
    "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>",
}  # fmt: skip
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
ALL = (
    Settings(
        "Qwen-VL", "Qwen2-VL", "Qwen2VLProcessor", "Qwen2VLImageProcessor",
        {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}, {}, "<|image_pad|>",
        QWEN_TOKENS,
    ),
    Settings(
        "Qwen-VL", "Qwen2.5-VL, max_pixels=1003520", "Qwen2_5_VLProcessor", "Qwen2VLImageProcessor",
        {"size": {"shortest_edge": 3136, "longest_edge": 1003520}, "patch_size": 14, "merge_size": 2}, {},
        "<|image_pad|>", QWEN_TOKENS,
    ),
    Settings(
        "Qwen-VL", "Qwen3-VL", "Qwen3VLProcessor", "Qwen2VLImageProcessor",
        {"size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16, "merge_size": 2}, {},
        "<|image_pad|>", QWEN_TOKENS,
    ),
    Settings(
        "LLaVA", "LLaVA 1.5", "LlavaProcessor", "CLIPImageProcessor",
        {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}, "do_center_crop": True},
        {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"},
        "<image>", {"image_token": "<image>"},
    ),
    Settings(
        "LLaVA-NeXT", "LLaVA 1.6", "LlavaNextProcessor", "LlavaNextImageProcessor",
        {
            "size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336},
            "image_grid_pinpoints": PINPOINTS,
        },
        {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"},
        "<image>", {"image_token": "<image>"},
    ),
    Settings(
        "Idefics 3 and SmolVLM", "Idefics 3", "Idefics3Processor", "Idefics3ImageProcessor",
        {"size": {"longest_edge": 1456}, "max_image_size": {"longest_edge": 364}}, {"image_seq_len": 169},
        "<image>", {}, IDEFICS_TOKENS,
    ),
    Settings(
        "Idefics 3 and SmolVLM", "SmolVLM 2", "SmolVLMProcessor", "SmolVLMImageProcessor",
        {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}, {"image_seq_len": 64},
        "<image>", {}, IDEFICS_TOKENS,
    ),
    Settings(
        "InternVL", "InternVL 3", "InternVLProcessor", "GotOcr2ImageProcessor",
        {"size": {"height": 448, "width": 448}, "min_patches": 1, "max_patches": 12, "crop_to_patches": False},
        {"image_seq_length": 256}, "<IMG_CONTEXT>", INTERN_TOKENS,
    ),
    Settings(
        "Pixtral and Mistral 3", "Pixtral 12B", "PixtralProcessor", "PixtralImageProcessor",
        {"size": {"longest_edge": 1024}, "patch_size": {"height": 16, "width": 16}}, {"patch_size": 16}, "[IMG]", {},
        PIXTRAL_TOKENS,
    ),
    Settings(
        "Pixtral and Mistral 3", "Mistral Small 3.1", "PixtralProcessor", "PixtralImageProcessor",
        {"size": {"longest_edge": 1540}, "patch_size": {"height": 14, "width": 14}},
        {"patch_size": 14, "spatial_merge_size": 2}, "[IMG]", {}, PIXTRAL_TOKENS,
    ),
    Settings(
        "Llama 4", "Llama 4", "Llama4Processor", "Llama4ImageProcessor",
        {"size": {"height": 336, "width": 336}, "max_patches": 16, "resize_to_max_canvas": False},
        {"patch_size": 14, "pixel_shuffle_ratio": 0.5}, "<|image|>", {}, LLAMA4_TOKENS,
    ),
    Settings(
        "Gemma 3", "Gemma 3", "Gemma3Processor", "Gemma3ImageProcessor",
        {"size": {"height": 896, "width": 896}, "do_pan_and_scan": True}, {"image_seq_length": 256},
        "<start_of_image>", GEMMA_TOKENS,
    ),
    Settings(
        "Llama 3.2 Vision", "Llama 3.2 Vision", "MllamaProcessor", "MllamaImageProcessor",
        {"size": {"height": 560, "width": 560}, "max_image_tiles": 4}, {}, "<|image|>", {}, ("<|image|>",),
    ),
)  # fmt: skip


def picture_sizes(count: int = SIZES) -> list[tuple[int, int]]:
    """(width, height) of the pictures: the edges, and others drawn evenly over the logarithm of each side."""
    drawn = random.Random(0)
    sizes = list(EDGES)
    while len(sizes) < count:
        width, height = (round(4 * (MAX_SIDE / 4) ** drawn.random()) for _ in range(2))
        if width * height <= MAX_AREA:
            sizes.append((width, height))
    return list(dict.fromkeys(sizes))


def small_tokenizer(settings: Settings) -> Tokenizer:
    """A tokenizer to which each token of the processor, each word and each line break is one token."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "\n": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.WhitespaceSplit()]
    )
    # White space alone would be taken off, and line breaks are what some processors write between tiles.
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    names = dict.fromkeys((settings.placeholder, *settings.tokens.values(), *settings.others))
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names]
    )
    return tokenizer


def own_tokens(settings: Settings) -> PictureTokenizer:
    """truetune's reading of the settings, from the files that a model's folder has."""
    with tempfile.TemporaryDirectory() as folder:
        of_images = {"image_processor_type": settings.image_processor, **settings.of_images}
        of_processor = {"processor_class": settings.processor, **settings.of_processor}
        for name, value in (("preprocessor_config", of_images), ("processor_config", of_processor)):
            (Path(folder) / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
        found = load_picture_tokenizer(Path(folder), dict(settings.tokens))
    assert isinstance(found, PictureTokenizer), found
    return found


class Theirs:
    """transformers' processor under some settings."""

    def __init__(self, settings: Settings, *, with_torchvision: bool) -> None:
        import transformers

        self.settings = settings
        names = [settings.image_processor]
        if not with_torchvision:
            names.insert(0, f"{settings.image_processor}Pil")
        image_processor = next(
            getattr(transformers, name) for name in names if hasattr(transformers, name)
        )
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=small_tokenizer(settings),
            unk_token="[UNK]",
            bos_token=BOS,
            extra_special_tokens=dict(settings.tokens),
        )
        parts: dict[str, Any] = {
            "image_processor": image_processor(**settings.of_images),
            "tokenizer": tokenizer,
        }
        if settings.processor == "SmolVLMProcessor":
            parts["video_processor"] = None
        self.processor = without_checks_of_parts(getattr(transformers, settings.processor))(
            **parts, **settings.of_processor
        )

    def ids(self, width: int, height: int) -> list[int] | None:
        """The ids that the processor makes of a picture; None where it raises an error."""
        from PIL import Image

        picture = Image.new("RGB", (width, height), (120, 40, 200))
        try:
            batch = self.processor(images=[picture], text=[self.settings.placeholder])
        except (ValueError, ZeroDivisionError, RuntimeError):
            return None
        found = batch["input_ids"][0]
        ids = list(found.tolist() if hasattr(found, "tolist") else found)
        # Llama 3.2's processor writes the BOS as well, behind the picture.
        return [id for id in ids if id != self.processor.tokenizer.bos_token_id]


def without_checks_of_parts(processor: Any) -> Any:
    """The class of a processor, which takes any tokenizer and no processor of videos."""

    def accept(self: Any, name: str, part: Any) -> None: ...

    return type(processor.__name__, (processor,), {"check_argument_for_proper_class": accept})


@dataclass(frozen=True)
class Outcome:
    """How a family compares."""

    settings: Settings
    counts: Mapping[tuple[int, int], tuple[int, int] | None]
    """(width, height) -> (ids, those of the picture) of the processor; None: it raises an error"""
    different: Sequence[tuple[int, int]]
    their_seconds: float
    own_seconds: float

    @property
    def ratio(self) -> float:
        """How many times as fast the computation is."""
        return self.their_seconds / max(self.own_seconds, 1e-9)


def compare(
    settings: Settings, sizes: Sequence[tuple[int, int]], *, with_torchvision: bool
) -> Outcome:
    """Compare a family over some sizes."""
    theirs, own = Theirs(settings, with_torchvision=with_torchvision), own_tokens(settings)
    tokenizer = small_tokenizer(settings)
    counts: dict[tuple[int, int], tuple[int, int] | None] = {}
    different = []
    their_seconds = 0.0
    for size in sizes:
        began = time.perf_counter()
        expected = theirs.ids(*size)
        their_seconds += time.perf_counter() - began
        found = _expansion_or_none(own, size)
        ids = None if found is None else tokenizer.encode(found.written_out()).ids
        if ids != expected:
            different.append(size)
        counts[size] = None if expected is None else (len(expected), most_frequent(expected))
    began = time.perf_counter()
    # Computed once more: the kept ones would make this look faster than it is.
    compute = getattr(own.expand, "__wrapped__", own.expand)
    for size in sizes:
        _expansion_or_none(own, size, compute)
    return Outcome(settings, counts, different, their_seconds, time.perf_counter() - began)


def _expansion_or_none(
    own: PictureTokenizer,
    size: tuple[int, int],
    expand: Callable[[int, int], PictureExpansion] | None = None,
) -> PictureExpansion | None:
    """What truetune writes for a picture; None where it says that the processor refuses it."""
    try:
        return (expand or own.expand)(*size)
    except PictureRefusedError:
        return None


def most_frequent(ids: Sequence[int]) -> int:
    """How often the most frequent id stands there: that of the picture."""
    return max(Counter(ids).values(), default=0)


def outcomes(chosen: Sequence[str], count: int) -> Iterator[Outcome]:
    """Compare the families that are chosen; one whose packages are missing is named and left out."""
    with_torchvision = importlib.util.find_spec("torchvision") is not None
    for settings in ALL:
        if chosen and not any(name.lower() in settings.family.lower() for name in chosen):
            continue
        try:
            yield compare(settings, picture_sizes(count), with_torchvision=with_torchvision)
        except ImportError as error:
            print(
                f"{settings.model}: left out: {str(error).strip().splitlines()[0]}", file=sys.stderr
            )


def table_of(found: Sequence[Outcome]) -> str:
    """The table of docs/pictures.md."""
    lines = ["| family | settings of | sizes | equal | times as fast |", "|---|---|---|---|---|"]
    for one in found:
        equal = len(one.counts) - len(one.different)
        lines.append(
            f"| {one.settings.family} | {one.settings.model} | {len(one.counts)} | {equal} | {_rounded(one.ratio):,} |"
        )
    return "\n".join(lines)


def _rounded(ratio: float) -> int:
    """A ratio with one digit that counts: the machine's load changes the others."""
    digits = 10 ** (len(str(int(ratio))) - 1)
    return round(ratio / digits) * digits


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; exit code 1 where a picture has other tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--sizes", type=int, default=SIZES)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args(arguments)
    found = []
    for one in outcomes(given.families, given.sizes):
        found.append(one)
        print(
            f"{one.settings.model}: {len(one.different)} of {len(one.counts)} differ; x {one.ratio:,.0f}",
            flush=True,
        )
        for size in one.different[:5]:
            print(f"  {size}: {one.counts[size]}")
    if given.table:
        print(table_of(found))
    if given.record:
        recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {}
        for one in found:
            counts = one.counts.items()
            recorded[one.settings.model] = [[*size, *(count or (0, 0))] for size, count in counts]
        RECORDED.write_text(json.dumps(recorded, separators=(",", ":")) + "\n", encoding="utf-8")
    return int(any(one.different for one in found))


if __name__ == "__main__":
    sys.exit(main())
