"""Run attacks one after the other in a process of their own, and measure each from outside the template.

`python -m tests.render.run_attacks [FAMILY...]` prints a line for each attack that passes a bound, and the counts.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.render.attacks import ATTACKS, CHAT

MAX_CPU_S = 3.0
"""The limit is 1 s; the kernel counts whole seconds, and a process that takes over needs a moment to start."""
MAX_MEMORY_MB = 256
MAX_WALL_S = 40.0
"""Past it the process is killed: a machine that is busy with other things is no failure."""
ADDRESS_SPACE = 4 << 30
"""So that an attack that succeeds does not take the machine."""


class Result(NamedTuple):
    """How one attack ended."""

    name: str
    ending: str
    """text, error (a TemplateError), another exception's type, died, or hung"""
    text: str
    """The first characters of the text, or of the message."""
    cpu_s: float
    """Processor time of the process and of all its children."""
    memory_mb: float
    """What the process grew by, or what a child of it had more than a fresh process, the larger."""
    healthy: bool
    """Does the next template render?"""

    @property
    def faults(self) -> list[str]:
        """Which bounds it passed."""
        found = [] if self.ending in ("text", "error") else [self.ending]
        found += ["time"] if self.cpu_s > MAX_CPU_S else []
        found += ["memory"] if self.memory_mb > MAX_MEMORY_MB else []
        return found + ([] if self.healthy else ["what follows"])


def run(names: list[str]) -> Iterator[Result]:
    """The result of each attack, in order. A process that dies or hangs is replaced by a new one for the rest."""
    while names:
        for result in _run_some(names):
            names = names[1:]
            yield result


def _run_some(names: list[str]) -> Iterator[Result]:
    """Up to and with the first attack that ends the process."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.render.run_attacks", "--child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(names))
        process.stdin.close()
        ready = selectors.DefaultSelector()
        ready.register(process.stdout, selectors.EVENT_READ)
        # The first line may wait for the imports as well.
        for i, name in enumerate(names):
            began = time.monotonic()
            line = process.stdout.readline() if ready.select(MAX_WALL_S * (1 if i else 2)) else None
            if line:
                yield Result(*json.loads(line))
                continue
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            waited = time.monotonic() - began
            ending = (
                "hung"
                if line is None
                else f"died of {signal.Signals(-code).name if code < 0 else code}"
            )
            yield Result(name, ending, "", waited if line is None else 0.0, 0.0, True)
            return


def _child() -> None:
    """Attack this very process, once for each name that standard input lists."""
    from truetune.render.template import Template

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    plain = Template("{% for m in messages %}{{ m.content|string|length }} {% endfor %}")
    expected = str(plain.render(CHAT))
    fresh = _peak_mb(os.getpid())
    for name in json.load(sys.stdin):
        print(json.dumps(_attack(name, fresh, expected)), flush=True)


def _attack(name: str, fresh: float, expected: str) -> Result:
    from truetune.errors import TemplateError
    from truetune.render.template import Template

    family = [os.getpid(), *_descendants(os.getpid())]
    for pid in family:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
    memory_before = _peak_mb(os.getpid())
    cpu_before = _cpu_seconds()
    try:
        text = str(Template(ATTACKS[name]).render(CHAT))
        ending = "text"
    except TemplateError as error:
        ending, text = "error", str(error)
    except BaseException as error:
        ending, text = type(error).__name__, str(error)
    cpu = _cpu_seconds() - cpu_before
    memory = _peak_mb(os.getpid()) - memory_before
    children = [_peak_mb(pid) for pid in _descendants(os.getpid())]
    memory = max(memory, *(peak - fresh for peak in [*children, _reaped_peak_mb()]))
    text = text[:400]
    try:
        healthy = (
            str(Template("{% for m in messages %}{{ m.content|length }} {% endfor %}").render(CHAT))
            == expected
        )
    except Exception:
        healthy = False
    return Result(name, ending, text, round(cpu, 3), round(memory, 1), healthy)


_largest_reaped = 0.0


def _reaped_peak_mb() -> float:
    """The peak of the children that ended, where it is a new one: the system keeps only the largest."""
    global _largest_reaped
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    grown, _largest_reaped = largest > _largest_reaped, largest
    return largest if grown else 0.0


def _cpu_seconds() -> float:
    """Of this process, of its children that ended, and of those that live."""
    times = os.times()
    ticks = sum(sum(map(int, _stat(pid)[11:15])) for pid in _descendants(os.getpid()))
    return (
        times.user
        + times.system
        + times.children_user
        + times.children_system
        + ticks / os.sysconf("SC_CLK_TCK")
    )


def _descendants(pid: int) -> list[int]:
    parents = {
        int(entry): int(_stat(int(entry))[1]) for entry in os.listdir("/proc") if entry.isdigit()
    }
    found = [pid]
    for ancestor in found:
        found += [child for child, parent in parents.items() if parent == ancestor]
    return found[1:]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; zeros where the process ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(peaks[0]) / 1024 if peaks else 0.0


def main() -> None:
    """Print what passed a bound, and the counts."""
    if sys.argv[1:] == ["--child"]:
        _child()
        return
    names = [name for name in ATTACKS if not sys.argv[1:] or name.partition(":")[0] in sys.argv[1:]]
    counts: Counter[str] = Counter()
    began = os.times()
    results: list[Any] = []
    for result in run(names):
        results.append(result)
        counts.update(
            [result.ending if result.ending in ("text", "error") else "neither text nor error"]
        )
        counts.update(f"fault: {fault.partition(' of ')[0]}" for fault in result.faults)
        counts.update(["at fault"] if result.faults else [])
        if result.faults:
            text = result.text[:80].replace("\n", " ")
            print(
                f"{', '.join(result.faults)}: {result.name}: {result.cpu_s} s, {result.memory_mb}"
                f" MB, {text}",
                flush=True,
            )
    ended = os.times()
    print(f"{len(results)} attacks", dict(counts))
    print(
        f"longest {max(r.cpu_s for r in results)} s, largest {max(r.memory_mb for r in results)} MB"
    )
    print(
        "all:"
        f" {ended.children_user + ended.children_system - began.children_user - began.children_system:.1f}"
        " s CPU"
    )


if __name__ == "__main__":
    main()
