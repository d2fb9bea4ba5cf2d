"""Answers with labels by hand, for `bench.judge_answers`."""
