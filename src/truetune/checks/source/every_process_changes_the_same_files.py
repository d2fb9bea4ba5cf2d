"""Every process deletes, renames or creates the same file or folder.

## What it does
Finds `shutil.rmtree`, `shutil.move`, `os.remove`, `os.rename`, `os.replace`, `Path.unlink`, `Path.rename` and the like,
and `os.makedirs` and `Path.mkdir` without `exist_ok`, in a script that runs as several processes, one per GPU: a
command next to it starts several, it starts a process group, reads `LOCAL_RANK`, or asks an Accelerator which process
it is. It fires if there is no condition on the process around the call, before it, or around a call of its function,
the path does not contain the rank, and nothing handles the error (`ignore_errors`, `missing_ok`, `try`, a lock,
`main_process_first`).

`torch.save` to one path in a script that accelerate starts, and `save_to_disk`, are races too. So is `open(path, "w")`,
or `to_json`, `to_csv` and the like of a table, if each process writes its own part of the rows (`rows[rank::world]`):
the file then contains the rows of only one process.

## Why it is bad
All processes delete the same folder at the same time. One finds that another has just deleted the file, and stops with
FileNotFoundError ("Directory not empty", FileExistsError); the launcher ends the others. It never happens on one GPU.

## Example
```python
import shutil
import torch

torch.distributed.init_process_group("nccl")
shutil.rmtree("out/step-50")
```

## Use instead
```python
import shutil
import torch

torch.distributed.init_process_group("nccl")
if torch.distributed.get_rank() == 0:
    shutil.rmtree("out/step-50")
torch.distributed.barrier()
```

## Fix safety
Safe if all machines share the disk. If each machine has its own disk, one process per machine (`local_rank == 0`) has
to do it.

## References
- https://huggingface.co/docs/accelerate/concept_guides/deferring_execution (what one process does)
- https://docs.python.org/3/library/shutil.html (`rmtree`: ignore_errors, onexc)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.files_opened_for_writing import path_opened_for_writing
from truetune.checks.source.evidence.process_counts import is_kept_from_several_processes
from truetune.checks.source.evidence.rows_divided_by_process import (
    backward_slice_through_loops,
    contains_variable,
    depends_on_process_number_or_count,
    is_filled_by_process_condition,
)
from truetune.checks.source.evidence.several_process_scripts import (
    SeveralProcesses,
    differs_by_process,
    runs_in_every_process,
    sign_of_several_processes,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

DELETING_CALLS = (
    "shutil.rmtree",
    "shutil.move",
    "os.remove",
    "os.unlink",
    "os.rmdir",
    "os.removedirs",
    "os.rename",
    "os.renames",
    "os.replace",
)
MAKING_CALLS = ("os.mkdir", "os.makedirs")
DELETING_METHODS = ("unlink", "rmdir", "rename", "replace")
PATH_SIGNS = re.compile(
    r"\bPath\(|\.glob\(|\.rglob\(|\.iterdir\(|\.parent\b|\.with_suffix\(|\.with_name\("
)
"""What makes a value a path: DataFrames are renamed and texts replaced too"""
TABLE_WRITERS = ("to_json", "to_csv", "to_parquet", "to_pickle", "to_feather", "to_excel")
"""Methods by which tables of pandas, polars and datasets write one file, which they empty first"""
TOLERANT = ("ignore_errors", "missing_ok", "exist_ok")
OTHER_SAVERS = ("DeepSpeed", "deepspeed", "FullyShardedDataParallel", "fully_shard", "fsdp", "FSDP")
"""Where each process may write a part of its own"""
MAX_FINDING_CASES = 20
"""Places that one finding lists. Chosen by hand: so many show where the condition belongs"""


def _unsafe_file_changes(module: Module) -> Iterator[Call]:
    """Calls that fail, or leave a broken file, where another process does the same at the same time."""
    for call in module.all_calls:
        is_change = (
            _deletes_or_renames(module, call)
            or _makes_folder_or_fails(call)
            or _is_file_write_under_accelerate(module, call)
        )
        if is_change or _is_opened_for_writing(module, call) or _is_table_write(module, call):
            yield call


class EveryProcessChangesTheSameFiles(SourceRule):
    code = "SRC226"
    fault = Fault.PROCESSES_WRITE_SAME_FILES
    symptoms = ("several-gpus",)
    severity = "error"
    looks_at = CodePlaces("files that are deleted, renamed or made", _unsafe_file_changes)

    def findings(self) -> Iterator[Finding]:
        """Findings on files or folders that every process deletes, renames, makes or empties."""
        module = self.subject
        calls = [
            call
            for call in _unsafe_file_changes(module)
            if not _tolerates_earlier_process(module, call)
        ]
        if not calls:
            return
        several = sign_of_several_processes(module)
        if several is None:
            return
        raced = [call for call in calls if _does_every_process_change_same_path(module, call)]
        yield from self._findings_on_races(raced, several)
        for call in raced:
            is_written = _is_opened_for_writing(module, call) or _is_table_write(module, call)
            if is_written and _writes_own_rows_of_process(module, call):
                yield self._finding_on_lost_rows(call, several)

    def _findings_on_races(self, raced: list[Call], several: SeveralProcesses) -> Iterator[Finding]:
        """Findings on what all processes do to the same path, one finding for each kind."""
        module = self.subject
        deletions = [call for call in raced if _deletes_or_renames(module, call)]
        makings = [call for call in raced if _makes_folder_or_fails(call)]
        writes = [call for call in raced if _is_file_write_under_accelerate(module, call)]
        if deletions:
            yield self._finding_on_simultaneous_calls(
                deletions, several, "deletes or moves the same files", "error"
            )
        if makings:
            what = "creates the same folder without exist_ok"
            yield self._finding_on_simultaneous_calls(makings, several, what, "warning")
        if writes:
            yield self._finding_on_simultaneous_calls(
                writes, several, "writes the same file", "warning"
            )

    def _finding_on_lost_rows(self, call: Call, several: SeveralProcesses) -> Finding:
        """The finding on a file that each process empties and fills with its part of the rows."""
        return self.finding(
            f"every process writes its part of the rows to one file ({self.subject.text_of(call.node)[:80]}) and"
            " empties it first: only the rows of one process are left",
            "write one file per process, f'preds_rank{rank}.jsonl', and join them afterwards; or gather_object the rows"
            " and write them on rank 0",
            severity="error" if several.is_certain else "warning",
            evidence=[several.how, "there is no condition on the process around it"],
            cases=[case_of_node(self.subject, call.node)],
        )

    def _finding_on_simultaneous_calls(
        self, calls: list[Call], several: SeveralProcesses, what: str, severity: str
    ) -> Finding:
        """The finding on what every process does at once."""
        module = self.subject
        is_made = what.startswith("makes")
        names = ", ".join(dict.fromkeys(module.text_of(call.node.func) for call in calls))
        guard = _one_process_guard_in_words(module)
        remedy = (
            "pass exist_ok=True"
            if is_made
            else f"do it in one process, and let the others wait: {guard}"
        )
        return self.finding(
            f"every process {what} at the same time ({names}): the second one"
            + (
                " reads or leaves a broken file"
                if what.startswith("writes")
                else " stops with an error"
            ),
            remedy,
            severity="error" if severity == "error" and several.is_certain else "warning",
            evidence=[
                several.how,
                "there is no condition on the process around it or around its callers",
            ],
            cases=[case_of_node(module, call.node) for call in calls[:MAX_FINDING_CASES]],
            count=len(calls),
        )


def _one_process_guard_in_words(module: Module) -> str:
    """The condition that lets one process through, in the words of the script's library."""
    if any(
        True
        for part in module.self_and_files_run_together
        for _ in part.calls("accelerate.Accelerator")
    ):
        return "if accelerator.is_main_process: ..., followed by accelerator.wait_for_everyone()"
    return "if torch.distributed.get_rank() == 0: ..., followed by torch.distributed.barrier()"


