"""Tokens of pictures that are all brought to one size: each has the same number, whatever it shows.

LLaVA 1.5, Gemma 3, and Llama 3.2 Vision, whose pictures are one token, since some of its layers get them beside the
text.
"""

from __future__ import annotations

from truetune.render.pictures.picture_expansion import PictureExpansion, Piece
from truetune.render.pictures.processor_settings import ProcessorSettingError, ProcessorSettings


class LlavaSquare:
    """LLaVA 1.5: the square that is cut out of the picture's middle."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        crop, size = settings.sides("crop_size"), settings.sides("size")
        sides = crop if settings.image_flag("do_center_crop", bool(crop)) else size
        if "height" not in sides or "width" not in sides:
            raise ProcessorSettingError("the size of cropped pictures is not set")
        patch = settings.number("patch_size", 0)
        if not patch:
            raise ProcessorSettingError("patch_size is not in processor_config.json")
        tokens = (sides["height"] // patch) * (sides["width"] // patch)
        tokens += settings.number("num_additional_image_tokens", 0)
        tokens -= settings.of_processor.get("vision_feature_select_strategy") == "default"
        self.token = settings.token("image_token", "<image>")
        self.expansion = PictureExpansion.of([Piece(self.token, tokens)])

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture of any size becomes."""
        return self.expansion


class Gemma3Square:
    """Gemma 3: one square. `do_pan_and_scan` of the file adds no crops: the processor's own default, False, wins."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings. Raises ProcessorSettingError."""
        self.start = settings.token("boi_token", "<start_of_image>")
        token = settings.token("image_token", "<image_soft_token>")
        end = settings.token("eoi_token", "<end_of_image>")
        tokens = settings.number("image_seq_length", 256)
        self.expansion = PictureExpansion.of(
            [Piece(f"\n\n{self.start}"), Piece(token, tokens), Piece(f"{end}\n\n")]
        )

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.start

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture of any size becomes."""
        return self.expansion


class MllamaToken:
    """Llama 3.2 Vision: one token, which the layers for pictures look behind."""

    def __init__(self, settings: ProcessorSettings) -> None:
        """Read the settings."""
        self.token = settings.token("image_token", "<|image|>")
        self.expansion = PictureExpansion.of([Piece(self.token)])

    def placeholder(self) -> str:
        """What stands for a picture in a rendered text."""
        return self.token

    def expand(self, width: int, height: int) -> PictureExpansion:
        """What a picture of any size becomes."""
        return self.expansion
