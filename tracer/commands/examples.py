"""An example for each command: what its ``--help`` ends with, and what the documentation shows."""

from __future__ import annotations

import typer

LAUNCH = "python -m sglang.launch_server --model-path M --speculative-algorithm EAGLE3"
EXAMPLES = {
    "index": "sgltrace index sglang==0.5.9",
    "report": "sgltrace report --open",
    "export": "sgltrace export sarif -o points.sarif",
    "calls": "sgltrace calls EAGLEWorkerV2.verify",
    "callers": "sgltrace callers prepare_for_decode",
    "path": "sgltrace path Scheduler.event_loop_overlap ModelRunner.forward",
    "field": "sgltrace field ScheduleBatch.out_cache_loc --path v2",
    "contract": "sgltrace contract --path v2",
    "points": "sgltrace points --path v2 --design B --severity hard",
    "explain": f"sgltrace explain sglang==0.5.9 -- {LAUNCH}",
    "compare": "sgltrace compare runs/plain runs/eagle3 -o compare.html",
    "plan": "sgltrace plan --path v2 --design B",
    "impact": "sgltrace impact change.diff --source sglang==0.5.9",
    "watch": "sgltrace watch ~/sglang",
    "whatif": "sgltrace whatif -o off --pattern 'off after 10' -- python decode.py",
    "verify": "sgltrace verify runs/eagle3",
    "merge": "sgltrace merge runs/node0 runs/node1 -o runs/all",
    "schema": "sgltrace schema index",
    "run": f"sgltrace run -o runs/eagle3 -- {LAUNCH}",
    "doctor": f"sgltrace doctor -- {LAUNCH}",
    "show": "sgltrace show runs/eagle3 --batch 8 --mode decode --last 20",
    "ctl": "sgltrace ctl runs/eagle3 window 50 --when 'batch>=8'",
}


def add_examples(app: typer.Typer) -> None:
    """Put each command's example under its help."""
    for command in app.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        if name in EXAMPLES:
            command.epilog = f"Example: {EXAMPLES[name]}"