def _deletes_or_renames(module: Module, call: Call) -> bool:
    """Does a call delete or rename a file or folder?"""
    if call.receiver is None or call.names:
        return call.named(*DELETING_CALLS)
    if call.method not in DELETING_METHODS:
        return False
    # `text.replace(a, b)` and `frame.rename(columns=...)` have other arguments than a path.
    if call.method in ("rename", "replace") and (len(call.args) != 1 or call.keywords):
        return False
    return _is_made_by_pathlib(module, call.receiver)


def _is_made_by_pathlib(module: Module, value: ast.expr) -> bool:
    """Is a value made by pathlib?"""
    texts = [ast.unparse(value)]
    for name in ast.walk(value):
        if isinstance(name, ast.Name | ast.Attribute):
            texts += [
                ast.unparse(one.node)
                for one in module.flow.origins(name)
                if isinstance(one.node, ast.expr)
            ]
    texts += [ast.unparse(loop.iter) for loop in _loops_whose_variable_is_value(module, value)]
    return any(PATH_SIGNS.search(text) for text in texts)


def _loops_whose_variable_is_value(module: Module, value: ast.expr) -> Iterator[ast.For]:
    """The loops whose variable a value is."""
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    for around in module.parents(value):
        if isinstance(around, ast.For) and names & {
            part.id for part in ast.walk(around.target) if isinstance(part, ast.Name)
        }:
            yield around


