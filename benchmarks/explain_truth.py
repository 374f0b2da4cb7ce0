"""How often `sgltrace explain` says what a release's own argument handling does.

    python benchmarks/explain_truth.py record [RELEASES]     # asks the releases, writes fixtures/explain/answers.json
    python benchmarks/explain_truth.py score [RELEASES] [--only TEXT] [--jobs 2]

The answers were recorded before the tool was asked: each release handles each command itself, in a process of its own,
what is heavy (PyTorch, CUDA, the model's files) faked; see explain_asker.py. RELEASES is a folder that holds one for
each release with `sglang/` in it; without it releases are fetched by pip. A command is right where worker, path, the
watched values (decided, or one of the few that facts outside the command leave) and the error (its class and its text)
all are. The share is printed for each, by release.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

FEW = 11
HERE = Path(__file__).parent
ANSWERS = HERE.parent / "fixtures" / "explain" / "answers.json"
RELEASES = ("0.5.4.post3", "0.5.6.post2", "0.5.9", "0.5.12.post1", "0.5.14", "0.5.21", "0.5.23")
GPU = [9, 0, 143771]
GPU_NAME = "h200"
MODELS: dict[str, dict[str, Any]] = {
    "llama": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 131072,
        "intermediate_size": 14336, "torch_dtype": "bfloat16", "rope_theta": 500000.0, "head_dim": 128,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "num_hidden_layers": 36, "vocab_size": 151936, "max_position_embeddings": 40960,
        "intermediate_size": 12288, "torch_dtype": "bfloat16", "head_dim": 128,
    },
    "hybrid": {
        "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 2, "num_hidden_layers": 48, "vocab_size": 151936,
        "max_position_embeddings": 262144, "intermediate_size": 5120, "torch_dtype": "bfloat16", "head_dim": 256,
        "full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
    },
    "mimo": {
        "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "hidden_size": 4096,
        "num_attention_heads": 64, "num_key_value_heads": 4, "num_hidden_layers": 48, "vocab_size": 152576,
        "max_position_embeddings": 262144, "intermediate_size": 16384, "torch_dtype": "bfloat16", "head_dim": 192,
        "v_head_dim": 128, "hybrid_layer_pattern": [0, 1] * 24, "swa_num_attention_heads": 64,
        "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window_size": 128,
    },
}  # fmt: skip
STANDALONE = "--speculative-algorithm STANDALONE --speculative-draft-model-path d"
EAGLE3 = "--speculative-algorithm EAGLE3 --speculative-draft-model-path d"
NUMBERS = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
TREE = "--speculative-num-steps 5 --speculative-eagle-topk 8 --speculative-num-draft-tokens 64"
V2 = "SGLANG_ENABLE_SPEC_V2=True"
COMMANDS = [
    ("llama", ""),
    ("llama", "--tp 4 --mem-fraction-static 0.8"),
    ("llama", f"{EAGLE3} {NUMBERS}"),
    ("llama", f"{V2} {EAGLE3} {NUMBERS}"),
    ("llama", f"{EAGLE3} {TREE}"),
    ("llama", f"{V2} {EAGLE3} {TREE}"),
    ("llama", EAGLE3),
    ("qwen3", f"{V2} {EAGLE3}"),
    ("llama", f"{EAGLE3} --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 8"),
    ("llama", f"{EAGLE3} --speculative-num-steps 3 --speculative-eagle-topk 1"),
    ("llama", f"{EAGLE3} --speculative-num-steps 3"),
    ("llama", f"{EAGLE3} --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"),
    ("llama", f"{EAGLE3} {TREE} --page-size 16 --attention-backend triton"),
    ("llama", f"{EAGLE3} {TREE} --page-size 16 --attention-backend flashinfer"),
    ("llama", f"{EAGLE3} {NUMBERS} --page-size 64 --attention-backend fa3"),
    ("llama", f"{EAGLE3} {NUMBERS} --tp 8 --dp 8 --enable-dp-attention"),
    ("llama", f"{EAGLE3} {NUMBERS} --tp 8 --dp 2"),
    ("llama", f"{EAGLE3} {NUMBERS} --enable-mixed-chunk --max-running-requests 16"),
    ("llama", f"{EAGLE3} {NUMBERS} --disable-overlap-schedule"),
    ("llama", f"{EAGLE3} {NUMBERS} --pp-size 2"),
    ("llama", f"{V2} {EAGLE3} {NUMBERS} --pp-size 2 --disable-overlap-schedule"),
    ("llama", f"{EAGLE3} {NUMBERS} --enable-lora --max-lora-rank 64 --lora-target-modules q_proj"),
    ("llama", f"--speculative-algorithm NEXTN {NUMBERS}"),
    ("llama", "--speculative-algorithm NGRAM"),
    ("llama", "--speculative-algorithm NGRAM --speculative-num-draft-tokens 16"),
    ("llama", "--speculative-algorithm NGRAM --tp 4 --dp 4 --enable-dp-attention"),
    ("llama", "--speculative-algorithm NGRAM --page-size 16 --attention-backend triton"),
    ("llama", f"{STANDALONE} {NUMBERS}"),
    ("llama", f"{V2} {STANDALONE} {NUMBERS}"),
    (
        "llama",
        f"{STANDALONE} {NUMBERS} --tp 2 --dp 2 --enable-dp-attention",
    ),
    ("llama", f"{EAGLE3} {NUMBERS} --enable-multi-layer-eagle"),
    ("mimo", f"{V2} --speculative-algorithm EAGLE {NUMBERS} --enable-multi-layer-eagle"),
    ("llama", f"{EAGLE3} --speculative-adaptive"),
    ("llama", f"{EAGLE3} {TREE} --speculative-adaptive"),
    ("llama", f"{EAGLE3} --speculative-adaptive --speculative-num-steps 4"),
    ("llama", "--speculative-algorithm NGRAM --speculative-adaptive"),
    ("hybrid", f"--speculative-algorithm NEXTN {NUMBERS}"),
    ("hybrid", f"{V2} --speculative-algorithm NEXTN {NUMBERS} --mamba-scheduler-strategy extra_buffer"),
    ("hybrid", "--disable-radix-cache"),
    ("llama", f"--speculative-algorithm DFLASH --speculative-draft-model-path d {NUMBERS}"),
    ("llama", "--speculative-algorithm NOPE"),
    ("llama", f"{EAGLE3} {NUMBERS} --attention-backend trtllm_mha"),
    ("llama", f"{EAGLE3} {NUMBERS} --disaggregation-mode prefill"),
    ("llama", "--chunked-prefill-size 100 --page-size 64"),
]
WATCHED = (
    "max_running_requests", "page_size", "disable_overlap_schedule", "enable_mixed_chunk", "chunked_prefill_size",
    "disable_radix_cache", "tp_size", "dp_size", "pp_size", "enable_dp_attention", "schedule_conservativeness",
    "attention_backend", "sampling_backend", "disable_cuda_graph", "mamba_scheduler_strategy",
    "enable_multi_layer_eagle",
)  # fmt: skip


def parsed(line: str) -> tuple[dict[str, str], list[str]]:
    """Variables and arguments of a line."""
    words = line.split()
    variables = {w.partition("=")[0]: w.partition("=")[2] for w in words if w.split("=")[0].isupper() and "=" in w}
    return variables, ["--model-path", "m", *(w for w in words if w.partition("=")[0] not in variables)]


def release_folder(version: str, folder: Path | None) -> Path:
    """A folder that holds the release's ``sglang/``."""
    if folder is not None and (folder / version / "sglang").is_dir():
        return folder / version
    place = Path(tempfile.gettempdir()) / "sgltrace-releases" / version
    if not (place / "sglang").is_dir():
        place.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--platform",
                   "manylinux_2_34_x86_64", "--python-version", "3.11", "-d", str(place),
                   f"sglang=={version}"]  # fmt: skip
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
            wheel.extractall(place)
    return place


