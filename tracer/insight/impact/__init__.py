"""What a diff does to a dynamic disable of speculation: what it resolves, in part or whole, adds, and edits.

The source is compared with itself after the diff. Whether somebody is better off is told by design and path; what
nobody sets, what nothing reaches and what was deleted repairs nothing.
"""

from __future__ import annotations

from sgltrace.insight.impact.impact import assess
from sgltrace.insight.impact.model import Impact

__all__ = ["Impact", "assess"]
