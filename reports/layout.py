"""The call graph's layout, made once: components as blocks from left to right, modules as cards, functions as rows.

The unit is one row's height. The reader finds a function where its module is, as on a map; edges are drawn over it
on demand. It takes linear time and gives the same picture for the same index.
"""

from __future__ import annotations

from dataclasses import dataclass

CARD_WIDTH = 18.0
CARD_GAP = 1.5
BLOCK_GAP = 5.0
HEAD = 1.6
ASPECT = 1.7


@dataclass(frozen=True)
class Card:
    """A module's card inside a block: its functions are rows below its head."""

    module: str
    component: str
    x: float
    y: float
    height: float
    functions: list[str]


@dataclass(frozen=True)
class Block:
    """A component's block."""

    component: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Layout:
    """The whole drawing, from (0, 0) to (width, height)."""

    width: float
    height: float
    blocks: list[Block]
    cards: list[Card]


def layout(modules: dict[str, dict[str, list[str]]]) -> Layout:
    """Places functions given by component, then module, in the order in which they are to be drawn."""
    heights = [[_height(rows) for rows in by_module.values()] for by_module in modules.values()]
    limit = _column_limit(heights)
    blocks, cards = [], []
    left = tallest = 0.0
    for (component, by_module), sizes in zip(modules.items(), heights, strict=True):
        x, y, bottom = left + 1.0, HEAD + 1.0, 0.0
        for (module, rows), size in zip(by_module.items(), sizes, strict=True):
            if y > HEAD + 1.0 and y + size > limit:
                x, y = x + CARD_WIDTH + CARD_GAP, HEAD + 1.0
            cards.append(Card(module, component, x, y, size, rows))
            y += size + CARD_GAP
            bottom = max(bottom, y)
        width = x + CARD_WIDTH + 1.0 - left
        blocks.append(Block(component, left, 0.0, width, bottom))
        left += width + BLOCK_GAP
        tallest = max(tallest, bottom)
    return Layout(max(0.0, left - BLOCK_GAP), tallest, blocks, cards)


def _height(rows: list[str]) -> float:
    return HEAD + len(rows) + 0.4


def _column_limit(heights: list[list[float]]) -> float:
    """The column height at which the drawing comes nearest to ``ASPECT``."""
    limit = 1.0 + max((size for sizes in heights for size in sizes), default=1.0)
    while _width(heights, limit) > ASPECT * limit:
        limit *= 1.15
    return limit


def _width(heights: list[list[float]], limit: float) -> float:
    total = 0.0
    for sizes in heights:
        columns, y = 1, HEAD
        for size in sizes:
            if y > HEAD and y + size > limit:
                columns, y = columns + 1, HEAD
            y += size + CARD_GAP
        total += columns * (CARD_WIDTH + CARD_GAP) + BLOCK_GAP
    return total
