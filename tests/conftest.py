"""Fixtures that several test modules share."""

from report_browser import axe, browser, report, visit

__all__ = ["axe", "browser", "report", "visit"]
