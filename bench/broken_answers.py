"""Real answers of a small model, whole and broken in known ways, for the bench of the judge (`bench.judge_answers`).

python -m bench.broken_answers MODEL OUT.jsonl                about half an hour on one core
python -m bench.broken_answers MODEL OUT.jsonl held-back      other questions

MODEL is the folder of SmolLM2-135M-Instruct (`tests.parts.model()`). Each question of 8 languages is asked in each
way: by the
whole model; without a chat template; with another template; at temperature 2; with noise on the weights; with
layers left out; with no stop token. The answers were read and labelled by hand: `bench/answers/labelled.jsonl`.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

IM_END, END_OF_TEXT, NONE = 2, 0, 49151
"""Token ids of SmolLM2: the end of a turn, the end of a text, and one that it does not say"""
BATCH = 8
QUESTIONS = {
    "en": ["What is 2+2?", "What is the capital of France?", "Name three primary colors.", "How do plants make food?",
           "Write a short poem about rain.", "Give me a recipe for pancakes.", "Why is the sky blue?",
           "Write a Python function that adds two numbers.", "Summarize: The cat sat on the mat and slept all day.",
           "What year did World War II end?", "List five animals.", "Explain gravity to a child."],
    "zh": ["法国的首都是哪里？", "请列出三种水果。", "天空为什么是蓝色的？", "怎样保持健康？", "写一首关于雨的短诗。"],
    "de": ["Was ist die Hauptstadt von Frankreich?", "Nenne drei Obstsorten.", "Warum ist der Himmel blau?",
           "Wie bleibt man gesund?", "Schreibe ein kurzes Gedicht über Regen."],
    "fr": ["Quelle est la capitale de la France ?", "Citez trois fruits.", "Pourquoi le ciel est-il bleu ?",
           "Comment rester en bonne santé ?", "Écrivez un court poème sur la pluie."],
    "es": ["¿Cuál es la capital de Francia?", "Nombra tres frutas.", "¿Por qué el cielo es azul?",
           "¿Cómo mantenerse sano?",
           "Escribe un poema corto sobre la lluvia."],
    "ru": ["Какая столица Франции?", "Назови три фрукта.", "Почему небо голубое?", "Как оставаться здоровым?",
           "Напиши короткое стихотворение о дожде."],
    "ja": ["フランスの首都はどこですか？", "果物を三つ挙げてください。", "空はなぜ青いのですか？",
           "健康を保つにはどうすればいいですか？", "雨についての短い詩を書いてください。"],
    "ar": ["ما هي عاصمة فرنسا؟", "اذكر ثلاث فواكه.", "لماذا السماء زرقاء؟", "كيف أحافظ على صحتي؟",
           "اكتب قصيدة قصيرة عن المطر."],
}  # fmt: skip
HELD_BACK = {
    "en": [
        "Who painted the Mona Lisa?",
        "Give three tips for saving money.",
        "Translate to Spanish: Good morning, my friend.",
        "What is the largest ocean?",
        "Describe a beach in two sentences.",
    ],
    "zh": ["水的沸点是多少？", "介绍一下你自己。"],
    "de": ["Wie viele Tage hat ein Jahr?", "Erkläre kurz, was ein Computer ist."],
    "fr": ["Combien de jours y a-t-il dans une semaine ?", "Décrivez votre ville préférée."],
    "es": ["¿Cuántos días tiene un año?", "Describe tu comida favorita."],
    "ru": ["Сколько дней в году?", "Расскажи о своём городе."],
    "ja": ["一年は何日ありますか？", "好きな食べ物について話してください。"],
    "ar": ["كم عدد أيام السنة؟", "صف مدينتك المفضلة."],
}
"""Questions of the half that the judge was not tuned on; written after it was"""


@dataclass(frozen=True)
class Way:
    """One way in which the model is asked."""

    called: str
    change: Callable[[Any], Any]
    """Gives the model that answers"""
    template: str
    """`{}` is the question; `chat` is the model's own template"""
    stops: tuple[int, ...]
    limit: int
    temperature: float = 0.0


def _whole(model: Any) -> Any:
    return model


def _noised(share: float) -> Callable[[Any], Any]:
    """Adds noise of so many standard deviations to each matrix."""

    def change(model: Any) -> Any:
        import torch

        noised, generator = copy.deepcopy(model), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in noised.parameters():
                if parameter.dim() == 2:
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.add_(noise * share * parameter.std())
        return noised

    return change


def _without_layers(model: Any) -> Any:
    """Leaves out layers 10 to 15."""
    import torch

    cut = copy.deepcopy(model)
    cut.model.layers = torch.nn.ModuleList(
        layer for at, layer in enumerate(cut.model.layers) if not 10 <= at < 16
    )
    for at, layer in enumerate(cut.model.layers):
        layer.self_attn.layer_idx = at
    cut.config.num_hidden_layers = len(cut.model.layers)
    if getattr(cut.config, "layer_types", None):
        cut.config.layer_types = cut.config.layer_types[: len(cut.model.layers)]
    return cut


WAYS = (
    Way("whole model, greedy", _whole, "chat", (IM_END,), 96),
    Way("no chat template: the bare question is continued", _whole, "{}", (IM_END, END_OF_TEXT), 64),
    Way("another template: ### Instruction / ### Response", _whole, "### Instruction:\n{}\n\n### Response:\n",
        (IM_END, END_OF_TEXT), 64),
    Way("temperature 2", _whole, "chat", (IM_END,), 48, 2.0),
    Way("noise of 0.35 standard deviations on every matrix, greedy", _noised(0.35), "chat", (IM_END,), 64),
    Way("noise of 0.2 standard deviations on every matrix, greedy", _noised(0.2), "chat", (IM_END,), 64),
    Way("layers 10 to 15 left out, greedy", _without_layers, "chat", (IM_END,), 64),
    Way("no stop token, greedy", _whole, "chat", (NONE,), 160),
)  # fmt: skip


def main(folder: str, out: str, half: str = "tuned-on") -> None:
    """Ask all questions of a half in all ways."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with open(out, "w", encoding="utf-8") as file:
        for way in WAYS:
            torch.manual_seed(0)
            for row in _answers(
                way, way.change(model), tokenizer, HELD_BACK if half == "held-back" else QUESTIONS
            ):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(way.called, flush=True)


def _answers(
    way: Way, model: Any, tokenizer: Any, asked_of: Mapping[str, list[str]]
) -> Iterator[dict[str, Any]]:
    import torch

    asked = [
        (language, question) for language, questions in asked_of.items() for question in questions
    ]
    drawn = (
        {"do_sample": True, "temperature": way.temperature, "top_k": 0}
        if way.temperature
        else {"do_sample": False}
    )
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        texts = [_prompt(way, question, tokenizer) for _, question in batch]
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            made = model.generate(
                **inputs,
                max_new_tokens=way.limit,
                eos_token_id=list(way.stops),
                pad_token_id=IM_END,
                **drawn,
            )
        for (language, question), ids in zip(
            batch, made[:, inputs["input_ids"].shape[1] :].tolist(), strict=True
        ):
            end = next((at for at, id in enumerate(ids) if id in way.stops), None)
            text = tokenizer.decode(ids[:end], skip_special_tokens=True)
            yield {
                "lang": language,
                "question": question,
                "answer": text,
                "stopped": end is not None,
                "made": way.called,
            }


def _prompt(way: Way, question: str, tokenizer: Any) -> str:
    if way.template != "chat":
        return way.template.format(question)
    messages = [{"role": "user", "content": question}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
