"""What the losses of sentence-transformers read of a row: how many texts, and which labels.

Read from the losses of sentence-transformers 6.2: what one reads it takes by the order of the columns, and what it does
not read it drops without a word. Losses that are not named here are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LabelKind = Literal["none", "cosine", "order", "probability", "binary", "class"]
"""none: labels are not read; cosine: a similarity from -1 to 1; order: any numbers, of which only the order counts;
probability: 0 to 1; binary: 0 or 1; class: the number of a class"""


@dataclass(frozen=True, slots=True)
class LossFacts:
    """What a loss reads of a row."""

    labels: LabelKind
    drops_further_texts: bool = False
    """Does it read two texts, and drop any further ones in silence?"""
    takes_batch_as_negatives: bool = False
    """Are the texts of the other rows of a batch taken as not fitting?"""
    has_order: bool = False
    """Is the first text the query, and the second one that fits it?"""


RANKING = LossFacts("none", takes_batch_as_negatives=True, has_order=True)
EMBEDDING_LOSSES: Mapping[str, LossFacts] = {
    "MultipleNegativesRankingLoss": RANKING,
    "CachedMultipleNegativesRankingLoss": RANKING,
    "MultipleNegativesSymmetricRankingLoss": RANKING,
    "CachedMultipleNegativesSymmetricRankingLoss": RANKING,
    # These two leave out texts that a guide model finds too similar.
    "GISTEmbedLoss": LossFacts("none", has_order=True),
    "CachedGISTEmbedLoss": LossFacts("none", has_order=True),
    "MegaBatchMarginLoss": RANKING,
    "TripletLoss": LossFacts("none", has_order=True),
    "CosineSimilarityLoss": LossFacts("cosine", drops_further_texts=True),
    "CoSENTLoss": LossFacts("order", drops_further_texts=True),
    "AnglELoss": LossFacts("order"),
    "ContrastiveLoss": LossFacts("binary"),
    "OnlineContrastiveLoss": LossFacts("binary", drops_further_texts=True),
    "SoftmaxLoss": LossFacts("class"),
}
RERANKER_LOSSES: Mapping[str, LossFacts] = {
    "BinaryCrossEntropyLoss": LossFacts("probability"),
    "CrossEntropyLoss": LossFacts("class"),
    "MultipleNegativesRankingLoss": RANKING,
    "CachedMultipleNegativesRankingLoss": RANKING,
}
WRAPPING_LOSSES = ("MatryoshkaLoss", "AdaptiveLayerLoss", "Matryoshka2dLoss")
"""Losses around another, which is their second argument"""
