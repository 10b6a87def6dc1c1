from largen.parameterizations import adam as adam
from largen.parameterizations import feedback_alignment as feedback_alignment
from largen.parameterizations import gd as gd
from largen.parameterizations import gradient_flow as gradient_flow
from largen.parameterizations import hebbian as hebbian
from largen.parameterizations import langevin as langevin
from largen.parameterizations import rmsprop as rmsprop
from largen.parameterizations import sgd as sgd
