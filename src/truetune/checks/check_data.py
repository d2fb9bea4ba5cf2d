"""Checks the rows of a run: one pass over the data, in which each rule on data, tokenizer and
template sees every batch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from math import inf

from truetune.checks.data_stats import DataStats
from truetune.checks.detect_trainer_and_apply_facts import (
    trainer_facts_named_by_package_for_pairs,
    with_trainer_defaults,
)
from truetune.checks.findings import SHOWN_CASES, Finding
from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.learned_tokens_against_ideal_mask import LearnedTokenCounter
from truetune.checks.look_up_rows_far_into_data import read_rows_at_origins
from truetune.checks.reasons_data_rules_cannot_judge import COUNT_IN_BATCHES
from truetune.checks.reports import DataReport, TokenView
from truetune.checks.rule import DataRule, Setup
from truetune.checks.rule_runner import choose_rules
from truetune.checks.run_data_rules import BrokenLines, DataRules
from truetune.checks.tokens_with_text_source_and_label import make_token_views
from truetune.data.conversation import Conversation, Origin
from truetune.data.count_media import Media
from truetune.data.read_pictures_of_rows import PictureReader, PictureState
from truetune.data.read_rows_as_conversations import OnBroken, read_conversations
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import (
    StreamRenderer,
    make_batch,
    retry_without_shortcuts,
    stream_batches,
)
from truetune.errors import DataError, TruetuneError
from truetune.render.byte_tokenizer import BYTE_TOKENIZER
from truetune.render.pictures.picture_families import (
    PictureTokenizer,
    UnknownProcessor,
    load_picture_tokenizer,
)
from truetune.render.pictures.render_with_picture_tokens import PictureRenderer
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run, make_probes
from truetune.render.tokenizer import Tokenizer, with_special_tokens_set
from truetune.settings.run_spec import RunSpec
from truetune.trainers import TrainerFacts

# Chosen, not measured: a reader looks at a few dozen rows, and the page stays small.
PAGE_ROWS = 1_000
"""Rows that a page shows, where they are not long"""
# Chosen, not measured: it bounds the size of the page, which a browser draws as a whole.
VIEWED_TOKENS = 400_000
"""No further rows are shown from this many tokens on; rows of findings are."""


# Chosen, not measured: three cases of eight findings on a terminal; a page is scrolled and can hold more.
MAX_REPORT_ROWS, MAX_PAGE_ROWS = 24, 600
"""Rows of findings that are read again for the token view of a report, and of a page"""
# A report must not read the file a second time up to its end; a page is asked for, and may.
NEAR_ROWS, SEQUENTIAL_ROWS = 5_000, 50_000
"""A report has those up to this row; a page has all, those from this row on without reading what stands before them."""

SHRUNK_BY_LLAMA_FACTORY = UnknownProcessor(
    "LLaMA-Factory makes pictures smaller before the processor gets them (image_max_pixels), by rules that truetune"
    " does not compute"
)
UNCOUNTED_MEDIA = "lengths of rows with media"
"""What a verdict calls lengths that leave images, sound or video out"""
Progress = Callable[[int, int, int], None]
"""Called with rows done, bytes read, bytes in all."""


def check(
    spec: RunSpec,
    rules: Sequence[type[DataRule]] | None = None,
    *,
    progress: Progress | None = None,
    cut: bool = True,
    columns_read: frozenset[str] = frozenset(),
    tokens_added: frozenset[str] = frozenset(),
    uncut_limit: int | None = None,
) -> DataReport:
    """Read the data and tokenizer that `spec` names and say what the rules find (all that `spec` selects).

    `columns_read` are names of columns that scripts beside the rows read, `tokens_added` tokens that they add,
    `uncut_limit` is the run's own limit where the rows are looked at without it.
    Not `cut`: the trainer joins rows, or splits long ones, so that nothing is lost at `spec.max_length`.
    Raises SpecError, TokenizerError, DataError or TemplateError where the input itself can't be read.
    """
    limit = spec.max_length if cut else None
    # A fast path that gives another result than the reference once voids the whole pass: it is then made again
    # without.
    return retry_without_shortcuts(
        lambda only_reference: _check_data(
            spec,
            rules,
            progress,
            limit,
            only_reference=only_reference,
            columns_read=columns_read,
            tokens_added=tokens_added,
            uncut_limit=uncut_limit,
        )
    )


def _check_data(
    spec: RunSpec,
    chosen: Sequence[type[DataRule]] | None,
    progress: Progress | None,
    limit: int | None,
    *,
    only_reference: bool,
    columns_read: frozenset[str],
    tokens_added: frozenset[str],
    uncut_limit: int | None,
) -> DataReport:
    """Run the rules over the data once; with fast paths, or without them if `only_reference` is
    set.
    """
    started = time.perf_counter()
    spec = with_trainer_defaults(spec)
    setup = load_tokenizer_and_template(spec, only_reference=only_reference)
    setup = replace(
        setup, columns_read=columns_read, tokens_added=tokens_added, uncut_limit=uncut_limit
    )
    if chosen is None:
        chosen = choose_rules(spec, DataRule)
    rules = DataRules(chosen, setup)
    empty: list[str] = []
    broken = BrokenLines(" of the evaluation data")
    if spec.eval_data:
        rules.give_evaluation_rows_to_rules(
            lambda: _read_rows(
                spec, spec.eval_data, on_broken=broken.add_line, on_empty=empty.append
            )
        )
    # Evaluation data without one good line are no rows at all: the first line's reason says what they are.
    if broken.first is not None and not rules.evaluation_rows:
        raise DataError(broken.first[1])
    stream = _read_rows(
        spec, spec.data, progress, on_broken=rules.report_broken_line, on_empty=empty.append
    )
    encoder = Encoder(setup.tokenizer.backend, only_reference=only_reference)
    tally, labels = DataStats(limit), LearnedTokenCounter(spec, setup.tokenizer, setup.trainer)
    states: Counter[PictureState] = Counter()
    for batch in stream_batches(stream, _renderer_of_rows(setup), encoder):
        tally.add(labels.relabel_and_count(batch))
        for _, pictures in setup.pictures.pictures_of_rows(batch.rows):
            states.update(picture.state for picture in pictures)
        rules.judge_batch(batch)
    rules.raise_if_all_broken()
    lengths, learned = tally.lengths(), labels.counts()
    data = tally.report_data(lengths) | rules.report_data() | {"learned": learned.report_data()}
    judgement = Judgement.of(
        [
            rules.judgement(),
            broken.as_not_judged(),
            Judgement(not_judged=tuple(map(_not_judged_empty_file, empty))),
            _judgement_on_uncounted_media(tally.media, setup),
            _judgement_on_unread_pictures(states),
        ]
    )
    return DataReport(
        spec=spec,
        tokenizer=str(setup.tokenizer.folder),
        facts=_tokenizer_facts(setup.tokenizer, setup.probes) | {"encoded by": encoder.engine.name},
        rows=tally.rows,
        examples=tally.examples,
        rejected=tally.rejected,
        unsupervised=tally.unsupervised,
        formats=dict(tally.formats),
        templates=dict(sorted(tally.templates.items())),
        ledger=tally.ledger(),
        lengths=lengths,
        data=data,
        learned=learned,
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        views=tuple(
            _views_of_first_and_named_rows(
                setup, encoder, _origins_to_view(judgement.findings, MAX_REPORT_ROWS, NEAR_ROWS), 1
            )
        ),
        seconds=time.perf_counter() - started,
    )


def _renderer_of_rows(setup: Setup) -> StreamRenderer:
    """The renderer of the rows; it writes the tokens of pictures where the model's processor is known."""
    renderer = setup.probes.renderer()
    if isinstance(setup.picture_tokens, UnknownProcessor):
        return renderer
    return PictureRenderer(renderer, setup.picture_tokens, setup.pictures)


