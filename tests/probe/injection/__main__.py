"""Runs the whole table of the injector: `python -m tests.probe.injection [--only WORD] [--missing] [--write]`.

From the root. With `--only`, or `--missing` (functions without a row), the other rows of the table stay as they are.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.probe.injection.functions import FAULTS, Function, functions
from tests.probe.injection.table import Injector, Outcome, follows_canary, kind_for, laws_for

TABLE = Path(__file__).with_name("table.md")
SERVERS = 2
IN_OWN = tuple((fault, False) for fault in FAULTS if fault != "spin")
IN_OTHERS = (("raise", False), ("hang", False), ("raise", True), ("hang", True))
"""(fault, in place?): the hook's own modules run in the user's process in any case, the others in a copy if possible"""
OWN = (
    "sitecustomize",
    "truetune.probe.trainer_hook",
    "truetune.probe.audit_session",
    "truetune.probe.forked_process",
    "truetune.probe.find_trainers_and_their_datasets",
    "truetune.probe.own_loop_hook",
    "truetune.probe.live_objects",
    "truetune.probe.audit_time_limits_and_replies",
    "truetune.probe.contain_own_failures_in_user_program",
    "truetune.probe.follow_canary_through_maps",
)
HEAD = """# What becomes of a run whose hook fails

Written by `python -m tests.probe.injection --write`. Each function that can run in the user's process, with each fault:
`same`: exit code, log, weights, stdout and stderr are those of the run alone, but for one line of truetune's at most;
`-`: the function does not run in this training; **DIFFERS**: the fault reached the user.
"""


def main() -> int:
    word = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    before = read_table(TABLE.read_text())
    is_new = "--missing" in sys.argv
    wanted = [
        f
        for f in functions()
        if word in (name := f"{f.module}.{f.name}") and not (is_new and name in before)
    ]
    wanted.sort(key=lambda function: function.module not in OWN)
    free: SimpleQueue[Injector] = SimpleQueue()
    injectors = [Injector(Path(tempfile.mkdtemp(prefix="injection-"))) for _ in range(SERVERS)]
    for injector in injectors:
        free.put(injector)

    def all_faults(function: Function) -> list[Outcome]:
        injector = free.get()
        try:
            return [*inject_all(injector, function)]
        finally:
            free.put(injector)

    found: list[Outcome] = []
    with ThreadPoolExecutor(SERVERS) as pool:
        for number, outcomes in enumerate(pool.map(all_faults, wanted), 1):
            found += outcomes
            for outcome in outcomes:
                tell(f"{number}/{len(wanted)}", outcome)
    for injector in injectors:
        injector.close()
    if "--write" in sys.argv:
        kept = before if word or is_new else {}
        TABLE.write_text("\n".join([HEAD, *lines(kept | cells_of(found))]) + "\n")
    return sum(
        not outcome.same
        for outcome in found
        if outcome.function and not outcome.function.is_boundary
    )


def inject_all(injector: Injector, function: Function) -> Iterator[Outcome]:
    """Each fault that suits a function; only the first where that is not reached, for then none is."""
    for fault, in_place in IN_OWN if function.module in OWN else IN_OTHERS:
        outcome = injector.inject(
            function,
            fault,
            laws_for(function),
            in_place=in_place,
            kind=kind_for(function),
            canary=follows_canary(function),
        )
        yield outcome
        if not outcome.reached:
            return


def tell(number: str, outcome: Outcome) -> None:
    """Print what became of one fault."""
    assert outcome.function is not None
    print(
        number,
        outcome.function.module,
        outcome.function.name,
        outcome.fault,
        word_of(outcome),
        *outcome.told,
        "boundary" if outcome.function.is_boundary else "",
        flush=True,
    )
    if not outcome.same:
        print(outcome.seen, flush=True)


def word_of(outcome: Outcome) -> str:
    """What became of the run."""
    if not outcome.same:
        return "**DIFFERS**"
    return "same" if outcome.reached else "-"


Cells = dict[str, dict[str, str]]
"""Function, by module and name -> fault -> what became of the run"""


def cells_of(found: list[Outcome]) -> Cells:
    """The outcomes as cells of the table."""
    cells: Cells = {}
    for outcome in found:
        assert outcome.function is not None
        name = f"{outcome.function.module}.{outcome.function.name}"
        cells.setdefault(name, {})[outcome.fault] = word_of(outcome)
    return cells


def read_table(text: str) -> Cells:
    """The cells of a table that was written before: those of functions that are not run again."""
    cells: Cells = {}
    faults: list[str] = []
    for line in text.splitlines():
        name, *words = (
            [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else [""]
        )
        if name == "function":
            faults = words
        elif name:
            cells[name] = {fault: word for fault, word in zip(faults, words, strict=True) if word}
    return cells


def lines(cells: Cells) -> Iterator[str]:
    """The table: contained functions, then the entry points and the boundary, which nothing contains."""
    known = functions()
    for boundary, title in (
        (False, "Contained"),
        (True, "The entry points and the boundary itself"),
    ):
        names = dict.fromkeys(f"{f.module}.{f.name}" for f in known if f.is_boundary == boundary)
        part = {name: cells[name] for name in names if name in cells}
        words = [word for row in part.values() for word in row.values()]
        yield f"## {title}"
        yield ""
        yield (
            f"{len(part)} functions, {len(words)} faults: {len(words) - words.count('-')} were"
            f" reached, {words.count('**DIFFERS**')} differ."
        )
        yield ""
        faults = list(dict.fromkeys(fault for row in part.values() for fault in row))
        yield "| function | " + " | ".join(faults) + " |"
        yield "|---" * (len(faults) + 1) + "|"
        for name, row in part.items():
            yield f"| {name} | " + " | ".join(row.get(fault, "") for fault in faults) + " |"
        yield ""


if __name__ == "__main__":
    sys.exit(main())
