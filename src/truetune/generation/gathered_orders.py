"""The orders in which answers of several processes stand where nobody put them back."""

from __future__ import annotations

import math

# Chosen, not measured: two nodes of eight GPUs; each further order that is tried makes chance likelier.
MAX_PROCESSES = 16
"""Processes whose answers were put together, that are tried"""


def gathered_orders(count: int, processes: int) -> tuple[list[int], list[int], list[int]]:
    """Rows of the references by rows of the answers.

    Where each of some processes took every nth row and their answers were put one behind the other; the same where a
    sampler filled the last round with rows from the beginning, as torch's DistributedSampler does; and where each took
    one block and their answers took turns.
    """
    dealt = [row for process in range(processes) for row in range(process, count, processes)]
    rounds = math.ceil(count / processes)
    filled = [(row % rounds * processes + row // rounds) % count for row in range(count)]
    blocks = [0] * count
    for row, target in enumerate(dealt):
        blocks[target] = row
    return dealt, filled, blocks
