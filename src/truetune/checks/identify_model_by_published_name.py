"""Reads off the name of a published model what its weights are, and tells whether two names may
mean one model.

Family, generation, size, release and tuning are read off the last part of a name; who quantized or mirrored a model,
and in what format, is left out, for the weights are the same. What a name does not say is not compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import read_json

FAMILY = re.compile(
    r"(codellama|tinyllama|llama|ministral|mistral|mixtral|qwen|gemma|phi|smollm|olmo|falcon|yi|deepseek|granite|bloom"
    r"|pythia|opt|gpt2|gpt-neox|stablelm|starcoder|internlm|baichuan|command|nemotron|glm|exaone|vicuna|zephyr)"
)
# `(?!...[bmk])`: a number in front of b, m or k is a size or a length, and one in front of `x7b` counts experts.
GENERATION = re.compile(r"[-_]?v?(\d+(?:\.\d+)?)(?![\d.]*[bmk](?![a-z]))(?!\d*x\d)")
"""The number behind a family: `2.5` of qwen2.5, `3.1` of Llama-3.1; `7b` is a size, `128k` a length"""
SIZE = re.compile(r"(?<![a-z0-9.])(\d+x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
# Years from 2023 on: before, no model was named by its month, and `2048` is a length.
RELEASE = re.compile(r"(?<![a-z0-9])(?:v(\d+(?:\.\d+)?)|(2[3-9](?:0[1-9]|1[0-2])))(?![a-z0-9])")
"""`v0.3`, or the year and month `2507`"""
TUNED = re.compile(r"(?<![a-z])(instruct|chat|it|sft|dpo)(?![a-z])")
BASE = re.compile(r"(?<![a-z])base(?![a-z])")
DOMAIN = re.compile(
    r"(?<![a-z])(coder|code|math|vl|vision|audio|guard|distill|mini|small|medium)(?![a-z])"
)
OVERFLOWS = re.compile(
    r"(?:^|[-_/])(gemma[-_]?[23]n?(?![\d.]*b)|(?:flan-|long-|m|um|by|code)?t5)(?![a-z0-9])"
)
"""Families whose activations pass 65,504, float16's largest number: Gemma 2 and 3 (stored as bfloat16; attention and
residual stream, by their authors and unsloth), T5 and its kin (trained in bfloat16; the feed-forward layers)"""
UNTRAINED_MARKS = (
    (
        re.compile(r"(?:meta-)?llama-3(?:\.1)?-(?:8|70|405)b(?:-hf)?(?:-bnb-4bit)?"),
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    (re.compile(r"qwen-(?:1_8|7|14|72)b"), ("<|im_start|>", "<|im_end|>")),
)
"""Bases whose vocabulary has the marks of a chat, which no text ever trained, by the last part of the published name:
Llama 3 and 3.1 (meta-pytorch/torchtune#2429, unslothai/unsloth#929), Qwen 1 (its README, on LoRA of the base)"""
USUAL_FOLDERS = frozenset(
    (
        "out",
        "output",
        "outputs",
        "run",
        "runs",
        "save",
        "saves",
        "saved",
        "checkpoint",
        "checkpoints",
    )
    + ("ckpt", "ckpts", "model", "models", "result", "results", "work", "weights", "artifacts")
)
"""Folders that projects write weights into: `out/sft-merged` is no name of the hub"""
OWN_WEIGHTS = re.compile(
    r"(?<![a-z])(?:sft|dpo|orpo|kto|cpt|merged?|fused|(?:fine-?)?tuned|stage-?\d|checkpoint-\d+|final|best)(?![a-z])"
)
"""What folders of trained or merged weights are called"""
MAX_NAME = 255
"""Characters of a folder's name, the most that Linux takes"""
# Chosen: the longest names on the hub have 96 characters; the patterns are slow on a megabyte.
LONGEST = 300
"""Characters; longer ones name no model"""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What a name says; empty where it says nothing."""

    family: str
    generation: str
    size: str
    release: str
    is_tuned: bool
    domains: frozenset[str]


# Chosen, not measured: a folder with more adapters holds checkpoints of one run.
MAX_ADAPTERS = 100


def model_identity(name: str) -> ModelIdentity | None:
    """The family, generation, size, release and tuning that a model's name says; None if it names
    no known family.
    """
    # The last part alone: the owner is called `meta-llama` for models that are none of its families.
    last = name.rstrip("/").rpartition("/")[2].lower()
    match = FAMILY.search(last) if len(last) < LONGEST else None
    if match is None:
        return None
    # `match` at the end of the family, not `search`: numbers further on are sizes and releases.
    generation = GENERATION.match(last, match.end())
    size = SIZE.search(last)
    release = RELEASE.search(last, match.end())
    return ModelIdentity(
        match[1],
        generation[1] if generation else "",
        f"{size[1] or ''}{size[2]}{size[3]}" if size else "",
        (release[1] or release[2]) if release else "",
        TUNED.search(last) is not None,
        frozenset(DOMAIN.findall(last)),
    )


def family_known_to_overflow_float16(name: str) -> str | None:
    """The family, where a model's name says that it is one which overflows in float16."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    match = OVERFLOWS.search(last) if len(last) < LONGEST else None
    return match[1] if match is not None else None


def chat_markers_base_never_trained(name: str) -> tuple[str, ...]:
    """The marks of chats that a published base has in its vocabulary and never trained; empty where none are known."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    if len(last) >= LONGEST:
        return ()
    return next((marks for names, marks in UNTRAINED_MARKS if names.fullmatch(last)), ())


def is_named_as_base_model(name: str) -> bool:
    """Does the name of a published model say that it was trained on no chats? Most bases are named without a word."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    if len(last) >= LONGEST:
        return False
    return BASE.search(last) is not None or bool(chat_markers_base_never_trained(last))


def explain_different_weights(one: str, other: str) -> str | None:
    """How two names say that they mean different pretrained weights: `release 0.1 and 0.3`; None where they may be one.

    A local folder may hold anything under a short name, so what one name leaves out is not compared.
    """
    here, there = model_identity(one), model_identity(other)
    if here is None or there is None:
        return None
    if here.family != there.family:
        return f"family {here.family} and {there.family}"
    are_published = _are_hub_names(one, other)
    for part in ("generation", "size", "release"):
        # A published name without a generation is of the first: `llama-7b` is Llama 1. Sizes and releases are often
        # left out of a name that has them.
        is_complete = part == "generation" and are_published
        difference = _explain_different_part(here, there, part, is_complete=is_complete)
        if difference is not None:
            return difference
    domains = here.domains ^ there.domains
    return f"only one is named {', '.join(sorted(domains))}" if domains and are_published else None


def _explain_different_part(
    here: ModelIdentity, there: ModelIdentity, part: str, *, is_complete: bool
) -> str | None:
    """`size 7 and 13`, where both names say the part, or `is_complete` makes one that is left out the first."""
    one, other = getattr(here, part), getattr(there, part)
    is_comparable = is_complete or (one and other)
    return f"{part} {one or 1} and {other or 1}" if is_comparable and one != other else None


def are_base_and_instruct_model(one: str, other: str) -> bool:
    """Is one the base and the other its instruction-tuned model, by published names?"""
    here, there = model_identity(one), model_identity(other)
    if here is None or there is None or not _are_hub_names(one, other):
        return False
    return here.is_tuned != there.is_tuned


class OtherBase(NamedTuple):
    """How the model under an adapter differs from the one that it was trained on."""

    why: str
    is_proved: bool
    """Do the two names mean different weights, whatever the folders hold?"""


def explain_other_base(served: str, trained: str) -> OtherBase | None:
    """How an adapter's own base differs from the model that it is put on; None where both may be the same weights."""
    apart = explain_different_weights(served, trained)
    if apart is not None:
        return OtherBase(apart, is_proved=True)
    if are_base_and_instruct_model(served, trained):
        return OtherBase("one is instruction-tuned, the other is not", is_proved=False)
    if is_tuned_folder(trained) and is_published_model_name(served):
        return OtherBase(f"the training that is in {trained} is missing", is_proved=False)
    return None


def is_published_model_name(name: str) -> bool:
    """Is it the name of a published model: `owner/model`, of a known family?"""
    return _are_hub_names(name) and model_identity(name) is not None


def is_tuned_folder(name: str) -> bool:
    """Does the path of a folder say that its weights were trained or merged here?"""
    # `owner/model` has one slash: it may be a name of the hub. Without one, `sft-merged`, it is none of today.
    slashes = name.rstrip("/").count("/")
    is_path = name.startswith((".", "/", "~")) or slashes != 1
    is_path = is_path or name.partition("/")[0].lower() in USUAL_FOLDERS
    return is_path and is_named_like_tuned_weights(name)


def is_named_like_tuned_weights(name: str) -> bool:
    """Is the last part of a name one that trained or merged weights are given?"""
    return OWN_WEIGHTS.search(name.rstrip("/").rpartition("/")[2].lower()) is not None


def is_owner_a_parent_folder(name: str, beside: Path) -> bool:
    """Is the first part of a name, `work` of `work/sft-merged`, a folder above the file?

    Then it is no owner on the hub.
    """
    first, slash, _ = name.partition("/")
    if not slash or not first or "\0" in first or len(first) > MAX_NAME:
        return False
    return any((above / first).is_dir() for above in list(beside.absolute().parents)[:3])


def _are_hub_names(*names: str) -> bool:
    """Are these names of the hub, `owner/model`, and no folders?"""
    return all(
        re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) is not None and not Path(name).exists()
        for name in names
    )


