"""Run by explain_truth.py in a process of its own: a release's own argument handling, what is heavy faked.

    python explain_asker.py ROOT < {"commands": [{"env": {}, "argv": []}], "model": {...}, "gpu": [9, 0, MiB]}

Modules that are not installed are stand-ins: any name in them is a class, any call gives an instance, a decorator gives
back what it decorates. The GPU and the model's config are given. For each command a child forks, handles the arguments,
asks the scheduler's own code for the class of the worker, and says what came of it.
"""

from __future__ import annotations

import abc
import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import traceback
import types
from contextlib import redirect_stderr, redirect_stdout
from typing import Any


class Meta(abc.ABCMeta):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in ("__class_validators__", "__func__"):
            raise AttributeError(name)
        made = Meta(name, (Stub,), {})
        type.__setattr__(cls, name, made)
        return made

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], (types.FunctionType, type)) and cls.__module__ == __name__:
            return args[0]
        return super().__call__(*args, **keywords)

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def register(cls, *_: Any, **__: Any) -> Any:
        return lambda decorated: decorated

    def __setitem__(cls, *_: Any) -> None:
        pass

    def __contains__(cls, _: Any) -> bool:
        return False

    def __int__(cls) -> int:
        return 0

    def __lt__(cls, other: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def _arithmetic(cls, *_: Any) -> Any:
        return Stub()

    __neg__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __and__ = __pow__ = (
        _arithmetic
    )

    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(cls, instance)


class Stub(str, metaclass=Meta):
    def __new__(cls, *_: Any, **__: Any) -> Any:
        return str.__new__(cls, "stub")

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Stub()

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if len(args) == 1 and not keywords and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return Stub()

    def __iter__(self) -> Any:
        return iter(())

    def __getitem__(self, _: Any) -> Any:
        return Stub()

    def __setitem__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __lt__(self, _: Any) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def _arithmetic(self, *_: Any) -> Any:
        return Stub()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = _arithmetic
    __neg__ = __or__ = __ror__ = __and__ = __pow__ = _arithmetic


class StubModule(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012
    __version__ = "99.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if full in sys.modules:
            return sys.modules[full]
        made = Meta(name, (Stub,), {})
        setattr(self, name, made)
        return made


ABSENT = {
    "torch_npu", "habana_frameworks", "torch_musa", "vllm", "mlx", "sgl_kernel_npu", "ray", "modelscope", "deep_ep",
    "mooncake", "flashinfer_cubin", "torch_memory_saver", "lmcache", "aiter", "sgl_router", "nixl",
}  # fmt: skip


REAL = {"msgspec", "packaging", "yaml", "typing_extensions"}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        top = name.partition(".")[0]
        if top in ABSENT or top in REAL or top == "sglang" or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return StubModule(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def set_up_torch(gpu: list[int]) -> None:
    import torch

    major, minor, memory = gpu
    torch.__version__ = "2.9.1+cu129"
    torch.version = types.SimpleNamespace(cuda="12.9", hip=None, xpu=None, musa=None)
    properties = types.SimpleNamespace(
        total_memory=memory << 20, multi_processor_count=132, name="NVIDIA", major=major, minor=minor
    )
    torch.cuda = StubModule("torch.cuda")
    sys.modules["torch.cuda"] = torch.cuda
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.get_device_capability = lambda *_: (major, minor)
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.get_device_name = lambda *_: "NVIDIA"
    torch.cuda.current_device = lambda: 0
    torch.cuda._get_nvml_device_index = lambda *_: 0
    torch.cuda.mem_get_info = lambda *_: (memory << 20, memory << 20)
    torch.backends = types.SimpleNamespace(
        mps=types.SimpleNamespace(is_available=lambda: False),
        cudnn=types.SimpleNamespace(version=lambda: 91600),
        cuda=Stub(),
    )
    for name in ("xpu", "hpu", "npu", "musa", "mps"):
        module = StubModule(f"torch.{name}")
        module.is_available = lambda: False
        setattr(torch, name, module)
        sys.modules[f"torch.{name}"] = module
    for name in ("hpu", "npu", "musa"):
        delattr(torch, name)
        torch.__dict__.pop(name, None)

    class Torch(StubModule):
        def __getattr__(self, name: str) -> Any:
            if name in ("hpu", "npu", "musa"):
                raise AttributeError(name)
            return super().__getattr__(name)

    torch.__class__ = Torch
    import subprocess

    real = subprocess.run

    def run(words: Any, *args: Any, **keywords: Any) -> Any:
        if words and words[0] == "nvidia-smi":
            return types.SimpleNamespace(returncode=0, stdout=f"{memory}\n" * 8, stderr="")
        return real(words, *args, **keywords)

    subprocess.run = run
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlDeviceGetCudaComputeCapability = lambda *_: (major, minor)
    pynvml.nvmlDeviceGetMemoryInfo = lambda *_: types.SimpleNamespace(total=memory << 20, free=memory << 20, used=0)


class Config:
    """A model's config, as transformers would give it."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(
            {k: Config(v) if isinstance(v, dict) and k.endswith("_config") else v for k, v in values.items()}
        )
        for name, value in {"auto_map": {}, "is_encoder_decoder": False, "tie_word_embeddings": False,
                            "name_or_path": "", "torch_dtype": None, "dtype": None}.items():  # fmt: skip
            self.__dict__.setdefault(name, value)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def get_text_config(self, *_: Any, **__: Any) -> Any:
        return self.__dict__.get("text_config", self)

    def update(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def set_up_model(values: dict[str, Any]) -> None:
    """What a model's files would say. The class that sums them up is too entangled to run: its config alone is real."""
    import transformers

    transformers.AutoConfig.from_pretrained = staticmethod(lambda *_, **__: Config(values))
    transformers.PretrainedConfig.get_config_dict = staticmethod(lambda *_, **__: (dict(values), {}))
    from sglang.srt.configs import model_config

    def made(self: Any, *args: Any, **keywords: Any) -> None:
        config = Config(values)
        self.hf_config = self.hf_text_config = config
        self.model_path = args[0] if args else keywords.get("model_path")
        self.attention_arch = (
            model_config.AttentionArch.MLA if "kv_lora_rank" in values else model_config.AttentionArch.MHA
        )
        for name in ("is_multimodal", "is_encoder_decoder", "is_hybrid", "is_hybrid_swa", "is_local_attention_model",
                     "is_matryoshka", "is_embedding", "has_attention_sinks", "is_multimodal_gen"):  # fmt: skip
            setattr(self, name, False)
        self.is_generation = True
        self.context_len, self.hidden_size, self.num_hidden_layers = 8192, 4096, values.get("num_hidden_layers", 32)
        self.num_attention_heads, self.num_key_value_heads, self.head_dim = 32, 8, 128
        self.quantization = keywords.get("quantization")
        self.dtype, self.vocab_size = Stub(), 128256
        self.sliding_window_size = None

    model_config.ModelConfig.__init__ = made
    missing = lambda self, name: (_ for _ in ()).throw(AttributeError(name)) if name.startswith("__") else None  # noqa: E731
    model_config.ModelConfig.__getattr__ = missing


def plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "__dict__") and vars(value) and not isinstance(value, (type, Stub)):
        return {key: plain(item) for key, item in vars(value).items() if not key.startswith("_")}
    return repr(value)


def handle(command: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(command["env"])
    answer: dict[str, Any] = {"worker": None, "overlap": None, "values": {}, "error": None}
    try:
        from sglang.srt.server_args import prepare_server_args

        record = prepare_server_args(list(command["argv"]))
        for name in ("resolve_once", "check_server_args"):
            if hasattr(record, name):
                getattr(record, name)()
        if hasattr(record, "resolved_dict"):
            answer["values"] = plain(record.resolved_dict())
        else:
            answer["values"] = plain({f.name: getattr(record, f.name) for f in dataclasses.fields(record)})
        answer["worker"], answer["overlap"] = worker(record, answer["values"])
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/sglang/" in f.filename]
        last = frames[-1] if frames else None
        answer["error"] = {
            "exception": type(error).__name__,
            "message": str(error),
            "function": last.name if last else "",
            "line": last.lineno if last else 0,
        }
    return answer


def worker(record: Any, values: dict[str, Any]) -> tuple[str | None, bool]:
    """The class that the scheduler's choice gives, without an instance of it."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    overlap = not values["disable_overlap_schedule"]
    algorithm = SpeculativeAlgorithm.from_string(values["speculative_algorithm"])
    if algorithm.is_none():
        return None, overlap
    # The workers' own modules are too heavy to import; which class the choice imports is what counts.

    class Watch(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
            if ".speculative." in name and name.endswith(("worker", "worker_v2")):
                return importlib.machinery.ModuleSpec(name, Finder())
            return None

    for name in [n for n in sys.modules if ".speculative." in n and n.endswith(("worker", "worker_v2"))]:
        del sys.modules[name]
    sys.meta_path.insert(0, Watch())
    if hasattr(algorithm, "create_worker"):
        return algorithm.create_worker(record).__name__, overlap
    made = algorithm.create_draft_worker(  # it makes an instance, of a stand-in here
        enable_overlap=overlap, gpu_id=0, tp_rank=0, moe_ep_rank=0, server_args=record, nccl_port=0, target_worker=None,
        dp_rank=None,
    )  # fmt: skip
    return type(made).__name__, overlap


def main() -> None:
    asked = json.load(sys.stdin)
    sys.path.insert(0, sys.argv[1])
    sys.meta_path.insert(0, Finder())
    out = sys.stdout
    quiet = io.StringIO()
    with redirect_stdout(quiet), redirect_stderr(quiet):
        set_up_torch(asked["gpu"])
        import sglang.srt.server_args  # noqa: F401
    answers = []
    for command in asked["commands"]:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            with redirect_stdout(quiet), redirect_stderr(quiet):
                try:
                    set_up_model(command["model"])
                    answer = handle(command)
                except BaseException:
                    answer = {"broken": traceback.format_exc()}
            with os.fdopen(write, "w") as stream:
                json.dump(answer, stream, default=repr)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as stream:
            text = stream.read()
        os.waitpid(child, 0)
        answers.append(json.loads(text) if text else {"broken": "the process died"})
    json.dump(answers, out)


if __name__ == "__main__":
    main()
