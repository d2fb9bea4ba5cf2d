"""`python -m bench.bugs`: run the bench, print what was found, and write docs/bugs.md."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.bugs", description=__doc__)
    parser.add_argument(
        "cases", nargs="*", default=["*"], help="names or patterns of cases; all when none is given"
    )
    parser.add_argument(
        "--stage", help="only the cases of this stage; audit: of batch, law, recitation and rollout"
    )
    parser.add_argument(
        "--processes",
        action="store_true",
        help="run each script by the command, none in a warm process",
    )
    parser.add_argument(
        "--peers",
        nargs="?",
        const="*",
        metavar="NAME",
        help="run the peers (or one) over the cases",
    )
    parser.add_argument(
        "--healthy", action="store_true", help="run over healthy configs and scripts of others"
    )
    parser.add_argument(
        "--write", action="store_true", help="keep the result, and write it into docs/bugs.md"
    )
    arguments = parser.parse_args()

    from bench.bugs import healthy, peers, table
    from bench.bugs.case import cases
    from bench.bugs.run import trials
    from truetune.checks.rule_catalogue import AUDIT

    chosen = [
        case
        for case in cases()
        if any(fnmatchcase(case.name, pattern) for pattern in arguments.cases)
        and arguments.stage in (None, case.stage, "audit" if case.stage in AUDIT else None)
    ]
    name = "healthy" if arguments.healthy else "peers" if arguments.peers else "truetune"
    result: table.Result = (
        healthy.run()
        if arguments.healthy
        else (
            peers.run(chosen, arguments.peers)
            if arguments.peers
            else trials(chosen, arguments.processes)
        )
    )
    print(table.drawn(name, result))
    if arguments.write:
        table.keep(name, result)


if __name__ == "__main__":
    main()
