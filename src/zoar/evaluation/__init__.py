"""Where queries run, and what a failed one means."""

from zoar.evaluation.evaluator import Evaluator, make_evaluator
from zoar.evaluation.outcomes import NonFiniteValue, QueryContext, QueryFailed

__all__ = ["Evaluator", "NonFiniteValue", "QueryContext", "QueryFailed", "make_evaluator"]