def _judgement_on_uncounted_media(media: Media, setup: Setup) -> Judgement:
    """That images, sound or video are left out of all lengths; empty where the rows hold none of which this is so."""
    if not media:
        return Judgement()
    reason, unlock = media.note_on_lengths, COUNT_IN_BATCHES
    processor = setup.picture_tokens
    if media.images:
        if isinstance(processor, UnknownProcessor):
            reason += f": {processor.reason}"
            unlock = processor.unlock or unlock
        else:
            reason += (
                f": the size of each, or how the {processor.family} processor cuts it, is not known"
            )
    # It is told, and asked for by nobody: rules that a user's own limit asks for say so by themselves.
    return Judgement(
        not_judged=(
            NotJudged(UNCOUNTED_MEDIA, reason, unlock=unlock, asked=False, always_told=True),
        )
    )


def _judgement_on_unread_pictures(states: Counter[PictureState]) -> Judgement:
    """That pictures were not opened: those at addresses, of other formats, and all where no file is found."""
    told: list[tuple[int, str, str]] = [
        (
            states["remote"],
            "are at addresses, which truetune does not fetch",
            "save them beside the data",
        ),
        (states["unread"], "are of a form or format that truetune does not read", ""),
    ]
    if states["missing"] == states.total():
        unlock = "name their folder: media_dir in truetune.yaml"
        told.append((states["missing"], "are not beside the data", unlock))
    return Judgement(
        not_judged=tuple(
            NotJudged(
                "pictures",
                f"{count:,} of {states.total():,} {text}",
                unlock=unlock,
                asked=False,
                always_told=True,
            )
            for count, text, unlock in told
            if count
        )
    )