def base_of_adapter(adapter: str, beside: str) -> tuple[str, Path] | None:
    """The base that a local adapter names in its adapter_config.json, and that file; None where it is not here.

    Args:
        adapter: Its folder, as a script or settings name it.
        beside: The file that names it; a relative folder is looked for from here, and from that file upwards.
    """
    for folder in _possible_adapter_folders(adapter, Path(beside)):
        file = folder / "adapter_config.json"
        try:
            settings = read_json(file, SETTINGS)
        except (OSError, ValueError):
            continue
        name = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
        return (name, file) if isinstance(name, str) and name else None
    return None


def base_in_only_adapter_file(folder: Path, adapter: str) -> tuple[str, Path] | None:
    """The base that the one adapter file of a folder names, also under another name: `dpo_adapter_config.json`.

    Also in a folder directly below that is called as the adapter's. None where there is none, or several: which of
    them is meant is not known.
    """
    last = Path(adapter).name
    try:
        files = [
            file
            for file in (
                *folder.glob("*adapter_config*.json"),
                *folder.glob("*/adapter_config.json"),
            )
            if file.parent == folder or file.parent.name == last
        ]
    except OSError:
        return None
    if len(files) != 1:
        return None
    name = _base_in_file(files[0])
    return (name, files[0]) if name is not None else None


