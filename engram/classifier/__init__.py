"""A classifier for a person's own pictures, with the habits of scikit-learn: fit, predict, remember."""

from engram.classifier.engine import Uncertainty
from engram.classifier.estimator import FewShotClassifier

__all__ = ["FewShotClassifier", "Uncertainty"]
