"""Words that may mean the same: no and yes in several languages, the sexes, and usual short
forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

NUMBER_CODES = (("0", "1"), ("1", "2"), ("-1", "1"))
"""Numbers for no and yes."""
WORD_CODES = (
    *(("false", "true"), ("f", "t"), ("no", "yes"), ("n", "y"), ("nein", "ja"), ("n", "j")),
    *(("neg", "pos"), ("negative", "positive"), ("negativ", "positiv"), ("absent", "present")),
    *(("non", "oui"), ("no", "sí"), ("no", "si"), ("no", "sì"), ("não", "sim"), ("nao", "sim")),
    *(("nee", "ja"), ("nej", "ja"), ("nei", "ja"), ("nie", "tak"), ("ne", "ano"), ("ne", "da")),
    *(("нет", "да"), ("όχι", "ναι"), ("hayır", "evet"), ("否", "是"), ("いいえ", "はい")),
    *(("faux", "vrai"), ("falsch", "wahr"), ("falso", "vero"), ("onwaar", "waar")),
)
"""Words for no and yes."""
_SEXES = (
    *(("female", "male"), ("f", "m"), ("w", "m"), ("weiblich", "männlich"), ("woman", "man")),
    *(("frau", "mann"), ("femme", "homme"), ("mujer", "hombre")),
)
_SHORT = (
    *(("y", "yes"), ("n", "no"), ("t", "true"), ("f", "false"), ("j", "ja"), ("n", "nein")),
    *(("m", "male"), ("f", "female"), ("w", "weiblich"), ("m", "männlich")),
    *(("pos", "positive"), ("neg", "negative"), ("pos", "positiv"), ("neg", "negativ")),
)
"""Usual short forms of words."""
CODE_WORDS = frozenset(word for pair in (*WORD_CODES, *_SEXES, *_SHORT) for word in pair)
"""All words in small letters that are one of two."""


def short_forms(words: Iterable[str]) -> dict[str, str]:
    """Return the words that are a usual short form of another one, and that other one.

    >>> short_forms(["Y", "no", "yes", "x"])
    {'Y': 'yes'}
    """
    written = {word.strip().casefold(): word for word in words}
    return {
        written[short]: written[long]
        for short, long in _SHORT
        if short in written and long in written
    }


def same_words(words: Iterable[str]) -> dict[str, str]:
    """Return the words that may mean the same as another of them, and that other one: short forms,
    and no and yes, or the sexes, in two codes of which both words are there.

    >>> same_words(["N", "Y", "no", "yes"]), same_words(["ja", "nein", "no", "yes", "?"])
    ({'Y': 'yes', 'N': 'no'}, {'nein': 'no', 'ja': 'yes'})
    >>> same_words(["f", "m", "w"]), same_words(["no", "ja"])
    ({'w': 'f'}, {})
    """
    written = {word.strip().casefold(): word for word in words}
    pairs = short_forms(written.values())
    for codes in (WORD_CODES, _SEXES):
        there = [code for code in codes if all(word in written for word in code)]
        for code in there[1:]:
            for word, first in zip(code, there[0], strict=True):
                if word != first and written[word] not in {*pairs, *pairs.values()}:
                    pairs[written[word]] = written[first]
    return pairs


def rename_line(pairs: Mapping[str, str], folded: bool = False) -> str:
    """Return the option that gives words the names of others; ``folded``: they are in small letters
    by then.

    >>> rename_line({"Y": "yes"})
    'rename = { "Y" = "yes" }'
    """
    lower = {old.casefold(): new.casefold() for old, new in pairs.items()} if folded else pairs
    listed = ", ".join(f'"{old}" = "{new}"' for old, new in lower.items())
    return f"rename = {{ {listed} }}"
