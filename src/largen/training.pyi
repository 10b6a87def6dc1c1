from largen.experiments import catapult as catapult
from largen.experiments import catapult_diagram as catapult_diagram
from largen.experiments import convergence_bound as convergence_bound
from largen.experiments import feature_movement as feature_movement
from largen.experiments import lazy_or_rich as lazy_or_rich
from largen.experiments import predict_training as predict_training
from largen.experiments import width_corrections_in_training as width_corrections_in_training
