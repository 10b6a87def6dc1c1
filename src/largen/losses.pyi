from largen.runs import Loss as Loss
from largen.runs import as_loss as as_loss
