"""What published vocabularies make of a few texts, by which a tokenizer is recognised and compared.

A folder says of itself what it is (config.json, names), and nothing in it says whether tokenizer.json is the file that
the model was trained with. Two vocabularies of 32,000 tokens differ in every id and in no number that a loader checks.
Here stand 24 ids with a digest of their tokens, by which a vocabulary is known whatever its folder is called, and the
digests of what ten texts become, by which its pre-tokenizer and merges are judged by what they do. How
the file writes them differs between releases of the library, and is not compared.

The ids were read with `tokenizers` 0.23.3 off the tests' real parts (`tests.parts`), and
`tests/checks/tokenizer/test_tokenizer_differs_from_published.py` reads those of five again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from truetune.memory.published_model_shapes import SHAPES, ModelDimensions

PROBES = {
    "numbers": "Text: 12345, 9.99 and 2024",
    "contractions": "Text: it's, don't, I'LL, We'Ve",
    "line ends and indentation": "Text: def f(x):\n    return x\n\n\nif y:\n\tprint(x)\n",
    "runs of spaces": "Text:   two   and four    spaces",
    "capitals inside of words": "Text: CamelCaseWord snake_case HTTPServer",
    "accents": "Text: na\u00efve caf\u00e9 \u00fcber e\u0301",
    "other scripts": "Text: \u4f60\u597d\u4e16\u754c \uc548\ub155 \u041f\u0440\u0438\u0432\u0435\u0442"
    " \u0645\u0631\u062d\u0628\u0627",
    "signs": "Text: m\u00b2 \u00bd \u2460 \u2026 \U0001f642 http://a.b/?q=1&c=2",
    "words of other languages": "Text: nhi\u1ec1u vi\u1ec7c \u0434\u0430\u0436\u0435 dikkat k\u00fc\u00e7\u00fck",
    "long words": "Text: internationalization Donaudampfschifffahrt antidisestablishmentarianism",
}
"""What a text tries -> the text. The first two tokens are not compared: published files of one family differ in whether
a space is put before a text."""
MAX_ADDED_ROWS = 512
"""Of a vocabulary that was extended, beyond the published number. Chosen: Mistral 7B has two vocabularies, 768 rows
apart"""


class PublishedVocabulary(NamedTuple):
    """One vocabulary, and what it makes of the probes."""

    name: str
    sampled_ids: str
    """Numbers with spaces between them, as `probes`: lists would take a thousand lines"""
    digest: str
    """Of the tokens at these ids"""
    probes: str
    """For each probe, how many of its last tokens are compared, and the digest of their ids"""
    special: Mapping[str, int] = {}
    """Control tokens by their text. Only of vocabularies that no other family builds on with ids of its own"""
    start: str = ""
    """The token that published files put before a text; known where `special` is"""


VOCABULARIES = (
    PublishedVocabulary(
        name="Llama 2",
        sampled_ids=(
            "600 1858 3116 4375 5633 6891 8150 9408 10666 11925 13183 14441"
            " 15700 16958 18216 19475 20733 21991 23250 24508 25766 27025 28283 29541"
        ),
        digest="321e7b56058874b7",
        probes=(
            "18:48890260 16:67af9104 22:d0f3dcaf 7:370e434a 10:48276b65"
            " 8:e3d9e307 18:adcf3c1f 27:5372362e 16:67c821df 20:7533c326"
        ),
    ),
    PublishedVocabulary(
        name="Mistral 7B",
        sampled_ids=(
            "600 1858 3116 4375 5633 6891 8150 9408 10666 11925 13183 14441"
            " 15700 16958 18216 19475 20733 21991 23250 24508 25766 27025 28283 29541"
        ),
        digest="db7e7ae5fe7bd74a",
        probes=(
            "18:cbdc6eb7 16:60f5691a 22:8fa02bd8 7:9d463a9a 9:3f99779c"
            " 7:7edfda7b 17:7622fdcf 25:3a8059b1 17:df29a40d 19:8eb06bb7"
        ),
    ),
    PublishedVocabulary(
        name="Mistral 7B v0.3",
        sampled_ids=(
            "1027 1890 3180 4471 5761 7051 8342 9632 10922 12213 13503 14793"
            " 16084 17374 18664 19955 21245 22535 23826 25116 26406 27697 28987 30277"
        ),
        digest="8da8239db13a7a54",
        probes=(
            "18:8181d59c 16:bd798622 22:d61dd75a 7:d88cffe1 9:5407d8ef"
            " 7:3b9adc2e 17:fa8e0fe0 25:c3749c36 17:1b061216 19:60c4701e"
        ),
    ),
    PublishedVocabulary(
        name="Mistral Nemo",
        sampled_ids=(
            "1000 5986 11372 16759 22145 27531 32918 38304 43690 49077 54463 59849"
            " 65236 70622 76008 81395 86781 92167 97554 102940 108326 113713 119099 124485"
        ),
        digest="75bf5dfd2235a5c4",
        probes=(
            "18:b86b2873 13:57e12c53 14:3808d715 7:94e336e2 7:49719b67"
            " 6:10c1cd8d 9:e60d8660 22:1205dd1b 7:4abc0eb0 18:456eed6b"
        ),
    ),
    PublishedVocabulary(
        name="Llama 3",
        sampled_ids=(
            "600 5858 11116 16375 21633 26891 32150 37408 42666 47925 53183 58441"
            " 63700 68958 74216 79475 84733 89991 95251 100508 105766 111025 116283 121541"
        ),
        digest="c2790833063df347",
        probes=(
            "12:34e6aa93 13:91667133 14:f3997290 7:afc00e15 7:6b007c35"
            " 6:5dff4a2a 10:76c6ea65 20:d140d035 5:1ffde0e6 17:d092df4c"
        ),
        special={
            "<|begin_of_text|>": 128000,
            "<|end_of_text|>": 128001,
            "<|start_header_id|>": 128006,
            "<|end_header_id|>": 128007,
            "<|eot_id|>": 128009,
            "<|finetune_right_pad_id|>": 128004,
            "<|eom_id|>": 128008,
            "<|python_tag|>": 128010,
        },
        start="<|begin_of_text|>",
    ),
    PublishedVocabulary(
        name="Qwen2",
        sampled_ids=(
            "600 6843 13086 19330 25573 31817 38060 44304 50547 56791 63034 69278"
            " 75521 81764 88008 94251 100495 106738 112982 119225 125469 131712 137956 144199"
        ),
        digest="e424045ff2437a85",
        probes=(
            "18:b487fd64 13:b59cd77c 14:3006a3b0 7:3f22245d 7:37aa81d8"
            " 5:953baca8 11:79e7e8d9 21:c46af504 7:bdf4a2d5 17:bca7e6c5"
        ),
        special={
            "<|endoftext|>": 151643,
            "<|im_start|>": 151644,
            "<|im_end|>": 151645,
            "<|object_ref_start|>": 151646,
            "<|object_ref_end|>": 151647,
            "<|box_start|>": 151648,
            "<|box_end|>": 151649,
            "<|quad_start|>": 151650,
            "<|quad_end|>": 151651,
            "<|vision_start|>": 151652,
            "<|vision_end|>": 151653,
            "<|vision_pad|>": 151654,
            "<|image_pad|>": 151655,
            "<|video_pad|>": 151656,
        },
    ),
    PublishedVocabulary(
        name="Qwen3.5",
        sampled_ids=(
            "600 10860 21120 31380 41640 51900 62161 72421 82681 92941 103201 113461"
            " 123722 133982 144242 154502 164762 175022 185283 195543 205803 216063 226323 236583"
        ),
        digest="7704f54411d1a8b2",
        probes=(
            "18:42ed6c23 13:c6580174 17:06f9c764 7:f2d477ef 7:57ec2064"
            " 5:743306c4 7:805c0e0d 21:6385a463 7:1a4c3c60 16:6105efd9"
        ),
        special={
            "<|endoftext|>": 248044,
            "<|im_start|>": 248045,
            "<|im_end|>": 248046,
            "<|object_ref_start|>": 248047,
            "<|object_ref_end|>": 248048,
            "<|box_start|>": 248049,
            "<|box_end|>": 248050,
            "<|quad_start|>": 248051,
            "<|quad_end|>": 248052,
            "<|vision_start|>": 248053,
            "<|vision_end|>": 248054,
            "<|vision_pad|>": 248055,
            "<|image_pad|>": 248056,
            "<|video_pad|>": 248057,
            "<|fim_prefix|>": 248060,
            "<|fim_middle|>": 248061,
            "<|fim_suffix|>": 248062,
            "<|fim_pad|>": 248063,
            "<|repo_name|>": 248064,
            "<|file_sep|>": 248065,
            "<|audio_start|>": 248070,
            "<|audio_end|>": 248071,
            "<tts_pad>": 248072,
            "<tts_text_bos>": 248073,
            "<tts_text_eod>": 248074,
            "<tts_text_bos_single>": 248075,
            "<|audio_pad|>": 248076,
        },
    ),
    PublishedVocabulary(
        name="Gemma 2",
        sampled_ids=(
            "600 11191 21783 32375 42966 53558 64150 74741 85333 95925 106516 117108"
            " 127700 138291 148883 159475 170066 180658 191250 201841 212433 223025 233616 244208"
        ),
        digest="cf7effca544dbb4a",
        probes=(
            "18:d9fc3fa3 15:875cd51c 20:90028d41 7:2c9ba204 8:dba13aaa"
            " 5:8337058a 9:7af46649 19:5e295d43 5:38246449 14:7a5fb694"
        ),
    ),
    PublishedVocabulary(
        name="Gemma 3",
        sampled_ids=(
            "600 11447 22295 33143 43990 54838 65686 76533 87381 98229 109076 119924"
            " 130772 141619 152467 163315 174162 185010 195858 206705 217553 228401 239248 250096"
        ),
        digest="c5ab50eae53cb688",
        probes=(
            "18:071e7416 15:40aff7cd 20:13a7ceb8 7:76c962ac 8:203d514b"
            " 5:bc85818d 8:36350ad5 19:6ae52857 5:cf845b37 15:cd4d77a7"
        ),
    ),
    PublishedVocabulary(
        name="Phi-4",
        sampled_ids=(
            "600 4706 8812 12919 17025 21131 25238 29344 33450 37557 41663 45769"
            " 49876 53982 58088 62195 66301 70407 74514 78620 82726 86833 90939 95045"
        ),
        digest="e2cc15b9e272ea4f",
        probes=(
            "12:34e6aa93 13:91667133 14:f3997290 7:afc00e15 7:6b007c35"
            " 6:5dff4a2a 17:a465d1d0 21:fc82dc14 16:d4873d46 17:d092df4c"
        ),
    ),
    PublishedVocabulary(
        name="gpt-oss",
        sampled_ids=(
            "600 8858 17116 25374 33633 41891 50149 58407 66666 74924 83182 91440"
            " 99699 107957 116215 124473 132732 140990 149248 157506 165765 174023 182281 190539"
        ),
        digest="bc558a2ca2fd8e4f",
        probes=(
            "12:b61ebd8b 10:1dab4175 14:7bcbc4af 7:b2770d83 7:74a16c67"
            " 6:0df37b7a 9:fb320322 20:351f8160 5:c47b5a87 15:3dc41ec1"
        ),
    ),
    PublishedVocabulary(
        name="GPT-2",
        sampled_ids=(
            "600 2619 4638 6657 8676 10695 12714 14733 16752 18771 20790 22809"
            " 24828 26847 28866 30885 32904 34923 36942 38961 40980 42999 45018 47037"
        ),
        digest="e068fdf4633910ba",
        probes=(
            "8:0e03ffce 13:4942d37e 23:eaabc74c 11:18792ad9 8:552e782f"
            " 8:3d6a086c 28:6c8dd1af 21:d6833f84 25:48335530 16:5824c89d"
        ),
    ),
    PublishedVocabulary(
        name="DeepSeek V3",
        sampled_ids=(
            "600 5858 11116 16375 21633 26891 32150 37408 42666 47925 53183 58441"
            " 63700 68958 74216 79475 84733 89991 95250 100508 105766 111025 116283 121541"
        ),
        digest="217a1729511a42b5",
        probes=(
            "12:3376eb50 13:43f6dd3a 14:925ea63d 7:bcfd4e8a 7:fe5952cd"
            " 5:5614a5e0 10:f3e70ad5 20:18867122 12:a99a8b59 16:9b9fe5a3"
        ),
    ),
    PublishedVocabulary(
        name="SmolLM2",
        sampled_ids=(
            "600 2573 4546 6519 8492 10465 12438 14411 16384 18357 20330 22303"
            " 24276 26249 28222 30195 32168 34141 36114 38087 40060 42033 44006 45979"
        ),
        digest="9c1cd91fc714c1cd",
        probes=(
            "18:3efec25e 13:1ccaf613 20:d895e940 7:ac452ae5 9:235c3a57"
            " 9:6208e878 26:8fd08b8e 23:6b891254 21:c6a4b841 16:5d7a463a"
        ),
        special={
            "<|endoftext|>": 0,
            "<|im_start|>": 1,
            "<|im_end|>": 2,
            "<repo_name>": 3,
            "<reponame>": 4,
            "<file_sep>": 5,
            "<filename>": 6,
            "<gh_stars>": 7,
            "<issue_start>": 8,
            "<issue_comment>": 9,
            "<issue_closed>": 10,
            "<jupyter_start>": 11,
            "<jupyter_text>": 12,
            "<jupyter_code>": 13,
            "<jupyter_output>": 14,
            "<jupyter_script>": 15,
            "<empty_output>": 16,
        },
    ),
    PublishedVocabulary(
        name="truetune's demo",
        sampled_ids=(
            "260 332 404 476 548 620 692 764 836 908 980 1052"
            " 1125 1197 1269 1341 1413 1485 1557 1629 1701 1773 1845 1917"
        ),
        digest="97f2cf28430474d8",
        probes=(
            "13:7d75fa3b 20:1270ddcf 31:a8a2b61d 13:1d8af216 22:42e7dad1"
            " 18:1069f891 46:3e9d6b57 40:d75135ee 37:4fdc9751 43:c01c1d34"
        ),
    ),
)

VOCABULARIES_OF_NAMES = (
    ("llama-2-", "Llama 2"),
    ("tinyllama-", "Llama 2"),
    ("phi-3", "Llama 2"),
    ("llama-3", "Llama 3"),
    ("deepseek-r1-distill-llama", "Llama 3"),
    ("deepseek-r1-distill-qwen", "Qwen2"),
    ("qwen", "Qwen2"),
    ("mistral-7b", "Mistral 7B v0.3"),
    ("zephyr-", "Mistral 7B"),
    ("mixtral-", "Mistral 7B"),
    ("mistral-", "Mistral Nemo"),
    ("smollm2-", "SmolLM2"),
    ("gemma-2-", "Gemma 2"),
    ("gemma-3-", "Gemma 3"),
)
"""Beginning of a model's name in the table of shapes -> its vocabulary; the first that fits counts"""


