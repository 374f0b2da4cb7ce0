"""Steps without drafts: what refuses them, what they leave behind, and who is called back in them."""

from __future__ import annotations

from test_coupling_severity import severities

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
OWN = """
    class EAGLEWorker:
        def forward_batch_generation(self, batch: ScheduleBatch):
            if self.speculative_num_steps == 0:
                return self.trivial(batch)
            return self.draft()
"""


def test_a_draft_loop_without_steps_joins_nothing_unless_the_release_has_such_a_step():
    parts = {"start": MADE, "worker": LOOP}
    assert severities("config_gate", "below one", **parts) == [{"v1": "hard", "v2": "hard"}]
    assert severities("config_gate", "below one", start=MADE, worker=LOOP + OWN) == []


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
    assert severities("control_surface", "adaptive controller", worker=own) == [{"v1": "soft", "v2": "soft"}]
    plain = own.replace("AdaptiveSteps", "Steps")
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
