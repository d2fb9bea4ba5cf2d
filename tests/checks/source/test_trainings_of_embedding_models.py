"""Trainings of embedding models and rerankers: losses that don't fit their rows, and those that do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.checks.source.evidence.embedding_trainings import embedding_trainings
from truetune.source.parsed_source_file import parse_module

HEAD = """
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
from sentence_transformers import SentenceTransformerTrainingArguments, InputExample
from sentence_transformers.training_args import BatchSamplers
from torch.utils.data import DataLoader
model = SentenceTransformer("microsoft/mpnet-base")
"""
SHOPS = ["open at nine", "open at ten", "closed on Sundays", "open all night", "sold out", "full"]
TRAIN = "SentenceTransformerTrainer(model=model, train_dataset=rows, loss=losses.{loss}).train()"


def rows_of(*columns: str, count: int = 12, **labels: Sequence[object]) -> str:
    """A line that makes a data set with these columns of different texts, and columns of labels."""
    rows = [
        {
            **{name: f"{name} {n} is {SHOPS[n % 6]}" for name in columns},
            **{name: value[n % len(value)] for name, value in labels.items()},
        }
        for n in range(count)
    ]
    return f"rows = Dataset.from_list({rows!r})\n"


def messages(rule: str, body: str) -> list[str]:
    """What a rule says of a script."""
    module = parse_module(HEAD + body, "train.py")
    return [one.message for one in run_rule(module, find_rule(rule)).findings]


PAIR = ("anchor", "positive")
DROPPED = {
    "labels of a ranking": rows_of(*PAIR, label=[0, 1])
    + TRAIN.format(loss="GISTEmbedLoss(model, model)"),
    "labels inside another loss": rows_of(*PAIR, score=[0.2, 0.9])
    + TRAIN.format(loss="MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), [64])"),
    "a third text": rows_of("sentence1", "sentence2", "negative", score=[0.1, 0.8])
    + TRAIN.format(loss="CoSENTLoss(model)"),
    "by fit": "examples = [InputExample(texts=[f'a {n}', f'b {n}'], label=float(n % 2)) for n in range(6)]\n"
    "loss = losses.MultipleNegativesRankingLoss(model)\n"
    "model.fit(train_objectives=[(DataLoader(examples, batch_size=4), loss)])",
}
READ = {
    "equal labels": rows_of(*PAIR, label=[1])
    + TRAIN.format(loss="MultipleNegativesRankingLoss(model)"),
    "two texts": rows_of("sentence1", "sentence2", score=[0.1, 0.8])
    + TRAIN.format(loss="CoSENTLoss(model)"),
    "three texts": rows_of(*PAIR, "negative")
    + TRAIN.format(loss="MultipleNegativesRankingLoss(model)"),
    "rows of a hub": "from datasets import load_dataset\nrows = load_dataset('a/b', split='train')\n"
    + TRAIN.format(loss="MultipleNegativesRankingLoss(model)"),
    "a loss of the project": "class Own:\n    def __init__(self, model): pass\n"
    + rows_of(*PAIR, label=[0, 1])
    + "SentenceTransformerTrainer(model=model, train_dataset=rows, loss=Own(model)).train()",
}


@pytest.mark.parametrize("way", DROPPED)
def test_what_a_loss_does_not_read_is_found(way: str) -> None:
    assert len(messages("loss-drops-labels-or-texts", DROPPED[way])) == 1


@pytest.mark.parametrize("way", READ)
def test_what_a_loss_reads_is_fine(way: str) -> None:
    assert messages("loss-drops-labels-or-texts", READ[way]) == []


STARS = [1.0, 3.0, 5.0]
UNFIT = {
    "stars and a cosine": rows_of(*PAIR, score=STARS)
    + TRAIN.format(loss="CosineSimilarityLoss(model)"),
    "halves and a contrast": rows_of(*PAIR, label=[0.5, 1.0])
    + TRAIN.format(loss="ContrastiveLoss(model)"),
    "scores and classes": rows_of(*PAIR, label=[0.5, 1.0])
    + TRAIN.format(loss="SoftmaxLoss(model)"),
    "equal scores": rows_of(*PAIR, score=[1.0]) + TRAIN.format(loss="CosineSimilarityLoss(model)"),
    "stars and probabilities": rows_of("query", "passage", label=STARS)
    + "from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer\n"
    "from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss\n"
    "ranker = CrossEncoder('a/b', num_labels=1)\n"
    "CrossEncoderTrainer(model=ranker, train_dataset=rows, loss=BinaryCrossEntropyLoss(ranker)).train()",
}
FIT = {
    "divided": rows_of(*PAIR, score=STARS)
    + "rows = rows.map(lambda row: {'score': row['score'] / 5})\n"
    + TRAIN.format(loss="CosineSimilarityLoss(model)"),
    "stars in their order": rows_of(*PAIR, score=STARS) + TRAIN.format(loss="CoSENTLoss(model)"),
    "a contrast": rows_of(*PAIR, label=[0, 1]) + TRAIN.format(loss="OnlineContrastiveLoss(model)"),
    "classes": rows_of(*PAIR, label=[0, 1, 2]) + TRAIN.format(loss="SoftmaxLoss(model)"),
    "few equal scores": rows_of(*PAIR, count=4, score=[1.0])
    + TRAIN.format(loss="CosineSimilarityLoss(model)"),
}


@pytest.mark.parametrize("way", UNFIT)
def test_labels_that_a_loss_cannot_take_are_found(way: str) -> None:
    assert len(messages("scores-outside-the-range-of-the-loss", UNFIT[way])) == 1


@pytest.mark.parametrize("way", FIT)
def test_labels_that_a_loss_takes_are_fine(way: str) -> None:
    assert messages("scores-outside-the-range-of-the-loss", FIT[way]) == []


RATED = """
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
import csv
with open("pairs.csv") as file:
    rated = [(row["a"], row["b"], float(row["rating"]){}) for row in csv.DictReader(file)]