def _makes_folder_or_fails(call: Call) -> bool:
    """Does a call make a folder, and fail where there is one?"""
    if call.named(*MAKING_CALLS):
        return call.lacks("exist_ok", 2)
    return call.method == "mkdir" and not call.names and call.lacks("exist_ok", 2)


def _is_file_write_under_accelerate(module: Module, call: Call) -> bool:
    """Does it write one file under a script that accelerate starts?

    A loop of one's own is judged by every-process-writes-the-checkpoint. Under FSDP and DeepSpeed each process may have
    a part of its own.
    """
    if call.method == "save_to_disk":
        return True
    if not call.named("torch.save") or module.mentions(*OTHER_SAVERS):
        return False
    return any(
        True
        for part in module.self_and_files_run_together
        for _ in part.calls("accelerate.Accelerator")
    )


def _is_opened_for_writing(module: Module, call: Call) -> bool:
    """Does a call open a file and empty it: `open(path, "w")`, `path.open("w")`?"""
    path = path_opened_for_writing(module, call)
    return path is not None and (path is not call.receiver or _is_made_by_pathlib(module, path))


def _is_table_write(module: Module, call: Call) -> bool:
    """Does a table write itself to a file that it is named: `frame.to_json("preds.jsonl")`?"""
    path = call.argument(0, "path_or_buf")
    is_writer = _table_of_write(call) is not None
    # Without a path these methods give a text back; in mode "a" the file is kept.
    return is_writer and path is not None and module.flow.value(call.argument(-1, "mode")) != "a"


def _table_of_write(call: Call) -> ast.expr | None:
    """The table before the dot, which may be made on the spot: `DataFrame(rows).to_json(path)`."""
    called = call.node.func
    is_writer = isinstance(called, ast.Attribute) and called.attr in TABLE_WRITERS
    return called.value if is_writer and isinstance(called, ast.Attribute) else None


def _writes_own_rows_of_process(module: Module, call: Call) -> bool:
    """Does the call write what is made of the rows that one process has?"""
    # Processes that gather write all rows each.
    if any(
        "gather" in part.text or "merge" in part.text for part in module.self_and_files_run_together
    ):
        return False
    return any(
        _is_divided_by_process(module, part) for part in _names_written_to_file(module, call)
    )


def _names_written_to_file(module: Module, call: Call) -> Iterator[ast.expr]:
    """The names that stand in the block of a file, or beside it in one call: `json.dump(rows, open(path, "w"))`."""
    table = _table_of_write(call)
    if table is not None:
        yield table
        return
    for block in _blocks_that_write(module, call):
        for part in ast.walk(block):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                yield part


