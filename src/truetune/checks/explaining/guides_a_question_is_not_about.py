"""Tells which guides a question can't be about: those on rewards and agents, if it names neither.

Such a guide shares most of its words with others: answers get worse, nothing is learned, a score stays where it is. Who
trains by rewards says so, by a word of the algorithm or of its log; who does not is led to the other guides. The
trade-off: a question of three words ("it got worse") never leads to these guides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

WORDS_OF_REWARDS = re.compile(
    r"\brewards?\b|rewards?[/_-]|\w*(?:grpo|rloo|dapo|gspo|reinforce|verl|openrlhf)\w*|\b(?:ppo|rl|rlhf|rlvr)\b|\brollouts?\b"
    r"|\bpolicy\b|\badvantages?\b|\bverifiers?\b|\bcompletions?\b|\bscores?\b|\bpass(?:@\d| rate)|\bpaid\b|\bhack\w*",
    re.IGNORECASE,
)
"""Who asks about a training by rewards names one of these; `completions` and `scores` stand in its logs"""
WORDS_OF_PAIRS = re.compile(
    r"\bmargins?\b|\b(?:chosen|rejected)\b|\b(?:dpo|orpo|kto|simpo|cpo|ipo)\b", re.IGNORECASE
)
WORDS_OF_ROLLOUTS = re.compile(
    r"grpo|rloo|\brollouts?\b|\bppo\b|\brl\b|\bpolicy\b|\badvantages?\b", re.IGNORECASE
)
"""Rewards stand in the log of a preference training too: `rewards/margins`, `rewards/chosen`"""
WORDS_OF_AGENTS = re.compile(
    r"\btools?\b|tools?[/_-]|\bfunction call\w*|\bmulti-? ?(?:turn|step)\b|\bturns?\b|\btrajector\w+|\bobservations?\b"
    r"|\brollouts?\b|\bepisodes?\b|\benvironments?\b|\bsandbox\b|\b(?:grpo|rl)\b|\bre-?tokeni[sz]\w+"
    r"|\bsearch agents?\b",
    re.IGNORECASE,
)
"""Who asks about the training of an agent names one of these; `agent` alone may be anybody's"""
WORDS_OF_GUIDE: Mapping[str, re.Pattern[str]] = {
    "reward-does-not-rise": WORDS_OF_REWARDS,
    "reward-rises-model-is-worse": WORDS_OF_REWARDS,
    "agent-training": WORDS_OF_AGENTS,
}
"""Guides on one kind of training, and the words without which a question is not about it"""


def guides_a_question_is_not_about(question: str) -> frozenset[str]:
    """The names of the guides that the words of a question speak against.

    Args:
        question: in the user's words.
    """
    if WORDS_OF_PAIRS.search(question) and not WORDS_OF_ROLLOUTS.search(question):
        return frozenset(WORDS_OF_GUIDE)
    return frozenset(name for name, words in WORDS_OF_GUIDE.items() if not words.search(question))
