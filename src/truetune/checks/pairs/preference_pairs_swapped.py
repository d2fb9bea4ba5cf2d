"""Evidence in the data shows that chosen and rejected are swapped.

## What it does
Looks for signs of which side is better, and counts how often they contradict the label:

- score columns of the row (`score_chosen`, `rejected_rating`, `chosen_rank`, `margin`); a higher score is better, a
  lower rank,
- otherwise, a `score` or `rank` of the same answers in a file of the same folder, from which the pairs were built,
- an answer that refuses (in data that are not about refusing, and whose refused questions are harmless),
- an answer that is cut off in the middle, is empty, or is the only one without a stop token.

A text without a full stop counts as cut only if the other ends of its side look cut too: no phrase that occurs again
and again (a signature), and often a function word, a comma or part of a word. Answers that all end after one number of
characters were cut by a slice, which does not depend on the label (see `answer-is-incomplete`).

It is an error if the row's own scores contradict most labels. It is a warning if at least 8 pairs show another sign and
the 95 % interval (Wilson) of the share against the label is above 0.6 (0.75 for cut answers, since long answers are cut
more often and are chosen more often), unless scores or another sign support the labels.

Without such signs, no trainer, no curve and no rule can detect swapped pairs: if this rule does not fire, that is not
proof. Length is judged by `preference-length-bias`.

## Why it is bad
Loss, accuracy and margins look healthy, and the model learns the worse behaviour.

## Example
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}], score_chosen: 2.0, score_rejected: 9.5,
     chosen: [{role: assistant, content: Who knows.}], rejected: [{role: assistant, content: "It is, until five."}]}
```

## Use instead
```yaml
data:
  - {prompt: [{role: user, content: "Is it open?"}], score_chosen: 9.5, score_rejected: 2.0,
     chosen: [{role: assistant, content: "It is, until five."}], rejected: [{role: assistant, content: Who knows.}]}
```

## Fix safety
Read ten pairs before you swap the sides in the script that builds them: these signs are not proof. (`--map
chosen=rejected --map rejected=chosen` changes how truetune reads the file, not what is trained.)

## References
- huggingface/trl#2578
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.find_script_line_ranking_pairs import find_ranking_line
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.answer_ids_texts_and_cuts_of_pairs import (
    PairTexts,
    pair_texts,
    wilson_interval,
)
from truetune.checks.pairs.evidence.bad_answer_signs import (
    HARM,
    OpenEnds,
    begins_with_refusal,
    ends_within_sentence,
    is_marked_as_cut,
)
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.checks.shared_by_rules_on_cut_answers import MIN_SHARE_AT_ONE_LENGTH
from truetune.data.conversation import Conversation
from truetune.data.read_answer_scores_beside_pairs import (
    CandidateScores,
    ComparedSides,
    read_candidate_scores,
)
from truetune.encoding.batch import Batch

SIGNS = {
    "scores": "the row's own scores are better for the rejected side",
    "refused": "only the chosen side refuses",
    "cut": "only the chosen side is cut off in the middle",
    "empty": "only the chosen side is empty",
    "open": "only the chosen side has no stop token",
}
# Refusals, empty and open answers speak against their side in nearly every right set: 0.6 leaves
# room for a set in which a sign speaks a little against the labels by design. Cut answers are 0.75,
# because long answers are cut more often and are often the better ones (the page says so). Chosen,
# not measured.
MIN_SHARES = {"refused": 0.6, "cut": 0.75, "empty": 0.6, "open": 0.6}
# Of eight pairs that all speak against the label, the interval begins at 0.68; of four, at 0.51.
MIN_PAIRS = 8
MIN_SHARE_BESIDE = 0.75
"""Share of the pairs that scores in a file beside must speak against, at least"""
# Chosen, not measured: sets that teach to refuse have a refusal in most pairs, others in a few
# hundredths.
REFUSING_SHARE = 0.5
"""Share of pairs of which one side refuses from which the data are about refusing"""
# Chosen, not measured: the words are many, and a harmless question may hold one (kill a process).
# At 0.1 sets on safety with few such words would be called swapped; at 0.025 any set on computers
# or health would be left alone.
MAX_HARMFUL_SHARE = 0.05
"""Share of refused questions with a word of harm up to which refusing is taken for the worse answer."""


class PreferencePairsSwapped(PairRule):
    code = "PREF002"
    fault = Fault.PREFERENCES_REVERSED
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.stops = tuple(stop.token for stop in setup.probes.stops)
        self.spoke, self.against, self.harmful = Counter[str](), Counter[str](), 0
        self.file = ""
        """Of the first pair"""
        self.cases: dict[str, list[Case]] = {kind: [] for kind in SIGNS}
        self.candidates: CandidateScores | None = None
        """What the files beside say that answers are worth"""
        self.beside, self.unknown_direction = Counter[str](), Counter[str]()
        """Pairs by the column of a file beside that tells them apart; the same of columns whose direction is unknown"""
        # Whether an answer without a full stop was cut is known when all of its side were read.
        self.open_chosen, self.open_rejected = OpenEnds(), OpenEnds()
        self.open_cases: dict[str, list[Case]] = {}
        self.cut_texts: set[tuple[int, int]] = set()
        """Characters and hash of the chosen answers that alone end in the middle: one text that comes again and again
        has one length without any slice"""

    def add_batch(self, batch: Batch) -> None:
        """Count the signs in a batch's pairs that speak for or against their labels."""
        for row in batch.rows:
            if row.rejected is None:
                continue
            self.pairs += 1
            self.file = self.file or row.origin.file
            texts = pair_texts(row)
            for kind, wrong in self._signs_and_is_against_label_of_row(row, texts):
                self.spoke[kind] += 1
                self.against[kind] += wrong
                if wrong and len(self.cases[kind]) < MAX_CASES:
                    text = SIGNS[kind]
                    if kind == "scores" and row.scores and row.scores.difference:
                        unit = "rank " if row.scores.is_rank else ""
                        text = f"{unit}{row.scores.chosen} against {row.scores.rejected}"
                    elif kind == "scores":
                        text = self._scores_of_answers_in_nearby_file(row, texts).case
                    self.cases[kind].append(case_in_row(batch, row, text))
            self._remember_only_side_ending_mid_sentence(batch, row)

    def _scores_of_answers_in_nearby_file(
        self, row: Conversation, texts: PairTexts
    ) -> ComparedSides:
        """What a file beside the pairs says of the two answers."""
        if self.candidates is None:
            self.candidates = read_candidate_scores(row.origin.file)
        return self.candidates.compare(texts.chosen, texts.rejected, texts.prompt)

    def _remember_only_side_ending_mid_sentence(self, batch: Batch, row: Conversation) -> None:
        """Remember the end of the one side that ends within a sentence, where the other side does not."""
        texts = pair_texts(row)
        good, bad = texts.chosen.strip(), texts.rejected.strip()
        if (
            not good
            or not bad
            or is_marked_as_cut(good)
            or is_marked_as_cut(bad)
            or ends_within_sentence(good) == ends_within_sentence(bad)
        ):
            return
        if ends_within_sentence(bad):
            self.open_rejected.add(bad)
            return
        self.cut_texts.add((len(texts.chosen), hash(texts.chosen)))
        cases = self.open_cases.setdefault(self.open_chosen.add(good), [])
        if len(cases) < MAX_CASES:
            cases.append(case_in_row(batch, row, SIGNS["cut"]))

    def _count_mid_sentence_cuts_as_evidence(self) -> None:
        """Count the open ends that are cuts as evidence; once."""
        against, for_label = (
            self.open_chosen.counts_of_cut_endings(),
            self.open_rejected.counts_of_cut_endings(),
        )
        self.spoke["cut"] += against.total() + for_label.total()
        self.against["cut"] += against.total()
        cases = [case for ending in against for case in self.open_cases.get(ending, ())]
        room = MAX_CASES - len(self.cases["cut"])
        self.cases["cut"] += sorted(cases, key=lambda case: case.origin.line if case.origin else 0)[
            :room
        ]
        self.open_chosen, self.open_rejected = OpenEnds(), OpenEnds()

    def _are_chosen_cut_by_characters(self) -> bool:
        """Were the chosen answers cut at one number of characters? Then a script did it, whichever side is better.

        Answers that were cut by tokens, or by hand, hardly ever have one length (`answer-is-incomplete`).
        """
        total = len(self.cut_texts)
        most = max(Counter(length for length, _ in self.cut_texts).values(), default=0)
        return total >= MIN_PAIRS and most >= MIN_SHARE_AT_ONE_LENGTH * total

    def _signs_and_is_against_label_of_row(
        self, row: Conversation, texts: PairTexts
    ) -> Iterator[tuple[str, bool]]:
        """(kind of sign, does it speak against the label?) for each sign of a row that tells the
        sides apart.
        """
        prefers_chosen = self._do_scores_prefer_chosen(row, texts)
        if prefers_chosen is not None:
            yield "scores", not prefers_chosen
        good, bad = texts.chosen.strip(), texts.rejected.strip()
        if good and bad:
            yield from self._signs_and_is_against_label_of_answers(row, texts)
        elif good or bad:
            yield "empty", not good

    def _do_scores_prefer_chosen(self, row: Conversation, texts: PairTexts) -> bool | None:
        """Do scores, of the row or else of a file beside, prefer the chosen side? None where they tell nothing."""
        if row.scores is not None:
            return row.scores.difference > 0 if row.scores.difference else None
        beside = self._scores_of_answers_in_nearby_file(row, texts)
        if beside.prefers_chosen is not None:
            self.beside[beside.column] += 1
        elif beside.column:
            self.unknown_direction[beside.column] += 1
        return beside.prefers_chosen

    def _signs_and_is_against_label_of_answers(
        self, row: Conversation, texts: PairTexts
    ) -> Iterator[tuple[str, bool]]:
        """(kind of sign, does it speak against the label?) that two answers with text show by
        themselves: a refusal, a cut, a missing stop token.
        """
        good, bad = texts.chosen.strip(), texts.rejected.strip()
        is_refused = begins_with_refusal(good)
        if is_refused != begins_with_refusal(bad):
            self.harmful += HARM.search(texts.prompt) is not None or not texts.prompt.isascii()
            yield "refused", is_refused
        is_chosen_cut = is_marked_as_cut(good)
        if is_chosen_cut != is_marked_as_cut(bad):
            if is_chosen_cut:
                self.cut_texts.add((len(texts.chosen), hash(texts.chosen)))
            yield "cut", is_chosen_cut
        is_ended = good.endswith(self.stops)
        # Of chats the template writes the stop tokens.
        if not row.is_chat and is_ended != bad.endswith(self.stops):
            yield "open", not is_ended

    def unmet(self) -> Unmet | None:
        """Also unmet where too few pairs show by themselves which side is better."""
        kind = self._most_telling_kind()
        if not self.pairs or kind == "scores" or self.spoke[kind] >= MIN_PAIRS:
            return super().unmet()
        if self.unknown_direction:
            ((column, pairs),) = self.unknown_direction.most_common(1)
            return Unmet(
                f"{column} differs between the sides of {pairs:,} pairs, but its name does not say whether higher or"
                " lower is better",
                "rename it to score (higher is better) or rank (1 is the best)",
            )
        reason = f"only {self.spoke[kind]:,} of {self.pairs:,} pairs show which side is better"
        return Unmet(reason, "add columns of scores (score_chosen, score_rejected)")

    def measurement_if_clean(self) -> Measurement:
        """In how many pairs the most telling kind of sign speaks against the labels."""
        kind = self._most_telling_kind()
        return make_count_measurement(
            f"pairs in which {SIGNS[kind]}",
            self.against[kind],
            self.spoke[kind],
            " in which this sign differs between the sides",
        )

    def _most_telling_kind(self) -> str:  # the row's own scores come first: they are no guess
        """The kind of evidence that the figure counts."""
        return "scores" if self.spoke["scores"] else max(MIN_SHARES, key=self.spoke.__getitem__)

    def findings(self) -> Iterator[Finding]:
        self._count_mid_sentence_cuts_as_evidence()
        if self._do_pairs_teach_refusing():
            self.spoke["refused"] = 0
        if self._are_chosen_cut_by_characters():
            self.spoke["cut"] = 0
        kinds = [kind for kind in SIGNS if self.spoke[kind]]
        intervals = {kind: wilson_interval(self.against[kind], self.spoke[kind]) for kind in kinds}
        clear = [kind for kind in kinds if self._is_sign_conclusive(kind, intervals[kind])]
        # Without scores it is a guess: it is made only where no kind of evidence speaks for the labels.
        speaks_for_labels = any(high < 0.5 for _, high in intervals.values())
        if self._are_scores_against_labels(intervals):
            yield self._finding_on_swapped_sides("scores", clear, intervals)
        elif clear and not speaks_for_labels:
            yield self._finding_on_swapped_sides(clear[0], clear, intervals)

    def _is_sign_conclusive(self, kind: str, interval: tuple[float, float]) -> bool:
        """Does a kind of sign speak against the labels by itself, in enough pairs?

        Scores of the row are judged otherwise.
        """
        if kind not in MIN_SHARES or self.spoke[kind] < MIN_PAIRS:
            return False
        return interval[0] > MIN_SHARES[kind]

    def _are_scores_against_labels(self, intervals: dict[str, tuple[float, float]]) -> bool:
        """Are scores against most labels? Of a file beside surely so: it may be of another run, a rank of a process."""
        if self.against["scores"] * 2 <= self.spoke["scores"]:
            return False
        return not self.beside or intervals["scores"][0] > MIN_SHARE_BESIDE

    def _finding_on_swapped_sides(
        self, most: str, clear: list[str], intervals: dict[str, tuple[float, float]]
    ) -> Finding:
        """The sides look exchanged.

        Args:
            most: the kind of evidence that the message names.
            clear: the kinds that speak against the labels beyond chance.
            intervals: by kind, the 95 % interval of the share that speaks against the labels.
        """
        speaking = [kind for kind in intervals if kind in clear or kind == "scores"]
        evidence = [
            f"{self._describe_evidence_against_labels(kind)}: {self.against[kind]:,} of {self.spoke[kind]:,}"
            f" (95 % interval {intervals[kind][0]:.2f} to {intervals[kind][1]:.2f})"
            for kind in speaking
        ]
        evidence.append(
            "this is evidence, not proof; no other sign distinguishes a swapped set from a correct one"
        )
        return self.finding(
            f"chosen and rejected seem swapped, so the model learns the worse answers: in {self.against[most]:,} of"
            f" the {self.spoke[most]:,} pairs that show it, {self._describe_evidence_against_labels(most)}",
            self._remedy_for_swap(most),
            severity="error" if most == "scores" else "warning",
            evidence=evidence,
            cases=[case for kind in speaking for case in self.cases[kind]],
            count=self.against[most],
            total=self.spoke[most],
        )

    def _remedy_for_swap(self, most: str) -> str:
        """How to turn the pairs round: where they are built, else in the file."""
        # "`rank` of ranked.jsonl"
        named = next((name for name, _ in self.beside.most_common(1)), "")
        column = named.partition(" of ")[0].strip("`")
        line = find_ranking_line(self.file, column) if most == "scores" and self.file else None
        if line is None:
            where = "swap the two columns in the script that builds the pairs, or in the file"
        else:
            where = f"take the other end of the ranking at {line.place} (`{line.text}`) and build the pairs again"
        return (
            f"read some pairs; if they are swapped, {where}. (--map chosen=rejected --map rejected=chosen only"
            " changes how truetune reads them, not what is trained)"
        )

    def _describe_evidence_against_labels(self, kind: str) -> str:
        """What speaks against the labels; of scores in a file beside the name of their column."""
        if kind != "scores" or not self.beside:
            return SIGNS[kind]
        ((column, _),) = self.beside.most_common(1)
        return f"{column} is better for the rejected side"

    def _do_pairs_teach_refusing(self) -> bool:
        """Do the pairs teach what to refuse? Then the side that refuses may well be the better one."""
        refused = self.spoke["refused"]
        is_most_pairs = refused > REFUSING_SHARE * self.pairs and refused >= MIN_PAIRS
        return self.harmful > MAX_HARMFUL_SHARE * refused or is_most_pairs
