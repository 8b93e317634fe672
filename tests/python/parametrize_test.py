"""Tensors of modules that are computed from others, normalized weights, and averages of models."""

import copy
import pickle
import threading
import unittest

import mytorch as mt
import mytorch.nn.functional as F
import numpy as np
from mytorch import nn
from mytorch.nn.utils import parametrizations, parametrize
from mytorch.optim import swa_utils

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def close(a, b, tolerance=1e-5):
    a, b = (each.detach().numpy() if isinstance(each, mt.Tensor) else each for each in (a, b))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


class Symmetric(nn.Module):
    """The upper triangle, mirrored. Counts its calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return x.triu() + x.triu(1).T


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


class PlusOne(nn.Module):
    def forward(self, x):
        return x + 1

    def right_inverse(self, x):
        return x - 1


class Outer(nn.Module):
    """The product of two vectors."""

    def forward(self, x, y):
        return x.unsqueeze(-1) @ y.unsqueeze(-2)

    def right_inverse(self, z):
        return z[:, 0], z[0] / z[0, 0]


class Half(nn.Module):
    def forward(self, x):
        return x.half()


class First(nn.Module):
    """The first row."""

    def forward(self, x):
        return x[:1]


class Own(nn.Module):
    """A module whose forward is in Python."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(mt.arange(16.0).view(4, 4))
        self.register_buffer("shift", mt.ones(4))

    def forward(self, x):
        return x @ self.weight.T + self.shift


class Doubled(nn.Linear):
    """A layer whose forward goes on to that of C++."""

    def forward(self, x):
        return 2 * super().forward(x)


