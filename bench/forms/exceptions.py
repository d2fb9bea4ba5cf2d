"""Rules that may be silent in a form, each with the reason. What is not here and lost is a gap of a reader."""

from __future__ import annotations

NO_SUCH_TEXT = "the fault is in how the text is written (two strings beside each other), which no syntax tree keeps"
CERTAIN = "a default of the command line may be overruled, and the rule speaks of what is certain"
MODULE_LEVEL = "a file that is imported runs before what a class does, so the order that the fault is about is another"

IN_COMMENTS = "the page shows the order in which cells ran in comments, which a form does not keep"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("lora-target-names-joined", "*"): NO_SUCH_TEXT,
    ("adapter-made-again-after-training", "*"): IN_COMMENTS,
    ("visible-devices-set-too-late", "class"): MODULE_LEVEL,
    ("visible-devices-set-too-late", "main"): MODULE_LEVEL,
}
"""Rule and form -> why it may be silent; `*`: in every form"""


def reason_for_silence(rule: str, forms: tuple[str, ...]) -> str | None:
    """Why a rule may be silent in a form, or in one of several that are given one after the other."""
    for form in ("*", *forms):
        if (rule, form) in EXCEPTIONS:
            return EXCEPTIONS[rule, form]
    return None
