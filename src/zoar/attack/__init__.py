"""Attacks on classifiers seen only through their scores.

losses    what an attack minimises
"""

from zoar.attack.losses import targeted_margin, untargeted_margin

__all__ = ["targeted_margin", "untargeted_margin"]