dev, train = rated[:20], rated[20:]
examples = [InputExample(texts=[a, b], label=rating) for a, b, rating in train]
evaluator = EmbeddingSimilarityEvaluator(
    [a for a, _, _ in dev], [b for _, b, _ in dev], [r{} for _, _, r in dev]
)
model.fit(train_objectives=[(DataLoader(examples, batch_size=4), losses.{}(model))], evaluator=evaluator)
"""
FILES = """
from datasets import load_dataset
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
rows = load_dataset({}, data_files="pairs.csv", split="train").train_test_split(0.1)
scores = [score / 5 for score in rows["test"]["score"]]
evaluator = EmbeddingSimilarityEvaluator(rows["test"]["a"], rows["test"]["b"], scores=scores)
rows = rows["train"]
"""
COSINE = TRAIN.format(loss="CosineSimilarityLoss(model)")
DIVIDED = {
    "examples": (RATED.format("", " / 5.0", "CosineSimilarityLoss"), 1),
    "a file for the trainer": (FILES.format("'csv'") + COSINE, 1),
    "both": (RATED.format(" / 5.0", "", "CosineSimilarityLoss"), 0),
    "both apart": (FILES.format("'csv'") + "rows = rows.map(lambda r: {'score': r['score'] / 5})\n" + COSINE, 0),
    "a product": (RATED.format(" * 0.2", " / 5.0", "CosineSimilarityLoss"), 0),
    "an order": (RATED.format("", " / 5.0", "CoSENTLoss"), 0),
    "rows of a hub": (FILES.format("'a/b'") + COSINE, 0),
    "another file": (RATED.format("", " / 5.0", "CosineSimilarityLoss") + "more = open('more.csv')\n", 0),
}  # fmt: skip


@pytest.mark.parametrize("way", DIVIDED)
def test_scores_that_the_evaluator_alone_gets_divided(way: str) -> None:
    body, count = DIVIDED[way]
    assert len(messages("scores-outside-the-range-of-the-loss", body)) == count


RANK = TRAIN.format(loss="MultipleNegativesRankingLoss(model)")
ORDERS = {
    ("answer", "question"): 1,
    ("anchor", "negative", "positive"): 1,
    ("positive", "anchor"): 1,
    ("question", "answer"): 0,
    ("anchor", "positive", "negative_1", "negative_2"): 0,
    ("text_a", "text_b"): 0,
    ("query", "text"): 0,
}


@pytest.mark.parametrize("columns", ORDERS)
def test_names_that_tell_another_order_are_found(columns: tuple[str, ...]) -> None:
    assert (
        len(messages("columns-out-of-the-order-of-the-loss", rows_of(*columns) + RANK))
        == ORDERS[columns]
    )


HUB = "from datasets import load_dataset\nrows = load_dataset('a/b', split='train')\n"
WRITTEN = "def written(row):\n    return {{{}}}\nrows = rows.map(written, remove_columns={})\n"
WRONG = "'query': row['q'], 'hard_negative': row['n'], 'passage': row['p']"
RIGHT = "'query': row['q'], 'passage': row['p'], 'hard_negative': row['n']"
ALL = "rows.column_names"
ORDERS_BY_CODE = {
    "a function": (HUB + WRITTEN.format(WRONG, ALL), 1),
    "a function and a split": (
        HUB + WRITTEN.format(WRONG, ALL) + "rows = rows.train_test_split(0.1)['train'].shuffle()\n",
        1,
    ),
    "a lambda": (
        HUB + f"rows = rows.map(lambda row: {{{WRONG}}}, remove_columns={ALL})\n",
        1,
    ),
    "chosen columns": (HUB + "rows = rows.select_columns(['answer', 'question'])\n", 1),
    "lists": ("rows = Dataset.from_dict({'positive': read('p'), 'anchor': read('a')})\n", 1),
    "a list": (
        "rows = Dataset.from_list([{'answer': a, 'question': q} for q, a in read('x')])\n",
        1,
    ),
    "the right order": (HUB + WRITTEN.format(RIGHT, ALL), 0),
    "a function and chosen columns": (
        HUB
        + WRITTEN.format(WRONG, ALL)
        + "rows = rows.select_columns(['query', 'passage', 'hard_negative'])\n",
        0,
    ),
    "columns that stay": (HUB + WRITTEN.format(WRONG, "['q', 'n']"), 0),
    "keys that are not known": (HUB + WRITTEN.format("**row, " + WRONG, ALL), 0),
    "lists in the right order": (
        "rows = Dataset.from_dict({'anchor': read('a'), 'positive': read('p'), 'label': read('l')})\n",
        0,
    ),
}


@pytest.mark.parametrize("way", ORDERS_BY_CODE)
def test_the_code_tells_the_order_where_the_rows_are_not_there(way: str) -> None:
    body, count = ORDERS_BY_CODE[way]
    assert len(messages("columns-out-of-the-order-of-the-loss", body + RANK)) == count


def test_chosen_columns_are_in_the_order_that_they_are_chosen_in() -> None:
    body = (
        rows_of("answer", "question")
        + "rows = rows.select_columns(['question', 'answer'])\n"
        + RANK
    )
    (training,) = embedding_trainings(parse_module(HEAD + body, "train.py"))
    assert training.columns == ("question", "answer")


def test_a_column_that_is_no_text_is_found_and_further_negatives_are_not() -> None:
    rule = "column-trained-as-a-text"
    assert len(messages(rule, rows_of(*PAIR, source=["faq", "mail"]) + RANK)) == 1
    assert len(messages(rule, rows_of(*PAIR, count=40, tag=["faq", "mail"]) + RANK)) == 1
    assert messages(rule, rows_of(*PAIR, "negative", "other_negative") + RANK) == []
    assert messages(rule, rows_of("title", "abstract") + RANK) == []
    assert messages(rule, rows_of(*PAIR, label=[1]) + RANK) == []


FEW = rows_of("anchor", count=24, positive=["at nine", "at ten", "never"])
ARGUMENTS = (
    "args = SentenceTransformerTrainingArguments('out', per_device_train_batch_size=16{more})\n"
)
WITH_ARGUMENTS = RANK.replace("model=model,", "model=model, args=args,")
COPIES = {
    "by default": (FEW + RANK, 1),
    "small batches": (FEW + ARGUMENTS.format(more="") + WITH_ARGUMENTS, 1),
    "default by name": (
        FEW + ARGUMENTS.format(more=", batch_sampler=BatchSamplers.BATCH_SAMPLER") + WITH_ARGUMENTS,
        1,
    ),
    "kept apart": (
        FEW + ARGUMENTS.format(more=", batch_sampler='no_duplicates'") + WITH_ARGUMENTS,
        0,
    ),
    "kept apart by name": (
        FEW + ARGUMENTS.format(more=", batch_sampler=BatchSamplers.NO_DUPLICATES") + WITH_ARGUMENTS,
        0,
    ),
    "settings of elsewhere": (
        FEW + "args = SentenceTransformerTrainingArguments(**options)\n" + WITH_ARGUMENTS,
        0,
    ),
    "different texts": (rows_of(*PAIR, count=24) + RANK, 0),
    "a guide": (FEW + TRAIN.format(loss="GISTEmbedLoss(model, guide)"), 0),
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_in_a_batch_are_found_where_they_are_negatives(way: str) -> None:
    body, count = COPIES[way]
    assert len(messages("equal-texts-in-one-batch", body)) == count


E5 = HEAD.replace("microsoft/mpnet-base", "intfloat/multilingual-e5-large")


@pytest.mark.parametrize(
    ("head", "map", "count"),
    [
        (E5, "", 1),
        (E5, "rows = rows.map(lambda r: {'anchor': 'query: ' + r['anchor']})\n", 1),
        (
            E5,
            "rows = rows.map(lambda r: {'anchor': 'query: ' + r['anchor'], 'positive': 'passage: ' + r['positive']})\n",
            0,
        ),
        (HEAD, "", 0),
        (HEAD.replace("microsoft/mpnet-base", "intfloat/multilingual-e5-large-instruct"), "", 0),
    ],
)
def test_a_model_of_prefixes_needs_them(head: str, map: str, count: int) -> None:
    module = parse_module(head + rows_of(*PAIR) + map + RANK, "train.py")
    found = run_rule(module, find_rule("prefix-of-the-embedding-model-left-out")).findings
    assert len(found) == count


@pytest.mark.parametrize(("limit", "count"), [(3, 1), (64, 0)])
def test_texts_longer_than_the_limit_are_found(limit: int, count: int) -> None:
    body = f"model.max_seq_length = {limit}\n" + rows_of(*PAIR) + RANK
    assert len(messages("texts-cut-by-the-embedding-model", body)) == count


TRIPLETS = {
    "TripletLoss(model, distance_metric=losses.TripletDistanceMetric.COSINE)": 1,
    "TripletLoss(model, losses.TripletDistanceMetric.COSINE, 0.2)": 0,
    "TripletLoss(model)": 0,
    "BatchHardTripletLoss(model, distance_metric=losses.BatchHardTripletLossDistanceFunction.cosine_distance)": 1,
    "TripletLoss(model, distance_metric=metric)": 0,
}


@pytest.mark.parametrize("loss", TRIPLETS)
def test_a_margin_wider_than_the_cosine_is_found(loss: str) -> None:
    assert (
        len(messages("margin-wider-than-the-distance", f"loss = losses.{loss}")) == TRIPLETS[loss]
    )
