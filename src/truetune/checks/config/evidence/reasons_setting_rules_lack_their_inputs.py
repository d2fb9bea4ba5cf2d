"""Why rules on settings can say nothing: inputs that are missing on this machine, in the same words everywhere."""

from __future__ import annotations

from truetune.checks.judgement import Unmet

NO_MODEL = Unmet(
    "the model is not on this machine", "download it, or name its folder in the settings"
)
NO_WEIGHTS = Unmet(
    "the weights of the model are not on this machine",
    "download them, or name their folder in the settings",
)
NO_TOKENIZER = Unmet(
    "the tokenizer is not on this machine, or has no chat template",
    "download it, or name its folder in the settings",
)
NO_ROWS = Unmet("no training file is on this machine", "lay the files where the settings name them")
NO_LORA = Unmet("it is about LoRA, which is not switched on")
NO_STEPS = Unmet(
    "neither max_steps nor the rows are known, and so not how many steps there are",
    "set max_steps, or lay the files where the settings name them",
)
