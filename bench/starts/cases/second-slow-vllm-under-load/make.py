import random
from pathlib import Path


def make(folder: Path) -> None:
    """Forty minutes of the server's log: requests wait, and are interrupted."""
    drawn = random.Random(5)
    log = folder / "vllm.log"
    lines = [log.read_text(encoding="utf-8").rstrip("\n")]
    preempted = 0
    for moment in range(238):
        at = f"11-04 14:{5 + moment // 6:02d}:{moment % 6}3"
        if drawn.random() < 0.45:
            preempted += drawn.randrange(5, 20)
            lines.append(
                f"WARNING {at} [scheduler.py:1757] Sequence group"
                f" chatcmpl-{drawn.getrandbits(64):016x} is preempted by PreemptionMode.RECOMPUTE"
                " mode because there is not enough KV cache space. This can affect the end-to-end"
                " performance. Increase gpu_memory_utilization or tensor_parallel_size to provide"
                f" more KV cache memory. total_num_cumulative_preemption={preempted}"
            )
        lines.append(
            f"INFO {at} [loggers.py:118] Engine 000:"
            f" Avg prompt throughput: {drawn.uniform(200, 480):.1f} tokens/s,"
            f" Avg generation throughput: {drawn.uniform(28, 62):.1f} tokens/s,"
            f" Running: {drawn.randrange(3, 7)} reqs, Waiting: {drawn.randrange(25, 55)} reqs,"
            f" GPU KV cache usage: {drawn.uniform(96, 99.9):.1f}%,"
            f" Prefix cache hit rate: {drawn.uniform(2, 9):.1f}%"
        )
        lines.extend(
            f"INFO:     10.0.3.{drawn.randrange(10, 40)}:{drawn.randrange(40000, 60000)} -"
            ' "POST /v1/chat/completions HTTP/1.1" 200 OK'
            for _ in range(drawn.randrange(3))
        )
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