def _not_judged_empty_file(path: str) -> NotJudged:
    """A file without a row, which is not judged."""
    return NotJudged(path, "the file holds no row", unlock="name the file that holds the data")


def add_token_views(report: DataReport, rows: int = PAGE_ROWS) -> DataReport:
    """The report with its first rows token by token as well, fewer where they are long; they are read again.

    The report as it is where it has them, or where they can't be read any more."""
    if len(report.views) >= min(rows, report.rows):
        return report
    try:
        setup = load_tokenizer_and_template(report.spec)
        encoder = Encoder(setup.tokenizer.backend, only_reference=True)
        wanted = _origins_to_view(report.findings, MAX_PAGE_ROWS, each=MAX_PAGE_ROWS)
        near = {origin for origin in wanted if origin.row < SEQUENTIAL_ROWS}
        views = [
            *_views_of_first_and_named_rows(setup, encoder, near, rows),
            *_views_of_distant_rows(setup, encoder, wanted - near),
        ]
        return replace(report, views=tuple(views))
    except TruetuneError:
        return report


def view_row_tokens(spec: RunSpec, row: int = 0, *, line: int | None = None) -> list[TokenView]:
    """Every training example of one row (0-based, over all files; or the first at `line`), token by token.

    Raises DataError where there is no such row, TemplateError where it can't be rendered.
    """
    # Origin with row -1: says afterwards that no row was read at all.
    setup, last, named = load_tokenizer_and_template(spec), Origin("", 0, -1), ", ".join(spec.data)
    for conversation in _read_rows(spec, spec.data):
        if (conversation.origin.row == row) if line is None else (conversation.origin.line == line):
            encoder = Encoder(setup.tokenizer.backend, only_reference=True)
            batch = make_batch([conversation], setup.probes.renderer(), encoder, exact=True)
            if batch.rejected:
                raise DataError(f"{conversation.origin}: {batch.rejected[0].reason}")
            views = make_token_views(batch, encoder.vocabulary)
            return _with_template_names(views) if len(setup.tokenizer.templates) > 1 else views
        last = conversation.origin
    if last.row < 0:
        raise DataError(f"{named}: there is no row in it")
    if line is not None:
        raise DataError(
            f"{named}: no row begins at line {line}; of {last.row + 1:,} the last is at {last.line}"
        )
    raise DataError(f"{named}: there is no row {row}; rows are numbered from 0 to {last.row}")


def _with_template_names(views: list[TokenView]) -> list[TokenView]:
    """The views, each with the name of the chat template that rendered it."""
    return [replace(view, template=view.example.rendering.template) for view in views]


def load_tokenizer_and_template(spec: RunSpec, *, only_reference: bool = False) -> Setup:
    """Load the tokenizer and compile its template, to be used without shortcuts where `only_reference` is set.

    Raises SpecError, TokenizerError or TemplateError.
    """
    session = load_tokenizer_and_template_of_run(spec)
    if spec.training.special_tokens:
        # Special tokens that the trainer adds shift ids, so that all that is known of the tokenizer is asked again.
        session = make_probes(
            with_special_tokens_set(session.tokenizer, spec.training.special_tokens), spec
        )
    session = replace(session, only_reference=only_reference)
    trainer = trainer_facts_named_by_package_for_pairs(spec)
    return Setup(
        spec,
        session.tokenizer,
        session,
        trainer,
        pictures=PictureReader(spec.media_dir),
        picture_tokens=_picture_tokens_of(session.tokenizer, trainer),
    )


