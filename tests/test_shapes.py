"""Shapes of torch operations, of loops, calls and branches, on functions of a few lines."""

from __future__ import annotations

import pytest
from index_support import Resolve, resolve
from shapes_support import BATCH, shapes_in

__all__ = ["resolve"]

START = """
def main(b: ScheduleBatch, args: ServerArgs, flag=None):
    bs = len(b.reqs)
    topk, steps = args.speculative_eagle_topk, args.speculative_num_steps
    width, page = args.speculative_num_draft_tokens, args.page_size
"""
# what is assigned to x: its shape
EXPRESSIONS: dict[str, str | None] = {
    "bs": "bs",
    "b.seq_lens": "(bs,)",
    "b.batch_size() * width": "bs*num_draft_tokens",
    "max(topk * steps, width)": "max(num_draft_tokens, num_steps*topk)",
    "torch.empty((bs * topk * steps,), dtype=torch.int64)": "(bs*num_steps*topk,)",
    "torch.zeros(bs, topk)": "(bs, topk)",
    "torch.full((3, bs, width), -1)": "(3, bs, num_draft_tokens)",
    "torch.arange(bs)": "(bs,)",
    "torch.arange(0, (1 + bs) * width, step=width)": "(bs + 1,)",
    "torch.tensor([r.kv_committed_len for r in b.reqs])": "(bs,)",
    "torch.tensor([[1, 2], [3, 4], [5, 6]])": "(3, 2)",
    "torch.empty_like(b.seq_lens, dtype=torch.int32)": "(bs,)",
    "b.seq_lens.new_zeros((bs, 2))": "(bs, 2)",
    "b.seq_lens.repeat_interleave(topk, dim=0)": "(bs*topk,)",
    "torch.repeat_interleave(b.seq_lens, width)": "(bs*num_draft_tokens,)",
    "b.seq_lens.repeat(width)": "(bs*num_draft_tokens,)",
    "b.seq_lens.unsqueeze(1).expand(-1, width)": "(bs, num_draft_tokens)",
    "b.seq_lens[:, None]": "(bs, 1)",
    "b.seq_lens[0]": "()",
    "b.seq_lens[1:]": "(bs - 1,)",
    "b.seq_lens[:topk]": "(topk,)",
    "b.seq_lens[-2:]": "(2,)",
    "b.seq_lens[b.seq_lens > 1]": "(some(bs),)",
    "torch.ones(bs * width, 7)[torch.arange(bs)]": "(bs, 7)",
    "torch.ones(bs, width, 7)[..., 0]": "(bs, num_draft_tokens)",
    "torch.ones(bs * width).reshape(bs, width)": "(bs, num_draft_tokens)",
    "torch.ones(bs * width).view(bs, -1)": "(bs, num_draft_tokens)",
    "torch.ones(bs, topk, steps).permute((2, 0, 1)).reshape(steps, -1)": "(num_steps, bs*topk)",
    "torch.ones(bs, topk, steps).flatten(1)": "(bs, num_steps*topk)",
    "torch.ones(bs, topk).transpose(0, 1)": "(topk, bs)",
    "torch.ones(bs, topk).t()": "(topk, bs)",
    "torch.ones(bs, 1, topk).squeeze(1)": "(bs, topk)",
    "torch.cat((b.seq_lens.unsqueeze(1), torch.ones(bs, width - 1)), dim=1)": "(bs, num_draft_tokens)",
    "torch.stack([b.seq_lens, b.seq_lens])": "(2, bs)",
    "torch.cat([b.seq_lens, b.req_pool_indices])": "(2*bs,)",
    "torch.ones(bs, width).chunk(2, dim=1)[0].shape[0]": "bs",
    "torch.ones(bs, topk) + b.seq_lens.unsqueeze(1)": "(bs, topk)",
    "b.seq_lens + width": "(bs,)",
    "torch.where(b.seq_lens > 0, b.seq_lens, 0)": "(bs,)",
    "torch.cumsum(b.seq_lens, dim=0)": "(bs,)",
    "torch.ones(bs, width).sum(dim=1)": "(bs,)",
    "torch.ones(bs, width).sum(dim=-1, keepdim=True)": "(bs, 1)",
    "torch.argmax(torch.ones(bs * width, 9), dim=-1)": "(bs*num_draft_tokens,)",
    "torch.softmax(torch.ones(bs, 9), dim=-1)": "(bs, 9)",
    "torch.topk(torch.ones(bs, 9), width - 1, dim=-1).indices": "(bs, num_draft_tokens - 1)",
    "torch.max(torch.ones(bs, 9), dim=-1)[1]": "(bs,)",
    "torch.gather(torch.ones(bs, 9), 1, torch.ones(bs, width))": "(bs, num_draft_tokens)",
    "torch.ones(bs, 9) @ torch.ones(9, topk)": "(bs, topk)",
    "F.pad(b.seq_lens, (1, 0))": "(bs + 1,)",
    "b.seq_lens.to('cpu').long().clone()": "(bs,)",
    "list(torch.ones(bs * width, 9).shape)[:-1]": "(bs*num_draft_tokens,)",
    "b.seq_lens.numel()": "bs",
    "b.seq_lens.size(0)": "bs",
    "b.seq_lens.tolist()": "[?] * bs",
    "[width] * bs": "[num_draft_tokens] * bs",
    "[width for _ in range(len(b.seq_lens))]": "[num_draft_tokens] * bs",
    "sum([width for _ in range(bs)])": "bs*num_draft_tokens",
    "(b.seq_lens, bs)": "((bs,), bs)",
    "slice(bs, bs + width)": "slice(bs, bs + num_draft_tokens)",
    "torch.ones(bs)[slice(topk, topk + 2)]": "(2,)",
    "torch.combinations(b.seq_lens)": None,
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(resolve: Resolve, expression: str) -> None:
    program = resolve(f"{BATCH}{START}    x = {expression}\n")
    assert shapes_in(program)["x"] == EXPRESSIONS[expression]


# statements: what x is afterwards
STATEMENTS: dict[str, tuple[str, str | None]] = {
    "an idle batch is a special case": (
        "x = torch.empty((0, topk)) if flag else torch.empty((bs, topk))",
        "(bs, topk)",
    ),
    "so is one branch": (
        "if bs == flag:\n    x = torch.empty((0,))\nelse:\n    x = b.seq_lens",
        "(bs,)",
    ),
    "a width of one is a special case": (
        "if topk == 1:\n    x = torch.ones(bs, 1)\nelse:\n    x = torch.ones(bs, topk)",
        "(bs, topk)",
    ),
    "and where the test says so the other way": (
        "x = torch.ones(bs, topk) if topk > 1 else torch.ones(bs, 1)",
        "(bs, topk)",
    ),
    "branches that differ": (
        "x = torch.ones(bs) if flag else torch.ones(topk)",
        "(bs,) or (topk,)",
    ),
    "what raises is no way": (
        "if flag:\n    x = torch.ones(topk)\n    raise ValueError\nelse:\n    x = torch.ones(bs)",
        "(bs,)",
    ),
    "a list that a loop fills": (
        "parts = []\nfor i in range(steps):\n    parts.append(torch.ones(bs, topk))\nx = torch.cat(parts, dim=1)",
        "(bs, num_steps*topk)",
    ),
    "whose first turn differs": (
        "parts = []\nfor i in range(steps):\n    if i == 0:\n        parts.append(torch.ones(bs, topk))\n"
        "    else:\n        parts.append(torch.ones(bs, topk * topk))\nx = torch.cat(parts, dim=1)",
        "(bs, topk*(num_steps*topk - topk + 1))",
    ),
    "all parts but the last": (
        "parts = []\nfor i in range(steps):\n    parts.append(torch.ones(bs, topk))\nx = torch.cat(parts[:-1], dim=1)",
        "(bs, topk*(num_steps - 1))",
    ),
    "a sum of what is the same": (
        "x = 0\nfor r in b.reqs:\n    x += width",
        "bs*num_draft_tokens",
    ),
    "a sum of what each request has": (
        "x = 0\nfor r in b.reqs:\n    x += r.kv_committed_len + 2 * width",
        "sum(kv_committed_len + 2*num_draft_tokens)",
    ),
    "a variable that a loop carries": (
        "x = torch.ones(bs)\nfor i in range(steps):\n    x = x.unsqueeze(0).expand(topk, bs).flatten()[:bs]",
        "(bs,)",
    ),
    "conditional parts": (
        "parts = []\nfor r in b.reqs:\n    if r.finished_reason is None:\n        parts.append(1)\n"
        "x = torch.tensor(parts)",
        "(some(bs),)",
    ),
    "a called function": (
        "x = wide(b.seq_lens, width)",
        "(bs*num_draft_tokens,)",
    ),
    "a function with an early return": (
        "x = early(b, topk)",
        "(bs, topk)",
    ),
    "a nested function": (
        "def inner(n):\n    return torch.ones(bs, n)\nx = inner(topk)",
        "(bs, topk)",
    ),
    "a field that a method sets": (
        "b.out_cache_loc = torch.ones(bs * width)\nx = b.out_cache_loc.reshape(bs, -1)",
        "(bs, num_draft_tokens)",
    ),
    "an object made by keywords": (
        "y = dataclasses.replace(b, out_cache_loc=torch.ones(bs, 2))\nx = y.out_cache_loc",
        "(bs, 2)",
    ),
    "unpacking": (
        "x, y = torch.ones(2, bs)",
        "(bs,)",
    ),
    "an enum's predicate": (
        "b.forward_mode = ForwardMode.TARGET_VERIFY\n"
        "x = torch.ones(bs) if b.forward_mode.is_decode() else torch.ones(bs, width)",
        "(bs, num_draft_tokens)",
    ),
    "a path's flag": (
        "x = torch.ones(bs) if b.enable_overlap else torch.ones(topk)",
        "(bs,)",
    ),
    "an option that is off": (
        "x = torch.ones(topk) if args.enable_lora else torch.ones(bs)",
        "(bs,)",
    ),
    "a kernel changes no shape": (
        "x = torch.empty_like(b.seq_lens)\nkernel[(bs,)](x, b.seq_lens)",
        "(bs,)",
    ),
    "augmented assignment": (
        "x = b.seq_lens\nx += 1\nx *= 2",
        "(bs,)",
    ),
    "a while loop": (
        "x = b.seq_lens\nwhile flag:\n    x = x + 1",
        "(bs,)",
    ),
    "a method of one of several objects": (
        "y = Draft(b.seq_lens) if flag else Draft(torch.empty(0))\ny.hand_on(b)\nx = b.out_cache_loc",
        "(bs,)",
    ),
    "a part of a list is a list": (
        "y = list(torch.ones(bs * width, topk).shape)[:-1]\ny[-1] += 1\nx = torch.empty(y)",
        "(bs*num_draft_tokens + 1,)",
    ),
    "a test holds only where it decides": (
        "y = b.seq_lens if flag else None\nz = y.shape if y is not None else bs\n"
        "x = torch.ones(bs) if y is None else torch.ones(topk)",
        "(bs,) or (topk,)",
    ),
    "a test of a tensor's shape": (
        "y = torch.ones(bs, steps) if flag else torch.ones(bs, width)\n"
        "if y.shape == (bs, steps):\n    x = y\nelse:\n    x = torch.ones(bs, steps)",
        "(bs, num_steps)",
    ),
    "a size that may be one of two": (
        "y = topk if flag else width\nx = torch.empty((bs, y))",
        "(bs, topk) or (bs, num_draft_tokens)",
    ),
    "a constructor that goes on after its base's": (
        "x = torch.empty(Runner(topk, width).rows)",
        "(topk,)",
    ),
    "an attribute of what is outside may be None": (
        "y = flag.outside.thing\nx = torch.ones(bs) if y is None else torch.ones(topk)",
        "(bs,) or (topk,)",
    ),
    "a width that is 1 where it decides": (
        "y = torch.ones(bs, topk).repeat_interleave(topk, dim=0)\n"
        "if topk == 1:\n    x = y.flatten()\nelse:\n    x = torch.ones(bs, topk).flatten()",
        "(bs*topk,)",
    ),
    "what a variable that is not None says": (
        "fits = topk == 1 and flag\nz = None\n"
        "if fits:\n    z = torch.ones(bs, steps)\n"
        "y = torch.ones(bs, topk).repeat_interleave(topk, dim=0)\n"
        "if z is not None:\n    x = y.flatten()\nelse:\n    x = torch.ones(bs, topk).flatten()",
        "(bs*topk,)",
    ),
    "a size that is one of two where a width is 1": (
        "y = width if topk == 1 and flag else steps\nx = torch.empty((bs * topk * y,))",
        "(bs*num_draft_tokens,) or (bs*num_steps*topk,)",
    ),
    "a list that has taken up nothing, or all": (
        "y = []\nfor i in range(steps):\n    if flag is None:\n        y.append(torch.ones(bs, 1))\n"
        "if flag is None:\n    x = torch.cat(y, dim=1)\nelse:\n    x = torch.ones(bs, width - 1)",
        "(bs, num_draft_tokens - 1)",
    ),
    "a function is no formula": (
        "x = torch.empty((bs, get_width(flag)))",
        "(bs, ?)",
    ),
    "what a dict gives to names": (
        "y = {'dim': 1}\nx = torch.ones(bs, topk).sum(**y)",
        "(bs,)",
    ),
    "a walrus": (
        "if (y := b.seq_lens) is not None:\n    x = y.unsqueeze(0)",
        "(1, bs)",
    ),
}
FUNCTIONS = """
def get_width(config) -> int:
    return config.width + other(config)

@triton.jit
def kernel(out, src): pass

@dataclass
class Draft:
    verified_id: torch.Tensor = None

    def hand_on(self, b: ScheduleBatch):
        b.out_cache_loc = self.verified_id

class Base:
    def __init__(self, narrow, broad):
        self.rows = broad

class Runner(Base):
    def __init__(self, narrow, broad):
        super().__init__(narrow, broad)
        self.rows = narrow

def wide(x, n: int):
    return torch.empty((len(x) * n,))

def early(b: ScheduleBatch, n):
    if b.forward_mode is None:
        return torch.empty((0, n))
    if n == 1:
        return torch.ones(len(b.reqs), 1)
    return torch.ones(len(b.reqs), n)
"""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statements(resolve: Resolve, name: str) -> None:
    source, expected = STATEMENTS[name]
    body = "".join(f"    {line}\n" for line in source.splitlines())
    program = resolve(f"{BATCH}{FUNCTIONS}{START}{body}")
    assert shapes_in(program)["x"] == expected


def test_what_is_unknown_stays_unknown(resolve: Resolve) -> None:
    program = resolve(f"{BATCH}{START}    x = torch.empty(flag.rows, bs)\n")
    assert shapes_in(program)["x"] == "(?, bs)"
