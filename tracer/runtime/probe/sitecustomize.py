"""Found first on PYTHONPATH under `sgltrace run`: starts the probe, then runs the sitecustomize that it shadows.

Any Python may meet this file, so it keeps to what every Python 3 reads, and does nothing before 3.10.
"""

# No pathlib, no annotations.
# ruff: noqa: ANN202, PTH100, PTH120
import os
import sys


def _start_probe():  # type: () -> None
    if sys.version_info < (3, 10) or not {"SGLTRACE_DIR", "SGLTRACE_EXPERIMENT"} & set(os.environ):
        return
    try:
        if os.environ.get("SGLTRACE_DIR"):
            from sgltrace_probe import arm  # type: ignore[import-not-found]

            arm.start("sitecustomize")
        if os.environ.get("SGLTRACE_EXPERIMENT"):
            from sgltrace_probe import experiment

            experiment.start()
    except Exception:  # the server goes on without the probe; the launcher sees that this process did not attach
        pass


def _run_shadowed():  # type: () -> None
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start_probe()
_run_shadowed()
