"""Reads the rows that a script gives to its trainer, as texts, pairs or messages.

How it works: the script is followed with its rows in hand (`concrete_run`), up to the one trainer that it makes. What
that trainer reads of a row (its messages, its prompt and completion, its text column, what `formatting_func` gives) is
taken from the rows of `train_dataset`.

The trade-off: only trainers that take rows as text are read here. Where the script gives token ids, or anything on the
way is not known, there are no rows, and the reason is said: half of the rows would be no picture of the training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass
from itertools import permutations
from os.path import commonpath
from pathlib import Path
from typing import Any, Literal, NamedTuple

from truetune.data.column_name_aliases import Row as PlainRow
from truetune.data.script_rows.cache_script_reads_until_it_changes import (
    kept_while_script_unchanged,
)
from truetune.data.script_rows.columns_lost_by_script import find_lost_columns
from truetune.data.script_rows.compute_dataset_methods_on_known_rows import (
    Place,
    Row,
    Table,
    copy_of_value,
    table_of_dictionaries,
)
from truetune.data.script_rows.compute_tokenizer_calls_of_script import ScriptTokenizer
from truetune.data.script_rows.find_source_rows_and_mispaired_texts import (
    Mispairing,
    TextIndex,
    find_mispairing,
    source_place_of_row,
)
from truetune.data.script_rows.imported_project_files import texts_of_script_and_possible_imports
from truetune.data.script_rows.make_batches_by_collator import (
    ScriptCollator,
    collator_with_sample_batches,
)
from truetune.data.script_rows.row_files_of_script import MAX_ROWS, RowFiles
from truetune.data.script_rows.symbolic_run_with_rows import (
    PAIR_LOADS,
    TOKENIZER_LOADS,
    ConcreteRun,
    RenderedChat,
)
from truetune.errors import DataError
from truetune.source.find_file_of_import import ImportSearch
from truetune.source.group_files_by_imports import Program, group_by_imports
from truetune.source.parsed_source_file import Module, read_module
from truetune.source.symbolic_execution.element_of_iterable import LOADERS
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.interpreter import LimitReached, run_symbolically
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Function,
    Instance,
    Item,
    Mapping,
    Partial,
    Result,
    Sequence,
    Unknown,
    Value,
)

TRAINERS = ("trl.*Trainer", "transformers.*Trainer", "unsloth.*Trainer")
LIGHTNING_TRAINERS = ("lightning.*Trainer", "pytorch_lightning.*Trainer")
READ_COLUMNS = (
    ("chosen", "rejected", "prompt", "tools"),
    ("prompt", "completion", "label", "tools"),
    ("prompt", "completion", "tools"),
    ("messages", "tools"),
    ("conversations", "tools"),
    ("text",),
)
"""The columns that TRL's trainers read, the first of these groups whose columns a row has but for prompt and tools"""
OPTIONAL_COLUMNS = ("prompt", "tools")
TEXT_FIELD = "dataset_text_field"
MAX_STEPS_TO_LOADER = 6
"""Calls between a loop and its loader: `enumerate(tqdm(accelerator.prepare(loader)))` has three"""
MAX_INDEXED_ROWS = 300
"""Rows whose texts are looked up in each other: a script goes the same way with all rows"""
SIDES = ("chosen", "rejected")
TOKEN_COLUMNS = ("input_ids", "labels")
LOSS_MASK = r"^(?!.*(?:attention|padding|pad_|causal)).*(?:mask|weight)"
"""Names of columns that weigh the tokens of a loss"""
NO_LABELS = r"attention|padding|position|length|seq_?len"
"""Names of columns that say nothing of what is learned"""
IGNORED = -100
"""The label of a token that is not learned"""
LabelKind = Literal["next tokens", "answer", "classes"]
"""next tokens: of the ids themselves; answer: ids of another text, which a decoder writes; classes: one of few numbers
for each token"""
LOADS_OF_CAUSAL_MODELS = ("transformers.*ForCausalLM.*", "transformers.*LMHeadModel.*", "unsloth.*")
LOADS_BY_LABELS: dict[LabelKind, tuple[str, ...]] = {
    "answer": (
        "transformers.*ForSeq2SeqLM.*",
        # Models of pictures and text have this name too, and learn next tokens.
        *(
            f"transformers.{family}*ForConditionalGeneration.*"
            for family in ("T5", "MT5", "UMT5", "LongT5", "Bart", "MBart", "Pegasus", "LED", "M2M")
        ),
        "transformers.EncoderDecoderModel.*",
        "transformers.MarianMTModel.*",
    ),
    "classes": ("transformers.*ForTokenClassification.*",),
}
"""What labels are, by the model that a script loads"""
CLASS = "class"
"""In a row of token ids, the one label that a classifier learns of it"""


