"""Zeroth-order optimizers over a model's parameters: forward passes and nothing else.

optimizer   ZOOptimizer and ZoAR, torch.optim.Optimizer both
layout      which element of a direction belongs to which parameter
placing     how a query is placed while the closure runs: layer by layer, or on a copy
moving      the update, a piece of a parameter at a time
noise       the same dropout masks for every query of a step
"""

from zoar.torch_optim.optimizer import ZoAR, ZOOptimizer

__all__ = ["ZOOptimizer", "ZoAR"]
