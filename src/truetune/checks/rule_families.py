"""Families of rules: which letters begin the codes of a station's rules, and how codes are sorted
and former ones translated.

Letters say what a rule looks at, so that `--select ROW` needs no table. Findings of one severity stand in this order:
what is wrong in the tokenizer is read before what it does to rows, and that before what it does to a loss.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from truetune.checks.former_rule_codes import FORMER_CODES, FORMER_NAMES

STATION_BY_LETTERS: Mapping[str, str] = {
    "TOK": "tokenizer",
    "TPL": "template",
    "ROW": "rows",
    "LEN": "tokens",
    "PREF": "pairs",
    "IDS": "tokenized",
    "RET": "retrieval",
    "CFG": "config",
    "DEV": "devices",
    "SRC": "source",
    "CMD": "commands",
    "MFL": "modelfile",
    "LOG": "log",
    "CKP": "checkpoint",
    "BAT": "batch",
    "LAW": "law",
    "REC": "recitation",
    "ROL": "rollout",
    "ANS": "answers",
    "CAU": "cause",
    "EVAL": "evaluation",
    "SRV": "serving",
    "RWD": "reward",
    "ENV": "environment",
}
CODE = re.compile(r"(?P<letters>[A-Z]{2,8})(?P<number>\d{3})")
STABILITIES = ("preview", "stable")
"""What a rule is by what stands behind it; each selects the rules that are it"""
_ORDER = {letters: place for place, letters in enumerate(STATION_BY_LETTERS)}


def code_sort_key(code: str) -> tuple[int, str]:
    """The key by which codes are sorted: by family along the path, then by number; those of plug-ins last."""
    letters = code.rstrip("0123456789")
    return _ORDER.get(letters, len(_ORDER)), code


def is_rule_code(word: str) -> bool:
    """Is a word written as the code of a rule, of today or before?"""
    return CODE.fullmatch(word.upper()) is not None


def current_codes_of_former(wanted: str) -> tuple[str, ...]:
    """The codes of today that a code of before, or its beginning, meant; none where it is no code of before."""
    begin = wanted.upper()
    # Codes of before were TT and three digits, without a family.
    if not re.fullmatch(r"TT\d{0,3}", begin):
        return ()
    return tuple(new for old, new in FORMER_CODES.items() if old.startswith(begin))


def former_code(code: str) -> str:
    """The code that a rule had before; the code itself where it has had none."""
    return _FORMER_BY_CODE.get(code, code)


def former_names(name: str) -> tuple[str, ...]:
    """The names that a rule had before; a rule may have been renamed twice."""
    return tuple(old for old, new in FORMER_NAMES.items() if new == name)


_FORMER_BY_CODE = {new: old for old, new in FORMER_CODES.items()}
