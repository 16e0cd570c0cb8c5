"""A classifier for a person's own pictures, with the habits of scikit-learn: fit, predict, remember."""

from engram.classifier.encoders import PictureEncoder
from engram.classifier.estimator import FewShotClassifier
from engram.classifier.uncertainty import Uncertainty

__all__ = ["FewShotClassifier", "PictureEncoder", "Uncertainty"]
