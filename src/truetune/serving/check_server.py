"""Checks what a server builds and does against the training record of its model: `truetune
serve-check`.

The parts (prompts, repeatability, answers, context, strength, stops, sampling, ignored fields) are asked one after the
other and become `ServerObservations`, which the rules on serving judge. The trade-off: a part that fails is noted as
not judged and the rest stands, as the check is slow and most of what it saw is still true.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from truetune.checks.judgement import Judgement, NotJudged
from truetune.checks.reports import Subject
from truetune.checks.rule import ServingRule
from truetune.checks.rule_runner import choose_rules, run_rules
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import TruetuneError, UsageError
from truetune.generation.backends.heeded_request_fields import (
    make_request_sender,
    survey_heeded_fields,
)
from truetune.generation.backends.http_client import NoReply, find_server
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.backends.server_prompt_ids import chat_request
from truetune.generation.server_observations import ContextLength, ServerObservations
from truetune.render.template import Template
from truetune.render.template_probes import Probes, load_tokenizer_and_template_of_run
from truetune.serving.compare_served_with_trained_prompts import (
    ComparedPrompt,
    compare_server_prompts,
)
from truetune.serving.infer_prompt_from_answers import (
    compare_prompts_by_answers,
    was_refused_by_server,
)
from truetune.serving.load_contract_of_trained_prompts import (
    TrainedPrompt,
    TrainingRecord,
    load_training_record,
)
from truetune.serving.measure_adapter_effect_on_server import (
    OwnAnswers,
    measure_served_strength,
    pairs_with_stopping_answer,
    select_strength_prompts,
)
from truetune.serving.observe_how_server_samples import (
    measure_repeatability_of_greedy_requests,
    observe_sampling_defaults,
)
from truetune.serving.observe_where_answers_stop import observe_where_server_ends_answers
from truetune.serving.probe_server_context_limit import find_context_length_by_long_prompts
from truetune.serving.server_client import ServerClient
from truetune.serving.service_report import ServiceReport
from truetune.settings.run_spec import RunSpec

# Chosen, not measured: reading twice as many takes a server without a GPU minutes; --longest asks for more.
MAX_CONTEXT_PROMPT_TOKENS = 8192
"""Tokens of the longest prompt that is sent unasked"""
# Chosen, not measured: with 32 tokens each about 200, at a few seconds on a CPU for a small model.
STRENGTH_PROMPTS = 6
"""Prompts whose answers are scored"""
# Each costs some ten requests; a second one, as the first may have an answer without a choice.
SAMPLING_PROMPTS = 2
"""Prompts whose answers are asked for again and again"""
PROTOCOL_FIELDS = frozenset(
    {"logprobs", "max_tokens", "stop", "n", "temperature", "seed", "top_p", "chat_template_kwargs"}
)
"""Fields that a client may rely on"""
Say = Callable[[str], object]
T = TypeVar("T")


def serve_check(
    name: str,
    endpoint: str,
    *,
    base: str | None = None,
    tokenizer: str | None = None,
    options: Options | None = None,
    data: Sequence[str] = (),
    count: int = 4,
    strength: bool = True,
    longest: int = MAX_CONTEXT_PROMPT_TOKENS,
    spec: RunSpec | None = None,
    say: Say = str,
    **settings: Any,
) -> ServiceReport:
    """Ask the server at `endpoint` for the model `name`, and compare with what it was trained for.

    Args:
        name: folder or file of the model, as it was trained.
        endpoint: URL of the server.
        base: its base, where the folder does not name it.
        tokenizer: folder of its tokenizer, where it is another.
        options: how the server and models are asked.
        data: files whose rows are asked besides the fixed conversations of the training record.
        count: how many of those rows.
        strength: load the model and its base on this machine, and compare.
        longest: the most tokens of the prompt that tries the context, 0 for none.
        spec: which rules judge, where it is not that of the model's folder.
        say: told what is being done.
        **settings: those of the training that its folder does not tell.

    Raises:
        UsageError: nothing answers, or what `find_model_source` and `ModelSource.prepared` raise.
    """
    started = time.perf_counter()
    options = options or Options()
    source = find_model_source(name, base=base, tokenizer=tokenizer)
    # A server can't be the record of another one: the training's files are what it is held against.
    if source.kind == "endpoint":
        raise UsageError(
            f"{name}: expected the model's folder or file; the server is named with --endpoint"
        )
    server = find_server(endpoint, options.served_model, option="--served-model")
    probes = source.prepared(**settings)
    record = load_training_record(
        source, probes, read_conversations(data) if data else (), count=count
    )
    bos = probes.tokenizer.special.get("bos")
    client = ServerClient(
        server,
        seconds=options.timeout,
        concurrency=options.concurrency,
        bos=bos.token if bos else None,
    )
    spec = spec or source.recorded_spec_for_asking(**settings)
    service = _observe_server(
        source, client, probes, record, options, strength=strength, longest=longest, say=say
    )
    judgement = judge_server(service, spec)
    return ServiceReport(
        spec=spec,
        subjects=(
            Subject("server", server.root, tuple(_describe_server(source, client, record).items())),
        ),
        findings=judgement.findings,
        examined=judgement.examined,
        not_judged=judgement.not_judged,
        seconds=time.perf_counter() - started,
        service=service,
    )


def judge_server(service: ServerObservations, spec: RunSpec) -> Judgement:
    """The findings of the selected rules on a server, and the parts of it that could not be seen."""
    lost = (
        NotJudged(part, "the check was broken off before", unlock="check again")
        for part in service.lost
    )
    return Judgement.of(
        [run_rules(service, choose_rules(spec, ServingRule)), Judgement(not_judged=tuple(lost))]
    )


def _describe_server(
    source: ModelSource, client: ServerClient, record: TrainingRecord
) -> dict[str, str]:
    """The facts on a server that head its report."""
    return {
        "model": client.server.model or source.name,
        "against": source.name,
        "training record": record.source,
    }


def _observe_server(
    source: ModelSource,
    client: ServerClient,
    probes: Probes,
    record: TrainingRecord,
    options: Options,
    *,
    strength: bool,
    longest: int,
    say: Say,
) -> ServerObservations:
    """Observe each part of the server; the order matters, for answers and sampling are told only by
    a server that repeats itself.
    """
    chats = _trained_chats_to_ask(source, record)
    notes, lost = [*record.notes], list[str]()
    base_probes = _probes_with_differing_base_template(source, probes)
    # `source.base` may have the template that the server uses by mistake, so it is one of the suspects.
    say(f"asking for {len(chats)} prompts")
    prompts = compare_server_prompts(
        client.server, chats, probes, base_probes, client.concurrency, seconds=client.seconds
    )
    answered = [prompt.trained for prompt in prompts if not was_refused_by_server(prompt)]
    if not answered:
        raise UsageError(
            f"{client.server.root} refuses all {len(chats)} chats ({prompts[0].comparison.refused}):"
            " name the model with --served-model"
        )
    # Without tools, which servers parse out of answers; of the data, where the model is surest of itself.
    plain = sorted(
        answered, key=lambda trained: (bool(trained.tools), not trained.is_from_data_row)
    )
    plain = plain[:SAMPLING_PROMPTS]
    say("asking the same thing again and again")
    repeats = _observation_or_note_if_server_stops(
        notes,
        lost,
        "repeatability",
        lambda: measure_repeatability_of_greedy_requests(client, plain),
    )
    # Differences under load are rounding in batches; a server that differs alone can't be compared by answers.
    repeatable = repeats is not None and not repeats.alone_differ
    if repeatable:
        say("comparing answers")
        prompts, answer_notes = _observation_or_note_if_server_stops(
            notes,
            lost,
            "answers",
            lambda: compare_prompts_by_answers(client, prompts, probes, base_probes),
        ) or (prompts, [])
        notes += answer_notes
    context, context_notes = _try_context_length(client, source, probes, prompts, longest)
    notes += context_notes
    own_answers, adapter_strength, strength_notes = OwnAnswers((), ()), None, list[str]()
    if strength:
        own_answers, adapter_strength, strength_notes = _own_answers_and_adapter_strength(
            source, client, probes, record, options, say
        )
    # Answers of the model on this machine: without it (--no-strength) there are none, and stops are seen less surely.
    expected = list(pairs_with_stopping_answer(own_answers))
    say("looking at stops, sampling and context")
    config = probes.tokenizer.generation_config
    return ServerObservations(
        url=client.server.root,
        model=client.server.model,
        prompts=tuple(prompt.comparison for prompt in prompts),
        stopping=_observation_or_note_if_server_stops(
            notes,
            lost,
            "stops",
            lambda: observe_where_server_ends_answers(client, record, probes, expected, plain),
        ),
        sampling=_observation_or_note_if_server_stops(
            notes,
            lost,
            "sampling",
            lambda: observe_sampling_defaults(client, plain, config, repeatable=repeatable),
        ),
        repeats=repeats,
        context=context,
        strength=adapter_strength,
        ignored=_observation_or_note_if_server_stops(
            notes, lost, "fields", lambda: _find_ignored_fields(client, plain[0])
        )
        or (),
        notes=tuple(dict.fromkeys([*strength_notes, *notes])),
        lost=tuple(lost),
    )


def _trained_chats_to_ask(source: ModelSource, record: TrainingRecord) -> list[TrainedPrompt]:
    """The prompts that a server of chats can be asked. Raises UsageError where there are none."""
    chats = [trained for trained in record.prompts if trained.messages]
    if not chats:
        raise UsageError(
            f"{source.name}: no chat of its training record can be asked: it has no chat template"
        )
    return chats


def _observation_or_note_if_server_stops(
    notes: list[str], lost: list[str], what: str, ask: Callable[[], T]
) -> T | None:
    """What an observation gives; None, and a note, where the server stopped answering: what was
    seen before is kept.
    """
    try:
        return ask()
    except NoReply as error:
        notes.append(f"{what} could not be looked at: {error}")
        lost.append(what)
        return None


def _own_answers_and_adapter_strength(
    source: ModelSource,
    client: ServerClient,
    probes: Probes,
    record: TrainingRecord,
    options: Options,
    say: Say,
) -> tuple[OwnAnswers, Any, list[str]]:
    """The model's own answers, the strength of the adapter on the server, and notes; a model that
    can't be loaded is a note.
    """
    endpoint = find_model_source(client.server.root, tokenizer=str(source.tokenizer))
    # One request at a time: batches round otherwise, and the effect is compared token by token.
    served = replace(
        options,
        backend="server",
        served_model=client.server.model,
        route="completions",
        concurrency=1,
    )
    stops = frozenset(id for _, id in record.stops)
    prompts = select_strength_prompts(record.prompts, STRENGTH_PROMPTS)
    try:
        with open_backend(endpoint, probes.tokenizer, served) as server:
            return measure_served_strength(
                source, server, client, prompts, probes.tokenizer, options, stops, say
            )
    except TruetuneError as error:
        return (
            OwnAnswers((), ()),
            None,
            [f"how much of the training is served was not measured: {error}"],
        )


def _try_context_length(
    client: ServerClient,
    source: ModelSource,
    probes: Probes,
    prompts: Sequence[ComparedPrompt],
    longest: int,
) -> tuple[ContextLength | None, list[str]]:
    """The context length that the server shows; None, and a note, where no answer to the long
    prompt comes in time.
    """
    # The shortest: what it holds already is no part of the text that is made as long as wanted.
    shortest = min(
        (prompt.trained for prompt in prompts),
        key=lambda trained: (len(trained.messages), len(trained.ids)),
    )
    positions = probes.tokenizer.model_config.get("max_position_embeddings")
    backend = probes.tokenizer.backend
    try:
        context = find_context_length_by_long_prompts(
            client,
            shortest,
            positions=positions if isinstance(positions, int) else None,
            longest_trained=source.recorded_spec_for_asking().max_length,
            longest=longest,
            encode=lambda text: backend.encode(text, add_special_tokens=False).ids,
        )
        return context, []
    except NoReply as error:
        return None, [f"the context was not tried: {error} (--longest, --timeout)"]


def _find_ignored_fields(client: ServerClient, trained: TrainedPrompt) -> tuple[str, ...]:
    """Fields of the protocol that the server ignores."""
    ask = make_request_sender(f"{client.server.root}/v1/chat/completions", client.seconds)
    reports = survey_heeded_fields(
        ask,
        chat_request(client.server, trained.as_chat_request_body),
        settings=trained.settings or None,
    )
    return tuple(
        field.name
        for field in reports
        if field.verdict == "ignored" and field.name in PROTOCOL_FIELDS
    )


def _probes_with_differing_base_template(source: ModelSource, probes: Probes) -> Probes | None:
    """The probes with the template of the base model, where it has another one."""
    if source.base is None:
        return None
    try:
        base = load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(source.base)))
    # A base whose tokenizer can't be read costs a suspect, not the check.
    except TruetuneError:
        return None
    if base.template is None or probes.template is None:
        return None
    if base.template.source == probes.template.source:
        return None
    template = Template(base.template.source, probes.template.special, name="base")
    return replace(probes, template=template, tool_template=None)
