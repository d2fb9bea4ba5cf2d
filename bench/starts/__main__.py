"""`python -m bench.starts`: replay starts, print commands, causes and outputs, and write docs/starts.md."""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase

LINES = 12
"""Of an output, where the whole is not asked for"""


def main() -> None:
    """Replay what is asked for. Exits with 1 where a start does not lead to its cause."""
    parser = argparse.ArgumentParser(prog="python -m bench.starts", description=__doc__)
    parser.add_argument(
        "starts",
        nargs="*",
        default=["*"],
        help="names or patterns of starts; all when none is given",
    )
    parser.add_argument("--whole", action="store_true", help="print outputs whole")
    parser.add_argument(
        "--write",
        action="store_true",
        help="keep the results, and write the table of docs/starts.md",
    )
    arguments = parser.parse_args()

    from bench.starts import page
    from bench.starts.replay import replay
    from bench.starts.start import starts

    chosen = [
        start
        for start in starts()
        if any(fnmatchcase(start.name, pattern) for pattern in arguments.starts)
    ]
    replays = []
    for start in chosen:
        replays.append(replay(start))
        print(page.told(replays[-1], None if arguments.whole else LINES), flush=True)
    led = sum(one.verdict == "led to the cause" for one in replays)
    print(f"{led} of {len(replays)} starts lead to the cause within two commands")
    if arguments.write:
        page.write(replays)
    sys.exit(led < sum(one.verdict != "skipped" for one in replays))


if __name__ == "__main__":
    main()
