"""The HTML report and the exports: view models of an index, and their rendering. Knows nothing of LibCST."""

from sgltrace.reports.options import RenderResult, ReportOptions
from sgltrace.reports.render import render
from sgltrace.reports.source import Source

__all__ = ["RenderResult", "ReportOptions", "Source", "render"]
