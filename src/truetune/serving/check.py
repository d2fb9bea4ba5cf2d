"""serve_check: what a server really builds and does, against the training record of its model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from truetune.checks.catalogue import choose
from truetune.checks.judgement import Judgement, NotJudged, judge
from truetune.checks.report import Subject
from truetune.checks.rule import ServingRule
from truetune.data.rows import read_conversations
from truetune.errors import TruetuneError, UsageError
from truetune.generation.backends.http_client import NoReply, find_server
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.backends.request_fields import body_sender, survey_fields
from truetune.generation.backends.server_prompt_ids import chat_request
from truetune.generation.server_observations import ContextLength, ServerObservations
from truetune.render.probes import Probes, prepared
from truetune.render.template import Template
from truetune.serving.behaviour import answered, refused
from truetune.serving.client import Client
from truetune.serving.context import context_of
from truetune.serving.habits import repeats_of, sampling_of
from truetune.serving.prompts import Asked, asked_of
from truetune.serving.report import ServiceReport
from truetune.serving.stopping import stopping_of
from truetune.serving.strength import Own, expectations, prompts_for, strength_of
from truetune.serving.trained import Record, Trained, record_of
from truetune.spec.run import RunSpec

LONGEST = 8192
"""Tokens of the longest prompt that is sent unasked"""
STRENGTH = 6
"""Prompts whose answers are scored"""
HABITS = 2
"""Prompts whose answers are asked for again and again"""
PROTOCOL = frozenset(
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
    options: Options = Options(),  # noqa: B008
    data: Sequence[str] = (),
    count: int = 4,
    strength: bool = True,
    longest: int = LONGEST,
    spec: RunSpec | None = None,
    say: Say = str,
    **settings: Any,
) -> ServiceReport:
    """Ask the server at `endpoint` for the model `name`, and compare.

    `count` rows of `data` are asked besides the fixed conversations of the training record. `strength` loads the model
    and its base on this machine. `longest` is the most tokens of the prompt that tries the context, 0 for none.
    `settings` are those of the training that its folder does not tell. Raises UsageError where nothing answers, and
    what `find_model_source` and `ModelSource.prepared` raise.
    """
    started = time.perf_counter()
    place = find_model_source(name, base=base, tokenizer=tokenizer)
    if place.kind == "endpoint":
        raise UsageError(
            f"{name}: expected the model's folder or file; the server is named with --endpoint"
        )
    server = find_server(endpoint, options.served_model, option="--served-model")
    made = place.prepared(**settings)
    record = record_of(place, made, read_conversations(data) if data else (), count=count)
    bos = made.tokenizer.special.get("bos")
    client = Client(
        server,
        seconds=options.timeout,
        concurrency=options.concurrency,
        bos=bos.token if bos else None,
    )
    spec = spec or place.spec(**settings)
    service = _seen(
        place, client, made, record, options, strength=strength, longest=longest, say=say
    )
    judged = judgement_of(service, spec)
    return ServiceReport(
        spec=spec,
        subjects=(Subject("server", server.root, tuple(_facts(place, client, record).items())),),
        findings=judged.findings,
        examined=judged.examined,
        not_judged=judged.not_judged,
        seconds=time.perf_counter() - started,
        service=service,
    )


def judgement_of(service: ServerObservations, spec: RunSpec) -> Judgement:
    """What the rules that `spec` selects say of a service, and the parts of it that could not be seen."""
    rules = [
        rule
        for rule in choose(spec.select, spec.ignore, "serving")
        if issubclass(rule, ServingRule)
    ]
    lost = (
        NotJudged(part, "the check was broken off before", unlock="check again")
        for part in service.lost
    )
    return Judgement.of([judge(rules, service), Judgement(not_judged=tuple(lost))])


def _facts(place: ModelSource, client: Client, record: Record) -> dict[str, str]:
    return {
        "model": client.server.model or place.name,
        "against": place.name,
        "training record": record.source,
    }


def _seen(
    place: ModelSource,
    client: Client,
    made: Probes,
    record: Record,
    options: Options,
    *,
    strength: bool,
    longest: int,
    say: Say,
) -> ServerObservations:
    chats = [trained for trained in record.prompts if trained.messages]
    if not chats:
        raise UsageError(
            f"{place.name}: no chat of its training record can be asked: it has no chat template"
        )
    notes, lost = [*record.notes], list[str]()
    under = _base_template(place, made)
    say(f"asking for {len(chats)} prompts")
    asked = asked_of(client.server, chats, made, under, client.concurrency, seconds=client.seconds)
    taken = [one.trained for one in asked if not refused(one)]
    if not taken:
        raise UsageError(
            f"{client.server.root} refuses all {len(chats)} chats ({asked[0].compared.refused}):"
            " name the model with --served-model"
        )
    plain = sorted(taken, key=lambda trained: (bool(trained.tools), not trained.of_data))[:HABITS]
    say("asking the same thing again and again")
    repeats = _tried(notes, lost, "repeatability", lambda: repeats_of(client, plain))
    repeatable = repeats is not None and not repeats.alone_differ
    if repeatable:
        say("comparing answers")
        asked, more = _tried(
            notes, lost, "answers", lambda: answered(client, asked, made, under)
        ) or (asked, [])
        notes += more
    context, late = _context(client, place, made, asked, longest)
    notes += late
    own, found, more = (
        _strength(place, client, made, record, options, say)
        if strength
        else (Own((), ()), None, [])
    )
    expected = list(expectations(own))
    say("looking at stops, sampling and context")
    config = made.tokenizer.generation_config
    return ServerObservations(
        url=client.server.root,
        model=client.server.model,
        prompts=tuple(one.compared for one in asked),
        stopping=_tried(
            notes, lost, "stops", lambda: stopping_of(client, record, made, expected, plain)
        ),
        sampling=_tried(
            notes,
            lost,
            "sampling",
            lambda: sampling_of(client, plain, config, repeatable=repeatable),
        ),
        repeats=repeats,
        context=context,
        strength=found,
        ignored=_tried(notes, lost, "fields", lambda: _ignored(client, plain[0])) or (),
        notes=tuple(dict.fromkeys([*more, *notes])),
        lost=tuple(lost),
    )


def _tried(notes: list[str], lost: list[str], what: str, ask: Callable[[], T]) -> T | None:
    """None, and a note, where the server stopped answering: what was seen before is kept."""
    try:
        return ask()
    except NoReply as error:
        notes.append(f"{what} could not be looked at: {error}")
        lost.append(what)
        return None


def _strength(
    place: ModelSource, client: Client, made: Probes, record: Record, options: Options, say: Say
) -> tuple[Own, Any, list[str]]:
    """Raises nothing for a model that can't be loaded: that is a note."""
    endpoint = find_model_source(client.server.root, tokenizer=str(place.tokenizer))
    served = replace(
        options,
        backend="server",
        served_model=client.server.model,
        route="completions",
        concurrency=1,
    )
    stops = frozenset(id for _, id in record.stops)
    prompts = prompts_for(record.prompts, STRENGTH)
    try:
        with open_backend(endpoint, made.tokenizer, served) as server:
            return strength_of(place, server, client, prompts, made.tokenizer, options, stops, say)
    except TruetuneError as error:
        return Own((), ()), None, [f"how much of the training is served was not measured: {error}"]


