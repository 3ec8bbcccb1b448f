"""Numbers and dates as people write them: which numbers a text may hold, and how to say so.

A number is written with a decimal point unless options say otherwise. Every other spelling
(``4,510``, ``0,5``, ``12%``, ``3 kg``, ``1/12/2004``) is recognized, so that it can be refused with
the option that reads it; no spelling is guessed.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

DateOrder = Literal["", "day first", "month first", "year first"]
"""What the first number of a date is; empty: dates are refused."""

ORDERS: tuple[DateOrder, ...] = ("day first", "month first", "year first")

IN_A_UNIT = "a number in "
"""What a number beside a unit is, before the unit."""

_SPACES = " \u00a0\u202f\u2009\u2007"
"""Blanks that divide thousands: the plain one, and those that no line break takes."""
_APOSTROPHES = "'’"
_MINUS = str.maketrans(dict.fromkeys("−–‒", "-"))
"""Signs of a negative number that are no hyphen: the minus of mathematics, and dashes."""
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))
"""Characters without width, which a copied text may bring: they are no part of what is meant."""
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def visible(text: str) -> str:
    """Return a text without the characters that nobody sees.

    >>> visible("1\\u200b2")
    '12'
    """
    return text.translate(_INVISIBLE)


def plain_number(word: str) -> float:
    """Return the finite number that a text with a decimal point holds, NaN if it holds none.

    >>> plain_number("-1.5e3"), plain_number("−2"), plain_number("1_000"), plain_number("inf")
    (-1500.0, -2.0, nan, nan)
    """
    text = word.strip()
    if text[:1] in "−–‒":
        text = text.translate(_MINUS)
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) and "_" not in text else math.nan


@dataclass(frozen=True)
class Spelling:
    """How one column writes numbers and dates.

    Parameters
    ----------
    decimal: the mark before decimals.
    thousands: the mark between groups of three digits; empty: there is none.
    units: texts before or behind a number that are left out.
    dates: the order of a date's numbers; empty: dates are no numbers.
    """

    decimal: str = "."
    thousands: str = ""
    units: tuple[str, ...] = ()
    dates: DateOrder = ""

    @property
    def plain(self) -> bool:
        """Whether numbers are written with a decimal point and nothing else."""
        return self == Spelling()

    def number(self, word: str) -> float:
        """Return the finite number that a text holds, NaN if it holds none.

        A date is the days since 1970-01-01, with the time as a fraction; a time alone, as a
        duration, is hours.

        >>> Spelling(decimal=",", thousands=".").number("-1.234,5")
        -1234.5
        >>> Spelling(units=("%",)).number("12 %"), Spelling(dates="day first").number("2.1.1970")
        (12.0, 1.0)
        """
        if self.dates:
            date = date_number(word, self.dates)
            if date is not None:
                return date
        text = self.without_unit(word)[0]
        if self.thousands:
            marks = {" ": _SPACES, "'": _APOSTROPHES}.get(self.thousands, self.thousands)
            integer, mark, decimals = text.partition(self.decimal)
            if any(character in decimals for character in marks):
                return math.nan
            if any(character in integer for character in marks):
                groups = rf"[+-]?[1-9]\d{{0,2}}([{re.escape(marks)}]\d{{3}})+"
                lakhs = marks == "," and re.fullmatch(rf"[+-]?{_LAKHS}", integer)
                if not lakhs and not re.fullmatch(groups, integer):
                    return math.nan
                integer = re.sub(f"[{re.escape(marks)}]", "", integer)
            text = integer + mark + decimals
        if self.decimal != ".":
            if "." in text:
                return math.nan
            text = text.replace(self.decimal, ".")
        return plain_number(text)

    def form(self, word: str) -> str:
        """Return what a text with a number is, in words; nothing for a plain number."""
        if self.dates and date_number(word, self.dates) is not None:
            return date_form(word, self.dates)
        unit = "" if "" in self.units else self.without_unit(word)[1]
        return f"{IN_A_UNIT}{unit}" if unit else ""

    def without_unit(self, text: str) -> tuple[str, str]:
        """Return a text without the unit before or behind its number, and the unit; the text itself
        and "" where it has none of :attr:`units`. Blanks at its ends go, and each minus is ``-``.

        >>> Spelling(units=("$",)).without_unit("\u2212$3,357 ")
        ('-3,357', '$')
        """
        text = text.strip().translate(_MINUS)
        for unit in sorted(self.units, key=len, reverse=True):
            if text.endswith(unit):
                return text.removesuffix(unit).strip(), unit
            sign, unsigned = (text[:1], text[1:].strip()) if text[:1] in "+-" else ("", text)
            if unsigned.startswith(unit):
                return sign + unsigned.removeprefix(unit).strip(), unit
        return text, ""


# --------------------------------------------------------------------------------------- recognized

_EXPONENT = r"(?:[eE][+-]?\d+)?"
_LAKHS = r"[1-9]\d?(?:,\d{2})+,\d{3}"
"""Groups of two digits and a last one of three, as India writes them: 1,23,456."""
_NUMBERS: tuple[tuple[str, str], ...] = (
    ("comma", r"[1-9]\d{0,2},\d{3}"),  # 4,510: thousands or decimals
    ("decimal ,", rf"\d*,\d+{_EXPONENT}"),
    ("thousands ,", rf"\d{{1,3}}(?:,\d{{3}}){{2,}}|\d{{1,3}}(?:,\d{{3}})+\.\d+|{_LAKHS}(?:\.\d+)?"),
    ("unread", r"0[xX][\da-fA-F]+|(?:\d+(?:[.,]\d+)?\s?[x×*·]\s?)?10(?:\^-?\d+|[⁻⁰¹²³⁴-⁹]+)"),
    ("unread", r"\d*\s?[¼½¾⅓⅔⅛⅜⅝⅞]|[\d.,]*\d\s+[eE][+-]?\d+|\d*[.,]\d*[dD][+-]?\d+"),
    ("thousands .", r"\d{1,3}(?:\.\d{3}){2,}"),
    ("thousands . decimal ,", r"\d{1,3}(?:\.\d{3})+,\d+"),
    ("thousands  ", rf"\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?:\.\d+)?"),
    ("thousands   decimal ,", rf"\d{{1,3}}(?:[{_SPACES}]\d{{3}})+,\d+"),
    ("thousands '", rf"\d{{1,3}}(?:[{_APOSTROPHES}]\d{{3}})+(?:\.\d+)?"),
    ("thousands ' decimal ,", rf"\d{{1,3}}(?:[{_APOSTROPHES}]\d{{3}})+,\d+"),
)
_SHAPES = tuple((name, re.compile(rf"[+-]?(?:{pattern})")) for name, pattern in _NUMBERS)
_ANY = rf"(?:\d(?:[\d.,{_SPACES}{_APOSTROPHES}]*[\d.,])?{_EXPONENT}|[.,]\d+)"
_LIMIT = re.compile(rf"[<>≤≥]=?\s*[+-]?{_ANY}.{{0,12}}")
_COINS = r"(?:[A-Z]{1,3})?[$€£¥¢\u20a0-\u20cf]"
_BEFORE = re.compile(rf"({_COINS}|EUR|USD|CHF|GBP)\s*[+-]?({_ANY})|[+-]({_COINS})\s*({_ANY})")
_BEHIND = re.compile(rf"[+-]?({_ANY}?)(\s*)([^\W\d_]*[^\s\d.,;:'’()-]\S{{0,9}})")
_UNITS = frozenset(
    (
        *("%", "‰", "kg", "g", "mg", "µg", "μg", "ug", "ng", "l", "L", "ml", "mL", "dl"),
        *("m", "cm", "mm", "km", "°", "°C", "°F", "€", "$", "£", "¥", "EUR", "USD", "CHF", "GBP"),
        *("s", "sec", "ms", "min", "h", "hr", "hrs", "d", "day", "days", "weeks", "month"),
        *("months", "y", "yr", "yrs", "year", "years", "bpm", "mmHg", "mmol", "mmol/l", "mmol/L"),
        *("mg/dl", "mg/dL", "g/dl", "g/dL", "U/l", "IU/l", "kPa", "hPa", "Pa", "Hz", "kHz"),
        *("lb", "lbs", "oz", "ft", "IE", "IU", "Jahre", "Tage", "Std", "Min"),
        *("V", "W", "kW", "kWh", "kB", "MB", "GB"),
    )
)
_DIGITS = re.compile(rf"(?=.*\d)[\d\s.,٫٬;/:+()\[\]_#*~≈±\"″′{_APOSTROPHES}-]+")


def shape_of(word: str) -> tuple[str, str]:
    """Return how a text that is no plain number writes a number or date, and the unit in it; two
    empty texts where it is a word.

    >>> [shape_of(word)[0] for word in ("4,510", "0,5", "1/12/2004", "18.00.00", "10-19", "blue")]
    ['comma', 'decimal ,', 'date', 'time', 'digits', '']
    >>> shape_of("3 stone"), shape_of("$3.50"), shape_of("<5")[0]
    (('unit', 'stone'), ('unit', '$'), 'limit')
    """
    text = word.strip().translate(_MINUS)
    if not any(character.isnumeric() for character in text):
        return "", ""
    seen = visible(text)
    if seen != text:
        number = not math.isnan(plain_number(seen)) or shape_of(seen)[0] != ""
        return ("invisible" if number else ""), ""
    for name, pattern in _SHAPES:
        if pattern.fullmatch(text):
            return name, ""
    if _LIMIT.fullmatch(text):
        return "limit", ""
    kind = _date_kind(text)
    if kind:
        return kind, ""
    in_brackets = text[0] == "(" and text[-1] == ")"  # how bookkeeping writes a minus
    if _DIGITS.fullmatch(text) or (in_brackets and shape_of(text[1:-1])[0]):
        return "digits", ""
    before = _BEFORE.fullmatch(text)
    if before:
        return "unit", before[1] or before[3]
    behind = _BEHIND.fullmatch(text)
    if behind and behind[1]:
        measured = any(mark in behind[1] for mark in ".,")  # 1.5k; 10A may be a name
        if behind[3] in _UNITS or behind[2] or measured:
            return "unit", behind[3]
    return "", ""


# ------------------------------------------------------------------------------------------- dates

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            ("jan", "january", "januar"),
            ("feb", "february", "februar"),
            ("mar", "march", "mär", "märz", "mrz"),
            ("apr", "april"),
            ("may", "mai"),
            ("jun", "june", "juni"),
            ("jul", "july", "juli"),
            ("aug", "august"),
            ("sep", "sept", "september"),
            ("oct", "october", "okt", "oktober"),
            ("nov", "november"),
            ("dec", "december", "dez", "dezember"),
        ),
        1,
    )
    for name in names
}
_NAME = "(" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\.?"
_TIME = (
    r"(\d{1,2})[:.h](\d{2})(?:[:.](\d{2}(?:[.,]\d+)?))?\s*([ap]\.?m\.?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?|[A-Z]{3,4}|h)?"
)
_ZONE = {"Z": 0.0, "UTC": 0.0, "GMT": 0.0}
_CLOCK = ("UHR", "H")
"""Words behind a time that say no zone."""
_AND_TIME = rf"(?:(?:T|,?\s+){_TIME})?"
_WEEKDAY = re.compile(
    r"(?:mon|tue|tues|wed|thu|thur|thurs|fri|sat|sun|montag|dienstag|mittwoch|donnerstag|freitag|"
    r"samstag|sonntag|mo|di|mi|do|fr|sa|so)(?:day|nesday|rsday|urday)?[.,]*\s+(?=.*\d)",
    re.IGNORECASE,
)
"""The name of a day before its date."""
_HOUR_ALONE = re.compile(r"^(\d{4}-\d\d-\d\d[T ]\d\d)(?=Z?$|[+-]\d\d:?\d\d$)")
_MONTH_ALONE = re.compile(r"(?:19|20)\d{2}-(?:0[1-9]|1[0-2])")
"""A month of ISO 8601, 2024-05: its first day."""
_HALF_DAY = re.compile(r"(\d{1,2})\s*([ap])\.?m\.?", re.IGNORECASE)
_FLAGS = re.IGNORECASE
_YEAR_FIRST = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}}){_AND_TIME}", _FLAGS)
_YEAR_LAST = re.compile(
    rf"(\d{{1,2}})[-/.]\s?(\d{{1,2}})[-/.]\s?(\d{{4}}|\d{{2}}){_AND_TIME}", _FLAGS
)
_DAY_NAME = re.compile(rf"(\d{{1,2}})[. -]*{_NAME}[. -]*(\d{{4}}|\d{{2}}){_AND_TIME}", _FLAGS)
_NAME_DAY = re.compile(rf"{_NAME}\s*(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}}){_AND_TIME}", _FLAGS)
_NO_YEAR = re.compile(rf"\d{{1,2}}[. -]*{_NAME}|{_NAME}[. -]*\d{{1,4}}", _FLAGS)
_COMPACT = re.compile(r"(19|20)(\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_ONLY_TIME = re.compile(_TIME, _FLAGS)
_SECONDS = r"(\d+(?:[.,]\d+)?)"
_LONG = re.compile(rf"(?:(\d+) days?,?\s+)?(\d{{1,4}}):(\d{{2}})(?::{_SECONDS})?", _FLAGS)
"""Hours and minutes, and days before them: as long as it takes, not a time of the day."""
_PARTS = re.compile(
    r"P?(?:(\d+)\s?d(?:ays?)?)?[,\s]*T?(?:(\d+)\s?h(?:rs?|ours?)?)?[,\s]*"
    rf"(?:(\d+)\s?m(?:ins?|inutes?)?)?[,\s]*(?:{_SECONDS}\s?s(?:ecs?|econds?)?)?",
    _FLAGS,
)
"""``2h 15m``, ``1 d 3 h``, ``PT1H30M``; a number with one of these letters has a unit."""


def _date_kind(text: str) -> str:
    """Return ``date``, ``date without year``, ``time`` or nothing."""
    time = _time(text)
    if _hours_of(text) is not None or (time is not None and time[5]):
        return "time"
    text = _full_date(text)
    if any(p.fullmatch(text) for p in (_YEAR_FIRST, _YEAR_LAST, _DAY_NAME, _NAME_DAY)):
        return "date"
    return "date without year" if _NO_YEAR.fullmatch(text) else ""


def date_mark(word: str) -> str:
    """Return what stands between day, month and year of a date in numbers whose year is last.

    >>> date_mark("01.02.2023"), date_mark("2/1/23 10:00"), date_mark("2023-02-01")
    ('.', '/', '')
    """
    match = _YEAR_LAST.fullmatch(word.strip())
    return match.string[match.end(1)] if match else ""


def date_form(word: str, order: DateOrder) -> str:
    """Return what a text that :func:`date_number` reads is, in words; a column holds one of them.

    >>> date_form("2024-01-05T10:00Z", "year first"), date_form("1:30", "year first")
    ('a date with a UTC offset', 'a time h:mm')
    """
    text = _full_date(word.strip())
    if days_of(text, order) is not None:
        matches = (pattern.fullmatch(text) for pattern, _ in _places(order))
        zoned = any(_zone(match[8]) for match in matches if match)
        return "a date with a UTC offset" if zoned else "a date"
    if _PARTS.fullmatch(text):
        return "a duration"
    return "a time h:mm" if len(re.findall(r"\d+", text)) == 2 else "a time h:mm:ss"


def _full_date(text: str) -> str:
    """Return a date without the name of its day, its hour alone as hours and minutes, and a month
    alone as its first day."""
    if _MONTH_ALONE.fullmatch(text):
        return f"{text}-01"
    text = _WEEKDAY.sub("", text, count=1)
    return _HOUR_ALONE.sub(r"\1:00", text)


def is_compact_date(word: str) -> bool:
    """Return whether a text is a date of eight digits, ``20040128``."""
    return _COMPACT.fullmatch(word) is not None


def date_number(word: str, order: DateOrder) -> float | None:
    """Return the days from 1970-01-01 to a date, with the time as a fraction and in UTC where it
    has a UTC offset, or the hours of a time or a duration alone; None if a text is neither in this
    order.

    >>> date_number("02.01.1970 12:00", "day first"), date_number("18.30.00", "day first")
    (1.5, 18.5)
    >>> date_number("1/2/1970", "month first"), date_number("1/13/1970", "day first")
    (1.0, None)
    >>> date_number("1970-01-01T18:00+06:00", "year first"), date_number("2h 15m", "year first")
    (0.5, 2.25)
    >>> date_number("1970-02", "year first")
    31.0
    """
    days = days_of(word, order)
    return _hours_of(word.strip()) if days is None else days


def days_of(word: str, order: DateOrder) -> float | None:
    """Return the days from 1970-01-01 to a date in this order, with the time as a fraction; None
    where the text is none. ``05.03.23`` is a date in each order, and no time."""
    text = _full_date(word.strip())
    for pattern, places in _places(order):
        match = pattern.fullmatch(text)
        if match:
            year, month, day = (match[place] for place in places)
            return _days((year, month, day), match.groups()[3:])
    if is_compact_date(text):
        return _days((text[:4], text[4:6], text[6:]), ())
    return None


def _time(text: str) -> re.Match[str] | None:
    """Return the parts of a time alone; ``18.30`` is none."""
    time = _ONLY_TIME.fullmatch(text)
    return time if time and (time[3] or text[time.start(2) - 1] != ".") else None


def _hours_of(text: str) -> float | None:
    """Return the hours of a time or a duration alone; None where the text is none, and where it has
    a UTC offset, which says nothing without a date."""
    time = _time(text)
    hours = None if time is None or _zone(time[5]) else _hours(time.groups())
    if hours is not None:
        return hours
    half = _HALF_DAY.fullmatch(text)
    if half:
        return _hours((half[1], None, None, f"{half[2]}m"))
    long = _LONG.fullmatch(text)
    if long:
        days, hour, minute, second = (_number(part) for part in long.groups())
        return 24 * days + hour + minute / 60 + second / 3600 if max(minute, second) < 60 else None
    parts = _PARTS.fullmatch(text)
    if not parts or sum(part is not None for part in parts.groups()) < 2 - (text[:1] in "pP"):
        return None
    days, hour, minute, second = (_number(part) for part in parts.groups())
    return 24 * days + hour + minute / 60 + second / 3600


def _number(part: str | None) -> float:
    return float((part or "0").replace(",", "."))


def _zone(zone: str | None) -> str:
    """Return a zone of a time; nothing where the text says none."""
    return "" if zone is None or zone.upper() in _CLOCK else zone.upper()


def _offset(zone: str) -> float | None:
    """Return the hours by which a zone is ahead of UTC; None for a zone by name, which may be
    another one in summer."""
    if zone.startswith(("+", "-")):
        digits = zone[1:].replace(":", "")
        hours = int(digits[:2]) + int(digits[2:] or 0) / 60
        return -hours if zone[0] == "-" else hours
    return _ZONE.get(zone) if zone else 0.0


def _places(order: DateOrder) -> Sequence[tuple[re.Pattern[str], tuple[int, int, int]]]:
    """Return the patterns of dates in an order, with the groups of year, month and day."""
    last: Mapping[str, tuple[int, int, int]] = {
        "day first": (3, 2, 1),
        "month first": (3, 1, 2),
        "year first": (1, 2, 3),
    }
    short = [(_YEAR_LAST, last[order])]
    return [
        (_YEAR_FIRST, (1, 2, 3)),
        (_DAY_NAME, (3, 2, 1)),
        (_NAME_DAY, (3, 1, 2)),
        *short,
    ]


def _days(date: tuple[str, str, str], time: Sequence[str | None]) -> float | None:
    """Return the days to a date; None where the calendar has no such date."""
    year, month, day = (
        _MONTHS[part.lower()] if part.lower() in _MONTHS else int(part) for part in date
    )
    if len(date[0]) <= 2:
        year += 2000 if year < 69 else 1900  # as POSIX reads two digits
    try:
        days = float(datetime.date(year, month, day).toordinal() - _EPOCH)
    except ValueError:
        return None
    if not any(time):
        return days
    hours = _hours(time)
    ahead = _offset(_zone(time[4]))
    return None if hours is None or ahead is None else days + (hours - ahead) / 24


def _hours(time: Sequence[str | None]) -> float | None:
    """Return the hours of hour, minute, second and am or pm; None where no clock shows them."""
    hour, minute, second = (_number(part) for part in time[:3])
    half = (time[3] or "").lower().replace(".", "")
    if half and hour <= 12:
        hour = hour % 12 + 12 * (half == "pm")
    if hour > 24 or minute > 59 or second >= 61:
        return None
    return hour + minute / 60 + second / 3600


def readable_orders(words: Sequence[str]) -> list[DateOrder]:
    """Return the orders in which all of some texts are dates or times."""
    return [order for order in ORDERS if all(date_number(w, order) is not None for w in words)]