class _TrainedRow(NamedTuple):
    """One row of the data set that a trainer is given."""

    place: Place
    row: PlainRow
    left_over: PlainRow
    lost: PlainRow
    read: PlainRow
    raw: PlainRow


class ScriptRow(NamedTuple):
    """One row as a script makes it."""

    file: str
    """The file that it is made of, named from the script's folder as the script is"""
    line: int
    row: PlainRow
    left_over: PlainRow
    """The texts of the file's row that the script neither reads nor gives to the trainer, by column"""
    lost: PlainRow
    """Those that it reads, and of whose column nothing reaches the trainer in any row"""
    read: PlainRow
    """The texts and numbers of the file's row whose columns the script reads"""
    raw: PlainRow
    """The file's row as it stands there; empty of a row that is given as text"""

    @property
    def untrained_texts_by_column(self) -> PlainRow:
        """The texts of the file's row that do not reach the trainer, by column."""
        return {**self.left_over, **self.lost}


@dataclass(frozen=True, slots=True)
class ScriptRows:
    """The rows that a script trains."""

    script: str
    rows: tuple[ScriptRow, ...]
    """Those of the training set, in its order"""
    evaluation: tuple[ScriptRow, ...]
    """Those of an evaluation set of other files; empty where there is none, or it is not known"""
    tokenizer: str | None
    """The name or folder of the one tokenizer that the script loads"""
    notes: tuple[str, ...]
    """What was not followed, and what was taken for it"""
    is_cut: bool
    """The files hold more rows than were followed"""
    labels_by_collator: bool = False
    """A collator labels every token, whatever the rows say"""
    mispairing: Mispairing | None = None
    """Nearly all rows pair texts of different rows of the file"""
    rows_at_once: int | None = None
    """Rows of one batch of a loop of the script's own; None for a trainer, and where it is not known"""
    collator: ScriptCollator | None = None
    """The script's own collator; None where it has none, and of rows that are given as text"""
    labels: LabelKind = "next tokens"
    """What the labels of rows of token ids are"""

    @property
    def training_files(self) -> tuple[str, ...]:
        """The files of the training set."""
        return tuple(dict.fromkeys(row.file for row in self.rows))

    @property
    def has_class_label_per_row(self) -> bool:
        """Does a classifier learn one label of each row?"""
        return any(CLASS in row.row for row in self.rows)

    @property
    def evaluation_files(self) -> tuple[str, ...]:
        """The files of the evaluation set."""
        return tuple(dict.fromkeys(row.file for row in self.evaluation))

    def columns_neither_read_nor_trained(self) -> tuple[str, ...]:
        """The columns of text that the script neither reads nor gives to the trainer, in any row."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.left_over))

    def columns_read_but_not_trained(self) -> tuple[str, ...]:
        """The columns of text that the script reads, and of which nothing reaches the trainer."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.lost))

    def rows_of_file(self, path: Path) -> dict[int, ScriptRow] | None:
        """Line -> the row that is made of it; None for a file that the script does not read."""
        wanted = path.resolve()
        names = (*self.training_files, *self.evaluation_files)
        own = {name for name in names if Path(name).resolve() == wanted}
        if not own:
            return None
        return {row.line: row for row in (*self.evaluation, *self.rows) if row.file in own}


_BROUGHT: dict[str, ScriptTokenizer] = {}
"""Tokenizers by script. Rows are read from many places by the names of their files and their format alone"""


def use_tokenizer_for_script(script: str, tokenizer: ScriptTokenizer | None) -> None:
    """Use this tokenizer whenever the rows of the script are read from now on: special tokens and
    templates are its own.

    Args:
        script: The path of the script, as it is read later.
        tokenizer: None where none is available any more.
    """
    if tokenizer is None:
        _BROUGHT.pop(script, None)
    else:
        _BROUGHT[script] = tokenizer


def read_trained_text_rows(script: str) -> ScriptRows:
    """The rows of text that the one trainer of a script gets.

    Args:
        script: The path of a Python file or notebook; its imports beside it are followed.

    Raises:
        DataError: the script can't be read, makes no trainer or several, or its rows are not known; says which.
    """
    return _raise_if_error(_cached_trained_text_rows(script, str(Path.cwd()), _BROUGHT.get(script)))


def read_token_rows(script: str, tokenizer: ScriptTokenizer) -> ScriptRows:
    """The rows of token ids that a script gives to the one trainer that it makes.

    Args:
        script: As of `read_trained_text_rows`.
        tokenizer: The one that the script loads.

    Raises:
        DataError: as `read_trained_text_rows`; also where the rows are no token ids.
    """
    return _raise_if_error(_cached_trained_token_rows(script, str(Path.cwd()), tokenizer))


