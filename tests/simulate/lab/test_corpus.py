from __future__ import annotations

import hashlib

from minder.simulate.lab import corpus


def test_the_text_is_the_same_everywhere_forever() -> None:
    text = corpus.text(20_000)
    assert text == corpus.text(60_000)[:20_000]
    assert hashlib.sha256(text.encode()).hexdigest() == "ccb25b31215705935371d95f0d4f73355420645767e5e383f87e262a7ea6be35"


def test_every_character_has_a_place() -> None:
    assert "".join(corpus.ALPHABET[position] for position in corpus.encoded(5_000)) == corpus.text(5_000)
