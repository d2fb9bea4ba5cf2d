"""Reduces words to stems as a search compares them, and groups stems that users say for the same
thing.

`masks`, `masked` and `masking` have one stem. Two tables bring together what users say and what pages say: short forms
that count as the same word, and words that are near, which count less. Endings are cut by a list and not by a stemmer's
rules, for the words are few and technical; the trade-off is that a rare word may keep its ending or lose a letter.
"""

from __future__ import annotations

import re
from functools import cache

from truetune.checks.explaining.replace_figures_by_their_meaning import words_for_figures

WORD = re.compile(r"[a-z][a-z0-9]+|(?<![\d.])[1-9]\d{2,}(?![\d.])")
"""Numbers only from three digits on: statuses and exit codes. Smaller ones are counts that say nothing of a symptom"""
_COMMON_WORDS_TEXT = (
    "a an and are as at be been but by can could did do does for from had has have how i if"
    " in into is isn it its just me my of on or our so t than that the their them then there"
    " these they this those to too was we were what when where which while who why will with"
    " would you your after before very get gets got getting am s don doesn won m re ve"
    " anything something everything always only still even keep keeps kept make makes made"
    " use using used go goes going went want try tried please help problem wrong issue bad"
    " every each all job look looks like fine tune tuned tuning finetune finetuned"
    " finetuning one two three four five six seven eight ten first second last many much"
    " most more less single exactly about until whole also own other others another some any"
    " time times print prints say says show shows stay stays take takes come comes give"
    " gives put set sets no not yes per through during become becomes became"
)
COMMON_WORDS = frozenset(_COMMON_WORDS_TEXT.split(" "))
"""Words that say nothing of a symptom"""
ENDINGS = (
    ("izations", "ize"),
    ("ization", "ize"),
    ("ations", "ate"),
    ("ation", "ate"),
    ("nesses", ""),
    ("ness", ""),
    ("ments", ""),
    ("ment", ""),
    ("ingly", ""),
    ("edly", ""),
    ("ies", "y"),
    ("ied", "y"),
    ("ings", ""),
    ("ing", ""),
    ("sses", "ss"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("ers", ""),
    ("er", ""),
    ("ed", ""),
    ("es", ""),
    ("ly", ""),
    ("e", ""),
    ("s", ""),
)
# Letters that are left at least: without it `as`, `ing` and `uses` would lose all that tells them apart.
MIN_STEM = 3
SHORT_FORMS: tuple[tuple[str, ...], ...] = (
    ("evaluation", "val", "validation", "eval", "evaluate", "dev"),
    ("same", "identical", "alike", "equal"),
    ("rate", "lr"),
    ("memory", "mem"),
    ("checkpoint", "ckpt"),
    ("stop", "eos"),
    ("rise", "increase", "climb", "grow"),
    ("perplexity", "ppl"),
    ("accuracy", "acc"),
    ("compare", "vs", "versus"),
)
"""Words for one thing, short forms among them: they count as the first of their line"""
NEAR_WORDS = tuple(
    tuple(line.split())
    for line in (
        "oom memory vram ram",
        "flat plateau stuck constant unchanged stagnate decrease fall drop decline reduce"
        " improve move moving down lower",
        "gibberish garbage nonsense rubbish junk incoherent random garbled noise",
        "repeat repetition loop again repetitive parrot echo copy recite",
        "stop end endless forever eos terminate finish ramble infinite",
        "hang stuck freeze deadlock wait timeout stall",
        "slow speed throughput latency fast long",
        "pad padding padded",
        "idle busy utilization utilisation unused starve",
        "iterations steps batches",
        "compare comparable better versus against differ different",
        "perfect good suspicious suspiciously high leak",
        "quantized quantization unquantized dequantize qlora float16 bf16 fp16",
        "family model tokenizer vocabulary vocabularies",
        "sequential serial batch row",
        "request requests user users concurrent",
        "crash die killed abort dead fail exception error traceback",
        "diverge explode blow rise increase grow climb up spike jump chaotic unstable erratic jumpy",
        "nan inf infinite finite zero",
        "gpu cuda device vram accelerator",
        "gpus ddp fsdp distributed multi multigpu processes ranks nodes several parallel",
        "dpo preference chosen rejected pairs orpo kto rlhf alignment",
        "likely likelihood probability probabilities unlikely",
        "metric accuracy score evaluate evaluation eval benchmark perplexity bleu rouge f1",
        "memorise memorize overfit overfitting",
        "template chat jinja format prompt",
        "cut truncate truncation truncated short length",
        "mask label labels supervised trained",
        "generate generation inference decode output answer answers response reply",
        "serve vllm server deploy ollama gguf served production",
        "learn learned trained train supervised taught",
        "high large larger big huge above beyond",
        "low small tiny weak below",
        "worse dumb dumber stupid degrade damage quality",
        "json parse parser structured schema",
        "language english chinese german french spanish japanese russian korean script",
        "same repeat constant",
        "tool tools function call",
        "reasoning think thinking thought cot",
        "ignore drop lost unused missing never",
        "empty nothing blank none",
        "nothing effect useless",
        "rate lr learning",
        "adapter lora qlora peft merge merged",
        "save checkpoint load resume restart",
        "disk space quota storage",
        "duplicate copies twice double",
        "leak contamination overlap test heldout split",
        "access gated download permission unauthorized login 401 403 hub",
        "data dataset rows jsonl csv columns column field",
    )
)
"""What users say for one another: a word finds the others of its line too, at less weight"""


@cache
def stem_of(word: str) -> str:
    """A word without its ending: `masks`, `masked`, `masking` are one."""
    # The list has the longest endings first; only one is cut.
    for ending, instead in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) + len(instead) >= MIN_STEM:
            word = word[: -len(ending)] + instead
            break
    # `stopping` and `stopped` leave `stopp`; `loss` and `full` keep their double letter.
    if len(word) > MIN_STEM and word[-1] == word[-2] and word[-1] not in "sl":
        return word[:-1]
    return word.rstrip("e")


def list_stems(text: str) -> list[str]:
    """The stems of a text's words, in their order; common words are left out."""
    words = (word for word in WORD.findall(words_for_figures(text)) if word not in COMMON_WORDS)
    stems = map(stem_of, words)
    return [STEM_OF_SHORT_FORM.get(stem, stem) for stem in stems]


STEM_OF_SHORT_FORM = {stem_of(word): stem_of(group[0]) for group in SHORT_FORMS for word in group}
"""Stem -> the stem that it counts as"""


def _near_stems_by_stem() -> dict[str, frozenset[str]]:
    """For each stem the others of the lines of NEAR_WORDS that it stands in."""
    near_stems: dict[str, set[str]] = {}
    for group in NEAR_WORDS:
        stems = {stem for word in group for stem in list_stems(word)}
        for stem in stems:
            near_stems.setdefault(stem, set()).update(stems - {stem})
    return {stem: frozenset(others) for stem, others in near_stems.items()}


NEAR_STEMS = _near_stems_by_stem()
"""Stem -> stems of words that are said for it"""
