"""Reads a model's processor settings: preprocessor_config.json, processor_config.json, and names of its tokens.

transformers 4 writes the image processor's settings into preprocessor_config.json and the processor's own into
processor_config.json; transformers 5 writes both into processor_config.json, the former under `image_processor`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truetune.render.find_tokenizer_folder import read_json

PREPROCESSOR_CONFIG, PROCESSOR_CONFIG = "preprocessor_config.json", "processor_config.json"
# `Qwen2VLImageProcessorFast` and `...Pil` compute the same sizes as `Qwen2VLImageProcessor`.
CLASS_SUFFIX = re.compile(r"(?:Fast|Pil|Torchvision)$")


class ProcessorSettingError(ValueError):
    """A setting of the processor is missing, or of a form that is not known; the text names it."""


@dataclass(frozen=True, slots=True)
class ProcessorSettings:
    """The settings of a processor."""

    processor_class: str
    """`Qwen2_5_VLProcessor`; empty where no file says it"""
    image_processor_class: str
    """`Qwen2VLImageProcessor`, without the suffix of its backend"""
    of_processor: Mapping[str, Any]
    of_images: Mapping[str, Any]
    tokens: Mapping[str, str]
    """Names of tokens (`image_token`) that the tokenizer's settings give"""

    def number(self, name: str, default: int) -> int:
        """A whole number of the processor's own settings. Raises ProcessorSettingError."""
        return _whole_number(self.of_processor.get(name), name, default)

    def image_number(self, name: str, default: int | None = None) -> int:
        """A whole number of the image processor's settings. Raises ProcessorSettingError."""
        return _whole_number(self.of_images.get(name), name, default)

    def image_flag(self, name: str, default: bool) -> bool:
        """A switch of the image processor's settings."""
        value = self.of_images.get(name)
        return default if value is None else bool(value)

    def sides(self, name: str) -> Mapping[str, int]:
        """A size of the image processor's settings by its keys; a number alone is both sides. Raises
        ProcessorSettingError.
        """
        value = self.of_images.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return {"height": value, "width": value}
        if isinstance(value, dict):
            return {
                key: _whole_number(side, f"{name}.{key}")
                for key, side in value.items()
                if side is not None
            }
        return {}

    def token(self, name: str, default: str) -> str:
        """The text of a token."""
        own = self.of_processor.get(name)
        return self.tokens.get(name) or (own if isinstance(own, str) and own else default)


def read_processor_settings(
    folder: Path, tokenizer_config: Mapping[str, Any]
) -> ProcessorSettings | None:
    """The settings of the processor in a folder; None where it has no image processor.

    Raises:
        TokenizerError: a file is no JSON object.
    """
    preprocessor = read_json(folder / PREPROCESSOR_CONFIG)
    processor = read_json(folder / PROCESSOR_CONFIG)
    inside = (processor or {}).get("image_processor")
    of_images = inside if isinstance(inside, dict) else preprocessor
    if of_images is None:
        return None
    named = (of_images.get("image_processor_type"), of_images.get("feature_extractor_type"))
    classes = [
        (source or {}).get("processor_class")
        for source in (processor, preprocessor, tokenizer_config)
    ]
    return ProcessorSettings(
        processor_class=next((name for name in classes if isinstance(name, str) and name), ""),
        image_processor_class=CLASS_SUFFIX.sub("", str(next(filter(None, named), ""))),
        of_processor=processor or {},
        of_images=of_images,
        tokens=_named_tokens(tokenizer_config),
    )


def _named_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """The tokens that a tokenizer's settings name: `image_token`, `boi_token`."""
    inside = tokenizer_config.get("extra_special_tokens")
    named = {**tokenizer_config, **(inside if isinstance(inside, dict) else {})}
    found = {}
    for name, value in named.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _whole_number(value: Any, name: str, default: int | None = None) -> int:
    """A whole number above 0, or the default where there is none. Raises ProcessorSettingError."""
    if value is None and default is not None:
        return default
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value != int(value)
        or value < 0
    ):
        raise ProcessorSettingError(f"{name} is {value!r}")
    return int(value)
