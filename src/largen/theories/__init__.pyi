from largen.runs import Posed as Posed
from largen.runs import Theory as Theory
from largen.theories.kernel_limit.feedback import FeedbackKernelLimit as FeedbackKernelLimit
from largen.theories.kernel_limit.limit import KernelLimit as KernelLimit
from largen.theories.kernel_limit.width import FiniteWidth as FiniteWidth
from largen.theories.mean_field.adaptive_deep import AdaptiveKernelLimit as AdaptiveKernelLimit
from largen.theories.mean_field.adaptive_deep import AdaptiveMeanField as AdaptiveMeanField
from largen.theories.mean_field.deep import DeepMeanField as DeepMeanField
from largen.theories.mean_field.deep import response_functions as response_functions
from largen.theories.mean_field.feedback import FeedbackMeanField as FeedbackMeanField
from largen.theories.mean_field.from_outside import solve_by_replicates as solve_by_replicates
from largen.theories.mean_field.infinite_depth import InfiniteDepth as InfiniteDepth
from largen.theories.mean_field.infinite_depth.one_step import (
    infinite_depth_one_step as infinite_depth_one_step,
)
from largen.theories.mean_field.one_hidden_layer import MeanField as MeanField
from largen.theories.mean_field.solvable import kernel_after_one_step as kernel_after_one_step
from largen.theories.mean_field.solvable import solve_deep_linear as solve_deep_linear
from largen.theories.mean_field.solvable import whitened_linear_flow as whitened_linear_flow
from largen.theories.mean_field.transformer import AttentionMeanField as AttentionMeanField
from largen.theories.registry import by_name as by_name
from largen.theories.registry import register as register
from largen.theories.registry import registered as registered
from largen.theories.registry import unregister as unregister
from largen.theories.select import choose as choose
from largen.theories.select import solve as solve
