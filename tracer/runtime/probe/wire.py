"""The layout of trace files, shared by the recorder and the reader. Standard library only; all little-endian.

A process writes into one folder, under the name ``<pid>-<start>``:

``<name>.head``       fixed counters and the recorder's state, mapped into memory (``HEAD``)
``<name>.json``       what the process is: interpreter, command, sites attached and missing, rank
``<name>.<n>.seg``    segments of records, ``n`` counts from 0; the oldest are removed when the trace is full
``<name>.hist``       what is counted of every step, by mode, batch size and width; never dropped (``tally.py``)

A segment is self-contained: it defines each string, layout and signature before the first record that names it.
A record is complete when its first word holds the CRC-32 of its other bytes (1 where that is 0); that word is
written last, and zero bytes follow the newest record.
"""

from __future__ import annotations

import struct

VERSION = 2
READABLE = (1, 2)
"""Version 1 had no ``.hist``, no records of kind ``STEP`` to ``GPU``, and fewer counters in the head."""
SEGMENT_MAGIC = b"SGLTSEG1"
HEAD_MAGIC = b"SGLTHEAD"

# magic, version, pid, segment number, size in bytes, wall clock ns, monotonic ns, records before this segment
SEGMENT = struct.Struct("<8sIIIIQQQ")
SEGMENT_SIZE = 64
SEGMENT_SIZE_AT = 20  # where the header holds the file's size

# commit, length, time (monotonic ns), step, signature, site, kind, phase, thread, number of int64 that follow
RECORD = struct.Struct("<IIQIIHBBHH")
RECORD_SIZE = RECORD.size
MAX_INTS = 4096
MAX_DEFINITION = 1 << 16

# Kinds of record. A definition holds its id in ``signature`` and its payload's length in ``step``.
ENTER, EXIT, RAISE, MARK, STEP, ACCEPT, GPU = 1, 2, 3, 4, 5, 6, 7
DEFINE_TEXT, DEFINE_LAYOUT, DEFINE_TENSOR, DEFINE_SIGNATURE = 16, 17, 18, 19
DEFINITIONS = (DEFINE_TEXT, DEFINE_LAYOUT, DEFINE_TENSOR, DEFINE_SIGNATURE)
KIND_NAMES = {
    ENTER: "enter",
    EXIT: "exit",
    RAISE: "raise",
    MARK: "mark",
    STEP: "step",
    ACCEPT: "accept",
    GPU: "gpu",
}

# STEP: one for each step that is recorded lightly or in full, written when it returned or raised. Its time is that of
# its start, ``signature`` is the id of the text that names its mode. Its integers; -1 is "not known":
STEP_FIELDS = (
    "size",  # requests in the batch
    "run_ns",  # time inside the step's function: host time
    "flags",
    "turn_ns",  # from the start of the scheduler's turn to the step's start
    "before_ns",  # from the start of the step before to this start; 0 where the loop was idle in between
    "before_wait_ns",  # how long of that the host waited for device events
    "graph",  # 1 where the target's forward pass was a CUDA graph's replay, 0 where it ran eagerly
    "padded",  # batch size of that graph
    "replays",  # graphs replayed in the step: the target's, the draft's ...
    "width",  # tokens that were verified for each request; -1 where the engine does not say
    "compiled",  # kernels or graphs that were compiled in it
)
UNKNOWN = (1 << 64) - 1
# Flags of a step.
FLAG_FULL, FLAG_RAISED, FLAG_NEW, FLAG_CALLS, FLAG_TIMELINE, FLAG_GPU = 1, 2, 4, 8, 16, 32
FLAG_NAMES = {
    FLAG_FULL: "full",
    FLAG_RAISED: "raised",
    FLAG_NEW: "new",  # the first of its mode, batch size and width in this process
    FLAG_CALLS: "calls",
    FLAG_TIMELINE: "timeline",
    FLAG_GPU: "gpu",
}
FLAG_WINDOW = FLAG_CALLS | FLAG_TIMELINE | FLAG_GPU
"""Slower than other steps for being looked at: charts and means leave them out."""

# ACCEPT: tokens that a step kept for each request, the bonus token included; ``step`` is the step that made them.

# GPU: a span on the device, measured with CUDA events in a window of --gpu-time. ``site`` is the step's or the
# replay's, the time when the host recorded the first event. Its integers:
GPU_FIELDS = (
    "offset_ns",  # from the window's first event to the span's start, by the device's clock
    "elapsed_ns",
    "padded",  # batch size of the graph that was replayed; -1 for a step
)
# MARK: a window opens (1) or closes (0). Its integers are its FLAG_* and that.

# When the recorded code ran.
WARM_UP, EAGER, CAPTURE, REPLAY = 0, 1, 2, 3
PHASE_NAMES = ("warm-up", "eager", "capture", "replay")

# Kinds of a layout's fields. Those from TENSOR to NESTED take a slot of the signature, INT and LIST take int64s
# of the record, the others neither.
NONE, OTHER, TENSOR, FLAG, ENUM, NESTED, INT, LIST, TENSORS = 0, 1, 2, 3, 4, 5, 6, 7, 8
FIELD_KINDS = ("none", "other", "tensor", "flag", "enum", "nested", "int", "list", "tensors")

