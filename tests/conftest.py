"""Fixtures that several test modules share, and signals as a terminal gives them to a command."""

import signal

from report_browser import axe, browser, report, visit

__all__ = ["axe", "browser", "report", "visit"]

# Under nohup, or in the background of a script, these are ignored, and so they are in every process started below.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
