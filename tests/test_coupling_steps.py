"""Steps without drafts: what refuses them, what they leave behind, and who is called back in them."""

from __future__ import annotations

from test_coupling_severity import OWN, joined, severities

LOOP = """
    class EAGLEWorker:
        def draft(self):
            scores = []
            for i in range(self.speculative_num_steps):
                scores.append(self.step(i))
            return join(scores)

    def join(scores):
        return cat(scores)
"""
MADE = """
    class EAGLEWorker:
        def __init__(self, args):
            self.speculative_num_steps = args.speculative_num_steps
"""


def test_a_draft_loop_without_steps_joins_nothing_unless_the_release_has_such_a_step():
    parts = {"start": MADE, "worker": LOOP}
    assert severities("config_gate", "below one", **parts) == [{"v1": "hard", "v2": "hard"}]
    assert severities("config_gate", "below one", start=MADE, worker=LOOP + OWN) == []


def test_a_draft_loop_that_gives_its_lists_back():
    loop = (
        LOOP.replace("return join(scores)", "return scores")
        + """
    class Above:
        def run(self, worker: EAGLEWorker):
            return worker.draft()
"""
    )
    assert severities("config_gate", "below one", start=MADE, worker=loop) == [{"v1": "hard", "v2": "hard"}]
    once = loop.replace("for i in range(self.speculative_num_steps):", "for i in range(4):")
    assert severities("config_gate", "below one", start=MADE, worker=once) == []


def test_gates_of_the_changing_number_of_steps():
    start = """
        class ServerArgs:
            def check(self):
                if self.speculative_adaptive:
                    if why := refused(self):
                        raise ValueError(why)

        def refused(server_args: ServerArgs):
            if server_args.enable_two_batch_overlap:
                return "no two-batch overlap"
            return None

        class EAGLEWorker:
            def __init__(self, server_args: ServerArgs):
                if self.server_args.speculative_adaptive and refused(server_args) is None:
                    self.controller = AdaptiveController()
    """
    assert severities("config_gate", "changing number", start=start, worker=OWN) == [{"v1": "soft", "v2": "soft"}]
    assert severities("config_gate", "changing number", worker=OWN) == []


def test_a_controller_that_chooses_the_steps_again():
    own = """
        class AdaptiveSteps:
            def update(self, accepted):
                self.current = accepted + 1

        class EAGLEWorker:
            def told(self, accepted):
                self.steps.update(accepted)
    """
    assert severities("control_surface", "adaptive controller", worker=joined(own, OWN)) == [
        {"v1": "soft", "v2": "soft"}
    ]
    assert severities("control_surface", "adaptive controller", worker=own) == []
    plain = joined(own.replace("AdaptiveSteps", "Steps"), OWN)
    assert severities("control_surface", "adaptive controller", worker=plain) == []


def test_placeholders_as_draft_state():
    text = """
        class EAGLEWorkerV2:
            def stub(self, draft: EagleDraftInput, bs):
                draft.topk_p = torch.{made}

            def propose(self, draft: EagleDraftInput):
                return draft.topk_p
    """
    zeros, drafted = text.format(made="zeros((bs, 1))"), text.format(made="softmax(bs)")
    assert severities("draft_state", "constants", v2=zeros) == [{"v1": None, "v2": "soft"}]
    assert severities("draft_state", "constants", v2=drafted) == []


def test_a_callback_that_advances_the_grammar_before_the_mask_is_made():
    scheduler = """
        class Scheduler:
            def run(self, batch: ScheduleBatch):
                options = {{}}
                {guard}
                    options["barrier"] = self.advance
                return self.model_worker.forward_batch_generation(batch, **options)

            def advance(self):
                for req in self.reqs:
                    req.grammar.accept_token(req.token)
    """
    worker = """
        class EAGLEWorkerV2:
            def mask(self, batch: ScheduleBatch, barrier):
                barrier()
                return batch.sampling_info.vocab_mask
    """
    handed = scheduler.format(guard="if not batch.spec_algorithm.is_none():")
    always = scheduler.format(guard="if batch.reqs:")
    assert severities("grammar", "callback", scheduler=handed, v2=worker) == [{"v1": None, "v2": "hard"}]
    assert severities("grammar", "callback", scheduler=always, v2=worker) == []


def test_a_draft_extend_of_fixed_width_blocks_only_the_path_that_has_it():
    fixed = """
        class EagleDraftWorker:
            def widen(self, batch: ModelWorkerBatch):
                batch.seq_lens = batch.seq_lens + self.speculative_num_draft_tokens
                batch.forward_mode = ForwardMode.DRAFT_EXTEND

            def extend(self, batch: ModelWorkerBatch):
                self.widen(batch)
    """
    counted = fixed.replace("self.speculative_num_draft_tokens", "batch.spec_info.accept_length")
    counted = counted.replace("widen", "grow").replace("def extend", "def lengthen")
    assert severities("draft_state", "fixed number", v1=counted, v2=fixed) == [{"v1": None, "v2": "hard"}]
    assert severities("draft_state", "fixed number", v1=counted) == []


def test_a_planning_stream_that_each_stage_joins():
    text = """
        class EAGLEWorkerV2:
            def __init__(self):
                self.plan_stream, self.plan_stream_ctx = make_stream()

            def verify(self, batch: ScheduleBatch):
                with self.plan_stream_ctx:
                    self.prepare(batch)
    """
    join = text + "            current_stream().wait_stream(self.plan_stream)\n"
    assert severities("stream_order", "planned", v2=join) == [{"v1": None, "v2": "none"}]
    assert severities("stream_order", "planned", v2=text) == [{"v1": None, "v2": "soft"}]


def test_a_condition_on_either_mode_treats_a_verify_as_a_decode():
    mode = """
        class ForwardMode(IntEnum):
            DECODE = auto()
            TARGET_VERIFY = auto()

            def is_decode(self):
                return self == ForwardMode.DECODE

            def is_target_verify(self):
                return self == ForwardMode.TARGET_VERIFY
    """
    worker = """
        class EAGLEWorker:
            def verify(self, batch: ScheduleBatch):
                batch.forward_mode = ForwardMode.TARGET_VERIFY
    """
    target = """
        class LogitsProcessor:
            def keep(self, forward_batch: ForwardBatch):
                if forward_batch.forward_mode.is_decode(){more}:
                    return self.all_rows
    """
    either = target.format(more=" or forward_batch.forward_mode.is_target_verify()")
    assert severities("forward_mode", "treated", start=mode, worker=worker, target=either) == [
        {"v1": "none", "v2": "none"}
    ]
    assert severities("forward_mode", "treated", start=mode, worker=worker, target=target.format(more="")) == []


def test_widths_bind_the_path_whose_tokens_are_cut_by_them():
    start = """
        class ServerArgs:
            def choose(self):
                if self.speculative_algorithm is not None:
                    self.speculative_num_draft_tokens = self.speculative_num_steps + 1
    """
    worker = """
        class EAGLEWorker:
            def draft(self):
                return self.speculative_num_draft_tokens
    """
    cut = """
        class Processor:
            def cut(self, result: GenerationBatchResult):
                n = result.speculative_num_draft_tokens
                ids = result.next_token_ids.tolist()
                return [ids[i * n : i * n + 1] for i in range(4)]
    """
    assert severities("config_gate", "widths are checked", start=start, worker=worker, before=cut) == [
        {"v1": "soft", "v2": "soft"}
    ]
    assert severities("config_gate", "widths are checked", start=start, worker=worker) == [{"v1": "none", "v2": "none"}]
