"""The call graph's layout, made once: components as blocks, modules as cards in them, functions as rows on the cards.

The unit is one row's height. A reader finds a function where its module is, as on a map; edges are drawn over it
on demand. It takes linear time and gives the same picture for the same index.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CARD_WIDTH = 18.0
CARD_GAP = 1.5
BLOCK_GAP = 7.0
HEAD = 1.6
"""Height of a card's head."""
TITLE = 3.0
"""Height of a block's title."""
ASPECT = 1.3
LEAST = 34.0
"""Width of a block with one column, so that its title has room when all is in view."""


@dataclass(frozen=True)
class Card:
    """A module's card: its functions are rows below its head."""

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


@dataclass(frozen=True)
class _Packed:
    """A block whose place is not known yet; its cards count from its corner."""

    width: float
    height: float
    cards: list[Card]


def layout(modules: dict[str, dict[str, list[str]]]) -> Layout:
    """Places functions given by component, then module, in the order in which they are to be read."""
    packed = {component: _pack(component, by_module) for component, by_module in modules.items()}
    limit = _row_limit(list(packed.values()))
    blocks: list[Block] = []
    cards: list[Card] = []
    x = y = tallest = widest = 0.0
    for component, block in packed.items():
        if x > 0 and x + block.width > limit:
            x, y, tallest = 0.0, y + tallest + BLOCK_GAP, 0.0
        blocks.append(Block(component, x, y, block.width, block.height))
        cards += [
            Card(card.module, component, x + card.x, y + card.y, card.height, card.functions) for card in block.cards
        ]
        x += block.width + BLOCK_GAP
        widest, tallest = max(widest, x - BLOCK_GAP), max(tallest, block.height)
    return Layout(widest, y + tallest, blocks, cards)


def _pack(component: str, by_module: dict[str, list[str]]) -> _Packed:
    """Cards in columns, in order, so that the block comes out about as wide as it is high."""
    heights = [HEAD + len(rows) + 0.4 for rows in by_module.values()]
    area = sum(height + CARD_GAP for height in heights) * (CARD_WIDTH + CARD_GAP)
    limit = max(math.sqrt(area), *heights)
    cards = []
    x, y, bottom = CARD_GAP, TITLE, 0.0
    for (module, rows), height in zip(by_module.items(), heights, strict=True):
        if y > TITLE and y + height > TITLE + limit:
            x, y = x + CARD_WIDTH + CARD_GAP, TITLE
        cards.append(Card(module, component, x, y, height, rows))
        y += height + CARD_GAP
        bottom = max(bottom, y)
    return _Packed(max(LEAST, x + CARD_WIDTH + CARD_GAP), max(LEAST / 2, bottom), cards)


def _row_limit(blocks: list[_Packed]) -> float:
    """The width of rows of blocks at which the drawing comes nearest to ``ASPECT``."""
    limit = max((block.width for block in blocks), default=0.0)
    while limit < ASPECT * _height(blocks, limit):
        limit *= 1.1
    return limit


def _height(blocks: list[_Packed], limit: float) -> float:
    x = y = tallest = 0.0
    for block in blocks:
        if x > 0 and x + block.width > limit:
            x, y, tallest = 0.0, y + tallest + BLOCK_GAP, 0.0
        x += block.width + BLOCK_GAP
        tallest = max(tallest, block.height)
    return y + tallest