def _blocks_that_write(module: Module, opening: Call) -> list[ast.AST]:
    """The statement that opens a file; of `out = open(path, "w")` the calls that write to `out`."""
    around = next((one for one in module.parents(opening.node) if isinstance(one, ast.stmt)), None)
    target = around.targets[0] if isinstance(around, ast.Assign) else None
    if isinstance(target, ast.Name):
        return [one.node for one in module.all_calls if contains_variable(one.node, target.id)]
    return [] if around is None else [around]


def _is_divided_by_process(module: Module, rows: ast.expr) -> bool:
    """Are rows taken from a list by the number of the process: `rows[rank::world]`, `data.shard(world, rank)`?"""
    return any(
        _takes_rows_of_one_process(module, part)
        for part in backward_slice_through_loops(module, rows)
    )


def _takes_rows_of_one_process(module: Module, part: ast.AST) -> bool:
    """Does a part of an expression take the rows of one process: by a slice, a call, a name or a test?"""
    match part:
        case ast.Subscript(slice=ast.Slice()):
            return depends_on_process_number_or_count(module, part.slice)
        case ast.Call():
            return _datasets_call_gives_process_rows(module, part)
        case ast.Name():
            return _is_name_of_rows_of_one_process(module, part)
        case ast.comprehension():
            return any(depends_on_process_number_or_count(module, test) for test in part.ifs)
    return False


def _is_name_of_rows_of_one_process(module: Module, name: ast.Name) -> bool:
    """Is a name what `with state.split_between_processes(rows) as mine` gives, or a list with rows of one process?"""
    splits = (
        around
        for around in module.parents(name)
        if isinstance(around, ast.With)
        for item in around.items
        if item.optional_vars is not None and contains_variable(item.optional_vars, name.id)
    )
    if any("split_between_processes" in ast.unparse(around.items[0]) for around in splits):
        return True
    return is_filled_by_process_condition(module, name)


def _datasets_call_gives_process_rows(module: Module, call: ast.Call) -> bool:
    """Does a call of datasets give the rows of one process?"""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "shard"
    is_range = module.flow.name(call.func) in ("range", "itertools.islice")
    called = module.flow.name(call.func) or ""
    is_function = is_range or called.endswith("split_dataset_by_node")
    arguments = [*call.args, *(one.value for one in call.keywords)]
    return (is_method or is_function) and any(
        depends_on_process_number_or_count(module, one) for one in arguments
    )


def _tolerates_earlier_process(module: Module, call: Call) -> bool:
    """Does a call allow that another process was first, by an argument or by what catches its error?"""
    switches = [call.keywords[name] for name in TOLERANT if name in call.keywords]
    is_tolerant = any(module.flow.value(one) is not False for one in switches)
    ignores_errors = call.named("shutil.rmtree") and len(call.args) > 1
    return call.open or is_tolerant or ignores_errors or _is_error_caught(module, call.node)


def _is_error_caught(module: Module, node: ast.AST) -> bool:
    """Does a `try` around a node catch its error, or `contextlib.suppress`?"""
    inner = node
    for around in module.parents(node):
        if isinstance(around, ast.Try) and inner in around.body and around.handlers:
            return True
        if isinstance(around, ast.With) and any(
            "suppress" in ast.unparse(item.context_expr) for item in around.items
        ):
            return True
        inner = around
    return False


def _does_every_process_change_same_path(module: Module, call: Call) -> bool:
    """Does every process do it, to the same path?"""
    paths = [*call.args, *call.keywords.values()]
    # Before the dot of a table's method stand the rows, and not the path.
    is_table = call.method == "save_to_disk" or _table_of_write(call) is not None
    if call.receiver is not None and not call.names and not is_table:
        paths.append(call.receiver)
    loops = [loop.iter for path in paths for loop in _loops_whose_variable_is_value(module, path)]
    if any(differs_by_process(module, path) for path in (*paths, *loops)):
        return False
    return not is_kept_from_several_processes(module, call.node) and runs_in_every_process(
        module, call.node
    )