def base_of_all_adapters_below(folder: Path) -> tuple[str, Path] | None:
    """The one base that all adapters in a folder and up to two below it name, and the first of their files.

    None where there is none, or they name several: which of them is meant is not known.
    """
    patterns = ("adapter_config.json", "*/adapter_config.json", "*/*/adapter_config.json")
    try:
        config_files = (file for pattern in patterns for file in folder.glob(pattern))
        files = sorted(islice(config_files, MAX_ADAPTERS))
    except OSError:
        return None
    bases = {_base_in_file(file) for file in files}
    base = bases.pop() if len(bases) == 1 else None
    return (base, files[0]) if base is not None else None


def _base_in_file(file: Path) -> str | None:
    """The base that an adapter's settings name; None where they can't be read, or name none."""
    try:
        settings = read_json(file, SETTINGS)
    except (OSError, ValueError):
        return None
    name = settings.get("base_model_name_or_path") if isinstance(settings, dict) else None
    return name if isinstance(name, str) and name else None


def _possible_adapter_folders(adapter: str, beside: Path) -> Iterator[Path]:
    """Where a folder of that name may be: from here, and from the file that names it upwards."""
    # 4096: the longest path that Linux takes. A NUL byte raises ValueError in every function on paths.
    if "\0" in adapter or "://" in adapter or len(adapter) > 4096:
        return
    yield Path(adapter).expanduser()
    for above in list(beside.absolute().parents)[:3]:
        yield above / adapter
