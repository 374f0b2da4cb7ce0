"""Edited copies of SGLang releases and of the toy engine, each with what it must do to the coupling points.

An edit *removes* a coupling (its point must go, or no longer be hard for the designs named), *adds* one under names of
its own (a point must appear, with the severity named), adds a *harmless* look-alike that a guard or a default saves (no
hard point may appear), or leaves the meaning as it was (the *same* hard points, under the new names where it renames).
"""
