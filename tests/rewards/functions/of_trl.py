"""Reward functions that TRL ships with."""

from trl.rewards import accuracy_reward as accuracy
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment
from trl.rewards import think_format_reward as think_format

overlong = get_soft_overlong_punishment(max_completion_len=100, soft_punish_cache=20)
repetition = get_repetition_penalty_reward(ngram_size=3, max_penalty=-1.0)
