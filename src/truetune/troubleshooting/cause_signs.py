"""Lines of a project that show what a cause takes, where no trait of `project_traits` does.

A row of `SIGNS` names causes by words of their text, and says how a line shows them: `eval_steps: 10` for an evaluation
too often, `use_fast=False` for rows that are tokenized on one core. What another line sets may speak against it, or has
to be there beside it. Such a line makes a cause likelier and gives a reader a place to look at; it proves nothing.

The trade-off: lines are read one by one and never run, so that a call over several lines is seen by its first, or by
the line of its argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from truetune.troubleshooting.project_words import ProjectText, TextLine

MAX_LINES_OF_SIGN = 2
# Chosen, as for traits: a line beyond is data or a minified file. It also bounds the patterns.
MAX_LINE_CHARACTERS = 400
COMMENT = re.compile(r"(^|\s)#(?!\s*(SBATCH|PBS|SUB)\b).*$")
SET = r"['\"]?\s*[=: ]\s*['\"]?"
"""Between the name of a setting and its value: `a=1`, `"a": 1`, `--a 1`"""


class Sign(NamedTuple):
    """What shows some causes."""

    words: str
    """In the text of the causes"""
    shown_by: str
    """In a line"""
    unless: str = ""
    """In any line: it speaks against them"""
    beside: str = ""
    """In any line: has to be there as well"""
    unless_in_file: str = ""
    """In a line of the same file: it speaks against them there"""


SIGNS = (
    Sign(
        r"^an evaluation, or saving, too often",
        rf"\b(?:eval|save)_steps{SET}(?:\d{{1,2}}|0?\.0\d+)\b(?![.\d])|\bval_check_interval{SET}(?:0?\.\d+|\d{{1,2}}\b(?!\.))"
        rf"|predict_with_generate{SET}[Tt]rue|\bevals_per_epoch{SET}\d\d",
    ),
    Sign(
        r"^whole checkpoints are written too often",
        rf"\bsave_steps{SET}\d{{1,2}}\b(?![.\d])|\bevery_n_train_steps{SET}\d{{1,2}}\b",
        unless=rf"save_strategy{SET}(?:no|epoch)\b|save_only_model{SET}[Tt]rue",
    ),
    Sign(
        r"data loader of one process",
        rf"\bnum_workers{SET}0\b|dataloader_num_workers{SET}0\b|\bDataLoader\((?!.*num_workers).*\)",
    ),
    Sign(
        r"^a tiny batch with many accumulation steps",
        rf"(?:accum\w*|ACCUM\w*){SET}(?:1[6-9]|[2-9]\d|\d{{3,4}})\b(?!\.)",
        beside=rf"batch_?size\w*{SET}[12]\b(?!\.)",
    ),
    Sign(
        r"^the attention is computed eagerly",
        rf"\battn\w*{SET}eager\b|eager_attention{SET}true|flash_attn{SET}disabled",
    ),
    Sign(
        r"^weights and matrix products in float32",
        rf"\b(?:torch_)?dtype{SET}(?:torch\.)?float32|precision{SET}32\b|\b(?:bf16|fp16){SET}[Ff]alse"
        r"|(?:Model\w*|For[A-Z]\w+)\.from_pretrained\((?!.*dtype).*\)",
        unless=rf"\b(?:bf16|fp16|tf32){SET}(?:[Tt]rue|auto)|--(?:bf16|fp16)\b|bfloat16|(?<!b)float16|autocast|\.half\("
        rf"|mixed[-_]precision{SET}(?:bf|fp)|load_in_[48]bit|set_float32_matmul_precision|bf16-|16-mixed",
    ),
    Sign(
        r"^the completions of GRPO or RLOO",
        rf"\b(?:GRPO|RLOO)(?:Config|Trainer)\(|use_vllm{SET}[Ff]alse",
        unless=rf"use_vllm{SET}[Tt]rue|--use_vllm(?! [Ff]alse)|fast_inference{SET}True|rollout_func",
    ),
    Sign(
        r"^samples are generated, or tables logged",
        r"def on_(?:step_end|log|train_batch_end)\b|wandb\.Table\(",
        beside=r"\.generate\(",
    ),
    Sign(
        r"^rows are tokenized one at a time",
        rf"use_fast{SET}False|(?:preprocessing_num_workers|dataset_num_proc|dataset_processes|num_proc){SET}1\b"
        r"|(?:\bds\w*|data\w*|raw\w*|train\w*|rows?|corpus)(?:\[[^\]]{1,30}\])?\.map\((?!.*(?:batched|num_proc)).*\)",
        beside=r"[Tt]okeni[sz]|\btok\(|cutoff_len",
    ),
    Sign(
        r"^datasets can't hash",
        rf"load_from_cache_file{SET}False|disable_caching\(|overwrite_cache{SET}[Tt]rue",
    ),
    Sign(
        r"^rows or checkpoints lie on a slow disk",
        rf"(?:dir|path|file\w*|cache|HF_HOME){SET}/(?:mnt|nfs|lustre|gpfs|efs|content/drive)\b",
    ),
    Sign(
        r"^one row or prompt is asked at a time",
        rf"\bbatch_?size\w*(?::\s*int)?{SET}(?:field\(\s*default=)?1\b(?![\d.])|max[-_]num[-_]seqs{SET}1\b",
        beside=r"\.generate\(|\bpipeline\(|vllm",
    ),
    Sign(
        r"^Unsloth's model was not switched to inference",
        r"\.generate\(",
        unless=r"for_inference",
        beside=r"Fast(?:Language|Vision)?Model\.from_pretrained",
    ),
    Sign(
        r"^CUDA_LAUNCH_BLOCKING=1, a profiler",
        rf"\bprofile\(|profiler{SET}['\"](?:simple|advanced|pytorch)|with_stack{SET}[Tt]rue|record_shapes{SET}[Tt]rue",
    ),
    Sign(r"^DDP looks for unused weights", rf"find_unused_parameters{SET}[Tt]rue"),
    Sign(
        r"^an adapter (?:is computed beside its base|that is not merged)",
        r"\b(?:Auto)?Peft\w*\.from_pretrained\(|\.load_adapter\(",
        unless=r"merge_and_unload|merge_adapter|\.backward\(|Trainer\(",
    ),
    Sign(
        r"^llama.cpp runs more threads",
        rf"(?:\s|['\"])(?:-t|--threads|n_threads|num_thread){SET}\d+\b",
    ),
    Sign(
        r"^the model is loaded in float32",
        rf"\b(?:torch_)?dtype{SET}(?:torch\.)?float32"
        r"|(?:Model\w*|For[A-Z]\w+)\.from_pretrained\((?!.*dtype).*\)|\bpipeline\((?!.*dtype).*\)",
        unless_in_file=r"bfloat16|(?<!b)float16|\.half\(|load_in_[48]bit|autocast|dtype\s*=\s*['\"]auto",
    ),
)  # fmt: skip


def find_signs(texts: Iterable[ProjectText]) -> Mapping[Sign, tuple[TextLine, ...]]:
    """The signs that a project shows, each with its first lines."""
    lines = [
        TextLine(line.place, code.strip(), line.file)
        for text in texts
        for line in text.lines()
        if (code := COMMENT.sub("", line.text[:MAX_LINE_CHARACTERS])).strip()
    ]
    found: dict[Sign, tuple[TextLine, ...]] = {}
    for sign in SIGNS:
        against = _files_against(sign, lines)
        shown = [
            line
            for line in lines
            if line.file not in against and re.search(sign.shown_by, line.text)
        ]
        if shown and _fits_project(sign, lines):
            found[sign] = tuple(shown[:MAX_LINES_OF_SIGN])
    return found


def _files_against(sign: Sign, lines: list[TextLine]) -> frozenset[str]:
    """The files of which a line speaks against a sign there."""
    if not sign.unless_in_file:
        return frozenset()
    return frozenset(line.file for line in lines if re.search(sign.unless_in_file, line.text))


def _fits_project(sign: Sign, lines: list[TextLine]) -> bool:
    """Does no line speak against a sign, and is what it needs there?"""
    if sign.unless and any(re.search(sign.unless, line.text) for line in lines):
        return False
    return not sign.beside or any(re.search(sign.beside, line.text) for line in lines)


@cache
def signs_of_cause(text: str) -> tuple[Sign, ...]:
    """The signs of a cause, by its text."""
    return tuple(sign for sign in SIGNS if re.search(sign.words, text))
