"""Weights that are normalized: what the parametrizations and the older functions have in common."""

from mytorch import _core
from mytorch._grad_mode import no_grad


def norm_except(tensor, dim):
    """Returns the norms over all dimensions but one, which stay as dimensions of size 1; by -1, the norm of all."""
    if dim == -1:
        return tensor.norm()
    rows = tensor.movedim(dim, 0)
    shape = [1] * tensor.ndim
    shape[dim] = tensor.shape[dim]
    return rows.reshape(rows.shape[0], -1).norm(2, 1).view(shape)


def normed_weight(direction, norm, dim):
    """Returns the tensor of a direction that has given norms."""
    return direction * (norm / norm_except(direction, dim))


def output_dim(module, dim):
    """Returns the dimension of a weight that numbers the outputs, if none is given."""
    from mytorch import nn  # which imports this package

    if dim is not None:
        return dim
    return 1 if isinstance(module, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)) else 0


def as_matrix(weight, dim):
    """Returns a weight with a row for each index of a dimension."""
    rows = weight.movedim(dim, 0)
    return rows.reshape(rows.shape[0], -1)


def unit(vector, eps):
    """Returns a vector divided by its norm, or by eps, if that is larger."""
    return vector / vector.norm().clamp_min(eps)


@no_grad()
def random_unit(weight, size, eps):
    """Returns a vector of random direction, of the type of a weight."""
    return unit(weight.new_empty(size).normal_(0, 1), eps)


def check_iterations(count):
    """Refuses a number of iterations that is not positive."""
    if count <= 0:
        raise ValueError(f"n_power_iterations is {count}: give a positive number")


def sigma(matrix, u, v):
    """Returns the singular value of singular vectors."""
    return _core.vdot(u, _core.mv(matrix, v))
