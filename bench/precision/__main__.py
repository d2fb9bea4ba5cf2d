"""`python -m bench.precision`: print how true findings on public material are, by rule and kind, for both sets."""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
    """Print the tables; with --corpus or --held-out-corpus, see first which findings are still reported."""
    parser = argparse.ArgumentParser(prog="python -m bench.precision", description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, help="report again on the development set: KIND/OWNER+NAME/PATH"
    )
    parser.add_argument("--held-out-corpus", type=Path, help="report again on the held-out set")
    parser.add_argument(
        "--tokenizer",
        type=Path,
        help="tokenizer for the held-out data (Qwen2.5-Instruct's was used)",
    )
    parser.add_argument("--write", action="store_true", help="write the tables into docs/bench.md")
    arguments = parser.parse_args()

    from bench.precision import again, table
    from bench.precision.judged import DEVELOPMENT, HELD_OUT, SETS

    if arguments.corpus is not None:
        again.keep(DEVELOPMENT, again.report_again(DEVELOPMENT, arguments.corpus))
    if arguments.held_out_corpus is not None:
        again.keep(
            HELD_OUT, again.report_again(HELD_OUT, arguments.held_out_corpus, arguments.tokenizer)
        )
    print("\n".join(f"{judged_set.marker}:\n\n{table.tables(judged_set)}" for judged_set in SETS))
    if arguments.write:
        table.write_page()


if __name__ == "__main__":
    main()
