"""Recognises numbers, truth values and dates in columns of text; all values of a column together decide.

The form of a column says how its text is read: numbers with a decimal comma, dates with the day or the month first.  A
model keeps the forms of its columns, so that later tables are read in the same way, whatever values they hold.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping

from macmpi import listed

MISSING = [
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null"),
]
"""A cell of a CSV file that holds one of these is a missing value; pandas has the same list."""

COMMA, DAY_FIRST, MONTH_FIRST = "decimal comma", "day first", "month first"
FORMS = ("", COMMA, DAY_FIRST, MONTH_FIRST)
"""The forms of text; "" stands for a decimal point, and for dates of ISO 8601 (year first)."""

NUMBER = r"[+-]?(([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?|[iI]nf(inity)?|INF)"
PLAIN = re.compile(rf"\s*{NUMBER}\s*", re.ASCII)
WITH_COMMA = re.compile(r"\s*[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?\s*", re.ASCII)
THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?\s*", re.ASCII)
MEASURED = re.compile(
    r"\s*(?P<word>[^\W\d_]{1,4}\.?\s?)?[^\w\s\[#]{0,2}\s?"
    r"(?P<number>\d{1,3}([.,'\u2019_\s]\d{3})+([.,]\d+)?|\d+([.,]\d+)?)(?P<unit>\D{0,12})"
)
"""A number that may have a sign or a currency before it, separated thousands, and a unit after it."""

DATE = re.compile(r"\s*(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?\s*", re.ASCII)
"""A date with the year last, which a time may follow."""

MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
MOMENT = re.compile(
    r"\s*(\d{1,2}([./-])\d{1,2}\2\d{4}|\d\d([./-])\d\d\3\d\d|\d{4}([./-])\d{1,2}\4\d{1,2}|(19|20)\d\d[/-](0[1-9]|1[0-2])"
    rf"|\d{{1,2}}[ ./-]?{MONTH}[ .,/-]+\d{{2,4}}|{MONTH}[.]? \d{{1,2}},? \d{{4}}"
    r"|\d{1,2}:\d\d(:\d\d)?( ?[ap]m)?)([ T,].*)?\s*",
    re.ASCII | re.IGNORECASE,
)
"""A date or a time in one of many forms, most of which macmpi recognises and does not read."""

TRUTH = {"true": 1.0, "false": 0.0}

CODE = re.compile(r"\s*0\d", re.ASCII)
"""A number with a leading zero.  A column with such a number holds codes, so that 136A among them is no slip."""

MANY_NUMBERS = 10
"""A column of text with more different numbers than this, most of its values, holds measurements; others are slips."""


NAMED = 3
"""The largest number of different texts, or of different units, that counts as few."""


class Unclear(Exception):
    """Says that the text of a column can be read in several ways or in none, why, and what the user can do."""


def plain_text(value: str | bytes) -> str:
    """Converts text to a plain str: from UTF-8 bytes, or from a member of an enumeration of texts, by its value."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str.__str__(value)


def is_number(text: str) -> bool:
    """Tells whether text is a number with a decimal point."""
    return PLAIN.fullmatch(text) is not None


def number_of(text: str, form: str = "") -> float | None:
    """Returns the number that a text stands for, NaN for a missing value, None for no number or an ambiguous one.

    form: COMMA reads a comma as a decimal comma even where it could separate thousands.  A decimal point is read in
    every form, and so is a decimal comma that cannot separate thousands.
    """
    if PLAIN.fullmatch(text):
        return float(text)
    if WITH_COMMA.fullmatch(text) and (form == COMMA or not THOUSANDS.fullmatch(text)):
        return float(text.replace(",", "."))
    return missing_in(text)


def truth_of(text: str) -> float | None:
    """Returns 1 for the text true, 0 for false, in upper or lower case, and None for other texts."""
    return TRUTH.get(text.strip().lower())


def moment_of(text: str, form: str = "") -> datetime.datetime | None:
    """Returns the date or the time that a text stands for; None for no date or an ambiguous one.

    ISO 8601 is read in every form, and so is a date with the year last if its day and month can only be in one order.
    A date with dots has the day first, unless the form says otherwise.
    """
    for way in (form, "", DAY_FIRST, MONTH_FIRST):
        if (found := _moment(text, way)) is not None:
            other = {DAY_FIRST: MONTH_FIRST, MONTH_FIRST: DAY_FIRST}.get(way, "")
            plain = way in (form, "") or "." in text or _moment(text, other) in (None, found)
            return found if plain else None
    return None


def _moment(text: str, form: str) -> datetime.datetime | None:
    """Returns the date or the time that a text stands for in this form alone; None if it is none."""
    try:
        if not form:
            return None if is_number(text) else datetime.datetime.fromisoformat(text.strip().replace("/", "-"))
        if (said := DATE.fullmatch(text)) is None:
            return None
        first, second, year = int(said[1]), int(said[3]), int(said[4])
        day, month = (first, second) if form == DAY_FIRST else (second, first)
        hour, minute, second_ = (int(part or 0) for part in said.groups()[4:])
        return datetime.datetime(year, month, day, hour, minute, second_)
    except ValueError:
        return None


