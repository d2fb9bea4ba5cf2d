"""`python -m bench.precision`: print how true findings on public material are, by rule and kind."""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
    """Print the tables; with --corpus, look first which findings are still reported."""
    parser = argparse.ArgumentParser(prog="python -m bench.precision", description=__doc__)
    parser.add_argument("--corpus", type=Path, help="the judged files, as KIND/OWNER+NAME/PATH: report on them again")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/bench.md")
    arguments = parser.parse_args()

    from bench.precision import again, table

    if arguments.corpus is not None:
        again.keep(again.report_again(arguments.corpus))
    print(table.tables())
    if arguments.write:
        table.write_page()


if __name__ == "__main__":
    main()
