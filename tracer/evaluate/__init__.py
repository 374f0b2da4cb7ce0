"""An interpreter of Python source in which a value may be unknown.

Argument handling is a program: handlers run in an order over one mutable object, set what later ones reset, read and
write the environment. It is run here statement by statement, over the syntax trees of a source that is never
imported. What lies outside (PyTorch, a GPU, a model's files) is an ``Unknown`` with a name; where a condition is
unknown, both sides run and what they leave is joined.
"""

from sgltrace.evaluate.machine import Machine
from sgltrace.evaluate.unknown import Maybe, Undecided, Unknown

__all__ = ["Machine", "Maybe", "Undecided", "Unknown"]
