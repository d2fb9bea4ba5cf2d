"""The orders in which answers of several processes stand where nobody put them back.

Scripts that evaluate on several GPUs share the rows out, and put the answers of the processes one behind the other.
Answers and references are then of different rows (`find_answers_beside_wrong_rows` tries these orders on both). The
trade-off: only what samplers and `gather` of the usual libraries make is tried, for each order more is a chance more
for a false alarm.
"""

from __future__ import annotations

import math

# Chosen, not measured: two nodes of eight GPUs; each further order that is tried makes chance likelier.
MAX_PROCESSES = 16
"""Processes whose answers were put together, that are tried"""


def gathered_orders(count: int, processes: int) -> tuple[list[int], list[int], list[int]]:
    """Three orders in which answers of several processes may stand, each as the row of the
    reference by the row of the answer.

    Args:
        count: rows.
        processes: that shared them.

    Returns:
        dealt: each process took every nth row, and their answers stand one behind the other. Of 5 rows and 2
            processes [0, 2, 4, 1, 3]: answer 1 belongs to row 2.
        filled: the same where a sampler filled the last round with rows from the beginning, as torch's
            DistributedSampler does. Of 5 rows and 4 processes [0, 4, 1, 0, 2]: answer 3 is of row 0 again.
        blocks: each process took one block of rows, and their answers take turns. Of 5 rows and 2 processes
            [0, 3, 1, 4, 2].
    """
    dealt = [row for process in range(processes) for row in range(process, count, processes)]
    rounds = math.ceil(count / processes)
    filled = [(row % rounds * processes + row // rounds) % count for row in range(count)]
    blocks = [0] * count
    for row, target in enumerate(dealt):
        blocks[target] = row
    return dealt, filled, blocks