class Reading(nn.Linear):
    """A layer whose forward reads its weight."""

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class Parametrizations(unittest.TestCase):
    def test_calls(self):
        for module in (nn.Linear(4, 4), Own(), Doubled(4, 4), Reading(4, 4)):
            base, names = type(module), [name for name, _ in module.named_parameters()]
            before = module.weight.detach().numpy().copy()
            shift = module.shift if base is Own else module.bias.detach()
            symmetric = Symmetric()
            self.assertIs(parametrize.register_parametrization(module, "weight", symmetric), module)
            self.assertEqual(type(module).__name__, f"Parametrized{base.__name__}")
            self.assertIsInstance(module, base)
            self.assertIs(parametrize.type_before_parametrizations(module), base)
            weight = np.triu(before) + np.triu(before, 1).T
            close(module.weight, weight)
            symmetric.calls = 0
            y = module(mt.tensor(X))
            self.assertEqual(symmetric.calls, 1, base)
            factor = 2 if base is Doubled else 1
            close(y, factor * (X @ weight.T + shift.numpy()), 1e-4)
            names.remove("weight")
            names.append("parametrizations.weight.original")
            self.assertEqual([name for name, _ in module.named_parameters()], names)
            y.sum().backward()
            full = factor * np.tile(X.sum(0), (4, 1))
            close(module.parametrizations.weight.original.grad, np.triu(full) + np.tril(full, -1).T, 1e-4)
            self.assertIn("weight", dir(module))
            self.assertIn("(weight): ParametrizationList(", repr(module))

    def test_new_values_count(self):
        """The weight of each call is that of the originals at its time."""
        layer = parametrize.register_parametrization(nn.Linear(4, 2, bias=False), "weight", Twice())
        x = mt.tensor(X)
        for value in (1.0, 3.0):
            with mt.no_grad():
                layer.parametrizations.weight.original.fill_(value)
            close(layer(x), np.tile(2 * value * X.sum(1, keepdims=True), (1, 2)), 1e-4)
            close(layer.forward(x), layer(x))

    def test_graph_ends_with_result(self):
        layer = parametrize.register_parametrization(nn.Linear(4, 2), "weight", Twice())
        layer(mt.tensor(X))
        held = {name: tensor for name, tensor, _ in layer.__dict__["_layer"].tensors()}
        self.assertIsNone(held["weight"])
        self.assertIsNotNone(held["bias"])

    def test_optimizer_goes_on(self):
        layer = nn.Linear(4, 2)
        weight = layer.weight
        optimizer = mt.optim.SGD(layer.parameters(), lr=0.1)
        before = weight.detach().numpy().copy()
        parametrize.register_parametrization(layer, "weight", Twice())
        self.assertIs(layer.parametrizations.weight.original, weight)
        close(weight, before / 2)
        layer(mt.tensor(X)).sum().backward()
        optimizer.step()
        close(layer.weight, before - 2 * 0.1 * 2 * np.tile(X.sum(0), (2, 1)), 1e-4)

    def test_assignment(self):
        for module in (nn.Linear(4, 4), Own()):
            parametrize.register_parametrization(module, "weight", Twice())
            original = module.parametrizations.weight.original
            module.weight = mt.full((4, 4), 6.0)
            self.assertTrue((module.weight == 6).all() and (original == 3).all())
            self.assertIs(module.parametrizations.weight.original, original)
            with self.assertRaises(KeyError):
                module.weight = nn.Parameter(mt.ones(4, 4))
            with self.assertRaises(AttributeError):
                del module.weight
            for wrong in (None, 3):
                with self.assertRaises(TypeError):
                    module.weight = wrong
            with self.assertRaisesRegex(ValueError, "float64"):
                module.weight = mt.ones(4, 4, dtype=mt.float64)
            self.assertTrue((module.weight == 6).all())
        layer = parametrize.register_parametrization(nn.Linear(4, 4), "weight", Symmetric())
        with self.assertRaisesRegex(RuntimeError, "right_inverse"):
            layer.weight = mt.ones(4, 4)

    def test_several_in_order(self):
        for module in (nn.Linear(4, 4), Own()):
            before = module.weight.detach().numpy().copy()
            parametrize.register_parametrization(module, "weight", Twice())
            parametrize.register_parametrization(module, "weight", PlusOne())
            close(module.weight, before + 1)
            module.weight = mt.full((4, 4), 7.0)
            self.assertTrue((module.parametrizations.weight.original == 3).all())
            self.assertTrue((module.weight == 7).all())
            close(module(mt.ones(1, 4)) - module(mt.zeros(1, 4)), np.full((1, 4), 28.0))

    def test_several_originals(self):
        layer = nn.Linear(4, 3, bias=False)
        with mt.no_grad():
            layer.weight.copy_(mt.tensor([1.0, 2, 3]).outer(mt.tensor([2.0, 1, 0, 4])))
        before = layer.weight.detach().numpy().copy()
        parametrize.register_parametrization(layer, "weight", Outer())
        held = layer.parametrizations.weight
        self.assertEqual(list(layer.state_dict()), [f"parametrizations.weight.original{at}" for at in range(2)])
        self.assertIsInstance(held.original0, nn.Parameter)
        close(layer.weight, before)
        layer(mt.tensor(X)).sum().backward()
        close(held.original0.grad, np.full(3, X.sum(0) @ held.original1.detach().numpy()), 1e-4)
        layer.weight = mt.tensor(2 * before)
        close(layer.weight, 2 * before)
        with self.assertRaisesRegex(ValueError, "several originals"):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
        parametrize.remove_parametrizations(layer, "weight")
        self.assertEqual([name for name, _ in layer.named_parameters()], ["weight"])
        close(layer(mt.tensor(X)), X @ (2 * before).T, 1e-4)

    def test_several_tensors(self):
        layer = nn.Linear(4, 4)
        bias = layer.bias.detach().numpy().copy()
        parametrize.register_parametrization(layer, "weight", Symmetric())
        parametrize.register_parametrization(layer, "bias", PlusOne())
        self.assertTrue(parametrize.is_parametrized(layer, "bias") and parametrize.is_parametrized(layer))
        self.assertFalse(parametrize.is_parametrized(layer, "other"))
        close(layer.bias, bias)
        parametrize.remove_parametrizations(layer, "weight")
        self.assertEqual(type(layer).__name__, "ParametrizedLinear")
        layer.bias = mt.zeros(4)
        close(layer(mt.tensor(X)), X @ layer.weight.detach().numpy().T, 1e-4)
        parametrize.remove_parametrizations(layer, "bias")
        self.assertIs(type(layer), nn.Linear)

    def test_buffers(self):
        module = parametrize.register_parametrization(Own(), "shift", Twice())
        self.assertEqual([name for name, _ in module.named_buffers()], ["parametrizations.shift.original"])
        self.assertEqual(module.shift.tolist(), [1, 1, 1, 1])
        module.parametrizations.shift.original.fill_(4)
        self.assertEqual((module(mt.zeros(1, 4))).tolist(), [[8, 8, 8, 8]])
        parametrize.remove_parametrizations(module, "shift")
        self.assertEqual([name for name, _ in module.named_buffers()], ["shift"])
        self.assertEqual(module.shift.tolist(), [8, 8, 8, 8])

    def test_checks(self):
        for make in (lambda: nn.Linear(4, 4), Own):
            module = make()
            before = module.weight.detach().numpy().copy()
            for wrong, text in ((Half(), "dtype"), (First(), "shape")):
                with self.assertRaisesRegex(ValueError, text):
                    parametrize.register_parametrization(module, "weight", wrong)
                self.assertFalse(parametrize.is_parametrized(module))
                self.assertIs(module._parameters["weight"], module.weight)
            close(module.weight, before)
            with self.assertRaisesRegex(ValueError, "no parameter or buffer 'other'"):
                parametrize.register_parametrization(module, "other", Twice())
            with self.assertRaisesRegex(ValueError, "is None"):
                parametrize.register_parametrization(nn.Linear(4, 4, bias=False), "bias", Twice())
            with self.assertRaisesRegex(ValueError, "not parametrized"):
                parametrize.remove_parametrizations(module, "weight")
            parametrize.register_parametrization(module, "weight", Twice())
            with self.assertRaisesRegex(ValueError, "dtype"):
                parametrize.register_parametrization(module, "weight", Half())
            self.assertEqual(len(module.parametrizations.weight), 1)
            parametrize.register_parametrization(module, "weight", First(), unsafe=True)
            self.assertEqual(module.weight.shape, (1, 4))

    def test_layers_inside_others_are_refused(self):
        encoder = nn.TransformerEncoderLayer(4, 2, 4)
        for wrap in (parametrizations.weight_norm, nn.utils.weight_norm, nn.utils.spectral_norm):
            with self.assertRaisesRegex(mt.UnsupportedError, "inside of another"):
                wrap(encoder.linear1)
        self.assertIsInstance(encoder.linear1.weight, nn.Parameter)

    def test_remove(self):
        for leave in (True, False):
            for module in (nn.Linear(4, 4), Own()):
                base, weight = type(module), module.weight
                parametrize.register_parametrization(module, "weight", PlusOne())
                value = module.weight.detach().numpy().copy()
                self.assertIs(parametrize.remove_parametrizations(module, "weight", leave), module)
                self.assertIs(type(module), base)
                self.assertIs(module.weight, weight)
                self.assertFalse(hasattr(module, "parametrizations"))
                close(module.weight, value if leave else value - 1)
                y = module(mt.ones(1, 4)) - module(mt.zeros(1, 4))
                close(y, module.weight.detach().numpy().sum(1)[None], 1e-4)
                self.assertIs(type(pickle.loads(pickle.dumps(module))), base)

    def test_cached(self):
        layer = parametrize.register_parametrization(nn.Linear(4, 4), "weight", Symmetric())
        symmetric = layer.parametrizations.weight[0]
        symmetric.calls = 0
        with parametrize.cached():
            with parametrize.cached():
                first = layer.weight
            self.assertIs(layer.weight, first)
            layer(mt.tensor(X))
        self.assertEqual(symmetric.calls, 1)
        self.assertIsNot(layer.weight, first)
        self.assertEqual(symmetric.calls, 2)

    def test_copies(self):
        for module in (nn.Linear(4, 4), Own(), nn.Sequential(nn.Linear(4, 4))):
            part = module[0] if isinstance(module, nn.Sequential) else module
            parametrize.register_parametrization(part, "weight", Twice())
            made = copy.deepcopy(module)
            inner = made[0] if isinstance(made, nn.Sequential) else made
            close(made(mt.tensor(X)), module(mt.tensor(X)))
            inner.weight = mt.zeros(4, 4)
            self.assertFalse((part.weight == 0).all())
            self.assertTrue((made(mt.tensor(X)) == made(mt.zeros(1, 4))).all())
            parametrize.remove_parametrizations(inner, "weight")
            part.weight = mt.ones(4, 4)  # is parametrized still
            self.assertTrue((part.parametrizations.weight.original == 0.5).all())
            for refused in (pickle.dumps, copy.copy):
                with self.assertRaisesRegex(RuntimeError, "state_dict"):
                    refused(part)

    def test_states(self):
        a, b = (parametrize.register_parametrization(nn.Linear(4, 4), "weight", Symmetric()) for _ in range(2))
        self.assertEqual(list(a.state_dict()), ["bias", "parametrizations.weight.original"])
        b.load_state_dict(a.state_dict())
        close(a(mt.tensor(X)), b(mt.tensor(X)))
        with self.assertRaises(RuntimeError):
            b.load_state_dict(nn.Linear(4, 4).state_dict())

    def test_conversion_and_modes(self):
        layer = parametrize.register_parametrization(nn.Linear(4, 4), "weight", Twice()).double()
        self.assertEqual(layer.weight.dtype, mt.float64)
        self.assertEqual(layer(mt.tensor(X).double()).dtype, mt.float64)
        layer.eval()
        self.assertFalse(layer.parametrizations.weight[0].training)
        with mt.no_grad():
            self.assertFalse(layer(mt.tensor(X).double()).requires_grad)
        late = Twice()
        parametrize.register_parametrization(layer, "bias", late)
        self.assertFalse(late.training)

    def test_reset(self):
        """Only what is not computed is drawn again."""
        layer = parametrize.register_parametrization(nn.Linear(4, 4), "weight", Twice())
        weight, bias = layer.weight.detach(), layer.bias.detach().clone()
        layer.reset_parameters()
        close(layer.weight, weight, 0)
        self.assertFalse((layer.bias == bias).any())

    def test_threads(self):
        layer = parametrize.register_parametrization(nn.Linear(4, 4), "weight", Twice())
        x, faults = mt.tensor(X), []
        expected = layer(x).detach()

        def run():
            try:
                for _ in range(50):
                    y = layer(x)
                    assert mt.allclose(y, expected)
                    mt.autograd.grad(y.sum(), layer.parametrizations.weight.original)
            except BaseException as fault:
                faults.append(fault)

        threads = [threading.Thread(target=run) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(faults, [])

    def test_recurrent(self):
        lstm = nn.LSTM(4, 3)
        parametrize.register_parametrization(lstm, "weight_hh_l0", Twice())
        lstm.weight_hh_l0 = mt.zeros(12, 3)
        x = mt.tensor(X).view(5, 1, 4)
        plain = nn.LSTM(4, 3)
        names = ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0")
        with mt.no_grad():
            plain.weight_hh_l0.zero_()
            for name in names:
                getattr(plain, name).copy_(getattr(lstm, name))
        close(lstm(x)[0], plain(x)[0])
        lstm(x)[0].sum().backward()
        plain(x)[0].sum().backward()
        close(lstm.parametrizations.weight_hh_l0.original.grad, 2 * plain.weight_hh_l0.grad)

    def test_transfer(self):
        a, b = nn.Linear(4, 4), nn.Linear(4, 4)
        parametrize.register_parametrization(a, "weight", Twice())
        self.assertIs(parametrize.transfer_parametrizations_and_params(a, b), b)
        self.assertIs(b.parametrizations.weight.original, a.parametrizations.weight.original)
        close(a.weight, b.weight)


class WeightNorm(unittest.TestCase):
    def test_values(self):
        weight = np.random.default_rng(1).standard_normal((3, 4, 2, 2)).astype(np.float32)
        for dim in (0, 1, 3, -2, None):
            rest = tuple(at for at in range(4) if dim is None or at != dim % 4)
            norms = np.sqrt((weight**2).sum(rest, keepdims=dim is not None))
            for wrap, names in (
                (parametrizations.weight_norm, [f"parametrizations.weight.original{at}" for at in range(2)]),
                (nn.utils.weight_norm, ["weight_g", "weight_v"]),
            ):
                conv = nn.Conv2d(4, 3, 2)
                with mt.no_grad():
                    conv.weight.copy_(mt.tensor(weight))
                x = mt.ones(1, 4, 3, 3)
                before = conv(x).detach()
                self.assertIs(wrap(conv, "weight", dim), conv)
                self.assertEqual([name for name, _ in conv.named_parameters()], ["bias", *names])
                g, v = (conv.get_parameter(name) for name in names)
                self.assertEqual(g.shape, norms.shape)
                close(g, norms)
                close(v, weight)
                close(conv(x), before, 1e-4)
                with mt.no_grad():
                    g.mul_(3)
                    v.mul_(5)
                conv(x)
                close(conv.weight, 3 * weight, 1e-4)
                # The norms get the part of the weight's gradient along the direction, the direction the rest.
                (grad,) = np.random.default_rng(2).standard_normal((1, 3, 4, 2, 2)).astype(np.float32)
                dg, dv = mt.autograd.grad((conv.weight * mt.tensor(grad)).sum(), [g, v])
                unit = weight / norms
                along = (grad * unit).sum(rest, keepdims=dim is not None)
                close(dg, along, 1e-4)
                close(dv, 3 / 5 * (grad - along * unit), 1e-4)

    def test_states_of_the_older(self):
        older, newer = nn.utils.weight_norm(nn.Linear(4, 3)), parametrizations.weight_norm(nn.Linear(4, 3))
        with mt.no_grad():
            older.weight_g.mul_(2)
        newer.load_state_dict(older.state_dict())
        close(newer(mt.tensor(X)), older(mt.tensor(X)))
        outer = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)))
        outer.load_state_dict(nn.Sequential(older).state_dict())
        close(outer(mt.tensor(X)), older(mt.tensor(X)))
        parametrize.remove_parametrizations(newer, "weight")
        self.assertIs(type(pickle.loads(pickle.dumps(newer))), nn.Linear)

    def test_older(self):
        for module in (nn.Linear(4, 4), Own()):
            nn.utils.weight_norm(module)
            with self.assertRaisesRegex(RuntimeError, "already"):
                nn.utils.weight_norm(module)
            y = module(mt.tensor(X))
            y.sum().backward()
            self.assertGreater(module.weight_g.grad.abs().sum().item(), 0)
            nn.utils.remove_weight_norm(module)
            close(module(mt.tensor(X)), y)
            self.assertIsInstance(module.weight, nn.Parameter)
            self.assertFalse(hasattr(module, "weight_g") or hasattr(module, "weight_v"))
            with self.assertRaisesRegex(ValueError, "not normalized"):
                nn.utils.remove_weight_norm(module)
            with mt.no_grad():
                module.weight.zero_()
            self.assertTrue((module(mt.tensor(X)) == module(mt.zeros(1, 4))).all())


