"""What forks do that switch speculation off above a batch size, on the path without overlap.

Each is a patch of a release, as a fork would carry it: an argument, the switch in the scheduler, and the worker chosen by
the batch. They differ in how a batch comes back, and in what they forget.
"""

from __future__ import annotations

from ..checks import About, every, found, gone, most_gone, off_step, path_stays
from ..registry import Copy, edit

SWITCH = "Scheduler._switch_speculation"
PLAIN_BLOCK = About("out_cache_loc", ends=("ScheduleBatch.prepare_for_decode",))

OFF = """            batch.spec_algorithm = SpeculativeAlgorithm.NONE
            batch.spec_info = None
            batch.output_ids = torch.tensor(
                [req.output_ids[-1] for req in batch.reqs],
                dtype=torch.int64,
                device=batch.device,
            )
"""
REQUEUE = """            reqs = list(batch.reqs)
            for i, req in enumerate(reqs):
                batch.release_req(i, len(reqs) - i, self.server_args)
            batch.filter_batch(keep_indices=[])
            for req in reqs:
                self._add_request_to_queue(req, is_retracted=True)
"""


def switch(copy: Copy, off: str = OFF, on: str = REQUEUE, decides: str = "batch.batch_size() > limit") -> None:
    """The fork: ``off`` is run when a batch leaves speculation, ``on`` when it comes back."""
    copy.replace(
        "server_args.py",
        (
            "    speculative_num_draft_tokens: Optional[int] = None\n",
            "    speculative_num_draft_tokens: Optional[int] = None\n"
            "    speculative_off_batch_size: Optional[int] = None\n",
        ),
        (
            '            "--speculative-num-draft-tokens",\n',
            """            "--speculative-off-batch-size",
            type=int,
            help="Decode without drafts above this many running requests.",
            default=ServerArgs.speculative_off_batch_size,
        )
        parser.add_argument(
            "--speculative-num-draft-tokens",
""",
        ),
    )
    copy.replace(
        "managers/scheduler.py",
        (
            "            batch.batch_is_full = False\n            return batch\n\n        # Check if decode out of memory\n",
            """            batch.batch_is_full = False
            return batch

        self._switch_speculation(batch)
        if batch.is_empty():
            batch.batch_is_full = False
            return batch

        # Check if decode out of memory
""",
        ),
        (
            "    def run_batch(\n",
            f"""    def _switch_speculation(self, batch: ScheduleBatch) -> None:
        limit = self.server_args.speculative_off_batch_size
        if limit is None or self.enable_overlap or self.spec_algorithm.is_none():
            return
        off = {decides}
        if off and not batch.spec_algorithm.is_none():
{off}        elif not off and batch.spec_algorithm.is_none():
{on}
    def run_batch(
""",
        ),
        (
            "            if self.enable_overlap or self.spec_algorithm.is_none():\n",
            "            if self.enable_overlap or batch.spec_algorithm.is_none():\n",
        ),
        (
            "            else:\n                batch_result = self.model_worker.forward_batch_generation(\n",
            """            else:
                worker = (
                    self.tp_worker
                    if batch.spec_algorithm.is_none()
                    else self.model_worker
                )
                batch_result = worker.forward_batch_generation(
""",
        ),
        after="    def update_running_batch(self, batch",
    )


def no_graph_for_plain_decode(copy: Copy) -> None:
    """A batch that left speculation decodes eagerly in the target, whose graphs are verify's."""
    copy.replace(
        "model_executor/model_runner.py",
        (
            "        can_run_graph = bool(\n            mode_check()\n",
            """        left_speculation = (
            forward_batch.forward_mode.is_decode()
            and forward_batch.spec_algorithm.is_none()
            and not self.spec_algorithm.is_none()
        )
        can_run_graph = bool(
            mode_check()
            and not left_speculation
""",
        ),
        after="    def _forward_raw(",
    )


