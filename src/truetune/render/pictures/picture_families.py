"""The families of processors whose tokens of a picture are computed here, and the choice of one by a folder's settings.

A family is told by the class names that the settings hold, never by a model's name: a fine-tuned model keeps its
processor. The class of the processor decides, and that of the image processor where the former is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from truetune.errors import TokenizerError
from truetune.render.pictures.picture_expansion import PictureExpansion
from truetune.render.pictures.processor_settings import (
    PREPROCESSOR_CONFIG,
    ProcessorSettingError,
    ProcessorSettings,
    read_processor_settings,
)
from truetune.render.pictures.sizes_on_patch_grids import PixtralGrid, QwenGrid
from truetune.render.pictures.sizes_on_tiles import (
    IdeficsTiles,
    InternTiles,
    Llama4Tiles,
    LlavaNextTiles,
)
from truetune.render.pictures.sizes_that_are_fixed import Gemma3Square, LlavaSquare, MllamaToken

MAX_SIZES_KEPT = 4096
"""Sizes whose expansion is kept: photos of one camera have few"""


class PictureSizer(Protocol):
    """What a family's settings make of pictures."""

    def placeholder(self) -> str: ...
    def expand(self, width: int, height: int) -> PictureExpansion: ...


class PictureFamily(NamedTuple):
    """A family of processors that compute the tokens of a picture alike."""

    name: str
    sizer: Callable[[ProcessorSettings], PictureSizer]
    processors: tuple[str, ...]
    """Classes of processors"""
    image_processors: tuple[str, ...] = ()
    """Classes of image processors that belong to this family alone"""


FAMILIES = (
    PictureFamily(
        "Qwen-VL",
        QwenGrid,
        ("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"),
        ("Qwen2VLImageProcessor", "Qwen3VLImageProcessor"),
    ),
    PictureFamily(
        "Pixtral and Mistral 3", PixtralGrid, ("PixtralProcessor",), ("PixtralImageProcessor",)
    ),
    PictureFamily("LLaVA", LlavaSquare, ("LlavaProcessor",)),
    PictureFamily(
        "LLaVA-NeXT", LlavaNextTiles, ("LlavaNextProcessor",), ("LlavaNextImageProcessor",)
    ),
    PictureFamily(
        "Idefics 3 and SmolVLM",
        IdeficsTiles,
        ("Idefics3Processor", "SmolVLMProcessor"),
        ("Idefics3ImageProcessor", "SmolVLMImageProcessor"),
    ),
    PictureFamily("InternVL", InternTiles, ("InternVLProcessor",)),
    PictureFamily("Llama 4", Llama4Tiles, ("Llama4Processor",), ("Llama4ImageProcessor",)),
    PictureFamily("Gemma 3", Gemma3Square, ("Gemma3Processor",), ("Gemma3ImageProcessor",)),
    PictureFamily("Llama 3.2 Vision", MllamaToken, ("MllamaProcessor",), ("MllamaImageProcessor",)),
)


@dataclass(frozen=True, slots=True)
class PictureTokenizer:
    """What a folder's processor makes of pictures."""

    family: str
    placeholder: str
    """What stands for a picture in a text that the chat template has rendered"""
    expand: Callable[[int, int], PictureExpansion]
    """(width, height) -> what is written in its place. Raises PictureRefusedError"""


@dataclass(frozen=True, slots=True)
class UnknownProcessor:
    """Why the tokens of pictures are not known."""

    reason: str
    unlock: str = ""


NO_PROCESSOR = UnknownProcessor(
    f"the folder of the tokenizer has no {PREPROCESSOR_CONFIG}",
    "name the folder of the model's processor with --tokenizer",
)


def load_picture_tokenizer(
    folder: Path, tokenizer_config: Mapping[str, Any]
) -> PictureTokenizer | UnknownProcessor:
    """What the processor in a folder makes of pictures, or why that is not known."""
    try:
        settings = read_processor_settings(folder, tokenizer_config)
    except TokenizerError as error:
        return UnknownProcessor(str(error))
    if settings is None:
        return NO_PROCESSOR
    family = _family_of(settings)
    if family is None:
        name = settings.processor_class or settings.image_processor_class or "without a name"
        return UnknownProcessor(f"truetune does not know how a processor {name} cuts pictures")
    try:
        sizer = family.sizer(settings)
    except (ProcessorSettingError, TypeError, ValueError, OverflowError) as error:
        return UnknownProcessor(f"the settings of its {family.name} processor: {error}")
    expand = lru_cache(maxsize=MAX_SIZES_KEPT)(sizer.expand)
    return PictureTokenizer(family.name, sizer.placeholder(), expand)


def _family_of(settings: ProcessorSettings) -> PictureFamily | None:
    """The family by the class of the processor, else by that of the image processor; None where neither is known."""
    for family in FAMILIES:
        if settings.processor_class in family.processors:
            return family
    if settings.processor_class:
        return None
    for family in FAMILIES:
        if settings.image_processor_class in family.image_processors:
            return family
    return None
