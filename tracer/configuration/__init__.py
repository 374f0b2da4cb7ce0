"""A configuration: the values that a server's arguments have once they are handled, and what is not known of them.

``Configuration.holds`` answers a condition of the source in them: true, false, or not known.
"""

from sgltrace.configuration.model import Configuration
from sgltrace.configuration.words import parse_words

__all__ = ["Configuration", "parse_words"]
