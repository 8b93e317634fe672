"""Parametrizations that are often wanted."""

from mytorch import _core
from mytorch._grad_mode import no_grad
from mytorch._types import finfo
from mytorch.nn.module import Module
from mytorch.nn.utils import _norms, parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _tensor(module, name):
    tensor = getattr(module, name, None)
    if not isinstance(tensor, _core.Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer '{name}'")
    return tensor


# ---- weight_norm ----


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return _norms.normed_weight(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return _norms.norm_except(weight, self.dim), weight


class _OlderWeightState:
    """Before a state is loaded: takes the names of the older weight_norm, too."""

    def __init__(self, name):
        self.name = name

    def __call__(self, module, state_dict, prefix, *_):
        older = [f"{prefix}{self.name}_{part}" for part in "gv"]
        if parametrize.is_parametrized(module, self.name) and all(key in state_dict for key in older):
            for at, key in enumerate(older):
                state_dict[f"{prefix}parametrizations.{self.name}.original{at}"] = state_dict.pop(key)


def weight_norm(module, name="weight", dim=0):
    """Makes a tensor the product of its norms over all dimensions but one, or, if dim is None, of all, and of its
    direction (Salimans and Kingma, 2016): parametrizations.<name>.original0 and original1. Returns the module."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module.register_load_state_dict_pre_hook(_OlderWeightState(name))
    return module


# ---- spectral_norm ----


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(f"dim is {dim}, but the tensor has {weight.ndim} dimensions")
        _norms.check_iterations(n_power_iterations)
        self.dim, self.eps = dim % weight.ndim, eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = _norms.as_matrix(weight, self.dim)
            self.register_buffer("_u", _norms.random_unit(weight, matrix.shape[0], eps))
            self.register_buffer("_v", _norms.random_unit(weight, matrix.shape[1], eps))
            self._power_method(matrix, 15)  # a fair start

    @no_grad()
    def _power_method(self, matrix, n_power_iterations):
        for _ in range(n_power_iterations):
            self._u.copy_(_norms.unit(_core.mv(matrix, self._v), self.eps))
            self._v.copy_(_norms.unit(_core.mv(matrix.mH, self._u), self.eps))

    def forward(self, weight):
        if weight.ndim == 1:
            return _norms.unit(weight, self.eps)
        matrix = _norms.as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # The backward pass needs the vectors of this call, after further ones.
        return weight / _norms.sigma(matrix, self._u.clone(), self._v.clone())

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divides a tensor by its largest singular value, which steps of the power iteration estimate, whenever it is read
    in training (Miyato et al., 2018); a vector by its norm. `dim` numbers the outputs: 0, or 1 of transposed
    convolutions. Returns the module."""
    dim = _norms.output_dim(module, dim)
    parametrization = _SpectralNorm(_tensor(module, name), n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, parametrization)


# ---- orthogonal ----


def _is_orthogonal(q):
    identity = _core.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    return _core.allclose(q.mH @ q, identity, atol=10 * q.shape[-2] * finfo(q.dtype).eps)


def _make_orthogonal(a):
    """Returns Q of the QR decomposition of a tall matrix whose R has a diagonal of positive numbers."""
    reflectors, tau = _core.geqrf(a)
    q = _core.linalg_householder_product(reflectors, tau)
    return q * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("the householder map takes no complex tensors")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x):
        wide = x.shape[-2] < x.shape[-1]
        if wide:
            x = x.mT
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            a = x.tril(-1)
            tau = 2 / (1 + (a * a).sum(-2))
            q = _core.linalg_householder_product(a, tau)
            # The diagonal is signs, which have no gradients.
            q = q * x.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        else:
            x = x.tril()
            if n != k:
                x = _core.cat([x, x.new_zeros((*x.shape[:-2], n, n - k))], -1)
            a = x - x.mH
            if self.orthogonal_map == "matrix_exp":
                q = _core.matrix_exp(a)
            else:
                identity = _core.eye(n, dtype=a.dtype, device=a.device)
                q = _core.linalg_solve(identity - a / 2, identity + a / 2)
            q = q[..., :k]
        if self.use_trivialization:
            q = self.base @ q
        return q.mT if wide else q

    @no_grad()
    def right_inverse(self, q):
        if q.shape != self.shape:
            raise ValueError(f"the tensor has shape {self.shape}, not {q.shape}")
        given = q
        wide = q.shape[-2] < q.shape[-1]
        if wide:
            q = q.mT
        n, k = q.shape[-2:]
        if not self.use_trivialization:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    f"{self.orthogonal_map} has no inverse without use_trivialization: no value can be assigned"
                )
            a, tau = _core.geqrf(q)
            # R with a diagonal of positive numbers. tau is 0 where no reflection was wanted.
            diagonal = a.diagonal(dim1=-2, dim2=-1)
            signs = diagonal.sign()
            diagonal.copy_(_core.where(tau == 0, -signs, signs))
            return a.mT if wide else a
        if n != k:  # completed to a basis
            q = _make_orthogonal(_core.cat([q, _core.randn_like(q.new_empty((*q.shape[:-2], n, n - k)))], -1))
        else:
            q = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        self.base = q
        # All maps take this to the identity: the reflections are by its diagonal.
        start = _core.zeros_like(given)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1)
        return start


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Makes the columns of a matrix, or the rows of one with more columns than rows, orthonormal; of a batch of
    matrices, those of each. The map of a tensor to such matrices is "matrix_exp" or "cayley", of a skew-symmetric
    matrix, or "householder", a product of reflections; by default "matrix_exp" of square or complex matrices. By
    `use_trivialization` it is the product of a constant matrix and the result of the map, and begins at the given
    matrix if that is orthogonal, else at Q of its QR decomposition. Returns the module."""
    weight = _tensor(module, name)
    if weight.ndim < 2:
        raise ValueError(f"'{name}' has {weight.ndim} dimensions: orthogonal() takes matrices")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f"orthogonal_map is {orthogonal_map!r}, not 'matrix_exp', 'cayley' or 'householder'")
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