@kept_while_script_unchanged
def _cached_trained_text_rows(
    script: str, folder: str, tokenizer: ScriptTokenizer | None
) -> ScriptRows | DataError:
    """The script's trained rows as texts, or the error why they can't be read; kept while the
    script is unchanged.
    """
    return _rows_or_returned_error(script, folder, tokenizer, gives_ids=False)


@kept_while_script_unchanged
def _cached_trained_token_rows(
    script: str, folder: str, tokenizer: ScriptTokenizer
) -> ScriptRows | DataError:
    """The script's trained rows as token ids, or the error why they can't be read; kept while the
    script is unchanged, apart from texts, since a stand-in tokenizer is made each time.
    """
    return _rows_or_returned_error(script, folder, tokenizer, gives_ids=True)


def _rows_or_returned_error(
    script: str, folder: str, tokenizer: ScriptTokenizer | None, *, gives_ids: bool
) -> ScriptRows | DataError:
    """The trained rows of a script, or the DataError, returned: a raised one is not kept, and each
    rule that asks would follow the script again.
    """
    try:
        return _follow_script_to_trainer(script, folder, tokenizer, gives_ids=gives_ids)
    except DataError as error:
        # Without the traceback, which holds the whole run.
        return DataError(*error.args)


def _raise_if_error(rows: ScriptRows | DataError) -> ScriptRows:
    """The rows. Raises a new DataError if there is one: an error that is raised twice collects two
    tracebacks.
    """
    if isinstance(rows, DataError):
        raise DataError(*rows.args)
    return rows


def _follow_script_to_trainer(
    script: str, folder: str, tokenizer: ScriptTokenizer | None, *, gives_ids: bool
) -> ScriptRows:
    """Follow a script up to its trainer, and return the rows of text, or with `gives_ids` the rows
    of token ids. Raises DataError.
    """
    module = read_module_with_helpers(Path(script))
    own = Path(script).resolve().parent
    files = RowFiles((own, Path(folder)))
    run = ConcreteRun(module, files, tokenizer, keeps_chats=not gives_ids)
    try:
        run.run()
        trainer, dataset, table = _only_trainer_with_rows(script, run)
        read = _trained_token_rows if gives_ids else _trained_text_rows
        rows = read(run, trainer, table)
        evaluation = [] if gives_ids else _evaluation_rows(run, trainer, table)
        collator = (
            _script_collator_with_sample_batches(run, trainer, dataset) if gives_ids else None
        )
    except (LimitReached, RecursionError):
        raise DataError(f"{script}: its rows take too long to follow") from None
    if not rows:
        raise DataError(f"{script}: the code that shapes its rows could not be followed")
    return ScriptRows(
        script,
        tuple(_with_files_relative_to_script(Path(script), rows)),
        tuple(_with_files_relative_to_script(Path(script), evaluation)),
        _only_tokenizer_in_trace(run.trace),
        tuple(dict.fromkeys(table.notes)),
        bool(files.cut),
        _collator_labels_every_token(trainer),
        None if gives_ids else _find_mispaired_rows(run, rows),
        _batch_size_of_loader(trainer),
        collator,
        _kind_of_labels(run.trace),
    )


def _script_collator_with_sample_batches(
    run: ConcreteRun, trainer: CallEvent, dataset: Value
) -> ScriptCollator | None:
    """The script's own collator of a trainer or loader, with a few batches; None where it has none."""
    collator = _script_collator(trainer)
    items = None if collator is None else _items_of_dataset(run, dataset)
    if collator is None or not items:
        return None
    return collator_with_sample_batches(run, collator, items, _batch_size(trainer))


def _kind_of_labels(trace: Trace) -> LabelKind:
    """What the labels are, by the models that a script loads: next tokens, unless it loads none that learns those."""
    if any(trace.calls(*LOADS_OF_CAUSAL_MODELS)):
        return "next tokens"
    kinds = [kind for kind, loads in LOADS_BY_LABELS.items() if any(trace.calls(*loads))]
    return kinds[0] if kinds else "next tokens"


def _with_files_relative_to_script(script: Path, rows: list[_TrainedRow]) -> Iterator[ScriptRow]:
    """The rows, with their files named from the folder of the script, if they lie below it."""
    folder = script.parent.resolve()
    for place, row, left_over, lost, read, raw in rows:
        is_below = place.file.is_relative_to(folder)
        name = script.parent / place.file.relative_to(folder) if is_below else place.file
        yield ScriptRow(str(name), place.line, row, left_over, lost, read, raw)


