"""Attacks on classifiers seen only through their scores, for testing models of one's own.

search        attack(): a function for anyone's predict(images) -> scores
for_foolbox   the same as attacks of foolbox
for_art       the same as an attack of the Adversarial Robustness Toolbox
losses        what an attack minimises
"""

from zoar.attack.losses import targeted_margin, untargeted_margin
from zoar.attack.search import AttackResult, attack

__all__ = ["AttackResult", "attack", "targeted_margin", "untargeted_margin"]
