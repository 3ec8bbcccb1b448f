"""Trained modules as ONNX files, which onnxruntime and others compute without torch."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from motley.core.errors import ConfigError, ModelError, install_hint
from motley.core.files import disk_error

if TYPE_CHECKING:
    from torch import Tensor, nn

MOST_DIFFERENCE = 1e-4
"""Largest difference from torch's outputs, relative to the largest of them and at least 1."""


def export(module: nn.Module, inputs: Tensor, path: Path) -> float:
    """Write a module in evaluation mode as an ONNX file whose batch may have any size, and return
    the largest difference of what onnxruntime computes from torch's outputs, relative to the
    largest output where that is above 1.

    Parameters
    ----------
    module: in evaluation mode, on the CPU.
    inputs: ``[n, ...]`` model inputs on which the file is compared with the module.
    path: of the file, with the weights in it.

    Raises
    ------
    ConfigError: the extra ``onnx`` is not installed. ModelError: torch cannot export the module, or
    onnxruntime computes something else. StoreError: the file cannot be written.
    """
    runtime = _onnxruntime()
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision each time
    example = inputs if len(inputs) > 1 else torch.cat([inputs, inputs])
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                (example,),
                input_names=["inputs"],
                output_names=["outputs"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # what torch cannot trace ends in many ways
        reason = (str(error).splitlines() or [""])[0]
        raise ModelError(
            f"torch cannot write this {type(module).__name__} as ONNX "
            f"({type(error).__name__}: {reason})"
        ) from error
    if program is None:
        raise ModelError(f"torch wrote nothing of this {type(module).__name__}")
    content = program.model_proto.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    difference = 0.0
    for batch in (example, example[:1]):  # of another batch size, too
        with torch.no_grad():
            expected = module(batch).numpy()
        computed = session.run(None, {"inputs": batch.numpy()})[0]
        scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
        difference = max(difference, float(np.abs(computed - expected).max(initial=0.0)) / scale)
    if not difference <= MOST_DIFFERENCE:
        raise ModelError(
            f"onnxruntime computes other outputs than torch, by {difference:.2g} of the largest; "
            "no file was written"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise disk_error(error, path) from None
    return difference


def _onnxruntime() -> Any:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - with which torch exports
    except ImportError as error:
        raise ConfigError(
            f"an ONNX file needs onnxruntime and onnxscript ({error}); {install_hint('onnx')}"
        ) from None
    return onnxruntime
