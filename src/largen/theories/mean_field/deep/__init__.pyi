from largen.theories.mean_field.deep.responses import ResponseFunctions as ResponseFunctions
from largen.theories.mean_field.deep.responses import response_functions as response_functions
from largen.theories.mean_field.deep.solution import DeepMeanField as DeepMeanField
