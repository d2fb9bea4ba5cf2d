"""Constants: the settings of a launch that several rules on devices ask about, and the stacks that
override them.

What a stack does with a device map was read in its source: Axolotl and LLaMA-Factory replace it by each
process's own GPU. The trade-off of lists: a new stack counts as one that obeys the setting until it is entered here.
"""

from __future__ import annotations

STREAMING_KEYS = ("streaming", "dataset_streaming")
"""Keys that make a data set a stream: LLaMA-Factory and Axolotl take the first, TRL's scripts the second"""
SPREADING_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
"""Values of `device_map` that spread the layers of one model over the visible GPUs (accelerate)"""
STACKS_THAT_PLACE_THE_MODEL = ("axolotl", "llama-factory")
"""Stacks that put the model on each process's own GPU, whatever `device_map` says"""
