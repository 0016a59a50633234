"""Zeroth-order optimizers over a model's parameters: forward passes and nothing else.

optimizer   ZOOptimizer and ZoAR, torch.optim.Optimizer both
layout      which element of a direction belongs to which parameter
saving      what a saved state must be
window      the batches that are reused, as a text in param_groups
forwards    the losses of a step's queries
placing     how a query is placed while the closure runs: layer by layer, or on a copy
folding     K queries of LoRA in one forward
moving      the update, a piece of a parameter at a time
sums        running sums: a step that costs the same for any window
backends    both of these in plain torch, or by Triton's kernels
trajectory  a log of kilobytes, and its replay
noise       the same dropout masks for every query of a step
"""

from zoar.torch_optim.optimizer import ZoAR, ZOOptimizer
from zoar.torch_optim.trajectory import replay

__all__ = ["ZOOptimizer", "ZoAR", "replay"]