def tokenizer_name_of_script(script: str) -> str | None:
    """The name or folder of the one tokenizer that a script loads; None if it is not known, or
    there are several.
    """
    try:
        return _only_tokenizer_in_trace(run_symbolically(read_module_with_helpers(Path(script))))
    except DataError:
        return None


def _only_tokenizer_in_trace(trace: Trace) -> str | None:
    """The name of the one tokenizer that the traced script loads; None if there is none or several."""
    names = {
        constant_of(call.argument(0, "pretrained_model_name_or_path"))
        for call in trace.calls(*TOKENIZER_LOADS)
    }
    names |= {constant_of(call.argument(0, "model_name")) for call in trace.calls(*PAIR_LOADS)}
    name = next(iter(names), None)
    return name if len(names) == 1 and isinstance(name, str) else None


def _evaluation_rows(run: ConcreteRun, trainer: CallEvent, train: Table) -> list[_TrainedRow]:
    """The rows of `eval_dataset`, where they are of other files than those of the training."""
    table = trainer.keywords.get("eval_dataset")
    if not isinstance(table, Table) or table.is_open:
        return []
    files = {row.place.file for row in train.rows if row.place is not None}
    if any(row.place is None or row.place.file in files for row in table.rows):
        return []
    return _trained_text_rows(run, trainer, table)


def read_module_with_helpers(path: Path) -> Module:
    """A script with the files beside it that it imports. Raises DataError where it can't be read."""
    texts = texts_of_script_and_possible_imports(path)
    imports = ImportSearch(texts, [str(_common_folder(texts))])
    group = next(one for one in group_by_imports(list(texts.items()), imports) if str(path) in one)
    modules = [read_module(Path(name)) for name in group]
    if len(modules) > 1:
        modules = list(Program(modules, imports).modules)
    return next(one for one in modules if one.path == str(path))


def _common_folder(paths: Iterable[str]) -> Path:
    """The folder that all files lie in."""
    return Path(commonpath([str(Path(path).parent.absolute()) for path in paths]))


def _only_trainer_with_rows(script: str, run: ConcreteRun) -> tuple[CallEvent, Value, Table]:
    """The one trainer or training loop whose rows are known, its data set, and the table of its rows.
    Raises DataError if there is none, or more than one.
    """
    given = [
        (one, one.keywords["train_dataset"])
        for one in run.trace.calls(*TRAINERS)
        if "train_dataset" in one.keywords
    ]
    given = (
        given
        or list(_loaders_of_training_loops(run.trace))
        or list(_loaders_of_lightning_trainer(run))
    )
    if not given:
        raise DataError(
            f"{script}: it gives no rows to a trainer of TRL or transformers, or a loop"
        )
    if len({id(one.node) for one, _ in given}) > 1:
        raise DataError(f"{script}: it makes several trainers; which one is meant is not known")
    for one, rows in given:
        table = _table_of_dataset(run, rows, _script_collator(one))
        if table is not None and not table.is_open:
            return one, rows, table
    raise DataError(f"{script}: the code that shapes its rows could not be followed")


def _batch_size_of_loader(loader: CallEvent) -> int | None:
    """The number of rows in one batch of a loader; None if it is no loader, or it is not known."""
    if not loader.named(*LOADERS) or "batch_sampler" in loader.keywords:
        return None
    batch_size_argument = loader.argument(1, "batch_size")
    # One row is the default of torch.
    size = 1 if batch_size_argument is None else constant_of(batch_size_argument)
    return size if type(size) is int else None


def _batch_size(trainer: CallEvent) -> int | None:
    """The rows of one batch of a trainer or loader; None where it is not known."""
    if trainer.named(*LOADERS):
        return _batch_size_of_loader(trainer)
    settings = trainer.keywords.get("args")
    per_device_train_batch_size_argument = (
        settings.call.keywords.get("per_device_train_batch_size")
        if isinstance(settings, Result)
        else None
    )
    size = constant_of(per_device_train_batch_size_argument)
    return size if type(size) is int else None


def _script_collator(call: CallEvent) -> Value | None:
    """The function or object of the script that makes batches for a trainer or loader; None where it has none."""
    collator = call.keywords.get("data_collator") or call.argument(6, "collate_fn")
    return collator if isinstance(collator, Function | Partial | Instance) else None


def _loaders_of_training_loops(trace: Trace) -> Iterator[tuple[CallEvent, Value]]:
    """The loaders that loops with `backward` iterate, each with its data set."""
    seen: set[int] = set()
    for backward in trace.methods("backward"):
        for frame in backward.frames("loop"):
            loader = _loader_behind_iterated_value(frame.value)
            rows = None if loader is None else loader.argument(0, "dataset")
            if loader is not None and rows is not None and id(loader.node) not in seen:
                seen.add(id(loader.node))
                yield loader, rows