def recognise_vocabulary(backend: Any) -> PublishedVocabulary | None:
    """The published vocabulary that a tokenizer has; None of any other.

    Args:
        backend: a tokenizer of the library `tokenizers`.
    """
    for vocabulary in VOCABULARIES:
        tokens = [str(backend.id_to_token(int(id))) for id in vocabulary.sampled_ids.split()]
        if digest_of_tokens(tokens) == vocabulary.digest:
            return vocabulary
    return None


def probes_split_otherwise(backend: Any, vocabulary: PublishedVocabulary) -> dict[str, list[str]]:
    """What a tokenizer splits otherwise than the published one -> the tokens that it makes of it.

    Args:
        backend: a tokenizer of the library `tokenizers`.
        vocabulary: the one that it has.
    """
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    different = {}
    for (what, text), published in zip(PROBES.items(), vocabulary.probes.split(), strict=True):
        # Words that a user added to the vocabulary are one token on purpose.
        if any(content in text for content in added):
            continue
        ids = backend.encode(text, add_special_tokens=False).ids
        count, _, digest = published.partition(":")
        if digest_of_ids(ids[-int(count) :]) != digest:
            different[what] = [str(backend.id_to_token(id)) for id in ids]
    return different


def digest_of_ids(ids: list[int]) -> str:
    """A digest of ids in their order."""
    return hashlib.blake2b(" ".join(map(str, ids)).encode(), digest_size=4).hexdigest()