def _picture_tokens_of(
    tokenizer: Tokenizer, trainer: TrainerFacts
) -> PictureTokenizer | UnknownProcessor:
    """What the processor beside a tokenizer makes of pictures, or why that is not known."""
    if trainer.name == "llama-factory":
        return SHRUNK_BY_LLAMA_FACTORY
    if str(tokenizer.folder) == BYTE_TOKENIZER:
        return UnknownProcessor("no tokenizer is named", "name the model's folder with --tokenizer")
    found = load_picture_tokenizer(tokenizer.folder, tokenizer.config)
    if (
        isinstance(found, UnknownProcessor)
        or tokenizer.backend.token_to_id(found.placeholder) is not None
    ):
        return found
    return UnknownProcessor(f"the tokenizer has no token {found.placeholder}")


def _read_rows(
    spec: RunSpec,
    paths: tuple[str, ...],
    progress: Progress | None = None,
    on_broken: OnBroken | None = None,
    on_empty: Callable[[str], None] | None = None,
) -> Iterator[Conversation]:
    """The rows of these paths, as the settings say."""
    if not paths:
        return iter(())
    return read_conversations(
        paths,
        format=spec.format,
        columns=spec.map,
        progress=progress,
        on_broken=on_broken,
        on_empty=on_empty,
    )


def _origins_to_view(
    findings: tuple[Finding, ...], most: int, rows: float = inf, *, each: int = SHOWN_CASES
) -> set[Origin]:
    # In turn: each finding gets its first case shown before any gets its second.
    """The rows to show token by token: of each finding up to `each` of its cases, first cases
    first, `most` rows in all, and none from row `rows` on.
    """
    in_turn = zip_longest(*(finding.cases[:each] for finding in findings))
    places = (
        case.origin
        for cases in in_turn
        for case in cases
        if case is not None and case.origin is not None
    )
    return set(islice(dict.fromkeys(place for place in places if place.row < rows), most))


def _views_of_first_and_named_rows(
    setup: Setup, encoder: Encoder, wanted: set[Origin], first: int
) -> Iterator[TokenView]:
    """Token views of the first rows and of the wanted ones, which are read again from the start and
    rendered with every offset known.
    """
    renderer, tokens = setup.probes.renderer(), 0
    last = max((origin.row for origin in wanted), default=0)
    for row in _read_rows(
        setup.spec, setup.spec.data, on_broken=_ignore_known_event, on_empty=_ignore_known_event
    ):
        if row.origin in wanted or (row.origin.row < first and tokens < VIEWED_TOKENS):
            batch = make_batch([row], renderer, encoder, exact=True)
            tokens += len(batch.ids) + (
                0 if batch.rejected_sides is None else len(batch.rejected_sides.ids)
            )
            yield from make_token_views(batch, encoder.vocabulary)
        # Rows come in the order of the file: behind the last that is wanted there is nothing to wait for.
        if row.origin.row >= last and (row.origin.row + 1 >= first or tokens >= VIEWED_TOKENS):
            return


def _ignore_known_event(*_: object) -> None:
    """Does nothing: the check has already reported broken lines and empty files."""


def _views_of_distant_rows(
    setup: Setup, encoder: Encoder, wanted: set[Origin]
) -> Iterator[TokenView]:
    """Token views of rows far into a file, each of which is read without the rows before it."""
    renderer = setup.probes.renderer()
    for row in read_rows_at_origins(setup.spec, wanted):
        yield from make_token_views(
            make_batch([row], renderer, encoder, exact=True), encoder.vocabulary
        )


def _tokenizer_facts(tokenizer: Tokenizer, probes: Probes) -> dict[str, str]:
    """Short facts on the tokenizer, by name."""
    special = ((name, tokenizer.special.get(name)) for name in ("bos", "eos", "pad", "unk"))
    facts = {name: f"{token.token} ({token.id})" for name, token in special if token}
    facts["stop tokens"] = (
        ", ".join(f"{s.token} ({s.id}; {', '.join(s.origins)})" for s in probes.stops) or "none"
    )
    facts["template"] = probes.template.name if probes.template else "none"
    if probes.tool_template:
        facts["template"] += f"; of rows with tools {probes.tool_template.name}"
    added = [
        name
        for name, is_added in (("BOS", tokenizer.adds_bos), ("EOS", tokenizer.adds_eos))
        if is_added
    ]
    facts["a plain encode adds"] = " and ".join(added) or "nothing"
    facts["vocabulary"] = f"{tokenizer.vocabulary:,}" + (
        f" of {tokenizer.embedding_rows:,} embedding rows" if tokenizer.embedding_rows else ""
    )
    return facts
