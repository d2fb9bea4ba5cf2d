"""Detects texts that are no language but the code of one (base64, hex, percent signs, quoted-printable, Python's repr).

Each is told by form and by what it decodes to, so that a long word, a hash or a link is none.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import quopri
import re
from typing import NamedTuple
from urllib.parse import unquote

from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.parse_python_within_limits import parse_literal

# Chosen, not measured: 24 characters are 18 bytes. At half, camel-case names are found; at double, short answers
# pass.
LEAST = 24
"""Characters of a stretch of base64: shorter ones may be words, names and keys"""
# SHA-512 has 128 hexadecimal digits, an Ed25519 key in PEM some 120 characters.
LEAST_BINARY = 200
"""Characters of a stretch that decodes to no text: shorter ones may be hashes, keys and signatures"""
# Chosen, not measured. At a quarter, prose around one encoded example would be told; at 0.9 a caption would hide it.
MOST_OF = 0.5
"""Share of a text that the encoded stretch has: of less, it is quoted in the text"""
# Chosen, not measured: text of another script is mostly such signs; prose has one now and then.
PER_TEXT = 0.05
"""Share of a text that its percent signs or equals signs have with their digits: a link has a few"""
# Words in capitals have one kind, names two; a base64 of 24 characters with fewer than three has a chance below 1 %.
LEAST_MIXED = 3
"""Kinds of characters among upper case, lower case, digits and signs, as any base64 of a sentence has"""
SHOWN = 40
MIN_FIRST_WORD = 20
BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{{MIN_FIRST_WORD},}}(?:\s*[A-Za-z0-9+/_-]{{4,}})*={{0,2}}")
HEX = re.compile(r"(?:0x|\\x)?(?:[0-9a-fA-F]{2}(?:[ :]|\\x|\n)?){20,}")
WITHOUT_HEX = str.maketrans("", "", "0123456789abcdefABCDEFx\\ :\n")
"""Takes out all that a match of HEX may hold"""
PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
LINK = re.compile(r"(?<!\w)\w+://\S+")
# A byte of UTF-8 above ASCII comes with others, and quotation marks of Windows stand in words: `vat=89` and `net=95.20`
# are names with numbers. Lines are wrapped at 76 characters, so that a shorter one that ends in `=` is none of them.
QUOTED_PRINTABLE = re.compile(
    r"(?:=[C-F][0-9A-F](?==[89AB][0-9A-F])|(?<==[0-9A-F]{2})=[89AB][0-9A-F]|(?<=[a-z])=92(?=(?:s|t|re|ve|ll|m|d)\b)"
    r"|=3D|=20$|(?<=.{60})=\r?$)",
    re.MULTILINE,
)
MIME_WORD = re.compile(r"=\?[\w-]+\?[bBqQ]\?[^?\s]+\?=")
RTF = re.compile(r"\A\{\\rtf1\b")
REPR = re.compile(
    r"\A(?:[bur]?[\"'].*[\"']|\[.*\]|\{.*\}|\(.*,.*\)|array\(.*\)|\w+\(\w+=.*\))\Z", re.DOTALL
)


class DetectedEncoding(NamedTuple):
    """What a text is the code of."""

    name: str
    decoded: str
    """The beginning of what it says; empty where it is no text"""


def detect_text_encoding(text: str) -> DetectedEncoding | None:
    """The encoding of a text, most of which is encoded; None where it is language, or code of another kind."""
    bare = text.strip()
    if len(bare) < 3:
        return None
    for look in (
        _detect_rtf_or_mail_header,
        _detect_base64,
        _detect_hex,
        _detect_percent_encoding,
        _detect_quoted_printable,
        _detect_python_repr,
    ):
        decoded = look(bare)
        if decoded is not None:
            return decoded
    return None


def _detect_rtf_or_mail_header(text: str) -> DetectedEncoding | None:
    """The encoding of RTF, or of encoded words in a mail header; None for other text."""
    if RTF.match(text):
        return DetectedEncoding("RTF", "")
    if "=?" not in text:
        return None
    words = "".join(MIME_WORD.findall(text))
    return DetectedEncoding("a MIME header", "") if len(words) > MOST_OF * len(text) else None


def _detect_base64(text: str) -> DetectedEncoding | None:
    """The longest stretch of base64, where most of the text is one."""
    # Each stretch begins with so many characters in a row: splitting costs a twentieth of the search.
    if max(map(len, text.split()), default=0) < MIN_FIRST_WORD:
        return None
    best = max(BASE64.findall(text), key=len, default="")
    joined = "".join(best.split()).rstrip("=")
    if len(joined) < LEAST or len(best) < MOST_OF * len(text) or not _mixes_character_kinds(joined):
        return None
    # Lines of wrapped base64 are of one length; a first short word is prose in front of it.
    if len(best.split()) > 1 and min(map(len, best.split()[:-1])) < LEAST:
        return None
    padded = joined.replace("-", "+").replace("_", "/")
    # One character too many can't be the end of a group of four: it stood behind the stretch.
    padded = padded[: len(padded) - (len(padded) % 4 == 1)]
    try:
        data = base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return _encoding_of_decoded_bytes("base64", data, len(joined))


def _detect_hex(text: str) -> DetectedEncoding | None:
    """The longest stretch of hexadecimal digits, where most of the text is one."""
    # Prose has other letters in more than half of its characters: counting them costs a tenth of the search.
    if len(text.translate(WITHOUT_HEX)) > (1 - MOST_OF) * len(text):
        return None
    best = max((match[0] for match in HEX.finditer(text)), key=len, default="")
    if len(best) < MOST_OF * len(text):
        return None
    digits = re.sub(r"0x|\\x|[ :\n]", "", best)
    # Digits alone are an id or a number, however even their count is.
    if digits.isdigit():
        return None
    return _encoding_of_decoded_bytes(
        "hex", bytes.fromhex(digits[: len(digits) // 2 * 2]), len(digits)
    )


def _detect_percent_encoding(text: str) -> DetectedEncoding | None:
    """Text as it stands in the query of a link, outside of links."""
    if "%" not in text:
        return None
    prose = LINK.sub("", text)
    escapes = PERCENT.findall(prose)
    if len(escapes) < 3 or sum(map(len, escapes)) < PER_TEXT * len(prose):
        return None
    # In encoded prose a blank is %20; blanks beside the escapes are those of a text about links.
    if prose.count(" ") > len(escapes):
        return None
    return DetectedEncoding("percent-encoding", unquote(prose)[:SHOWN])


def _detect_quoted_printable(text: str) -> DetectedEncoding | None:
    """Text as mails encode it: `=C3=A9`."""
    if "=" not in text:
        return None
    signs = len(QUOTED_PRINTABLE.findall(text))
    if signs < 2 or signs < len(text) / 200:
        return None
    decoded = quopri.decodestring(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    return DetectedEncoding("quoted-printable", decoded[:SHOWN])


def _detect_python_repr(text: str) -> DetectedEncoding | None:
    """A list, an object or bytes as Python prints them; JSON is none."""
    # The first character is looked at before a pattern that goes over the whole text.
    if text[0] not in "[{(bra'\"" or not REPR.match(text):
        return None
    try:
        parse_json(text, ROW)
    except ValueError:
        pass
    else:
        return None
    if text.startswith("array("):
        return DetectedEncoding("Python's repr", "")
    try:
        value = parse_literal(text)
    except (ValueError, SyntaxError):
        return None
    # A quoted sentence is a string in Python's eyes, and a quotation in everybody else's.
    if isinstance(value, str):
        return None
    joined = " ".join(str(one) for one in value) if isinstance(value, list | tuple) else str(value)
    return DetectedEncoding("Python's repr", joined[:SHOWN])


def _mixes_character_kinds(text: str) -> bool:
    """Has a stretch so many kinds of characters that it is no word or number?"""
    kinds = (str.isupper, str.islower, str.isdigit, lambda character: character in "+/-_")
    return sum(any(map(kind, text)) for kind in kinds) >= LEAST_MIXED


def _encoding_of_decoded_bytes(name: str, data: bytes, length: int) -> DetectedEncoding | None:
    """The encoding `name` if the decoded bytes are text, or too many to be a hash; else None.

    `length` is the characters of the code.
    """
    if not data:
        return None
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if is_utf16 else "utf-8"
    text = data.decode(encoding, "ignore")
    # 0.9 of the bytes: the stretch may be cut in the middle of a character of several bytes.
    if len(text.encode(encoding, "ignore")) >= 0.9 * len(data) and _is_written_text(text):
        return DetectedEncoding(name, text[:SHOWN])
    return DetectedEncoding(name, "") if length >= LEAST_BINARY else None


def _is_written_text(text: str) -> bool:
    """Is a decoded text one that somebody wrote: printable, and mostly letters?"""
    odd = sum(not (character.isprintable() or character in "\r\n\t") for character in text)
    words = sum(character.isalpha() or character in " \n" for character in text)
    # 2 % odd signs and 60 % letters: chosen, not measured. Random bytes have far more odd signs.
    return len(text) > 0 and odd <= len(text) / 50 and words >= 0.6 * len(text)