def path_of(worker: str | None, argv: list[str]) -> str:
    """v1, v2, other or none, by the worker's name as people call it."""
    if worker is None:
        return "none"
    if not any(word in worker for word in ("EAGLE", "Eagle", "Standalone")):
        return "other"
    return "v2" if worker.endswith("V2") else "v1"


def record(folder: Path | None) -> None:
    """Ask every release for every command."""
    answers = json.loads(ANSWERS.read_text("utf-8")) if ANSWERS.exists() else []
    for version in RELEASES:
        if any(answer["release"] == version for answer in answers):
            continue  # recorded before; remove the file to record anew
        root = release_folder(version, folder)
        commands = []
        for model, line in COMMANDS:
            variables, argv = parsed(line)
            commands.append({"env": variables, "argv": argv, "model": MODELS[model]})
        asked = json.dumps({"gpu": GPU, "commands": commands})
        run = subprocess.run(
            [sys.executable, str(HERE / "explain_asker.py"), str(root)],
            input=asked,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise SystemExit(f"{version}: {run.stderr[-2000:]}")
        for (model, line), answer in zip(COMMANDS, json.loads(run.stdout), strict=True):
            if "broken" in answer:
                print(f"{version} {line}: not recorded: {answer['broken'].strip().splitlines()[-1]}", file=sys.stderr)
                continue
            kept = {k: v for k, v in answer["values"].items() if k in WATCHED or k.startswith("speculative")}
            answers.append({
                "release": version, "model": model, "command": line, "worker": answer["worker"],
                "path": None if answer["error"] else path_of(answer["worker"], []),
                "overlap": answer["overlap"], "values": kept, "error": answer["error"],
            })  # fmt: skip
        print(f"{version}: {sum(a['release'] == version for a in answers)} answers", file=sys.stderr)
        ANSWERS.parent.mkdir(parents=True, exist_ok=True)
        ANSWERS.write_text(json.dumps(answers, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def judge(case: dict[str, Any], root: str) -> dict[str, Any]:
    """Ask the tool, and compare."""
    from sgltrace.explain.command import Command
    from sgltrace.explain.explain import explain, make_inputs
    from sgltrace.files import user_cache_dir
    from sgltrace.progress import SilentProgress
    from sgltrace.sources import open_source

    variables, argv = parsed(case["command"])
    with tempfile.NamedTemporaryFile("w", suffix=".json") as stream:
        json.dump(MODELS[case["model"]], stream)
        stream.flush()
        inputs = make_inputs([], Path(stream.name), GPU_NAME)
    tree = open_source(root, cache_dir=user_cache_dir(), progress=SilentProgress())
    answer = explain(tree, Command(variables, ("python", "-m", "sglang.launch_server"), tuple(argv)), inputs)
    error, said = case["error"], answer.error
    verdict: dict[str, Any] = {
        "error": (error is None and said is None)
        or (error is not None and said is not None and error["exception"] == said.exception
            and (error["exception"] == "SystemExit" or error["message"] == said.message)),
    }  # fmt: skip
    if error is None:
        verdict["worker"] = case["worker"] == answer.worker
        verdict["path"] = case["path"] == answer.path
        wrong = {
            name: (value, answer.values.get(name, answer.open.get(name)))
            for name, value in case["values"].items()
            if answer.values.get(name, answer) != value
            and not (name in answer.open and value in answer.open[name].one_of)  # a two-way answer that has it
        }
        verdict["values"] = not wrong
        verdict["wrong"] = {name: f"{a!r} not {b!r}" for name, (a, b) in wrong.items()}
    verdict["said"] = f"{said.exception}: {said.message[:200]} ({said.function}:{said.line})" if said else answer.worker
    return verdict


def verdicts(cases: list[dict[str, Any]], roots: dict[str, str], jobs: int) -> Iterator[dict[str, Any]]:
    """Ask a few commands of each process: what releases' modules are evaluated to would fill the memory of one."""
    for start in range(0, len(cases), FEW * jobs):
        part = cases[start : start + FEW * jobs]
        with ProcessPoolExecutor(jobs) as pool:
            yield from pool.map(judge, part, [roots[c["release"]] for c in part])


def score(folder: Path | None, only: str, jobs: int) -> None:
    """Compare the tool with the answers."""
    cases = [c for c in json.loads(ANSWERS.read_text("utf-8")) if only in f"{c['release']} {c['command']}"]
    roots = {version: str(release_folder(version, folder)) for version in {c["release"] for c in cases}}
    totals: dict[str, list[int]] = {}
    for case, verdict in zip(cases, verdicts(cases, roots, jobs), strict=True):
        parts = {k: v for k, v in verdict.items() if isinstance(v, bool)}
        parts["all"] = all(parts.values())
        for name, right in parts.items():
            for key in (name, f"{case['release']} {name}"):
                counts = totals.setdefault(key, [0, 0])
                counts[0] += right
                counts[1] += 1
        if not parts["all"]:
            wanted = case["error"] and f"{case['error']['exception']}: {case['error']['message'][:200]}"
            print(
                f"{case['release']} {case['command']}\n   truth {wanted or case['worker']}\n   said  {verdict['said']}"
            )
            for name, text in verdict.get("wrong", {}).items():
                print(f"   {name}: {text[:160]}")
        print(f"{case['release']}: {totals['all'][1]} of {len(cases)}", file=sys.stderr, flush=True)
        sys.stdout.flush()
    for name, (right, number) in sorted(totals.items()):
        print(f"{name:24} {right}/{number} = {right / number:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "score"])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    if args.what == "record":
        record(args.folder)
    else:
        score(args.folder, args.only, args.jobs)


if __name__ == "__main__":
    main()