class SpectralNorm(unittest.TestCase):
    def both(self):
        return (parametrizations.spectral_norm, nn.utils.spectral_norm)

    def test_values(self):
        for wrap in self.both():
            for layer, matrix in (
                (nn.Linear(4, 3), lambda w: w),
                (nn.Conv2d(4, 3, 2), lambda w: w.reshape(3, -1)),
                (nn.ConvTranspose2d(4, 3, 2), lambda w: w.transpose(1, 0, 2, 3).reshape(3, -1)),
                (Own(), lambda w: w),
            ):
                weight = layer.weight.detach().numpy().copy()
                x = mt.ones(2, 4, 3, 3) if weight.ndim == 4 else mt.tensor(X)
                self.assertIs(wrap(layer, n_power_iterations=30), layer)
                for _ in range(4):
                    layer(x)
                sigma = np.linalg.svd(matrix(weight), compute_uv=False)[0]
                close(layer.weight, weight / sigma, 1e-4)

    def test_modes(self):
        for wrap in self.both():
            layer = wrap(nn.Linear(4, 4), n_power_iterations=1)
            u, v = layer.buffers()
            for vector in (u, v):  # far from the limit
                vector.copy_(mt.tensor([1.0, 0, 0, 0]))
            layer.eval()
            before = u.numpy().copy()
            layer(mt.tensor(X))
            close(u, before, 0)
            layer.train()
            layer(mt.tensor(X))
            self.assertGreater(np.abs(u.numpy() - before).max(), 0)
            close(u.norm(), 1.0)

    def test_gradients_of_two_calls(self):
        """The vectors are constants, those of each call; sigma is u @ W @ v."""
        for wrap in self.both():
            layer = wrap(nn.Linear(4, 3, bias=False), n_power_iterations=2)
            (original,) = layer.parameters()
            x, expected, total = mt.tensor(X), 0, 0
            for scale in (1.0, -3.0):
                total = total + scale * layer(x).sum()
                u, v = (tensor.numpy().copy() for tensor in layer.buffers())
                w = original.detach().numpy()
                sigma, grad = u @ w @ v, scale * np.tile(X.sum(0), (3, 1))
                expected = expected + grad / sigma - (grad * w).sum() / sigma**2 * np.outer(u, v)
            total.backward()
            close(original.grad, expected, 1e-3)

    def test_vector(self):
        layer = nn.Linear(4, 3)
        bias = layer.bias.detach().numpy().copy()
        parametrizations.spectral_norm(layer, "bias")
        close(layer.bias, bias / np.linalg.norm(bias))
        close(layer(mt.zeros(1, 4))[0], layer.bias)

    def test_faults(self):
        for wrap in self.both():
            with self.assertRaisesRegex(ValueError, "n_power_iterations"):
                wrap(nn.Linear(4, 3), n_power_iterations=0)
        with self.assertRaises(IndexError):
            parametrizations.spectral_norm(nn.Linear(4, 3), dim=2)
        with self.assertRaises(ValueError):
            parametrizations.spectral_norm(nn.Linear(4, 3), "other")

    def test_older(self):
        layer = nn.utils.spectral_norm(nn.Linear(4, 3))
        self.assertEqual(list(layer.state_dict()), ["bias", "weight_orig", "weight_u", "weight_v"])
        other = nn.utils.spectral_norm(nn.Linear(4, 3))
        other.load_state_dict(layer.state_dict())
        close(layer.eval()(mt.tensor(X)), other.eval()(mt.tensor(X)))
        y = layer(mt.tensor(X))
        nn.utils.remove_spectral_norm(layer)
        self.assertEqual(sorted(layer.state_dict()), ["bias", "weight"])
        close(layer(mt.tensor(X)), y)
        self.assertFalse(layer._load_state_dict_pre_hooks or layer._forward_pre_hooks)
        with self.assertRaisesRegex(ValueError, "not normalized"):
            nn.utils.remove_spectral_norm(layer)

    def test_states_without_v(self):
        layer = nn.utils.spectral_norm(nn.Linear(4, 3), n_power_iterations=30)
        layer(mt.tensor(X))
        state = layer.state_dict()
        state["weight"] = layer.weight.detach()
        v = state.pop("weight_v").clone()
        other = nn.utils.spectral_norm(nn.Linear(4, 3))
        other.load_state_dict(state)
        close(other.weight_v, v, 1e-3)
        close(other.eval()(mt.tensor(X)), layer.eval()(mt.tensor(X)), 1e-4)