def digest_of_tokens(tokens: list[str]) -> str:
    """A digest of tokens in their order."""
    return hashlib.blake2b("\n".join(tokens).encode(), digest_size=8).hexdigest()


def vocabularies_of_model(config: Mapping[str, Any]) -> frozenset[str]:
    """The names of the vocabularies that published models of a config.json's shape have; empty where none is known."""
    names = [name for name, shape in SHAPES.items() if _is_shape_of_config(shape, config)]
    return frozenset(
        vocabulary for name in names if (vocabulary := _vocabulary_of_name(name)) is not None
    )


def _vocabulary_of_name(name: str) -> str | None:
    """The vocabulary of a published model, by the beginning of its name."""
    for beginning, vocabulary in VOCABULARIES_OF_NAMES:
        if name.startswith(beginning):
            return vocabulary
    return None


def _is_shape_of_config(shape: ModelDimensions, config: Mapping[str, Any]) -> bool:
    """Has a config.json the shape of a published model, and its vocabulary's number of rows or a little more?"""
    dimensions = (
        ("model_type", shape.model_type),
        ("hidden_size", shape.hidden),
        ("intermediate_size", shape.mlp),
        ("num_hidden_layers", shape.layers),
        ("num_attention_heads", shape.heads),
    )
    rows = config.get("vocab_size")
    if type(rows) is not int or not 0 <= rows - shape.vocabulary <= MAX_ADDED_ROWS:
        return False
    return all(config.get(key) == value for key, value in dimensions)
