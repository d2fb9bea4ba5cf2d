"""Answers in batches against a loop of single `generate` calls; scoring; and what a token costs.

python -m bench.generate MODEL                   32 prompts of mixed length, greedy, in turn
python -m bench.generate MODEL --threads 2       with as many threads
python -m bench.generate MODEL --only scores     200 answers scored: no model is needed
python -m bench.generate MODEL --only tokens     seconds a token behind 8 and behind 256, with and without a cache

Tokens are those of the answers, their stop tokens among them: what a row is filled up with does not count. The loop is
transformers' own `generate`, one prompt after another, with its cache. CPU seconds are those of the process.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

PROMPTS = 32
LIMIT = 64
"""New tokens"""
SCORED = 200
LENGTHS = (8, 256)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a model folder with weights")
    parser.add_argument("--data", help="rows of alpaca (instruction, input, output), as JSON")
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("answers", "scores", "tokens"))
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(asked.threads)
    prompts, place, probes = _prompts(asked)
    if asked.only in (None, "scores"):
        _scores(prompts, probes)
    if asked.only == "scores":
        return
    from truetune.generation.backends.open_backend import Options, open_backend

    with open_backend(place, probes.tokenizer, Options(device="cpu")) as backend:
        if asked.only in (None, "answers"):
            _answers(backend, prompts[: asked.prompts], probes, asked)
        if asked.only in (None, "tokens"):
            _tokens(backend)


def _prompts(asked: Any) -> tuple[Any, Any, Any]:
    from truetune.data.read_rows_as_conversations import read_conversations
    from truetune.generation.backends.model_source import find_model_source
    from truetune.generation.build_prompts import build_prompts

    place = find_model_source(asked.model)
    probes = place.prepared()
    data = Path(asked.data) if asked.data else _demo()
    return (
        build_prompts(
            probes.spec, read_conversations((str(data),)), max(asked.prompts, SCORED), probes=probes
        ),
        place,
        probes,
    )


def _answers(backend: Any, prompts: Sequence[Any], probes: Any, asked: Any) -> None:
    from truetune.generation.backends.backend import Decoding
    from truetune.generation.backends.model_source import serving_stops

    stops = serving_stops(probes.tokenizer)
    plain = [replace(prompt, reference_ids=()) for prompt in prompts]
    decoding = Decoding(stops, asked.limit)
    lengths = sorted(len(prompt.ids) for prompt in prompts)
    print(
        f"{len(prompts)} prompts of {lengths[0]} to {lengths[-1]} tokens (median"
        f" {statistics.median(lengths):.0f}), at most {asked.limit} new ones, {asked.threads}"
        " threads"
    )
    print(f"{'':<8} {'tokens':>7} {'seconds':>8} {'tokens/s':>9} {'tokens/cpu s':>13}")
    ratios: list[tuple[float, float]] = []
    for _ in range(asked.rounds):
        batched, *ours = _timed(
            lambda: [_ids(answer) for answer in backend.answers(plain, decoding)]
        )
        single, *loop = _timed(
            lambda: [_alone(backend.model, p.ids, sorted(stops), asked.limit) for p in prompts]
        )
        rates = []
        for name, said, (wall, cpu) in (("batched", batched, ours), ("loop", single, loop)):
            count = sum(map(len, said))
            rates.append((count / wall, count / cpu))
            print(f"{name:<8} {count:7} {wall:8.1f} {rates[-1][0]:9.1f} {rates[-1][1]:13.1f}")
        ratios.append((rates[0][0] / rates[1][0], rates[0][1] / rates[1][1]))
        print(
            f"identical: {sum(a == b for a, b in zip(batched, single, strict=True))} of"
            f" {len(prompts)}"
        )
    wall, cpu = (statistics.median(pair[i] for pair in ratios) for i in (0, 1))
    print(f"batched / loop: {wall:.2f} in wall time, {cpu:.2f} in CPU time")


def _timed(work: Any) -> tuple[Any, float, float]:
    """What it makes, wall and CPU seconds"""
    wall, cpu = time.perf_counter(), time.process_time()
    made = work()
    return made, time.perf_counter() - wall, time.process_time() - cpu


def _ids(answer: Any) -> list[int]:
    return [*answer.ids, *([] if answer.stop is None else [answer.stop])]


def _alone(model: Any, ids: Sequence[int], stops: list[int], limit: int) -> list[int]:
    """As anyone would call it"""
    import torch

    row = torch.tensor([ids])
    with torch.no_grad():
        made = model.generate(
            input_ids=row,
            attention_mask=torch.ones_like(row),
            do_sample=False,
            max_new_tokens=limit,
            eos_token_id=stops,
            pad_token_id=stops[0],
        )
    said: list[int] = made[0, len(ids) :].tolist()
    return said


def _scores(prompts: Sequence[Any], probes: Any) -> None:
    """The reference of each as the answer of the one before it, until there are 200."""
    from truetune.generation.answer_samples import Answer
    from truetune.generation.build_prompts import control_token_texts
    from truetune.generation.score_answer_by_prompt_and_reference import score_answer

    control = control_token_texts(probes.tokenizer)
    rows = [prompts[i % len(prompts)] for i in range(SCORED)]
    pairs = [
        (row, Answer(other.reference_ids, other.reference, 2))
        for row, other in zip(rows, rows[-1:] + rows[:-1], strict=True)
    ]
    for name in ("cold", "warm"):
        _, wall, cpu = _timed(
            lambda: [score_answer(prompt, answer, control=control) for prompt, answer in pairs]
        )
        length = statistics.mean(len(answer.text) for _, answer in pairs)
        print(
            f"{len(pairs)} answers of {length:.0f} characters scored, {name}: {wall:.2f} s,"
            f" {cpu:.2f} CPU s"
        )


def _tokens(backend: Any) -> None:
    print(f"{'':<12}" + "".join(f"behind {length:<6}" for length in LENGTHS) + "ratio")
    for name, cached in (("with cache", True), ("no cache", False)):
        backend.model.generation_config.use_cache = cached
        pace = backend.pace()
        print(
            f"{name:<12}{pace.short * 1e3:7.0f} ms   {pace.long * 1e3:7.0f} ms  "
            f" {pace.long_to_short_text_time_ratio:.1f}"
        )
    backend.model.generation_config.use_cache = True


def _demo() -> Path:
    from tests.parts import data

    return data("llamafactory/alpaca_en_demo.json")


if __name__ == "__main__":
    main()