class Orthogonal(unittest.TestCase):
    def test_stays_orthogonal(self):
        for name in ("matrix_exp", "cayley", "householder"):
            for rows in (3, 4, 6):
                for trivial in (True, False):
                    layer = nn.Linear(4, rows, bias=False)
                    before = layer.weight.detach().numpy().copy()
                    parametrizations.orthogonal(layer, orthogonal_map=name, use_trivialization=trivial)
                    optimizer = mt.optim.SGD(layer.parameters(), lr=0.1)
                    start = layer.weight.detach().numpy().copy()
                    if trivial or name == "householder":  # Q of the decomposition
                        tall = before.T if rows < 4 else before
                        q, r = np.linalg.qr(tall)
                        q = q * np.sign(np.diag(r))
                        close(start, q.T if rows < 4 else q, 1e-4)
                    for _ in range(3):
                        q = layer.weight.detach().numpy()
                        close(q @ q.T if rows < 4 else q.T @ q, np.eye(min(rows, 4)), 1e-4)
                        optimizer.zero_grad()
                        (layer(mt.tensor(X)) * mt.arange(float(rows))).sum().backward()
                        optimizer.step()
                    self.assertGreater(np.abs(layer.weight.detach().numpy() - start).max(), 1e-3)

    def test_assignment(self):
        layer = parametrizations.orthogonal(nn.Linear(3, 3))
        self.assertEqual(layer.parametrizations.weight[0].orthogonal_map, "matrix_exp")
        self.assertIn("parametrizations.weight.0.base", layer.state_dict())
        turned = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], np.float32)
        layer.weight = mt.tensor(turned)
        close(layer.weight, turned)
        with self.assertRaisesRegex(ValueError, "shape"):
            layer.weight = mt.ones(2, 2)
        layer = parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False)
        with self.assertRaises(NotImplementedError):
            layer.weight = mt.tensor(turned)
        self.assertEqual(
            parametrizations.orthogonal(nn.Linear(3, 4)).parametrizations.weight[0].orthogonal_map, "householder"
        )

    def test_faults(self):
        for arguments in (("bias",), ("other",), ("weight", "rotation")):
            with self.assertRaises(ValueError):
                parametrizations.orthogonal(nn.Linear(3, 3), *arguments)


