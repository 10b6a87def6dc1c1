from largen.kernels.estimate import averaged_kernel as averaged_kernel
from largen.kernels.nngp_ntk import Kernels as Kernels
from largen.kernels.nngp_ntk import kernel as kernel
from largen.kernels.nngp_ntk import nngp_kernel as nngp_kernel
from largen.kernels.nngp_ntk import ntk_kernel as ntk_kernel
from largen.kernels.of_constants import KernelFunction as KernelFunction
from largen.kernels.of_constants import kernel_of_stds as kernel_of_stds