def _loaders_of_lightning_trainer(run: ConcreteRun) -> Iterator[tuple[CallEvent, Value]]:
    """The loaders that Lightning's Trainer is given, each with its data set: by `fit`, a data
    module, or the model.
    """
    for fit in [one for one in run.trace.methods("fit") if _is_fit_of_lightning(one)]:
        loader = _loader_behind_iterated_value(fit.argument(1, "train_dataloaders"))
        for place, name in ((3, "datamodule"), (1, "train_dataloaders"), (0, "model")):
            if loader is None:
                loader = _loader_from_train_dataloader(run, fit.argument(place, name))
        rows = None if loader is None else loader.argument(0, "dataset")
        if loader is not None and rows is not None:
            yield loader, rows


def _is_fit_of_lightning(fit: CallEvent) -> bool:
    """Is it the Trainer of Lightning whose `fit` is called?"""
    made = fit.receiver
    return isinstance(made, Result) and made.call.named(*LIGHTNING_TRAINERS)


def _loader_from_train_dataloader(run: ConcreteRun, made: Value | None) -> CallEvent | None:
    """The loader that an object of the script makes in `train_dataloader`, after what Lightning calls before it."""
    if not isinstance(made, Instance):
        return None
    run.call_method(made, "prepare_data", ())
    run.call_method(made, "setup", (Constant("fit"),))
    return _loader_behind_iterated_value(run.call_method(made, "train_dataloader", ()))


def _loader_behind_iterated_value(value: Value | None) -> CallEvent | None:
    """The call of DataLoader that a loop iterates, directly or through `enumerate`, `tqdm` and
    `prepare`.
    """
    for _ in range(MAX_STEPS_TO_LOADER):
        place = constant_of(value.key) if isinstance(value, Item) else None
        value = value.base if isinstance(value, Item) else value
        if not isinstance(value, Result):
            return None
        if value.call.named(*LOADERS):
            return value.call
        value = _argument_that_call_passes_on(value.call, place)
    return None


def _argument_that_call_passes_on(call: CallEvent, place: object) -> Result | None:
    """The argument that a call passes on: of `prepare(model, optimizer, loader)` the one at the
    unpacked place, or the one loader; otherwise the first result.
    """
    if type(place) is int and 0 <= place < len(call.args):
        given = call.args[place]
        if isinstance(given, Result) and given.call.named(*LOADERS):
            return given
    results = [one for one in call.args if isinstance(one, Result)]
    loaders = [one for one in results if one.call.named(*LOADERS)]
    if len(loaders) == 1:
        return loaders[0]
    return results[0] if results and not loaders else None


def _table_of_dataset(run: ConcreteRun, rows: Value, collator: Value | None) -> Table | None:
    """The rows of a data set: of `datasets`, a list, or an object of the script with `__getitem__`.

    A collator of the script is given each row as a batch of one, so that it pads nothing.
    """
    items = _items_of_dataset(run, rows)
    if items is None:
        return None
    places = [one.place for one in items if isinstance(one, Row) and one.place is not None]
    if len(places) != len(items):
        places = run.files.places_of_rows_in_file(Sequence("list", items)) or []
    if collator is not None:
        batches = [
            run.call_script_function(collator, (Sequence("list", [copy_of_value(one)]),))
            for one in items
        ]
        items = [_only_row_of_batch(one) for one in batches]
    items = _name_ids_and_labels_in_tuples(items)
    table = table_of_dictionaries(Sequence("list", items), places)
    if table is not None and isinstance(rows, Table):
        table.notes += rows.notes
    return table


def _items_of_dataset(run: ConcreteRun, rows: Value) -> list[Value] | None:
    """The items of a data set, whatever they are; None where they are not known."""
    if isinstance(rows, Sequence):
        return None if rows.is_open or len(rows.items) > MAX_ROWS else list(rows.items)
    if not isinstance(rows, Instance):
        return None
    count = constant_of(run.call_method(rows, "__len__", ()))
    if type(count) is not int or not 0 < count <= MAX_ROWS:
        return None
    items = [run.call_method(rows, "__getitem__", (Constant(n),)) for n in range(count)]
    return [Unknown("an item") if one is None else one for one in items]


