"""Matches names and patterns of `target_modules` with modules as peft does, and finds what a wrong name was likely
meant as.

A name of a list means a module itself or an ending after a dot, as in peft; a pattern has to fit as a whole. Names are
compared part by part, so that `q_porj` is a slip and `k_proj` is another module.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

LINEAR_NAMES = frozenset(
    (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "out_proj",
        "qkv_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    + (
        "gate_up_proj",
        "c_attn",
        "c_proj",
        "c_fc",
        "query_key_value",
        "dense",
        "dense_h_to_4h",
        "dense_4h_to_h",
    )
    + (
        "W_pack",
        "wq",
        "wk",
        "wv",
        "wo",
        "w1",
        "w2",
        "w3",
        "Wqkv",
        "fc1",
        "fc2",
        "in_proj",
        "x_proj",
        "dt_proj",
    )
    + (
        "q_a_proj",
        "q_b_proj",
        "kv_a_proj_with_mqa",
        "kv_b_proj",
        "query",
        "key",
        "value",
        "linear_1",
        "linear_2",
    )
    + (
        "attn_qkv",
        "att_proj",
        "ff_proj",
        "qkv",
        "proj",
        "to_q",
        "to_k",
        "to_v",
        "to_out",
        "gate",
        "router",
    )
)
"""Last names of linear layers in published models"""
FULLY_TRAINED_NAMES = frozenset(
    (
        "embed_tokens",
        "lm_head",
        "wte",
        "wpe",
        "embed_in",
        "embed_out",
        "score",
        "classifier",
        "v_head",
    )
)
"""Modules that are trained as a whole; those of a head may be made by the trainer"""
# Two of four letters that changed places (`porj`) are 0.75 alike, so that a higher bound misses them; at half, parts
# that share two letters of four would be one word. Parts of one or two letters are never compared.
MIN_SIMILARITY = 0.75
PATTERN_SIGN = re.compile(r"[*+?()\[\]{}|^$\\]")
"""A name that holds one of these is a pattern."""


def modules_matching_name(target: str, modules: Iterable[str]) -> list[str]:
    """The modules that a name of a list means to peft: itself, or an ending after a dot."""
    return [name for name in modules if name == target or name.endswith(f".{target}")]


def count_pattern_matches(pattern: str, modules: Iterable[str]) -> int | None:
    """How many modules a pattern fits as a whole; None where it looks ahead or back."""
    matching = names_that_pattern_fits(pattern, modules)
    return None if matching is None else len(matching)


def names_that_pattern_fits(pattern: str, modules: Iterable[str]) -> list[str] | None:
    """The modules that a pattern fits as a whole; None where it looks ahead or back.

    In linear time, whatever the pattern: Arrow's expressions are RE2's, which leave such patterns out.
    """
    names = list(modules)
    try:
        fits = pc.match_substring_regex(pa.array(names, pa.string()), f"^(?:{pattern})$")
    except pa.ArrowException:
        return None
    return [name for name, is_fit in zip(names, fits.to_pylist(), strict=True) if is_fit]


def likely_module_name(target: str, known: Iterable[str]) -> str | None:
    """The module name that one that fits nothing was likely meant as: another name, or several
    without a comma between.

    Only what is no word of any known name counts as misspelled: `g_proj` is a name, `v_prjo` is
    none.
    """
    known = sorted(name for name in known if len(name) > 2)
    last = target.rpartition(".")[2]
    if last in known:
        return None
    joined = _split_joined_names(last, known)
    if joined:
        return ", ".join(joined)
    words = {word for name in known for word in name.split("_")}
    return next((name for name in known if _is_misspelling(last, name, words)), None)


def _is_misspelling(text: str, name: str, words: set[str]) -> bool:
    """Is the text a misspelling of the name: other signs or case, or similar parts? `words` are parts that exist."""
    if text.replace("_", "").lower() == name.replace("_", "").lower():
        return True
    mine, theirs = text.split("_"), name.split("_")
    return len(mine) == len(theirs) and all(
        a == b
        or (
            len(a) > 2
            and a not in words
            and difflib.SequenceMatcher(None, a, b).ratio() >= MIN_SIMILARITY
        )
        for a, b in zip(mine, theirs, strict=True)
    )


def _split_joined_names(text: str, known: list[str]) -> list[str] | None:
    """The two or more names that the text joins without a comma; None where it is not made of
    names.
    """
    for name in sorted((name for name in known if text.startswith(name)), key=len, reverse=True):
        rest = text[len(name) :]
        if rest in known:
            return [name, rest]
        if rest and (more := _split_joined_names(rest, known)):
            return [name, *more]
    return None
