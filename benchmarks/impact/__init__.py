"""Diffs of releases and of the toy engine, made of edits, each with what `sgltrace impact` must say of it."""
