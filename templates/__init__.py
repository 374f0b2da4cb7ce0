"""The report's pages, macros, style sheet and scripts, as package data."""
