"""All edits, a module for each release and path. Importing them registers them."""

from ..registry import EDITS
from . import forks_v1, sglang_0_5_9_v1, sglang_0_5_9_v2, sglang_0_5_12, sglang_0_5_21, toysgl

__all__ = ["EDITS", "forks_v1", "sglang_0_5_9_v1", "sglang_0_5_9_v2", "sglang_0_5_12", "sglang_0_5_21", "toysgl"]
