"""Symbolic shapes of tensors: a small abstract interpreter over the facts of modules."""