class Averages(unittest.TestCase):
    def models(self, count=4):
        """Yields a model with other values each time, and its values."""
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        random = np.random.default_rng(3)
        for _ in range(count):
            with mt.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    tensor.copy_(mt.tensor(9 * random.standard_normal(tensor.shape)).to(tensor.dtype))
            yield model, {name: tensor.numpy().astype(np.float64) for name, tensor in model.state_dict().items()}

    def check(self, expected, buffers, tolerance=1e-4, **options):
        averaged, seen = None, []
        for model, values in self.models():
            averaged = averaged or swa_utils.AveragedModel(model, use_buffers=buffers, **options)
            averaged.update_parameters(model)
            seen.append({name: value.copy() for name, value in values.items()})
        self.assertEqual(averaged.n_averaged.item(), 4)
        parameters = {name for name, _ in model.named_parameters()}
        for name, tensor in averaged.module.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                averages = name in parameters or buffers
                close(tensor, expected([each[name] for each in seen]) if averages else seen[-1][name], tolerance)

    def test_values(self):
        def ema(values):
            average = values[0]
            for value in values[1:]:
                average = 0.9 * average + 0.1 * value
            return average

        def mean(values):
            return np.mean(values, axis=0)

        for buffers in (False, True):
            self.check(mean, buffers)
            self.check(mean, buffers, avg_fn=swa_utils.get_swa_avg_fn())
            self.check(mean, buffers, multi_avg_fn=swa_utils.get_swa_multi_avg_fn())
            self.check(ema, buffers, avg_fn=swa_utils.get_ema_avg_fn(0.9))
            self.check(ema, buffers, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))

    def test_own_functions(self):
        model, counts = nn.Linear(2, 1).double(), []

        def largest(average, value, count):
            counts.append(count.item())
            return mt.maximum(average, value)

        averaged = swa_utils.AveragedModel(model, avg_fn=largest)
        for value in (1.0, 5.0, 2.0):
            with mt.no_grad():
                model.weight.fill_(value)
            averaged.update_parameters(model)
        self.assertEqual(averaged.module.weight.tolist(), [[5, 5]])
        self.assertEqual(counts, [1, 1, 2, 2])

        groups = []
        model = nn.Sequential(nn.Linear(2, 1), nn.Linear(2, 1).double())
        averaged = swa_utils.AveragedModel(model, multi_avg_fn=lambda a, b, n: groups.append({x.dtype for x in a + b}))
        averaged.update_parameters(model)
        averaged.update_parameters(model)
        self.assertEqual(groups, [{mt.float32}, {mt.float64}])

    def test_rules(self):
        model = nn.Linear(2, 1)
        averaged = swa_utils.AveragedModel(model, "cpu")
        self.assertEqual(list(averaged.state_dict()), ["n_averaged", "module.weight", "module.bias"])
        averaged.update_parameters(model)
        close(averaged(mt.ones(1, 2)), model(mt.ones(1, 2)))
        with mt.no_grad():
            model.weight.zero_()
        self.assertFalse((averaged.module.weight == 0).any())
        self.assertTrue(averaged.module.weight.requires_grad)
        other = swa_utils.AveragedModel(model)
        other.load_state_dict(averaged.state_dict())
        self.assertEqual(other.n_averaged.item(), 1)
        fn = swa_utils.get_swa_avg_fn()
        with self.assertRaises(AssertionError):
            swa_utils.AveragedModel(model, avg_fn=fn, multi_avg_fn=fn)
        for make in (swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn):
            with self.assertRaisesRegex(ValueError, "decay"):
                make(1.5)

    def test_parametrized(self):
        model = parametrizations.weight_norm(nn.Linear(4, 3))
        averaged = swa_utils.AveragedModel(model)
        averaged.update_parameters(model)
        close(averaged(mt.tensor(X)), model(mt.tensor(X)))

    def test_update_bn(self):
        model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.BatchNorm1d(4, momentum=0.3)).eval()
        model(mt.tensor(X))
        model[0].running_mean.fill_(7)
        batches = [X, 3 * X + 1]
        for loader in ([mt.tensor(each) for each in batches], [(mt.tensor(each), 0) for each in batches]):
            swa_utils.update_bn(iter(loader), model)
            close(model[0].running_mean, np.mean([each.mean(0) for each in batches], 0), 1e-4)
            close(model[0].running_var, np.mean([each.var(0, ddof=1) for each in batches], 0), 1e-4)
            self.assertEqual(model[0].num_batches_tracked.item(), 2)
        self.assertFalse(model.training)
        self.assertEqual((model[0].momentum, model[2].momentum), (0.1, 0.3))
        with self.assertRaises(ZeroDivisionError):
            swa_utils.update_bn((1 / 0 for _ in range(1)), model)
        self.assertEqual((model.training, model[0].momentum), (False, 0.1))


if __name__ == "__main__":
    unittest.main()
