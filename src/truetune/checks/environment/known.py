"""Versions that are known to misbehave, alone or together: each entry names the thread where it was found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from truetune.spec.run import Severity


@dataclass(frozen=True, slots=True)
class Known:
    """Packages of these versions, at the same time."""

    versions: Mapping[str, str]
    """Specifiers by distribution"""
    what: str
    """What goes wrong"""
    remedy: str
    threads: tuple[str, ...]
    severity: Severity = "error"

    def holds(self, packages: Mapping[str, str]) -> bool:
        """Are all of them installed, in these versions?"""
        return all(
            name in packages and _within(packages[name], text)
            for name, text in self.versions.items()
        )


def _within(version: str, text: str) -> bool:
    """A version of its own spelling (`2.9.0a0+git`) counts as its release."""
    try:
        return SpecifierSet(text).contains(version, prereleases=True)
    except InvalidVersion:
        return False


KNOWN = (
    Known(
        {"peft": "<0.18", "transformers": ">=5"},
        "peft can't be imported (HybridCache is gone from transformers), nor can transformers'"
        " Trainer with it",
        "pip install 'peft>=0.18'",
        ("huggingface/peft#3333", "xorbitsai/inference#5260"),
    ),
    Known(
        {"accelerate": "<1.3", "transformers": ">=4.52"},
        "train() ends with unwrap_model() got an unexpected keyword argument 'keep_torch_compile'",
        "pip install 'accelerate>=1.3'",
        ("huggingface/transformers#38339", "hiyouga/LlamaFactory#8527"),
    ),
    Known(
        {"trl": "<0.12", "transformers": ">=5"},
        "trl's trainers end with Trainer.__init__() got an unexpected keyword argument 'tokenizer'",
        "pip install -U trl",
        ("huggingface/trl#6168", "huggingface/trl#2162"),
    ),
    Known(
        {"trl": ">=0.12,<0.28", "transformers": ">=5"},
        "apply_chat_template returns a dict where this trl expects ids: masks may cover two tokens,"
        " without an error",
        "pip install 'trl>=0.28'",
        ("huggingface/trl#4880", "huggingface/transformers#42567"),
    ),
    Known(
        {"trl": ">=0.17,<0.20"},
        "SFT with padding_free or packing loses the mask that keeps prompts out of the loss",
        "pip install 'trl>=0.20'",
        ("huggingface/trl#3728", "huggingface/trl#3749"),
        "warning",
    ),
    Known(
        {"trl": ">=0.20,<0.29"},
        "packing by bfd lets documents see each other in some settings; it was repaired in 0.29",
        "pip install 'trl>=0.29', or train without packing",
        ("huggingface/trl#5076",),
        "info",
    ),
    Known(
        {"transformers": ">=4.46.0,<4.46.2"},
        "with gradient accumulation the loss of some models is multiplied by the number of steps",
        "pip install 'transformers>=4.46.2'",
        ("huggingface/transformers#34263", "hiyouga/LlamaFactory#6211"),
        "warning",
    ),
    Known(
        {"transformers": "==4.48.0"},
        "with gradient accumulation the loss and its gradients are too large",
        "pip install 'transformers>=4.48.1'",
        ("huggingface/transformers#35663",),
    ),
    Known(
        {"transformers": ">=4.56,<5.18"},
        "Trainer deletes bos_token_id from the saved config where the tokenizer has no BOS (every"
        " Qwen)",
        "pip install 'transformers>=5.18', or put it back into config.json",
        ("huggingface/transformers#48592", "huggingface/transformers#48708"),
        "warning",
    ),
    Known(
        {"numpy": ">=2", "torch": "<2.3"},
        "tensors and arrays can't be exchanged: RuntimeError: Numpy is not available",
        "pip install 'numpy<2', or torch>=2.3",
        ("pytorch/pytorch#107302", "pytorch/pytorch#132179"),
    ),
    Known(
        {"datasets": "<2.14.6", "fsspec": ">=2023.10"},
        "load_dataset ends with Loading a dataset cached in a LocalFileSystem is not supported",
        "pip install -U datasets",
        ("huggingface/datasets#6352", "huggingface/datasets#6330"),
    ),
)
