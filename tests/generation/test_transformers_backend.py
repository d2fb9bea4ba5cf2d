"""A model of transformers, asked through the one interface: against plain forward passes of the same model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from tests import parts
from tests.auditing import tiny
from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.generation import log_probabilities_of_given_ids
from truetune.generation.answer_samples import Prompt
from truetune.generation.backends.backend import Decoding
from truetune.generation.backends.model_source import ModelSource, find_model_source
from truetune.generation.backends.open_backend import Options, open_backend
from truetune.generation.backends.transformers_backend import TransformersBackend, choose_device
from truetune.generation.generate_batch_with_transformers import draw_tokens
from truetune.render.tokenizer import load_tokenizer

STOP = 2


def ids_of(*lengths: int) -> list[list[int]]:
    draw = np.random.default_rng(0)
    return [draw.integers(5, 200, length).tolist() for length in lengths]


def prompt(ids: list[int], reference: tuple[int, ...] = ()) -> Prompt:
    return Prompt(tuple(ids), "", "", reference, "a.jsonl", 1)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny.model(initializer_range=0.4).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter")
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    torch.manual_seed(1)
    config = LoraConfig(
        r=4, target_modules="all-linear", init_lora_weights=False, base_model_name_or_path=str(base)
    )
    get_peft_model(model, config).save_pretrained(str(folder))
    return folder


def backend(folder: Path, **options: Any) -> TransformersBackend:
    place = find_model_source(str(folder))
    made = open_backend(
        place, load_tokenizer(str(place.tokenizer)), Options(**{"device": "cpu", **options})
    )
    assert isinstance(made, TransformersBackend)
    return made


def plainly(model: Any, ids: list[int]) -> Any:
    """(n - 1, vocabulary) log-probabilities, of one whole pass over one sequence."""
    with torch.no_grad():
        return (
            model(input_ids=torch.tensor([ids]), use_cache=False)
            .logits[0, :-1]
            .float()
            .log_softmax(-1)
        )


def test_scores_are_those_of_plain_passes(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sequences, stops = ids_of(9, 30, 2, 1, 17, 0), frozenset({STOP, 11})
    with backend(base) as model:
        rows, told = model.rows, []
        whole = model.score(sequences, stops, lambda done, of: told.append((done, of)))
        monkeypatch.setattr(log_probabilities_of_given_ids, "MAX_BATCH_TOKENS", 1)
        alone = model.score(sequences, stops)
        monkeypatch.setattr(log_probabilities_of_given_ids, "MAX_BATCH_TOKENS", 8192)
        monkeypatch.setattr(log_probabilities_of_given_ids, "MAX_LOGITS", 6 * 3 * rows)
        parts = model.score(sequences, stops)
        assert whole
        assert alone
        assert parts
        assert told[-1] == (6, 6)
        for i, ids in enumerate(sequences[:5]):
            expected = plainly(model.model, ids)
            chosen = expected.gather(-1, torch.tensor(ids[1:], dtype=torch.long)[:, None])[:, 0]
            for found in (whole[i], alone[i], parts[i]):
                assert len(found.logprobs) == len(ids)
                assert np.isnan(found.logprobs[0])
                assert found.logprobs[1:] == pytest.approx(chosen.numpy(), abs=1e-5)
                assert found.stop is not None
                assert found.stop[1:] == pytest.approx(
                    expected.exp()[:, sorted(stops)].sum(-1).numpy(), abs=1e-5
                )
        assert len(whole[5].logprobs) == 0
        scored = model.score(sequences)
        assert scored is not None
        assert scored[0].stop is None


def test_the_likeliest_next_ids(base: Path) -> None:
    with backend(base) as model:
        prefixes = ids_of(5, 12)
        for ids, found in zip(prefixes, model.likeliest(prefixes, 3) or [], strict=True):
            expected = plainly(model.model, [*ids, 0])[-1].topk(3)
            assert list(found) == expected.indices.tolist()
            assert list(found.values()) == pytest.approx(expected.values.tolist(), abs=1e-5)


def generated(model: Any, ids: list[int], limit: int) -> list[int]:
    made = model.generate(
        input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
        max_new_tokens=limit, eos_token_id=STOP, pad_token_id=0,
    )  # fmt: skip
    said: list[int] = made[0, len(ids) :].tolist()
    return said


def test_answers_are_those_of_single_generate_calls(base: Path) -> None:
    asked = ids_of(3, 40, 11, 26, 7, 18, 33, 5)
    with backend(base) as model:
        said = [generated(model.model, ids, 24) for ids in asked]
        favourite = max(range(256), key=lambda id: sum(id in ids for ids in said))
        stops, told = frozenset({favourite}), []
        found = model.answers(
            [prompt(ids) for ids in asked], Decoding(stops, 24), lambda done, of: told.append(done)
        )
        assert told == sorted(told)
        assert told[-1] == len(asked)
        ended = {answer.stop for answer in found if answer}
        assert ended == {favourite, None}
        for ids, alone, answer in zip(asked, said, found, strict=True):
            at = alone.index(favourite) if favourite in alone else None
            assert answer
            assert list(answer.ids) == alone[:at]
            whole = [*answer.ids, *([] if at is None else [favourite])]
            thought = plainly(model.model, [*ids, *whole])[len(ids) - 1 :]
            expected = thought.gather(-1, torch.tensor(whole)[:, None]).mean()
            assert answer.logprob == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize(("top_p", "min_p"), [(1.0, 0.0), (0.8, 0.0), (1.0, 0.05), (0.8, 0.05)])
def test_draws_are_a_prompts_own(base: Path, top_p: float, min_p: float) -> None:
    asked = [prompt(ids) for ids in ids_of(3, 40, 11, 26)]
    decoding = Decoding(frozenset({STOP}), 12, temperature=1.5, top_p=top_p, min_p=min_p, seed=3)
    with backend(base) as model:
        together = model.answers(asked, decoding)
        for one, beside_others in zip(asked, together, strict=True):
            (alone,) = model.answers([one], decoding)
            assert alone is not None
            assert beside_others is not None
            assert alone.logprob == pytest.approx(beside_others.logprob, abs=1e-5)
            assert replace(alone, logprob=beside_others.logprob) == beside_others
        assert [a.ids for a in together if a] != [
            a.ids for a in model.answers(asked, replace(decoding, seed=4)) if a
        ]
        greedy = model.answers(asked, replace(decoding, temperature=0.0))
        assert [a.ids for a in together if a] != [a.ids for a in greedy if a]
        cold = model.answers(asked, replace(decoding, temperature=1e-4))
        assert [a.ids for a in cold if a] == [a.ids for a in greedy if a]


MIN_PS = [0.02, 0.1, 0.5, 1.0]


class Drawing:
    """A real model, some prompts, and what it answers without `min_p`."""

    def __init__(self) -> None:
        folder = parts.model()
        tokenizer = load_tokenizer(str(folder))
        texts = ["The capital of France is", "Once upon a time there was a", "1 2 3 4 5"]
        self.asked = [
            prompt(tokenizer.backend.encode(text, add_special_tokens=False).ids) for text in texts
        ]
        self.decoding = Decoding(frozenset({STOP}), 6, temperature=1.5, seed=1)
        self.model = backend(folder)
        self.whole = self.ids(self.decoding)
        self.greedy = self.ids(replace(self.decoding, temperature=0.0))

    def ids(self, decoding: Decoding) -> list[Any]:
        """The ids of each answer."""
        return [answer and answer.ids for answer in self.model.answers(self.asked, decoding)]


@pytest.fixture(scope="module")
def drawing() -> Iterator[Drawing]:
    made = Drawing()
    with made.model:
        yield made


@pytest.mark.parametrize("min_p", MIN_PS)
def test_min_p_draws_from_the_tokens_that_transformers_leaves(
    min_p: float, drawing: Drawing
) -> None:
    decoding = replace(drawing.decoding, min_p=min_p)
    warp: Any = transformers.LogitsProcessorList(
        [transformers.TemperatureLogitsWarper(1.5), transformers.MinPLogitsWarper(min_p)]
    )
    answers = drawing.ids(decoding)
    for one, answer in zip(drawing.asked, answers, strict=True):
        ids = [*one.ids, *answer]
        with torch.no_grad():
            scores = drawing.model.model(torch.tensor([ids])).logits[0].float()
        # A hair more, as a batch rounds otherwise than a single row.
        left = warp(torch.tensor([ids]), scores).isfinite() | scores.isclose(
            scores.amax(-1, keepdim=True) + 1.5 * np.log(min_p), atol=1e-3
        )
        for place, id in enumerate(answer, len(one.ids) - 1):
            assert left[place, id]
    assert answers != drawing.whole
    assert (answers == drawing.greedy) is (min_p == 1)


@pytest.mark.parametrize("top_p", [1.0, 0.9])
@pytest.mark.parametrize("min_p", [0.0, *MIN_PS])
def test_draws_come_as_often_as_they_are_likely(top_p: float, min_p: float) -> None:
    scores = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)) * 2
    warp: Any = transformers.LogitsProcessorList(
        [transformers.TopPLogitsWarper(top_p), transformers.MinPLogitsWarper(min_p)]
    )
    shares = warp(torch.tensor([[0]]), scores).softmax(-1)[0]
    places = (torch.arange(20_000) + 0.5)[:, None] / 20_000
    found = draw_tokens(
        scores.softmax(-1).expand(20_000, -1), places, top_p=top_p, min_p=min_p
    ).flatten()
    assert found.bincount(minlength=50) / 20_000 == pytest.approx(shares.numpy(), abs=2e-4)


@pytest.mark.parametrize(("top_p", "min_p"), [(1.0, 0.0), (0.5, 0.0), (1.0, 0.5)])
def test_a_draw_that_rounds_to_one_takes_a_token_that_is_left(top_p: float, min_p: float) -> None:
    probabilities = torch.tensor([[0.4, 0.3, 0.25, 0.05]])
    left = 4 if top_p == 1 and not min_p else 2 if top_p < 1 else 3
    found = draw_tokens(probabilities, torch.ones(1, 1), top_p=top_p, min_p=min_p)
    assert found.tolist() == [[left - 1]]


def test_an_adapter_is_asked_on_its_base(base: Path, adapter: Path) -> None:
    (ids,) = ids_of(20)
    with backend(adapter) as tuned, backend(base) as plain:
        expected = PeftModel.from_pretrained(backend(base).model, str(adapter))
        (with_it,), (without,) = tuned.score([ids]) or [], plain.score([ids]) or []
        chosen = plainly(expected, ids).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
        assert with_it.logprobs[1:] == pytest.approx(chosen.numpy(), abs=1e-5)
        assert np.abs(with_it.logprobs[1:] - without.logprobs[1:]).max() > 0.1
        assert {p.dtype for p in tuned.model.parameters()} == {torch.float32}


def test_an_adapter_with_more_tokens_than_its_base(base: Path, tmp_path: Path) -> None:
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    rows = model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(rows + 8)
    get_peft_model(
        model,
        LoraConfig(
            r=4,
            target_modules=["q_proj"],
            modules_to_save=["embed_tokens", "lm_head"],
            base_model_name_or_path=str(base),
        ),
    ).save_pretrained(str(tmp_path))
    with backend(tmp_path) as found:
        assert found.rows == rows + 8


def test_a_gguf_file(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    from tests.training.test_export import CONVERTER

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model.config.update({"bos_token_id": 1, "eos_token_id": STOP, "pad_token_id": 0})
    model.save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    monkeypatch.setattr(
        "sys.argv",
        ["convert", str(tmp_path / "model"), "", str(tmp_path / "model.gguf"), "", "f32"],
    )
    exec(compile(CONVERTER, "convert.py", "exec"), {})
    place = ModelSource(
        "model.gguf", "gguf", tmp_path / "model.gguf", None, TOKENIZER, None, {}, None
    )
    (ids,) = ids_of(12)
    with open_backend(
        place, load_tokenizer(str(TOKENIZER)), Options(backend="transformers", device="cpu")
    ) as found:
        (scored,) = found.score([ids]) or []
        assert scored.logprobs[1:] == pytest.approx(
            plainly(model, ids).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].numpy(), abs=1e-4
        )
        assert "unpacked" in found.notes[0]


def copied(base: Path, folder: Path, **config: Any) -> Path:
    folder.mkdir()
    for file in base.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def test_weights_that_are_not_there(base: Path, tmp_path: Path) -> None:
    folder = copied(base, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: values for name, values in weights.items() if "layers.1.mlp" not in name},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(
        UsageError, match=r"3 weights of LlamaForCausalLM are not in its files \(model.layers.1.mlp"
    ):
        backend(folder)


def test_an_adapters_weights_that_are_not_there(adapter: Path, tmp_path: Path) -> None:
    folder = (
        copied(adapter, tmp_path / "adapter")
        if (adapter / "config.json").exists()
        else tmp_path / "adapter"
    )
    folder.mkdir(exist_ok=True)
    for file in adapter.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / "adapter_model.safetensors")
    save_file(
        {name.replace("layers.1", "layers.9"): values for name, values in weights.items()},
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(UsageError, match="14 of the adapter's 28 weights are not in its file"):
        backend(folder)
    save_file(
        {
            name: values[:, :-1].contiguous() if "lora_A" in name else values
            for name, values in weights.items()
        },
        folder / "adapter_model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(UsageError, match="does not fit"):
        backend(folder)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "unheard-of", "architectures": ["UnheardOfForCausalLM"]}, "unheard-of"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "score.weight"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "bitsandbytes"),
        ({"auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}, "model_type": "mine",
          "architectures": ["Mine"]}, "trust-remote-code"),
    ],
)  # fmt: skip
def test_a_model_that_is_not_loaded(
    config: dict[str, Any], said: str, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        backend(copied(base, tmp_path / "model", **config))


def test_a_model_that_does_not_generate(tmp_path: Path) -> None:
    model = transformers.BertModel(
        transformers.BertConfig(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            vocab_size=50,
        )
    )
    model.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="BertModel does not generate"):
        backend(tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tpu", "expected cpu"),
        ("cuda:x", "expected cpu"),
        ("cuda:77", "cuda devices"),
        ("mps:9", "mps devices"),
    ],
)
def test_devices_that_are_not_there(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        choose_device(name)


def test_ids_that_are_not_the_models(base: Path) -> None:
    with backend(base) as model:
        with pytest.raises(UsageError, match="tokenizer is of another model"):
            model.answers([prompt([5, 99999])], Decoding(frozenset({STOP}), 4))
        (said,) = model.answers([prompt([5, 6])], Decoding(frozenset({99999}), 4))
        assert said
        assert said.stop is None
        assert "99999" in model.notes[0]
        assert model.answers([prompt([])], Decoding(frozenset({STOP}), 4)) == [None]
        assert "1 of 1 prompts got no answer" in model.notes[1]


def test_an_interrupt_leaves_a_model_that_answers(base: Path) -> None:
    asked = [prompt(ids) for ids in ids_of(3, 9)]
    with backend(base) as model:
        decoding = Decoding(frozenset({STOP}), 6)
        expected = model.answers(asked, decoding)

        def interrupt(done: int, of: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            model.answers(asked, decoding, interrupt)
        assert model.answers(asked, decoding) == expected
    assert model.model is None


def test_pace(base: Path, tmp_path: Path) -> None:
    with backend(base) as model:
        healthy = model.pace()
        assert healthy
        assert (healthy.cached, healthy.lengths, healthy.beams, healthy.device) == (
            True,
            (8, 256),
            1,
            "cpu",
        )
        assert healthy.short > 0 < healthy.long
    folder = copied(base, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"use_cache": False, "num_beams": 2}))
    with backend(folder) as model:
        slow = model.pace()
        assert slow
        assert (slow.cached, slow.beams) == (False, 2)


def test_memory_that_does_not_hold_one_row(base: Path) -> None:
    def full(_: Any, inputs: Any) -> None:
        raise torch.OutOfMemoryError("full")

    with backend(base) as model:
        model.model.get_input_embeddings().register_forward_pre_hook(full)
        with pytest.raises(UsageError, match="does not hold a single row"):
            model.answers([prompt([5, 6])], Decoding(frozenset({STOP}), 4))
        with pytest.raises(UsageError, match="does not hold a single row"):
            model.score([[5, 6, 7]])
