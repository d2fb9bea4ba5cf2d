"""Finds the quantization configs that a script builds, and whether anything reads them.

Examples and notebooks leave a `BitsAndBytesConfig` behind that no longer reaches a model; rules on quantization must
not judge it, and one rule says so. Settings are followed forwards: through names, dictionaries and functions of the
file, to what reads them. The trade-off: a config counts as read wherever code might read it in a way not
seen here (`globals()`, a text with its name, another file), so some unused ones are missed and none is called unused
wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.unread_values import is_never_read

BITSANDBYTES_CONFIG = "transformers.BitsAndBytesConfig"
MODEL_READERS = (
    "*.from_pretrained",
    "*.get_peft_model",
    "transformers.pipeline",
    "transformers.*Trainer",
    "trl.*Trainer",
)
"""Calls that load or wrap a model: a file with one of them uses its settings itself"""
QUANTIZATION_SETTINGS = (
    BITSANDBYTES_CONFIG,
    "transformers.GPTQConfig",
    "transformers.HqqConfig",
    "transformers.QuantoConfig",
    "transformers.TorchAoConfig",
    "trl.*get_quantization_config",
)
"""What builds settings that quantize weights while they are loaded"""
IGNORING_CALLS = (
    "peft.PeftModel*.from_pretrained",
    "transformers.*Tokenizer*.from_pretrained",
    "transformers.AutoProcessor.from_pretrained",
)
"""Calls that take `quantization_config` among their `**kwargs` and load no weights of a base with it"""


def quantization_configs_that_are_read(module: Module) -> Iterator[Call]:
    """The calls that build bitsandbytes settings which may reach a model: those that something
    reads.
    """
    return (
        call for call in module.calls(BITSANDBYTES_CONFIG) if not is_config_never_read(module, call)
    )


def is_config_never_read(module: Module, call: Call) -> bool:
    """Do the settings that a call builds reach no model, in a file that loads one itself? A file
    that loads none may hold settings for others, and a class's attributes are read through it.

    A file that loads none may hold settings for others, and a class's attributes are read through it.
    """
    if not any(module.calls(*MODEL_READERS)):
        return False
    return is_never_read(module, call.node, IGNORING_CALLS)
