"""The table of package versions that are known to misbehave, alone or together, with what goes
wrong and the remedy.

Each clash has version ranges and the public threads that report it. Ranges
are PEP 440 specifiers, compared with what is installed; nothing is imported. The trade-off: a table has to be kept up
by hand, but it also finds clashes that no package declares and that raise no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from truetune.settings.run_spec import Severity


@dataclass(frozen=True, slots=True)
class VersionClash:
    """Packages that misbehave when these versions are installed at the same time."""

    versions: Mapping[str, str]
    """Specifiers by distribution"""
    what: str
    """What goes wrong"""
    remedy: str
    threads: tuple[str, ...]
    severity: Severity = "error"

    def are_installed(self, packages: Mapping[str, str]) -> bool:
        """Are all of them installed, in these versions?"""
        return all(
            name in packages and _is_in_range(packages[name], specifiers)
            for name, specifiers in self.versions.items()
        )


def _is_in_range(version: str, specifiers: str) -> bool:
    """Does a version fulfil the specifiers? What is no version (a build of one's own name) does not."""
    try:
        # Without prereleases=True the builds of containers (`2.9.0a0+git`) would be in no range at all.
        return SpecifierSet(specifiers).contains(version, prereleases=True)
    except InvalidVersion:
        return False


VERSION_CLASHES = (
    VersionClash(
        {"peft": "<0.18", "transformers": ">=5"},
        "peft can't be imported (HybridCache is gone from transformers), nor can transformers'"
        " Trainer with it",
        "pip install 'peft>=0.18'",
        ("huggingface/peft#3333", "xorbitsai/inference#5260"),
    ),
    VersionClash(
        {"accelerate": "<1.3", "transformers": ">=4.52"},
        "train() ends with unwrap_model() got an unexpected keyword argument 'keep_torch_compile'",
        "pip install 'accelerate>=1.3'",
        ("huggingface/transformers#38339", "hiyouga/LlamaFactory#8527"),
    ),
    VersionClash(
        {"trl": "<0.12", "transformers": ">=5"},
        "trl's trainers end with Trainer.__init__() got an unexpected keyword argument 'tokenizer'",
        "pip install -U trl",
        ("huggingface/trl#6168", "huggingface/trl#2162"),
    ),
    VersionClash(
        {"trl": ">=0.12,<0.28", "transformers": ">=5"},
        "apply_chat_template returns a dict instead of the ids that this trl expects: masks may cover two tokens,"
        " without an error",
        "pip install 'trl>=0.28'",
        ("huggingface/trl#4880", "huggingface/transformers#42567"),
    ),
    VersionClash(
        {"trl": ">=0.17,<0.20"},
        "SFT with padding_free or packing loses the mask that keeps prompts out of the loss",
        "pip install 'trl>=0.20'",
        ("huggingface/trl#3728", "huggingface/trl#3749"),
        "warning",
    ),
    VersionClash(
        {"trl": ">=0.20,<0.29"},
        "with packing strategy bfd, documents attend to each other in some settings; fixed in 0.29",
        "pip install 'trl>=0.29', or train without packing",
        ("huggingface/trl#5076",),
        "info",
    ),
    VersionClash(
        {"transformers": ">=4.46.0,<4.46.2"},
        "with gradient accumulation the loss of some models is multiplied by the number of steps",
        "pip install 'transformers>=4.46.2'",
        ("huggingface/transformers#34263", "hiyouga/LlamaFactory#6211"),
        "warning",
    ),
    VersionClash(
        {"transformers": "==4.48.0"},
        "with gradient accumulation the loss and its gradients are too large",
        "pip install 'transformers>=4.48.1'",
        ("huggingface/transformers#35663",),
    ),
    VersionClash(
        {"transformers": ">=4.56,<5.18"},
        "Trainer deletes bos_token_id from the saved config if the tokenizer has no BOS (every Qwen)",
        "pip install 'transformers>=5.18', or put it back into config.json",
        ("huggingface/transformers#48592", "huggingface/transformers#48708"),
        "warning",
    ),
    VersionClash(
        {"numpy": ">=2", "torch": "<2.3"},
        "tensors and arrays can't be exchanged: RuntimeError: Numpy is not available",
        "pip install 'numpy<2', or torch>=2.3",
        ("pytorch/pytorch#107302", "pytorch/pytorch#132179"),
    ),
    VersionClash(
        {"datasets": "<2.14.6", "fsspec": ">=2023.10"},
        "load_dataset ends with Loading a dataset cached in a LocalFileSystem is not supported",
        "pip install -U datasets",
        ("huggingface/datasets#6352", "huggingface/datasets#6330"),
    ),
)