def _name_ids_and_labels_in_tuples(items: list[Value]) -> list[Value]:
    """Items that are tuples of ids and labels as rows with these columns; the items as they are where they are none.

    A loop unpacks such a tuple (`for ids, labels in loader`), so its columns have no names. Labels are told by what
    they hold: at each place the id that stands there, or -100.
    """
    known = _number_tuples_of_equal_width(items)
    if not known:
        return items
    width = len(known[0])
    tuples = [one for one in items if isinstance(one, Sequence)]
    places = _positions_of_ids_and_labels(known, width)
    if places is not None:
        return [_row_with_named_ids_and_labels(one, places) for one in tuples]
    if width == len(TOKEN_COLUMNS) and _are_ids_with_loss_masks(known):
        return [
            Mapping({"input_ids": one.items[0], "labels": _labels_from_mask(ids, mask)})
            for one, (ids, mask) in zip(tuples, known, strict=True)
        ]
    return items


def _number_tuples_of_equal_width(items: list[Value]) -> list[list[list[int]]]:
    """The numbers of items that are all tuples of equally many lists, at least two; empty if they
    are not.
    """
    rows = [_number_lists_in_tuple(one) for one in items]
    known = [row for row in rows if row is not None]
    widths = {len(row) for row in known}
    is_equal = len(known) == len(rows) and len(widths) == 1
    return known if is_equal and min(widths) >= len(TOKEN_COLUMNS) else []


def _positions_of_ids_and_labels(rows: list[list[list[int]]], width: int) -> tuple[int, ...] | None:
    """The positions of the ids and labels in rows of so many lists; None if no list is the labels
    of another.
    """
    for places in permutations(range(width), len(TOKEN_COLUMNS)):
        ids, labels = places
        if all(_are_labels_of(row[ids], row[labels]) for row in rows):
            return places
    return None


def _row_with_named_ids_and_labels(sequence: Sequence, places: tuple[int, ...]) -> Mapping:
    """A tuple as a row whose ids and labels have names."""
    columns = zip(TOKEN_COLUMNS, places, strict=True)
    return Mapping({name: sequence.items[place] for name, place in columns})


def _are_ids_with_loss_masks(rows: list[list[list[int]]]) -> bool:
    """Are these pairs of ids and a loss mask? A padding mask begins with ones in each row."""
    are_masks = all(_is_mask_of_length(ids, mask) for ids, mask in rows)
    return are_masks and all(mask[:1] == [0] for _, mask in rows)


def _number_lists_in_tuple(item: Value) -> list[list[int]] | None:
    """The numbers of each list in a tuple; None for anything else."""
    plain = constant_of(item) if isinstance(item, Sequence) and not item.is_open else None
    if not isinstance(plain, list | tuple):
        return None
    is_known = all(
        isinstance(one, list) and all(type(number) is int for number in one) for one in plain
    )
    return list(plain) if is_known else None


def _are_labels_of(ids: list[int], labels: list[int]) -> bool:
    """Does each label repeat the id at its position, or hide it from the loss?"""
    return len(ids) == len(labels) and all(
        label in (one, IGNORED) and one != IGNORED for one, label in zip(ids, labels, strict=True)
    )


def _only_row_of_batch(batch: Value) -> Value:
    """The one row of a batch of one; the batch as it is where its columns are no lists of one item."""
    if not isinstance(batch, Mapping) or batch.is_open:
        return batch
    columns = {
        name: one.items[0]
        for name, one in batch.entries.items()
        if isinstance(one, Sequence) and len(one.items) == 1 and not one.is_open
    }
    # How a batch says what is padding is often computed, and no rule on labels needs it.
    unknown = [name for name in batch.entries if name not in columns]
    is_known = all(re.search(NO_LABELS, name) for name in unknown)
    return Mapping(_replace_loss_mask_by_labels(columns)) if columns and is_known else batch


def _replace_loss_mask_by_labels(columns: dict[str, Value]) -> dict[str, Value]:
    """The columns with labels instead of the mask by which the script's own loss is weighted."""
    masks = [name for name in columns if re.search(LOSS_MASK, name)]
    if "labels" in columns or "input_ids" not in columns or len(masks) != 1:
        return columns
    ids, mask = constant_of(columns["input_ids"]), constant_of(columns[masks[0]])
    if not isinstance(ids, list) or not isinstance(mask, list) or not _is_mask_of_length(ids, mask):
        return columns
    return {"input_ids": columns["input_ids"], "labels": _labels_from_mask(ids, mask)}


def _is_mask_of_length(ids: list[Any], mask: list[Any]) -> bool:
    """Is it one 0 or 1 for each id?"""
    is_binary = all(type(one) in (int, float, bool) and one in (0, 1) for one in mask)
    return is_binary and len(ids) == len(mask)