@edit(
    "0.5.5",
    "removed",
    every(
        off_step("batch size", "v1", "managers/scheduler.py"),
        gone("plain block", PLAIN_BLOCK, "v1", "A"),
        gone("draft state", About("topk_p", ends=("EAGLEWorker.draft_forward",)), "v1", "A"),
        most_gone("the fork's own off step", "v1", "A", 0.25),
        path_stays("v2"),
    ),
)
def fork_that_queues_again(copy: Copy) -> None:
    """Above a batch size a batch has no algorithm; requests that come back are prefilled again, by target and draft."""
    switch(copy)
    no_graph_for_plain_decode(copy)


@edit(
    "0.5.5",
    "removed",
    every(
        gone("plain block", PLAIN_BLOCK, "v1", "A"),
        found(
            "verify's graphs", About(words=("num_tokens_per_bs",), ends=("CudaGraphRunner.replay_prepare",)), "v1", "A"
        ),
        path_stays("v2"),
    ),
)
def fork_that_forgets_the_graphs(copy: Copy) -> None:
    """The same fork without a word on graphs: its plain decode replays those captured for verify."""
    switch(copy)


@edit(
    "0.5.5",
    "added",
    every(
        off_step("clock", "v1", "managers/scheduler.py"),
        found("ranks that decide by their own clocks", About(words=("perf_counter",), either=(SWITCH,)), "v1", "A"),
        path_stays("v2"),
    ),
)
def fork_that_switches_by_the_clock(copy: Copy) -> None:
    """Each rank takes the decision by the time since its own last batch: ranks may differ, and then wait for ever."""
    switch(copy, decides="time.perf_counter() - self.last_switch_tic < 0.002 * limit")
    no_graph_for_plain_decode(copy)
    copy.replace(
        "managers/scheduler.py",
        (
            "        self._switch_speculation(batch)\n",
            "        self._switch_speculation(batch)\n        self.last_switch_tic = time.perf_counter()\n",
        ),
    )
    copy.replace(
        "managers/scheduler.py",
        ("        self.spec_algorithm = ", "        self.last_switch_tic = 0.0\n        self.spec_algorithm = "),
    )


KEEPS_OFF = OFF.replace(
    "            batch.spec_info = None\n",
    "            batch.draft_aside = batch.spec_info\n            batch.spec_info = None\n",
)
KEEPS_ON = """            batch.spec_algorithm = self.spec_algorithm
            batch.spec_info = batch.draft_aside
            batch.draft_aside = None
"""


def _keeps(copy: Copy, off: str) -> None:
    switch(copy, off, KEEPS_ON)
    no_graph_for_plain_decode(copy)
    copy.replace(
        "managers/schedule_batch.py",
        (
            "    spec_algorithm: SpeculativeAlgorithm = None\n",
            "    spec_algorithm: SpeculativeAlgorithm = None\n    draft_aside: Optional[SpecInput] = None\n",
        ),
        after="class ScheduleBatch(",
    )


@edit(
    "0.5.4.post3",
    "removed",
    every(
        off_step("batch size", "v1", "managers/scheduler.py"),
        gone("plain block", PLAIN_BLOCK, "v1", "A"),
        found("newest token", About("verified_id", either=("EAGLEWorker.draft",)), "v1", "A"),
        path_stays("v2"),
    ),
)
def fork_that_keeps_the_draft_state(copy: Copy) -> None:
    """A batch that comes back drafts from the state it left with: the plain block is fine, the next draft is not."""
    _keeps(copy, KEEPS_OFF)


@edit(
    "0.5.4.post3",
    "removed",
    every(
        gone("plain block", PLAIN_BLOCK, "v1", "A"),
        found("tokens of the last verify", About("output_ids", ends=("ScheduleBatch.prepare_for_decode",)), "v1", "A"),
        path_stays("v2"),
    ),
)
def fork_that_forgets_the_tokens(copy: Copy) -> None:
    """The first plain step takes all tokens that the last verify accepted for the newest of each request."""
    _keeps(copy, KEEPS_OFF[: KEEPS_OFF.index("            batch.output_ids")])
