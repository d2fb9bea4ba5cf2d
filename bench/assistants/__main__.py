"""`python -m bench.assistants`: let the scripted assistant work on the twenty projects, and print how far it comes."""

from __future__ import annotations

import argparse

from bench.assistants.projects import draw_projects
from bench.assistants.scripted_assistant import MAX_CALLS, repair_project


def main() -> None:
    """Run all projects and print one line for each, and the counts."""
    argparse.ArgumentParser(prog="python -m bench.assistants", description=__doc__).parse_args()
    outcomes = []
    for project in draw_projects():
        outcome = repair_project(project)
        outcomes.append(outcome)
        named = f"named at call {outcome.named_at_call}" if outcome.named_at_call else "not named"
        first = ", first finding" if outcome.is_first_finding else ""
        fixed = ", fixed by the tool" if outcome.fixed_by_tool else ""
        print(f"{project.name}: {named}{first}{fixed} ({' '.join(outcome.calls)})", flush=True)
    total = len(outcomes)
    print(
        f"of {total} projects, in at most {MAX_CALLS} calls: the fault is in a finding with a remedy in"
        f" {sum(one.named_at_call is not None for one in outcomes)}, in the first finding in"
        f" {sum(one.is_first_finding for one in outcomes)}, and ended by the tool fix in"
        f" {sum(one.fixed_by_tool for one in outcomes)}"
    )


if __name__ == "__main__":
    main()
