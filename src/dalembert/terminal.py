"""Output on terminals that do not know every letter: what they lack is written in others."""

import codecs
import sys
import unicodedata

ERRORS = "dalembert.in_ascii"

IN_ASCII = {
    "Δ": "d",
    "ε": "epsilon",
    "λ": "lambda",
    "μ": "mu",
    "ν": "nu",
    "β": "beta",
    "γ": "gamma",
    "σ": "sigma",
    "–": "-",
    "—": "-",
    "−": "-",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "≈": "~",
    "±": "+-",
    "⁄": "/",
    "×": "x",
    "·": "*",
    "→": "->",
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
    "█": "#",
    "✓": "yes",
    "✗": "no",
    "ø": "o",
}


def in_ascii(text: str) -> str:
    """The text in letters that every terminal knows."""
    return "".join(_letter(letter) for letter in text)


def _letter(letter: str) -> str:
    if letter in IN_ASCII:
        return IN_ASCII[letter]
    # Accents are left out, and raised and lowered digits become digits.
    plain = unicodedata.normalize("NFKD", letter)
    known = "".join(IN_ASCII.get(x, x) for x in plain if not unicodedata.combining(x))
    return known if known.isascii() and known else "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object[error.start : error.end]), error.end


def adapt_output() -> None:
    """Write what the terminal does not know in other letters, instead of ending with an error."""
    codecs.register_error(ERRORS, _replace)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=ERRORS)  # type: ignore[union-attr]
