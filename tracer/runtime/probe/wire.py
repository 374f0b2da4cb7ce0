"""The layout of trace files, shared by the recorder and the reader. Standard library only; all little-endian.

A process writes into one folder, under the name ``<pid>-<start>``:

``<name>.head``       fixed counters and the recorder's state, mapped into memory (``HEAD``)
``<name>.json``       what the process is: interpreter, command, sites attached and missing, rank
``<name>.<n>.seg``    segments of records, ``n`` counts from 0; the oldest are removed when the trace is full

A segment is self-contained: it defines each string, layout and signature before the first record that names it.
A record is complete when its first word holds the CRC-32 of its other bytes (1 where that is 0); that word is
written last, and zero bytes follow the newest record.
"""

from __future__ import annotations

import struct

VERSION = 1
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
ENTER, EXIT, RAISE, MARK = 1, 2, 3, 4
DEFINE_TEXT, DEFINE_LAYOUT, DEFINE_TENSOR, DEFINE_SIGNATURE = 16, 17, 18, 19
DEFINITIONS = (DEFINE_TEXT, DEFINE_LAYOUT, DEFINE_TENSOR, DEFINE_SIGNATURE)
KIND_NAMES = {ENTER: "enter", EXIT: "exit", RAISE: "raise", MARK: "mark"}

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
HEAD = struct.Struct("<8sII15Q")
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
    "reason",
)
HEAD_SIZE = 4096
ARMED, RECORDING, STOPPED, ENDED = 0, 1, 2, 3
STATE_NAMES = ("armed", "recording", "stopped", "ended")
MAX_REASON = 1024
