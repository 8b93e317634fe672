"""Neural networks. Names, arguments and meanings are PyTorch's; C++ computes."""

from mytorch.nn.parameter import Buffer, Parameter
from mytorch.nn.module import Module
from mytorch.nn.containers import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from mytorch.nn.modules import *  # noqa: F403
from mytorch.nn import functional, init, utils
