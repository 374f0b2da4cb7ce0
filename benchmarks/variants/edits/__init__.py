"""All edits, a module for each release and path. Importing them registers them."""

from ..registry import EDITS
from . import sglang_0_5_9_v1, sglang_0_5_9_v2, toysgl

__all__ = ["EDITS", "sglang_0_5_9_v1", "sglang_0_5_9_v2", "toysgl"]
