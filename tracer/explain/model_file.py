"""A model's ``config.json`` as the source sees it through the library that reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sgltrace.errors import InputError
from sgltrace.evaluate import Unknown
from sgltrace.evaluate.functions import Partial


class ModelFile(Partial):
    """A model's configuration: the file's keys as attributes; what the file lacks is not there."""

    def __init__(self, values: dict[str, Any], name: str = "model config") -> None:
        self.__dict__.update({key: _nested(value, f"{name}.{key}") for key, value in values.items()})
        self.__dict__.setdefault("architectures", None)
        self.__dict__["_values"] = values
        self.__dict__["partial_name"] = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _COMMON:
            return _COMMON[name]
        raise AttributeError(f"the model's config has no {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """The file's contents."""
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_")}

    def get_text_config(self, *_: Any, **__: Any) -> Any:
        """The part that describes the language model."""
        return self.__dict__.get("text_config", self)

    def update(self, values: dict[str, Any]) -> None:
        """Set some of the keys."""
        self.__dict__.update(values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """A key of the file."""
        return self.__dict__.get(name, default)


_COMMON: dict[str, Any] = {
    "model_type": "", "auto_map": {}, "tie_word_embeddings": True, "torch_dtype": None, "dtype": None,
    "is_encoder_decoder": False, "name_or_path": "", "_name_or_path": "",
}  # fmt: skip
"""What the library sets where a file says nothing."""


def _nested(value: Any, name: str) -> Any:
    if isinstance(value, dict) and name.endswith("_config") and not name.endswith("quantization_config"):
        return ModelFile(value, name)
    return value


def read_model_file(path: Path) -> dict[str, Any]:
    """The contents of ``config.json``, or of the folder that holds it. Raises InputError."""
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{file} is not JSON ({error}); name a model's config.json") from error
    if not isinstance(values, dict):
        raise InputError(f"{file} holds no JSON object; name a model's config.json")
    return values


def library_facts(values: dict[str, Any]) -> dict[str, Any]:
    """What calls into the model library return, by the names of the calls."""
    made = ModelFile(values)

    class PretrainedConfig(ModelFile):
        """The base of configs that the source defines itself: what the file says goes through their own code."""

        def __init__(self, **keywords: Any) -> None:
            super().__init__(keywords)

        @classmethod
        def from_pretrained(cls, *_: Any, **__: Any) -> Any:
            return cls(**values)

        @classmethod
        def from_dict(cls, given: dict[str, Any], **_: Any) -> Any:
            return cls(**given)

        @staticmethod
        def get_config_dict(*_: Any, **__: Any) -> Any:
            return dict(values), {}

    return {
        "transformers.PretrainedConfig": PretrainedConfig,
        "transformers.configuration_utils.PretrainedConfig": PretrainedConfig,
        "transformers.AutoConfig.from_pretrained": lambda *_, **__: made,
        "transformers.GenerationConfig.from_pretrained": lambda *_, **__: Unknown("generation config"),
    }