def _labels_from_mask(ids: list[Any], mask: list[Any]) -> Value:
    """The ids as labels, with those hidden that the mask leaves out of the loss."""
    labels = [id if is_learned else IGNORED for id, is_learned in zip(ids, mask, strict=True)]
    return Sequence("list", [Constant(one) for one in labels])


def _trained_text_rows(run: ConcreteRun, trainer: CallEvent, table: Table) -> list[_TrainedRow]:
    """The texts that a trainer reads of each row; empty if one row is not known."""
    index = _text_index_of_files(run, len(table.rows))
    shaped = _rows_as_trainer_reads_them(run, trainer, table, index)
    if len({place for place, _, _ in shaped}) != len(shaped):
        return []
    # Only now is it known which columns the code reads of any row.
    raw = [run.files.texts_of_columns_read(place) for place, _, _ in shaped]
    trained_rows = [read for _, read, _ in shaped]
    # Of rows that are put together of several ones, no column is lost: it stands beside another row's.
    is_mispaired = index is not None and bool(
        find_mispairing(map(index.source_places_by_column, trained_rows))
    )
    lost = () if is_mispaired else find_lost_columns(raw, trained_rows)
    return [
        _TrainedRow(
            place,
            read,
            run.files.texts_neither_read_nor_trained(place, trained),
            {name: before[name] for name in lost if name in before},
            run.files.values_of_columns_read(place),
            {},
        )
        for (place, read, trained), before in zip(shaped, raw, strict=True)
    ]


def _rows_as_trainer_reads_them(
    run: ConcreteRun, trainer: CallEvent, table: Table, index: TextIndex | None
) -> list[tuple[Place, PlainRow, list[Value]]]:
    """(place, what the trainer reads, the values that it reads) of each row; empty if one is not
    known.
    """
    shape = trainer.keywords.get("formatting_func")
    field = _text_column_of_sft_trainer(trainer)
    shaped: list[tuple[Place, PlainRow, list[Value]]] = []
    for row in table.rows:
        names = _columns_that_trainer_reads(row, field)
        read = (
            _row_of_formatting_func(run, shape, row)
            if shape is not None
            else _plain_values_of_columns(row, names)
        )
        place = row.place
        if index is not None and read is not None:
            place = source_place_of_row(index.source_places_by_column(read), place)
        if read is None or place is None:
            return []
        trained = [row.entries[name] for name in names if name in row.entries and shape is None]
        shaped.append((place, read, trained))
    return shaped


def _text_index_of_files(run: ConcreteRun, rows: int) -> TextIndex | None:
    """The index of the texts in the files that a script read; None if they are too many to look
    each up in each row.
    """
    texts = run.files.first_rows_with_texts(MAX_INDEXED_ROWS + 1)
    return None if max(rows, len(texts)) > MAX_INDEXED_ROWS else TextIndex(texts)


def _find_mispaired_rows(run: ConcreteRun, rows: list[_TrainedRow]) -> Mispairing | None:
    """The rows that pair texts of different rows of a file, if nearly all do; None otherwise."""
    index = _text_index_of_files(run, len(rows))
    return (
        None
        if index is None
        else find_mispairing(index.source_places_by_column(row.row) for row in rows)
    )


def _trained_token_rows(run: ConcreteRun, trainer: CallEvent, table: Table) -> list[_TrainedRow]:
    """The ids and labels of each row; empty if one row is not known."""
    labels_all = _collator_labels_every_token(trainer)
    rows: list[_TrainedRow] = []
    for row in table.rows:
        plain = _ids_and_labels(row)
        if plain is None or row.place is None:
            return []
        if labels_all:
            plain["labels"] = plain["input_ids"]
        rows.append(_TrainedRow(row.place, plain, {}, {}, {}, run.files.raw_row(row.place)))
    # A column that is still there may be read by a collator; only now is it known what the code reads of any row.
    kept = [list(row.entries.values()) for row in table.rows]
    return [
        row._replace(
            left_over=run.files.texts_neither_read_nor_trained(row.place, values),
            read=run.files.values_of_columns_read(row.place),
        )
        for row, values in zip(rows, kept, strict=True)
    ]


def _ids_and_labels(row: Row) -> PlainRow | None:
    """The ids of a row with its labels, or with the class that a classifier learns; None if one is
    not known.
    """
    if row.is_open or "input_ids" not in row.entries:
        return None
    plain = {name: constant_of(row.entries[name]) for name in TOKEN_COLUMNS if name in row.entries}
    label = plain.get("labels", constant_of(row.entries.get("label", Constant(None))))
    if isinstance(label, str | bool | int) and label is not NO_CONSTANT:
        plain.pop("labels", None)
        plain[CLASS] = str(label)
    are_ids = all(_is_list_of_ids(one) for name, one in plain.items() if name != CLASS)
    return plain if are_ids else None


