"""What x0 was: a NumPy array or a torch tensor of some shape, and the flat tensor the algorithms work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Space:
    """Carries points between the user's kind of array and a flat tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    numpy: bool

    @property
    def work_dtype(self) -> torch.dtype:
        """What the algorithms compute in: half-precision points are held in float32 and rounded on the way out."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @classmethod
    def of(cls, x0: Any) -> tuple[Space, Tensor]:
        """The space of x0, and x0 in it (a copy)."""
        if isinstance(x0, Tensor):
            tensor, is_numpy = x0.detach().clone(), False
        else:
            try:
                array = np.atleast_1d(np.array(x0))
            except (TypeError, ValueError) as error:
                raise TypeError(f"x0 must be an array of numbers, got {type(x0).__name__}: {error}") from None
            if array.dtype.kind in "biu":
                array = array.astype(np.float64)
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
            if array.dtype not in (np.float64, np.float32, np.float16):
                raise TypeError(f"x0 must hold real floating-point numbers, got dtype {array.dtype}")
            tensor, is_numpy = torch.from_numpy(np.ascontiguousarray(array)), True
        if not tensor.is_floating_point():
            if tensor.is_complex() or tensor.dtype == torch.bool:
                raise TypeError(f"x0 must hold real floating-point numbers, got dtype {tensor.dtype}")
            tensor = tensor.to(torch.float32)
        if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise TypeError(f"x0 must be float16, bfloat16, float32 or float64, got {tensor.dtype}")
        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise TypeError(f"x0 must be a dense tensor with data, got layout {tensor.layout} on {tensor.device}")
        if tensor.ndim == 0:
            tensor = tensor[None]
        if tensor.numel() == 0:
            raise ValueError(f"x0 is empty (shape {tuple(tensor.shape)}); it must hold at least one number")
        if not bool(torch.isfinite(tensor).all()):
            bad = int((~torch.isfinite(tensor)).sum())
            raise ValueError(f"x0 must be finite; {bad} of its {tensor.numel()} numbers are NaN or infinite")
        space = cls(tuple(tensor.shape), tensor.dtype, tensor.device, is_numpy)
        return space, tensor.reshape(-1).to(space.work_dtype).contiguous()

    @property
    def dim(self) -> int:
        return int(np.prod(self.shape))

    def outward(self, flat: Tensor) -> Any:
        """A flat point, or a matrix of them, as the user's kind of array (sharing memory where the dtype allows)."""
        shaped = flat.reshape(*flat.shape[:-1], *self.shape).to(self.dtype)
        return shaped.numpy() if self.numpy else shaped

    def inward(self, value: Any) -> Tensor:
        """A user's array of this space's shape, or one that broadcasts to it, as a flat tensor."""
        tensor = torch.as_tensor(value, dtype=self.work_dtype, device=self.device)
        return tensor.expand(self.shape).reshape(-1).clone()
