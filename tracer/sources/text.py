"""Bytes of a Python file to text, as Python itself reads them."""

from __future__ import annotations

import io
import tokenize

from sgltrace.errors import InputError


class UndecodableSource(InputError):
    """A file whose bytes are not text in the encoding that it declares."""


def decode_source(data: bytes) -> str:
    """The text of a module, by its byte-order mark or its declared encoding, else as UTF-8.

    Every line ends in a single newline, whatever the file had, so that line numbers are Python's. Form feeds stay:
    split lines with ``split("\\n")``, never ``splitlines()``, which breaks at them. Raises UndecodableSource.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UndecodableSource(f"not text: {reason}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