# dtype's text id, device's text id, number of dimensions; then sizes and strides as int64
TENSOR_HEAD = struct.Struct("<III")

# magic, version, pid, and the counters below; then the reason, of the length that the last one says, in UTF-8.
# ``dropped_*`` went out of the ring; ``not_taken`` were re-entrant or too large; the recorder's own cost is that of
# ``warm`` records and of ``cold`` ones, in which something was seen for the first time.
# ``inside`` is whether the last step runs just now, and the four after it what it is: its start, its batch size and
# its mode (UTF-8, 16 bytes). ``light_every`` is how many light steps are one that is recorded. ``*_steps`` and their
# cost, the recorder's own, are by level: in full, lightly, counted only; ``busy_*`` are steps close together.
HEAD = struct.Struct("<8sII29Q")
HEAD_1 = struct.Struct("<8sII15Q")
HEAD_COUNTERS = (
    "state",
    "records",
    "definitions",
    "last_step",
    "every",
    "dropped_records",
    "dropped_segments",
    "not_taken",
    "first_segment",
    "next_segment",
    "warm_ns",
    "warm",
    "cold_ns",
    "cold",
    "inside",
    "began_ns",
    "size",
    "mode_0",
    "mode_1",
    "light_every",
    "full_ns",
    "full_steps",
    "light_ns",
    "light_steps",
    "counted_ns",
    "counted_steps",
    "busy_ns",
    "busy_steps",
    "reason",
)
HEAD_COUNTERS_1 = (*HEAD_COUNTERS[:14], "reason")
HEAD_SIZE = 4096
ARMED, RECORDING, STOPPED, ENDED = 0, 1, 2, 3
STATE_NAMES = ("armed", "recording", "stopped", "ended")
MAX_REASON = 1024

# ``<name>.hist``: a header, then slots, one for each mode, batch size and width that was met; the last one takes what
# finds no other. A slot holds its mode (UTF-8), batch size, width, and the counters below, then how many requests kept
# 1, 2, ... tokens of a step (the last counts that many and more), then the histogram of steady periods.
# An interval is that from a step's start to the next one's, with no idle turn in between. It is ``steady`` where the
# step before was of the same kind and nothing out of the ordinary happened: nothing compiled, no window open.
HIST_MAGIC = b"SGLTHIST"
HIST_HEADER = struct.Struct("<8sIIII")  # magic, version, size of a slot, slots there is room for, slots in use
HIST_HEADER_SIZE = 64
HIST_MODE = 24  # bytes
HIST_COUNTERS = (
    "steps",
    "run_ns",
    "turns",  # steps whose turn's start is known
    "turn_ns",
    "replayed",  # steps in which the target's forward pass was a replay
    "eager",
    "padded",  # sum over replayed steps for which it is known, and their number
    "padded_steps",
    "replays",  # sum, and the steps in which they were counted
    "replays_steps",
    "compiled_steps",
    "window_steps",
    "steady",  # intervals
    "steady_ns",
    "wait_ns",  # waited for device events in steady intervals that were looked at, and how many those are
    "wait_steps",
    "wait_period_ns",  # the length of those
    "changed",  # intervals after a step of another kind
    "changed_ns",
    "odd",  # intervals with something compiled, or a window
    "odd_ns",
    "results",  # steps whose result was seen
    "kept",  # tokens that those kept
)
HIST_KEPT = 33
HIST_FIRST_NS_LOG2, HIST_OCTAVES, HIST_PER_OCTAVE = 14, 21, 16  # from 16 microseconds to 34 s
HIST_PERIODS = HIST_OCTAVES * HIST_PER_OCTAVE + 2  # one below, one above
HIST_SLOT = struct.Struct(f"<{HIST_MODE}sqq{len(HIST_COUNTERS)}Q{HIST_KEPT}I{HIST_PERIODS}I")
HIST_SLOT_SIZE = (HIST_SLOT.size + 63) // 64 * 64
HIST_SLOTS = 256


def period_bucket(ns: int) -> int:
    """Which bucket of the histogram a period falls into: 16 to an octave, so that each is 4.4 % wide."""
    log = ns.bit_length() - 1
    if log < HIST_FIRST_NS_LOG2:
        return 0
    if log >= HIST_FIRST_NS_LOG2 + HIST_OCTAVES:
        return HIST_PERIODS - 1
    within = (ns >> (log - 4)) - HIST_PER_OCTAVE
    return 1 + (log - HIST_FIRST_NS_LOG2) * HIST_PER_OCTAVE + within


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The nanoseconds from which a bucket begins, and up to which it goes."""
    if bucket <= 0:
        return 0, 1 << HIST_FIRST_NS_LOG2
    octave, within = divmod(bucket - 1, HIST_PER_OCTAVE)
    base = 1 << (HIST_FIRST_NS_LOG2 + octave)
    if octave >= HIST_OCTAVES:
        return base, base
    step = base // HIST_PER_OCTAVE
    return base + within * step, base + (within + 1) * step
