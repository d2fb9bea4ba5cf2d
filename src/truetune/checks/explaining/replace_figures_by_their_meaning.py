"""Replaces figures and fixed phrases of a described symptom by the words for what they mean, for a
search by words.

A number says nothing to a search by words, yet users name their symptom by it: an accuracy of 1.0 is perfect, a loss of
0.6931 is ln 2, and "4 GPUs" are several. Pages are read in the same way, so that both meet in one word.
"""

from __future__ import annotations

import re
from collections.abc import Callable

NUMBER = r"(\d+(?:\.\d+)?)"
METRIC = (
    r"accurac(?:y|ies)|acc|f1|scores?|exact.match|em|precision|recall|pass@\d+|bleu|rouge\w*|auc|win.rate|correct"
    r"|test.set|benchmark"
)
GPU_NAME = r"gpus?|cards?|a100s?|h100s?|h200s?|b200s?|v100s?|a10gs?|l40s?|[34]090s?|t4s?"
PROCESSES = rf"{GPU_NAME}|nodes|ranks|processes|workers|machines|devices"
COUNT = (
    r"(?:[2-9]|[1-9]\d+|two|three|four|eight|sixteen|both|several|multiple|other|more|many|all(?:"
    r" the)?)"
)
MODELS = r"llama|qwen|mistral|mixtral|gemma|phi|deepseek|smollm|olmo|falcon|gpt2|gpt-2|bloom|pythia|yi|granite"

# All chosen by the questions of tests/checks, not measured.
# Of a metric: from here on it is too good to be true. At 0.9 good models would be suspected of a leak, at 0.99 a leak
# with some noise would not.
PERFECT_SHARE = 0.97
# Of a metric: up to here it is near chance, for tokens and for choices. At double, four choices at 25 % are nearly
# there.
CHANCE_SHARE = 0.1
# A loss below it means that a text is known by heart, or that nothing is in the loss; ordinary losses are far above.
NEAR_ZERO_LOSS = 0.01

Replacement = str | Callable[[re.Match[str]], str]


def _replace_metric(match: re.Match[str]) -> str:
    """The words for the value of a metric: `accuracy is 1.0` -> `accuracy perfect`; a number of no
    meaning is dropped.
    """
    share = float(match[2]) / (100 if match[3] else 1)
    return f"{match[1]} {_word_for_share(share)} "


def _replace_percentage(match: re.Match[str]) -> str:
    """The word for a percentage: `100 %` -> `perfect`; the number is dropped if it means nothing."""
    return f" {_word_for_share(float(match[1]) / 100)} "


def _word_for_share(share: float) -> str:
    """What a share means; empty where it means nothing by itself."""
    if share == 0:
        return "zero"
    if share <= CHANCE_SHARE:
        return "low chance"
    # Above 1 it is no share: `bleu 27.3`.
    return "perfect" if PERFECT_SHARE <= share <= 1 else ""


def _replace_utilisation(match: re.Match[str]) -> str:
    """The word for a GPU's utilisation: `gpu util 3 %` -> `gpu util idle`.

    A low share of a GPU is no metric near chance.
    """
    word = "idle" if float(match[2]) <= 100 * CHANCE_SHARE else "busy"
    return f"{match[1]} {word} "


def _replace_loss(match: re.Match[str]) -> str:
    """The word for the value of a loss: `loss is 0.0001` -> `loss zero`; other values say nothing
    without a curve.
    """
    word = "zero" if float(match[2]) < NEAR_ZERO_LOSS else ""
    return f"{match[1]} {word} "


def _replace_hardware(match: re.Match[str]) -> str:
    """`gpus` for the model of a card, such as `h100s`: pages do not name models of cards."""
    return "gpus" if match[0].endswith("s") else "gpu"


