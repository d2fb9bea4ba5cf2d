"""Rules that may be silent in a form, each with the reason; and the gaps of readers that are known."""

from __future__ import annotations

NO_SUCH_TEXT = "the fault is in how the text is written (two strings beside each other), which no syntax tree keeps"
MODULE_LEVEL = "a file that is imported runs before what a class does, so the order that the fault is about is another"

IN_COMMENTS = "the page shows the order in which cells ran in comments, which a form does not keep"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("lora-target-names-joined", "*"): NO_SUCH_TEXT,
    ("adapter-made-again-after-training", "*"): IN_COMMENTS,
    ("visible-devices-set-too-late", "class"): MODULE_LEVEL,
    ("visible-devices-set-too-late", "main"): MODULE_LEVEL,
}
"""Rule and form -> why it may be silent; `*`: in every form"""


GAPS: dict[str, tuple[str, ...]] = {
    "main": (
        "every-process-writes-the-checkpoint",
        "reward-takes-answers-by-position",
    ),
    "names": (
        "sampled-answers-scored-once",
        "answers-cleaned-as-bag-of-words",
        "evaluation-rows-masked-otherwise",
    ),
    "dataclass": ("loader-pads-uneven-rows",),
    "command-line": (
        "vllm-engine-arguments-slow-generation",
        "labels-copy-input-ids",
        "sharded-weights-not-gathered",
        "prompts-padded-to-a-fixed-length",
        "repetition-forbidden-in-structured-answers",
        "device-map-in-a-distributed-script",
        "adapter-leaves-head-out",
        "scored-answers-limited-to-few-tokens",
        "samples-all-greedy",
        "argument-out-of-range",
        "generation-settings-distort-answers",
        "sampled-answers-scored-once",
        "prompts-lose-their-end",
        "metric-divided-by-another-count",
        "metric-average-named-as-another",
        "chat-template-of-another-family",
        "worst-checkpoint-kept",
        "classes-learned-as-numbers",
    ),
    "helpers": (
        "lm-collator-overwrites-labels",
        "metric-average-named-as-another",
        "model-argument-never-loaded",
        "evaluation-metric-of-one-process",
        "evaluated-copy-is-not-trained",
    ),
    "class": (
        "answers-beside-other-references",
        "scored-answers-limited-to-few-tokens",
        "model-loaded-beside-another",
        "model-argument-never-loaded",
    ),
    "two-files": ("answers-printed-as-python",),
    "notebook": (
        "generation-length-not-set",
        "merge-result-dropped",
        "trial-limit-switched-on",
    ),
}
"""Form -> the rules that are lost in it today. A default of the command line may be overruled, so some of those rules
are right to be silent; the others lack a reader that follows the form"""


def reason_for_silence(rule: str, forms: tuple[str, ...]) -> str | None:
    """Why a rule may be silent in a form, or in one of several that are given one after the other."""
    for form in ("*", *forms):
        if (rule, form) in EXCEPTIONS:
            return EXCEPTIONS[rule, form]
    return None