def missing_in(text: str) -> float | None:
    """Returns NaN for a text that stands for a missing value, None for other texts."""
    return float("nan") if text.strip() in MISSING else None


def kind_of_texts(counts: Mapping[str, int]) -> tuple[str, str]:
    """Decides the kind of a column of text, "number", "truth", "date" or "category", and its form.

    A column of text that holds only numbers with a decimal point is a category, because people who store numbers as
    text mean names.
    counts: how often each text occurs.  Raises Unclear.  Cost: each different text is matched once.
    """
    if all(truth_of(text) is not None for text in counts):
        return "truth", ""
    numbers = {text for text in counts if is_number(text)}
    others = counts.keys() - numbers
    if not others:
        return "category", ""
    if all(WITH_COMMA.fullmatch(text) for text in counts):
        if all(THOUSANDS.fullmatch(text) for text in others) and not any(text.strip()[:1] == "0" for text in others):
            raise Unclear(
                f"holds numbers with commas, as {_named(others)}, which may be decimal commas or thousands: write them "
                "with a point, and without thousands"
            )
        return "number", COMMA
    _check_slips(counts, numbers, others)
    if all(_moment(text, "") for text in counts):
        return "date", ""
    if all(DATE.fullmatch(text) for text in counts):
        return "date", _order(counts)
    if all(MOMENT.fullmatch(text) for text in counts):
        raise Unclear(
            f"holds dates or times, as {_named(counts)}, in a form that is not read: write 2024-12-31 or "
            "2024-12-31 15:45, or name the column in data.categories"
        )
    return "category", ""


def _check_slips(counts: Mapping[str, int], numbers: Collection[str], others: Collection[str]) -> None:
    """Raises Unclear where numbers have thousands or units, or where most values but not all are numbers or dates.

    counts: how often each text occurs; numbers: the texts that are numbers with a decimal point; others: the rest.
    """
    if all(THOUSANDS.fullmatch(text) for text in others):
        raise Unclear(f"holds numbers with thousands, as {_named(others)}: write them without commas")
    if any(CODE.match(text) for text in counts):
        return
    if _are_measured(others):
        raise Unclear(
            f"holds numbers with signs or units, as {_named(others)}: write plain numbers, or name the "
            "column in data.categories"
        )
    commas = {text for text in others if WITH_COMMA.fullmatch(text)}
    dates = {text for text in others if _moment(text, "") or DATE.fullmatch(text)}
    for what, known in (("number", {*numbers, *commas}), ("date", dates)):
        rest, rows = counts.keys() - known, sum(counts[text] for text in known)
        few = len(rest) <= NAMED or 2 * rows > sum(counts.values())
        if rest and few and len(known) > MANY_NUMBERS:
            raise Unclear(
                f"holds {what}s, and {_named(rest)}: write a {what} there, or nothing where it is missing (data.empty "
                "= [...] lists texts that stand for a missing value), or name the column in data.categories"
            )


def _are_measured(texts: Collection[str]) -> bool:
    """Tells whether texts are many numbers with thousands, signs or a few units.

    If words such as USD stand before them, most of the numbers must be broken (2.50 or 1,200), not whole.
    """
    found = [match for text in texts if (match := MEASURED.fullmatch(text))]
    numbers, units = ({match[name].strip() for match in found} for name in ("number", "unit"))
    if len(found) < len(texts) or len(numbers) <= MANY_NUMBERS or len(units) > NAMED:
        return False
    broken = sum(not number.isdigit() for number in numbers)
    return not any(match["word"] for match in found) or 2 * broken > len(numbers)


def _order(counts: Collection[str]) -> str:
    """Returns DAY_FIRST or MONTH_FIRST for a column of dates: the order in which all are dates.

    If both orders are possible, dates with dots have the day first.  Raises Unclear for others.
    """
    found = [match for text in counts if (match := DATE.fullmatch(text))]
    ways = [form for form in (DAY_FIRST, MONTH_FIRST) if all(_moment(text, form) for text in counts)]
    if not ways:
        raise Unclear(f"holds dates in several orders, or days that no month has, as {_named(counts)}")
    if len(ways) == 1:
        return ways[0]
    if all(match[2] == "." for match in found):
        return DAY_FIRST
    raise Unclear(f"holds dates, as {_named(counts)}, whose day and month cannot be told apart: write 2024-12-31")


def _named(texts: Collection[str]) -> str:
    """Writes the first three of some texts, sorted and quoted."""
    return listed([f"{text!r:.40}" for text in sorted(texts)], 3)