READINGS: tuple[tuple[re.Pattern[str], Replacement], ...] = tuple(
    (re.compile(pattern), replace)
    for pattern, replace in (
        (r"\bln ?\(?2\)?(?!\w)|\blog\(2\)|(?<![\d.])0?\.69(?:3\d*)?\b", " ln2 "),
        (r"(?<!\w)-100\b", " masked "),
        (r"!{3,}", " exclamation marks "),
        (r"\bsignal 9\b|\bsigkill\b|\bexit(?: code| status)? 137\b", " killed "),
        (
            r"\b[48][- ]?bits?\b|\bnf4\b|\bint[48]\b|\bbnb\b|\bbitsandbytes\b|\bgptq\b|\bawq\b",
            " quantized ",
        ),
        (r"\b(?:2|two) times\b|\b2x\b(?! (?:slow|fast|as))", " twice "),
        (
            (
                r"\b(?:[\d.]+|two|three|four|five|ten) ?(?:x|times) (?=(?:slower|faster|longer|as"
                r" (?:long|slow)))"
            ),
            " ",
        ),
        (
            r"\b(?:one|each|two)[- ](?:after|by|at)[- ](?:another|the other|one|(?:a"
            r" )?time)\b|\bwaits? for"
            r" (?:one another|each other)\b|\bsequential(?:ly)?\b|\bin turns?\b",
            " sequential ",
        ),
        (r"\b(?:go|goes|going|went) up\b", " rises "),
        (r"\b(?:go|goes|going|went|sinks?|drifts?) (?:down|negative|below zero)\b", " falls "),
        (
            r"\blog[-_ ]?prob(?:s|abilit(?:y|ies))?\b|\blogps\b|\blog[-_ ]?likelihoods?\b",
            " likelihood ",
        ),
        (r"\b(warm|speed|blow)[- ]up\b", r" \1up "),
        (r"\btim(?:e|es|ed|ing)[- ]out\b", " timeout "),
        (r"\ball[_-](?:reduce|gather)\w*|\bbarrier\b", " collective "),
        (
            (
                r"\b(?:end|(?:last|final)"
                r" (?:words?|tokens?|sentences?|part))\b(?=.{0,40}\b(?:missing|gone|lost|cut)\b)"
            ),
            " end truncated ",
        ),
        (r"\bbegin(?:ning)?[- ]of[- ](?:sequence|sentence|text)\b", " bos "),
        (r"\bend[- ]of[- ](?:sequence|sentence|text|turn)\b", " eos "),
        (
            r"\b((?:plain|own|custom|training|train|pytorch|torch|dpo|sft|hand-?written)) loop\b",
            r"\1 custom script",
        ),
        (r"\bmy own\b|\bown (?=\w+)|\bself-?written\b|\bhand-?written\b", " custom "),
        (rf"\b({METRIC})\W+(?:[a-z]+\W+){{0,3}}?(?<![\d.]){NUMBER}\b( ?%)?", _replace_metric),
        (rf"\b((?:{GPU_NAME})\b[^%]{{0,24}}?)(?<![\d.]){NUMBER} ?%", _replace_utilisation),
        (rf"(?<![\d.]){NUMBER} ?%", _replace_percentage),
        (
            rf"\b(loss(?:es)?)\W+(?:(?:is|of|at|about|near|stays|was|falls|fell|drops|to)\W+){{0,3}}(?<![\d.]){NUMBER}\b",
            _replace_loss,
        ),
        (
            (
                rf"\b{COUNT} (?:\w+ )?(?={PROCESSES})|\b(?:gpu|card|process|rank)s? of (?:the"
                rf" )?{COUNT}\b"
            ),
            " several gpu ",
        ),
        (r"\b(?:a100|h100|h200|b200|v100|a10g?|l40|[34]090|t4|card)s?\b", _replace_hardware),
        (r"\bgpus\b", " several gpu "),
        (rf"\b(?:{MODELS})[-\w.]*", " family "),
        (
            r"\b(gpu|rank|step|device|epoch|process|cuda|node|layer|worker|line|row)[ :]+0\b(?!\.)",
            r"\1",
        ),
        (r"(?<![\d.])0(?:\.0+)?(?![\d.])", " zero "),
    )
)
"""In this order: a figure with a unit before the bare one"""


def words_for_figures(text: str) -> str:
    """The text in lower case, with figures and phrases that mean something replaced by words."""
    text = text.lower()
    for pattern, replace in READINGS:
        text = pattern.sub(replace, text)
    return text