def _context(
    client: Client, place: ModelSource, made: Probes, asked: Sequence[Asked], longest: int
) -> tuple[ContextLength | None, list[str]]:
    """None, and a note, where no answer to the long prompt comes in time."""
    one = min(
        (one.trained for one in asked),
        key=lambda trained: (len(trained.messages), len(trained.ids)),
    )
    positions = made.tokenizer.model_config.get("max_position_embeddings")
    try:
        return (
            context_of(
                client,
                one,
                positions=positions if isinstance(positions, int) else None,
                longest_trained=place.spec().max_length,
                longest=longest,
                encode=lambda text: (
                    made.tokenizer.backend.encode(text, add_special_tokens=False).ids
                ),
            ),
            [],
        )
    except NoReply as error:
        return None, [f"the context was not tried: {error} (--longest, --timeout)"]


def _ignored(client: Client, trained: Trained) -> tuple[str, ...]:
    """Fields of the protocol that have no effect."""
    ask = body_sender(f"{client.server.root}/v1/chat/completions", client.seconds)
    seen = survey_fields(
        ask, chat_request(client.server, trained.chat), settings=trained.settings or None
    )
    return tuple(one.name for one in seen if one.verdict == "ignored" and one.name in PROTOCOL)


def _base_template(place: ModelSource, made: Probes) -> Probes | None:
    """The probes with the template of the base model, where it has another one."""
    if place.base is None:
        return None
    try:
        own = prepared(RunSpec(tokenizer=str(place.base)))
    except TruetuneError:
        return None
    if own.template is None or made.template is None or own.template.source == made.template.source:
        return None
    return replace(
        made,
        template=Template(own.template.source, made.template.special, name="base"),
        tool_template=None,
    )
