"""`python -m bench.stacks`: run the stacks on the cases, print what they said, and write the page."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase

from tests.parts.shelf import Missing


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.stacks", description=__doc__)
    parser.add_argument("cases", nargs="*", default=["*"], help="names or patterns of cases")
    parser.add_argument("--stack", default="*", help="a name or a pattern of stacks")
    parser.add_argument("--write", action="store_true", help="keep the results")
    parser.add_argument("--missing", action="store_true", help="only cases without a result")
    parser.add_argument("--page", action="store_true", help="run nothing, write the pages")
    arguments = parser.parse_args()

    from bench.stacks import page
    from bench.stacks.declared import stacks
    from bench.stacks.run_cases import run_stack

    if arguments.page:
        page.write_pages()
        return
    for name, stack in stacks().items():
        if not fnmatchcase(name, arguments.stack):
            continue
        try:
            kept = {result.case for result in page.read_results(name)}
            skipped = kept if arguments.missing else frozenset()
            for result in run_stack(stack, arguments.cases, skipped):
                print(page.format_result(result), flush=True)
                if arguments.write:
                    page.write_result(result)
        except Missing as reason:
            print(f"{name}: not run: {reason}")


if __name__ == "__main__":
    main()
