"""Tries reward functions of GRPO and RLOO on completions whose worth is known: `truetune reward`."""