def _is_list_of_ids(value: object) -> bool:
    """Is a column of a row a list of whole numbers?"""
    return isinstance(value, list) and all(type(one) is int for one in value)


def _collator_labels_every_token(trainer: CallEvent) -> bool:
    """Does the trainer's collator make labels of all ids, whatever the rows hold?"""
    collator = trainer.keywords.get("data_collator")
    return isinstance(collator, Result) and collator.call.named("*.DataCollatorForLanguageModeling")


def _text_column_of_sft_trainer(trainer: CallEvent) -> str:
    """The column of text that TRL's SFTTrainer reads."""
    given: Value | None = trainer.keywords.get(TEXT_FIELD)
    settings = trainer.keywords.get("args")
    if given is None and isinstance(settings, Result):
        given = settings.call.keywords.get(TEXT_FIELD)
    elif given is None and isinstance(settings, Instance):
        given = settings.attributes.get(TEXT_FIELD)
    name = constant_of(given)
    return name if isinstance(name, str) else "text"


def _row_of_formatting_func(run: ConcreteRun, shape: Value, row: Row) -> PlainRow | None:
    """The row that `formatting_func` makes of a row; None if it is not known."""
    if not isinstance(shape, Function | Partial):
        return None
    given = run.call_script_function(shape, (row,))
    if isinstance(given, Sequence) and len(given.items) == 1:
        given = given.items[0]
    return _row_of_text_or_chat(given)


def _replace_rendered_chats_by_texts(value: Value) -> Value:
    """A value with its rendered chats as texts, such as one in the content of a message."""
    if isinstance(value, RenderedChat) and value.text is not None:
        return Constant(value.text)
    if isinstance(value, Sequence):
        return Sequence(
            value.kind,
            [_replace_rendered_chats_by_texts(one) for one in value.items],
            value.is_open,
        )
    if isinstance(value, Mapping):
        entries = {
            name: _replace_rendered_chats_by_texts(one) for name, one in value.entries.items()
        }
        return Mapping(entries, value.rest, value.is_open)
    return value


def _row_of_text_or_chat(given: Value) -> PlainRow | None:
    """A row of one text, or of the conversation that the template renders as that text; None for
    anything else.
    """
    if isinstance(given, RenderedChat):
        messages = constant_of(given.messages)
        return None if messages is NO_CONSTANT else {"messages": messages}
    text = constant_of(given)
    return {"text": text} if isinstance(text, str) else None


def _columns_that_trainer_reads(row: Row, field: str) -> tuple[str, ...]:
    """The columns of a row that a trainer reads; none where it holds token ids, or nothing that is known."""
    if row.is_open or any(name in row.entries for name in TOKEN_COLUMNS):
        return ()
    for columns in READ_COLUMNS:
        needed = [name for name in columns if name not in OPTIONAL_COLUMNS or name == columns[0]]
        if all(name in row.entries for name in needed):
            return columns
    return (field,) if field in row.entries else ()


def _plain_values_of_columns(row: Row, columns: tuple[str, ...]) -> PlainRow | None:
    """The plain values of the columns that a trainer reads; None where one is not known."""
    if len(columns) == 1:
        return _row_of_text_or_chat(row.entries[columns[0]])
    entries = {name: row.entries[name] for name in columns if name in row.entries}
    chats = _pair_of_rendered_chats(entries)
    if chats is not None:
        return chats
    plain: dict[str, Any] = {}
    for name, value in entries.items():
        plain[name] = constant_of(_replace_rendered_chats_by_texts(value))
        if plain[name] is NO_CONSTANT:
            return None
    return plain or None


def _pair_of_rendered_chats(entries: MappingOf[str, Value]) -> PlainRow | None:
    """A preference pair as turns, if a template renders each side and its texts are not known; None
    for any other row.

    The trainer gets texts, and joins the prompt with each. A prompt of plain text is a question of the user here: as
    text beside chats it would be taken for a column that TRL leaves out.
    """
    sides = [entries.get(name) for name in SIDES]
    if not all(isinstance(side, RenderedChat) and side.text is None for side in sides):
        return None
    plain: dict[str, Any] = {}
    for name, value in entries.items():
        given = value.messages if isinstance(value, RenderedChat) else value
        plain[name] = constant_of(_replace_rendered_chats_by_texts(given))
        if plain[name] is NO_CONSTANT:
            return None
    if isinstance(plain.get("prompt"), str):
        plain["prompt"] = [{"role": "user", "content": plain["prompt"]}]
    return plain


MAX_FOLLOWED_ROWS = MAX_ROWS
"""Rows of a file that are followed; see `row_files`"""
