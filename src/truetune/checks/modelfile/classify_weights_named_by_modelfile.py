"""Tells whose weights FROM of a Modelfile names: a file, a model under a namespace, or one of
Ollama's library.

Told by the form of the name, for most files stand on the server alone: the library has names such as `llama3.1:8b`. The
trade-off: a file without a known ending and without a path is taken for a name of the library.
"""

from __future__ import annotations

from truetune.parsing.read_ollama_modelfile import Instruction

PATH_BEGINNINGS = (".", "/", "~", "\\")
WEIGHT_ENDINGS = (".gguf", ".bin", ".safetensors")


def is_file_or_folder_name(base: Instruction) -> bool:
    """Does FROM name a file or a folder?"""
    return base.value.startswith(PATH_BEGINNINGS) or base.value.endswith(WEIGHT_ENDINGS)


def is_own_weights(base: Instruction, is_here: bool) -> bool:
    """Does FROM name weights of the user's own: a file, or a model under a namespace?

    Args:
        base: the FROM.
        is_here: its path exists on this machine.
    """
    return is_here or is_file_or_folder_name(base) or "/" in base.value
