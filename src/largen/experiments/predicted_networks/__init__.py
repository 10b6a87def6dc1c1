"""The law of networks of a width along training, from the limit and the order 1/width."""

from largen.experiments.predicted_networks.prediction import predict_networks
from largen.experiments.predicted_networks.result import PredictedNetworks

__all__ = ["PredictedNetworks", "predict_networks"]
