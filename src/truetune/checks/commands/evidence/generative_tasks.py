"""Names of evaluation tasks for which a model writes its answer."""

from __future__ import annotations

import re

GENERATIVE_TASKS = re.compile(
    r"gsm8k|ifeval|gsm_plus|mgsm|math|aime|bbh|humaneval|mbpp|drop|squad|triviaqa|nq_open|gpqa\w*cot|mmlu_pro"
    r"|generative|longbench|ruler|alpaca|mt_bench|leaderboard\b|_cot\b|_gen\b|coqa|truthfulqa_gen"
)
"""Tasks in which the model writes its answer"""
