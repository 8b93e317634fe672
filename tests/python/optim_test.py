"""Optimizers and schedules, against formulas in float64."""

import copy
import gc
import inspect
import math
import pickle
import threading
import unittest
import weakref

import numpy as np

import mytorch as mt
from mytorch import _clip, _core, optim
from mytorch.optim import lr_scheduler as lrs

STEPS = 20
NATIVE = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Adafactor"]
NATIVE += ["Lion", "Muon"]


def start(shape=(3, 4), shift=0.0):
    return np.cos(np.arange(math.prod(shape)) + shift).reshape(shape)


def gradient(p, t):
    return np.sin(1.7 * t + np.arange(p.size)).reshape(p.shape) + 0.5 * p


def parameter(values=None, dtype=mt.float64):
    return mt.tensor(start() if values is None else values, dtype=dtype, requires_grad=True)


def give_gradients(params, t):
    for p in params:
        p.grad = mt.tensor(gradient(p.detach().numpy(), t), dtype=p.dtype)


def run(make, steps=STEPS, first=1, params=None):
    """Returns the parameters after steps of an optimizer, and the optimizer."""
    params = [parameter(), parameter(start((5, 2), 1.0))] if params is None else params
    opt = make(params) if callable(make) else make
    for t in range(first, first + steps):
        give_gradients(params, t)
        opt.step()
    return [p.detach().numpy().copy() for p in params], opt


def reference(update, steps=STEPS):
    """Returns parameters after steps of `update(p, g, t, state)`, which returns the new p."""
    params = [start(), start((5, 2), 1.0)]
    states = [{}, {}]
    for t in range(1, steps + 1):
        params = [update(p, gradient(p, t), t, s) for p, s in zip(params, states)]
    return params


class Formulas(unittest.TestCase):
    def check(self, make, update):
        for ours, expected in zip(run(make)[0], reference(update)):
            np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)

    def test_sgd(self):
        def sgd(lr=0.05, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
            def update(p, g, t, state):
                g = (-g if maximize else g) + weight_decay * p
                if momentum:
                    b = g if t == 1 else momentum * state["b"] + (1 - dampening) * g
                    state["b"] = b
                    g = g + momentum * b if nesterov else b
                return p - lr * g

            return update

        for options in (
            {},
            {"weight_decay": 0.3},
            {"momentum": 0.9},
            {"momentum": 0.9, "dampening": 0.4, "weight_decay": 0.1},
            {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1},
            {"momentum": 0.5, "maximize": True},
        ):
            with self.subTest(**options):
                self.check(lambda p: optim.SGD(p, 0.05, **options), sgd(**options))

    def test_adam(self):
        def adam(decoupled, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False):
            def update(p, g, t, s):
                g = -g if maximize else g
                if decoupled:
                    p = p * (1 - lr * weight_decay)
                else:
                    g = g + weight_decay * p
                s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
                s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
                s["most"] = np.maximum(s.get("most", 0), s["v"])
                second = s["most"] if amsgrad else s["v"]
                return p - lr * (s["m"] / (1 - betas[0] ** t)) / (np.sqrt(second / (1 - betas[1] ** t)) + eps)

            return update

        for options in (
            {},
            {"betas": (0.8, 0.7), "eps": 0.1, "weight_decay": 0.3},
            {"betas": (0.8, 0.7), "amsgrad": True, "weight_decay": 0.1},
            {"maximize": True},
        ):
            with self.subTest(**options):
                decay = {"weight_decay": 0.01, **options}
                self.check(lambda p: optim.Adam(p, 0.05, **options), adam(False, 0.05, **options))
                self.check(lambda p: optim.AdamW(p, 0.05, **options), adam(True, 0.05, **decay))
                made = lambda p: optim.Adam(p, 0.05, decoupled_weight_decay=True, **options)  # noqa: E731
                self.check(made, adam(True, 0.05, **options))

    def test_rmsprop(self):
        def rmsprop(lr, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
            def update(p, g, t, s):
                g = g + weight_decay * p
                s["v"] = alpha * s.get("v", 0) + (1 - alpha) * g * g
                s["a"] = alpha * s.get("a", 0) + (1 - alpha) * g if centered else 0
                s["b"] = momentum * s.get("b", 0) + g / (np.sqrt(s["v"] - s["a"] ** 2) + eps)
                return p - lr * s["b"]

            return update

        for options in (
            {},
            {"alpha": 0.8, "weight_decay": 0.1, "momentum": 0.5},
            {"alpha": 0.8, "eps": 0.01, "centered": True},
        ):
            with self.subTest(**options):
                self.check(lambda p: optim.RMSprop(p, 0.05, **options), rmsprop(0.05, **options))

    def test_adagrad(self):
        def adagrad(lr, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10):
            def update(p, g, t, s):
                g = g + weight_decay * p
                s["sum"] = s.get("sum", initial_accumulator_value) + g * g
                return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(s["sum"]) + eps)

            return update

        for options in ({}, {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 0.01}):
            with self.subTest(**options):
                self.check(lambda p: optim.Adagrad(p, 0.05, **options), adagrad(0.05, **options))

    def test_lion(self):
        def update(p, g, t, s):
            m = s.get("m", 0)
            s["m"] = 0.8 * m + 0.2 * g
            return p - 0.05 * (np.sign(0.7 * m + 0.3 * g) + 0.1 * p)

        self.check(lambda p: optim.Lion(p, 0.05, (0.7, 0.8), 0.1), update)

    def test_lbfgs(self):
        def minimum(**options):
            p = parameter([-1.0, 1.5])
            sign = -1 if options.get("maximize") else 1
            opt = optim.LBFGS([p], **options)
            calls = []

            def closure():
                self.assertTrue(mt.is_grad_enabled())
                opt.zero_grad()
                loss = sign * ((1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2)
                loss.backward()
                calls.append(loss)
                return loss

            with mt.no_grad():
                self.assertIs(opt.step(closure), calls[0])
            for _ in range(8):
                opt.step(closure)
            return p.tolist(), opt

        for options in ({}, {"maximize": True}):
            found, opt = minimum(line_search_fn="strong_wolfe", **options)
            np.testing.assert_allclose(found, [1, 1], atol=1e-6)
        self.assertIn("direction", opt.state[opt.param_groups[0]["params"][0]])
        self.assertRaises(NotImplementedError, opt.step)
        self.assertRaises(ValueError, opt.step, lambda: None)
        self.assertRaises(ValueError, opt.add_param_group, {"params": [parameter()]})
        self.assertRaises(NotImplementedError, optim.LBFGS, [{"params": parameter()}, {"params": parameter()}])


class Arguments(unittest.TestCase):
    def test_defaults_are_those_of_cpp(self):
        for name in [*NATIVE, "LBFGS"]:
            arguments = inspect.signature(getattr(optim, name)).parameters
            for option, value in _core._optimizer_defaults(name).items():
                self.assertEqual(arguments[option].default, value, f"{name}: {option}")
            self.assertEqual(
                set(arguments)
                - set(_core._optimizer_defaults(name))
                - {"params", "foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay"},
                set(),
            )

    def test_forms_of_parameters(self):
        w, b = parameter(), parameter([1.0, 2.0])
        self.assertEqual(len(optim.SGD(iter([w, b])).param_groups[0]["params"]), 2)
        opt = optim.SGD([("w", w), ("b", b)], lr=mt.tensor(0.25))
        self.assertEqual(opt.param_groups[0]["param_names"], ["w", "b"])
        self.assertEqual(opt.param_groups[0]["lr"], 0.25)
        self.assertIs(opt.param_groups[0]["params"][1], b)
        opt = optim.SGD([{"params": w, "lr": 0.5}, {"params": [b], "name": "biases"}], lr=0.1, momentum=0.9)
        first, second = opt.param_groups
        self.assertEqual((first["lr"], second["lr"], first["momentum"], second["name"]), (0.5, 0.1, 0.9, "biases"))
        opt.defaults["lr"] = 0.125
        opt.add_param_group({"params": parameter(), "momentum": 0.5})
        self.assertEqual((opt.param_groups[2]["lr"], opt.param_groups[2]["momentum"]), (0.125, 0.5))
        for name in NATIVE:
            cls = getattr(optim, name)
            plain = {
                k: v
                for k, v in (("foreach", True), ("fused", True), ("capturable", True))
                if k in inspect.signature(cls).parameters
            }
            self.assertIsInstance(cls([w], **plain), optim.Optimizer)

    def test_refused(self):
        w = parameter()
        for error, call in (
            (TypeError, lambda: optim.SGD(w)),
            (TypeError, lambda: optim.SGD({w})),
            (TypeError, lambda: optim.SGD(3)),
            (TypeError, lambda: optim.SGD("text")),
            (TypeError, lambda: optim.SGD([3])),
            (TypeError, lambda: optim.SGD([w, 3])),
            (TypeError, lambda: optim.SGD([("w", w), w])),
            (TypeError, lambda: optim.SGD([None])),
            (ValueError, lambda: optim.SGD([])),
            (ValueError, lambda: optim.SGD([{"lr": 1}])),
            (ValueError, lambda: optim.SGD([{"params": []}])),
            (ValueError, lambda: optim.SGD([{"params": [("w", w)]}, {"params": [parameter()]}])),
            (ValueError, lambda: optim.SGD([w, w])),
            (ValueError, lambda: optim.SGD([{"params": w}, {"params": w}])),
            (ValueError, lambda: optim.SGD([w * 2])),
            (ValueError, lambda: optim.SGD([mt.tensor([1, 2])])),
            (ValueError, lambda: optim.SGD([w], lr=-1)),
            (ValueError, lambda: optim.SGD([w], lr=math.nan)),
            (TypeError, lambda: optim.SGD([w], lr="fast")),
            (TypeError, lambda: optim.SGD([w], lr=None)),
            (TypeError, lambda: optim.SGD([w], lr=mt.ones(3))),
            (OverflowError, lambda: optim.SGD([w], lr=10**400)),
            (ValueError, lambda: optim.SGD([w], nesterov=True)),
            (TypeError, lambda: optim.SGD([w], nesterov="yes")),
            (ValueError, lambda: optim.SGD([w], differentiable=True)),
            (TypeError, lambda: optim.SGD([w], 0.1, 0, 0, 0, False, True)),
            (TypeError, lambda: optim.SGD([w], learning_rate=1)),
            (ValueError, lambda: optim.Adam([w], betas=(0.9, 1.0))),
            (ValueError, lambda: optim.Adam([w], betas=(0.9,))),
            (TypeError, lambda: optim.Adam([w], betas=0.9)),
            (TypeError, lambda: optim.Adam([w], betas=("a", "b"))),
            (TypeError, lambda: optim.Adam([w], state_dtype="float32")),
            (ValueError, lambda: optim.Adam([w], state_dtype=mt.int64)),
            (TypeError, lambda: optim.Adafactor([w], eps=(0.1, None))),
            (TypeError, lambda: optim.LBFGS([w], max_iter=2.5)),
            (OverflowError, lambda: optim.LBFGS([w], max_iter=2**70)),
            (ValueError, lambda: optim.LBFGS([w], line_search_fn="armijo")),
            (ValueError, lambda: optim.Muon([parameter([1.0])])),
            (TypeError, lambda: optim.SGD([w]).step(3)),
            (TypeError, lambda: optim.SGD([w]).add_param_group([parameter()])),
            (ValueError, lambda: optim.SGD([w]).add_param_group({"params": w})),
            (TypeError, lambda: _core._Optimizer()),
            (ValueError, lambda: _core._Optimizer("SDG", {}, (([w], {}),))),
            (TypeError, lambda: _core._Optimizer("SGD", {}, ((3, {}),))),
            (TypeError, lambda: _core._Optimizer("SGD", {}, (3,))),
            (ValueError, lambda: _core._Optimizer("SGD", {}, ())),
            (KeyError, lambda: _core._Optimizer("SGD", {"speed": 1}, (([w], {}),))),
            (IndexError, lambda: _core._Optimizer("SGD", {}, (([w], {}),))._option(1, "lr")),
            (IndexError, lambda: _core._Optimizer("SGD", {}, (([w], {}),))._options(-1)),
        ):
            with self.subTest(call=inspect.getsource(call).strip()):
                self.assertRaises(error, call)


class Groups(unittest.TestCase):
    def test_options(self):
        w = parameter()
        opt = optim.AdamW([w], lr=0.5)
        (group,) = opt.param_groups
        self.assertIs(group, opt.param_groups[0])
        for g in opt.param_groups:
            g["lr"] *= 0.1
        self.assertAlmostEqual(group["lr"], 0.05)
        group["betas"] = [0.5, mt.tensor(0.25)]
        self.assertEqual(group["betas"], (0.5, 0.25))
        group["state_dtype"] = mt.bfloat16
        self.assertIs(group["state_dtype"], mt.bfloat16)
        group["state_dtype"] = None
        self.assertIsNone(group.setdefault("state_dtype", 3))
        self.assertEqual(group.setdefault("initial_lr", 1.5), 1.5)
        self.assertEqual((group.get("initial_lr"), group.get("other", 3)), (1.5, 3))
        self.assertTrue("lr" in group and "params" in group and "other" not in group)
        self.assertEqual(len(group), len(list(group.keys())))
        self.assertEqual(dict(group.items())["weight_decay"], 0.01)
        self.assertEqual({**group}, dict(group))
        del group["initial_lr"]
        self.assertRaises(KeyError, lambda: group["initial_lr"])
        for error, call in (
            (ValueError, lambda: group.__setitem__("lr", -1)),
            (ValueError, lambda: group.__setitem__("eps", -1)),
            (TypeError, lambda: group.__setitem__("eps", "small")),
            (TypeError, lambda: group.__setitem__("params", [])),
            (ValueError, lambda: group.__setitem__("differentiable", True)),
            (ValueError, lambda: group.__setitem__("decoupled_weight_decay", False)),
            (TypeError, lambda: group.__delitem__("lr")),
            (TypeError, lambda: group["params"].append(w)),
            (TypeError, lambda: opt.param_groups.append({})),
            (AttributeError, lambda: setattr(opt, "param_groups", [])),
            (AttributeError, lambda: setattr(opt, "state", {})),
        ):
            self.assertRaises(error, call)
        self.assertEqual((group["eps"], group["lr"]), (1e-8, 0.05))

    def test_text(self):
        text = repr(optim.SGD([parameter()], momentum=0.5))
        self.assertTrue(text.startswith("SGD (\nParameter Group 0\n    dampening: 0.0\n    lr: 0.001\n"))
        self.assertTrue(text.endswith("    weight_decay: 0.0\n)"))

    def test_groups_outlive_the_optimizer(self):
        opt = optim.SGD([parameter()], lr=0.5)
        group, gone = opt.param_groups[0], weakref.ref(opt)
        gc.disable()
        try:
            del opt
            self.assertIsNone(gone())
        finally:
            gc.enable()
        self.assertEqual(group["lr"], 0.5)


class Steps(unittest.TestCase):
    def test_closures(self):
        w = parameter([2.0])
        opt = optim.SGD([w], lr=0.25)

        def closure():
            self.assertTrue(mt.is_grad_enabled())
            opt.zero_grad()
            (w * w).sum().backward()
            return {"any": "object"}

        with mt.no_grad():
            self.assertEqual(opt.step(closure), {"any": "object"})
        self.assertEqual(w.tolist(), [1.0])
        self.assertEqual(opt.step(lambda: 3), 3)
        self.assertIsNone(opt.step(closure=lambda: None))

        class Mine(Exception):
            pass

        error = Mine()

        def failing():
            raise error

        for cls in (optim.SGD, optim.LBFGS):
            opt = cls([w])
            with self.assertRaises(Mine) as raised:
                opt.step(failing)
            self.assertIs(raised.exception, error)
            for inside in (
                lambda: opt.step(),
                lambda: opt.load_state_dict(opt.state_dict()),
                lambda: optim.Optimizer.zero_grad(opt) or opt._core._add_group(([parameter()], {})),
            ):
                with self.assertRaisesRegex(RuntimeError, "closure"):
                    opt.step(lambda: inside() or w.sum())
            opt.step(lambda: opt.param_groups[0].update(lr=0.5) or (w * w).sum())
            self.assertEqual(opt.param_groups[0]["lr"], 0.5)

    def test_zero_grad(self):
        w, v = parameter(), parameter()
        opt = optim.SGD([w, v])
        give_gradients([w], 1)
        opt.zero_grad(set_to_none=False)
        self.assertEqual(w.grad.abs().sum().item(), 0)
        opt.zero_grad()
        self.assertIsNone(w.grad)
        opt.step()
        self.assertEqual(len(opt.state), 0)

    def test_threads(self):
        w = mt.ones(100000).requires_grad_()
        w.grad = mt.ones(100000)
        opt = optim.SGD([w], lr=0.5)
        rates = []

        def work():
            for _ in range(25):
                opt.step()
                rates.append(opt.param_groups[0]["lr"])
                opt.state_dict()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((w[0].item(), w[-1].item(), len(rates)), (-49, -49, 100))

    def test_master_weights(self):
        w = mt.ones(4, dtype=mt.bfloat16).requires_grad_()
        opt = optim.SGD([w], lr=2.0**-10)
        for _ in range(8):
            w.grad = mt.ones(4, dtype=mt.bfloat16)
            opt.step()
        self.assertEqual(w[0].item(), 1 - 2.0**-7)
        self.assertIs(opt.state[w]["master_weight"].dtype, mt.float32)


class State(unittest.TestCase):
    def test_shape(self):
        params = [parameter(), parameter()]
        opt = optim.SGD([{"params": params[0], "lr": 0.5}, {"params": params[1]}], momentum=0.9)
        self.assertEqual(dict(opt.state[params[0]]), {})
        give_gradients(params[1:], 1)
        opt.step()
        state = opt.state_dict()
        self.assertEqual(list(state), ["state", "param_groups"])
        self.assertEqual(list(state["state"]), [1])
        self.assertEqual([g["params"] for g in state["param_groups"]], [[0], [1]])
        self.assertEqual([g["lr"] for g in state["param_groups"]], [0.5, 1e-3])
        self.assertEqual(set(state["state"][1]), {"step", "momentum_buffer"})
        self.assertEqual(opt.state[params[1]]["step"].item(), 1)
        self.assertTrue(params[1] in opt.state and params[0] not in opt.state)
        give_gradients(params, 2)
        opt.step()
        self.assertEqual([p is q for p, q in zip(opt.state, params)], [True, True])
        opt.state[params[0]]["momentum_buffer"].zero_()
        self.assertEqual(opt.state_dict()["state"][0]["momentum_buffer"].abs().sum().item(), 0)
        with self.assertRaises(TypeError):
            opt.state[params[0]]["momentum_buffer"] = 3

    def test_continuation_is_the_same(self):
        options = {
            "SGD": {"momentum": 0.9, "nesterov": True},
            "Adam": {"amsgrad": True},
            "RMSprop": {"momentum": 0.5, "centered": True},
        }
        for name in NATIVE:
            with self.subTest(name):
                make = lambda p: getattr(optim, name)(p, lr=0.05, **options.get(name, {}))  # noqa: E731
                whole, _ = run(make, 10)
                _, opt = run(make, 4)
                opt.param_groups[0]["note"] = "kept"
                saved = pickle.loads(pickle.dumps(opt.state_dict()))
                values = [p.detach().clone() for p in opt.param_groups[0]["params"]]
                params = [p.requires_grad_() for p in values]
                other = getattr(optim, name)(params, lr=1e-5)
                other.load_state_dict(saved)
                self.assertEqual(other.param_groups[0]["note"], "kept")
                for copied in (other, copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
                    self.assertIs(type(copied), type(other))
                    own = copied.param_groups[0]["params"]
                    self.assertEqual(own[0] is params[0], copied is other)
                    self.assertEqual(repr(copied), repr(other))
                    if copied is other:
                        continue
                    for p, expected in zip(run(copied, 6, 5, list(own))[0], whole):
                        np.testing.assert_array_equal(p, expected)
                for p, expected in zip(run(other, 6, 5, params)[0], whole):
                    np.testing.assert_array_equal(p, expected)

    def test_lbfgs(self):
        def stepped(opt, count):
            p = opt.param_groups[0]["params"][0]

            def closure():
                opt.zero_grad()
                loss = ((1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2).sum()
                loss.backward()
                return loss

            for _ in range(count):
                opt.step(closure)
            return p.detach().clone()

        def made(values):
            return optim.LBFGS([values.detach().clone().requires_grad_()], max_iter=3, line_search_fn="strong_wolfe")

        first = made(parameter([-1.0, 1.5]))
        other = made(stepped(first, 2))
        other.load_state_dict(copy.deepcopy(first.state_dict()))
        self.assertEqual(stepped(first, 2).tolist(), stepped(other, 2).tolist())

    def test_state_of_pytorch(self):
        """As it saves it: without steps of SGD, with more options, with numbers in place of tensors."""
        w = parameter([1.0])
        opt = optim.SGD([w])
        opt.load_state_dict(
            {
                "state": {7: {"momentum_buffer": mt.tensor([2.0], dtype=mt.float64)}},
                "param_groups": [{"lr": 0.5, "momentum": 0.5, "foreach": None, "differentiable": False, "params": [7]}],
            }
        )
        w.grad = mt.tensor([1.0], dtype=mt.float64)
        opt.step()
        self.assertEqual(w.item(), 0)
        opt = optim.Adam([w])
        average = mt.tensor([2.0], dtype=mt.float64)
        opt.load_state_dict(
            {
                "state": {
                    0: {"step": mt.tensor(3.0), "exp_avg": average, "exp_avg_sq": average, "max_exp_avg_sq": None}
                },
                "param_groups": [{"lr": 0.5, "params": [0]}],
            }
        )
        self.assertEqual(opt.state[w]["step"].item(), 3)

    def test_refused_state_changes_nothing(self):
        _, opt = run(lambda p: optim.Adam(p, lr=0.5), 2)
        before = copy.deepcopy(opt.state_dict())

        def changed(change):
            state = copy.deepcopy(before)
            state["param_groups"][0]["lr"] = 0.25
            change(state)
            return state

        for error, change in (
            (ValueError, lambda s: s.pop("state")),
            (ValueError, lambda s: s["param_groups"].append(s["param_groups"][0])),
            (ValueError, lambda s: s["param_groups"][0]["params"].pop()),
            (ValueError, lambda s: s["param_groups"][0].update(lr=-1)),
            (TypeError, lambda s: s["param_groups"][0].update(lr="fast")),
            (ValueError, lambda s: s["param_groups"][0].update(differentiable=True)),
            (ValueError, lambda s: s["state"].update({5: {}})),
            (ValueError, lambda s: s["state"][0].update(other=mt.ones(1))),
            (ValueError, lambda s: s["state"][0].update(exp_avg=mt.ones(1))),
        ):
            self.assertRaises(error, opt.load_state_dict, changed(change))
            after = opt.state_dict()
            self.assertEqual(after["param_groups"], before["param_groups"])
            for number, values in before["state"].items():
                for name, value in values.items():
                    self.assertTrue(mt.equal(after["state"][number][name], value), name)
        for wrong in (None, 3, [], {}):
            self.assertRaises(ValueError, opt.load_state_dict, wrong)

    def test_optimizers_in_python(self):
        class Momentum(optim.Optimizer):
            def __init__(self, params, lr=0.05):
                super().__init__(params, {"lr": lr})

            @mt.no_grad
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        b = self.state[p].get("b")
                        self.state[p]["b"] = p.grad.clone() if b is None else 0.9 * b + p.grad
                        p -= group["lr"] * self.state[p]["b"]

        expected, _ = run(lambda p: optim.SGD(p, lr=0.05, momentum=0.9))
        ours, opt = run(Momentum)
        np.testing.assert_allclose(ours[0], expected[0], rtol=1e-12)
        other = Momentum([parameter(), parameter(start((5, 2)))])
        other.load_state_dict(copy.deepcopy(opt.state_dict()))
        self.assertEqual(other.state_dict()["state"][0]["b"].tolist(), opt.state_dict()["state"][0]["b"].tolist())
        schedule = lrs.ExponentialLR(opt, 0.5)
        schedule.step()
        self.assertEqual(opt.param_groups[0]["lr"], 0.025)
        opt.zero_grad()
        self.assertIsNone(opt.param_groups[0]["params"][0].grad)


class Schedules(unittest.TestCase):
    BASE = (0.5, 0.05)

    def rates(self, make, steps=50, **options):
        """Returns the rates of two groups in each step, and checks that state_dict() continues them."""
        opt = self.optimizer()
        schedule = make(opt)
        seen = [schedule.get_last_lr()]
        for step in range(steps):
            if step == steps // 2:
                optimizer_state, state = pickle.loads(pickle.dumps((opt.state_dict(), schedule.state_dict())))
                opt = self.optimizer()
                schedule = make(opt)
                opt.load_state_dict(optimizer_state)
                schedule.load_state_dict(state)
            opt.step()
            schedule.step()
            self.assertEqual([g["lr"] for g in opt.param_groups], schedule.get_last_lr())
            seen.append(schedule.get_last_lr())
        self.assertEqual(schedule.last_epoch, steps)
        return np.array(seen)

    def optimizer(self):
        groups = [{"params": parameter(), "lr": self.BASE[0]}, {"params": parameter(), "lr": self.BASE[1]}]
        return optim.SGD(groups, momentum=0.9)

    def check(self, make, factor):
        """factor(base, step)"""
        expected = [[factor(base, step) for base in self.BASE] for step in range(51)]
        np.testing.assert_allclose(self.rates(make), expected, rtol=1e-9, atol=1e-12)

    def test_closed_forms(self):
        cosine = lambda high, low, part: low + (high - low) * (1 + math.cos(math.pi * part)) / 2  # noqa: E731
        self.check(lambda o: lrs.LambdaLR(o, lambda t: 0.9**t), lambda b, t: b * 0.9**t)
        self.check(lambda o: lrs.MultiplicativeLR(o, [lambda t: 0.9] * 2), lambda b, t: b * 0.9**t)
        self.check(lambda o: lrs.StepLR(o, 7, 0.5), lambda b, t: b * 0.5 ** (t // 7))
        milestones = [3, 8, 8, 20]
        passed = lambda t: sum(t >= m for m in milestones)  # noqa: E731
        self.check(lambda o: lrs.MultiStepLR(o, milestones, 0.5), lambda b, t: b * 0.5 ** passed(t))
        self.check(lambda o: lrs.ConstantLR(o, 0.25, 6), lambda b, t: b * (0.25 if t < 6 else 1))
        self.check(lambda o: lrs.ConstantLR(o, 0.0, 6), lambda b, t: b * (0 if t < 6 else 1))
        linear = lambda t: 0.2 + 0.6 * min(t, 12) / 12  # noqa: E731
        self.check(lambda o: lrs.LinearLR(o, 0.2, 0.8, 12), lambda b, t: b * linear(t))
        polynomial = lambda t: (1 - min(t, 30) / 30) ** 1.5  # noqa: E731
        self.check(lambda o: lrs.PolynomialLR(o, 30, 1.5), lambda b, t: b * polynomial(t))
        self.check(lambda o: lrs.ExponentialLR(o, 0.95), lambda b, t: b * 0.95**t)
        self.check(lambda o: lrs.CosineAnnealingLR(o, T_max=12, eta_min=0.01), lambda b, t: cosine(b, 0.01, t / 12))

        def restarts(base, step):
            length = 4
            while step >= length:
                step, length = step - length, 2 * length
            return cosine(base, 0.01, step / length)

        self.check(lambda o: lrs.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2, eta_min=0.01), restarts)
        swa = lambda b, t: cosine(b, 0.2, min(t, 10) / 10)  # noqa: E731
        self.check(lambda o: optim.swa_utils.SWALR(o, swa_lr=0.2), swa)

        def one_cycle(_, step):
            peak, last = 0.3 * 60 - 1, 59
            if step <= peak:
                return cosine(1 / 25, 1, step / peak)
            return cosine(1, 1 / 25 / 1e4, (step - peak) / (last - peak))

        self.check(lambda o: lrs.OneCycleLR(o, max_lr=1.0, total_steps=60), one_cycle)

        def cyclic(_, step):
            cycle, at = divmod(step, 10)
            return 0.1 + 0.8 * (at / 4 if at <= 4 else (10 - at) / 6) / 2**cycle

        make = lambda o: lrs.CyclicLR(o, 0.1, 0.9, step_size_up=4, step_size_down=6, mode="triangular2")  # noqa: E731
        self.check(make, cyclic)

    def test_combinations(self):
        make = lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.5, 4), lrs.ExponentialLR(o, 0.9)])  # noqa: E731
        opt = self.optimizer()
        schedule = make(opt)
        for t in range(20):
            self.assertAlmostEqual(opt.param_groups[0]["lr"], 0.5 * 0.9**t * (0.5 if t < 4 else 1))
            schedule.step()

        def sequence(o):
            parts = [lrs.LinearLR(o, 0.1, 1.0, 10), lrs.CosineAnnealingLR(o, 40)]
            return lrs.SequentialLR(o, parts, milestones=[10])

        def expected(base, t):
            return base * (0.1 + 0.09 * t) if t < 10 else base * (1 + math.cos(math.pi * (t - 10) / 40)) / 2

        self.check(sequence, expected)

    def test_momentum(self):
        for cls, get in ((optim.SGD, lambda g: g["momentum"]), (optim.Adam, lambda g: g["betas"][0])):
            opt = cls([parameter()])
            schedule = lrs.OneCycleLR(opt, 1.0, 10, pct_start=0.5, base_momentum=0.5, max_momentum=0.9)
            momentum = []
            for _ in range(9):
                momentum.append(get(opt.param_groups[0]))
                schedule.step()
            self.assertAlmostEqual(momentum[0], 0.9)
            self.assertAlmostEqual(momentum[4], 0.5)
            schedule = lrs.CyclicLR(opt, 0.1, 1.0, 2, base_momentum=0.5, max_momentum=0.9)
            schedule.step()
            self.assertAlmostEqual(get(opt.param_groups[0]), 0.7)
        with self.assertRaises(ValueError):
            lrs.OneCycleLR(optim.Adagrad([parameter()]), 1.0, 10)

    def test_plateau(self):
        opt = self.optimizer()
        schedule = lrs.ReduceLROnPlateau(opt, factor=0.5, patience=1, cooldown=1, min_lr=[0.1, 0.0])
        rates = []
        for loss in (1.0, 0.9, 0.9, mt.tensor(0.9), 0.9, 0.9, 0.9, math.nan, 0.1):
            schedule.step(loss)
            rates.append(schedule.get_last_lr()[0])
        self.assertEqual(rates, [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125])
        other = lrs.ReduceLROnPlateau(self.optimizer())
        other.load_state_dict(schedule.state_dict())
        self.assertEqual((other.best, other.patience), (0.1, 1))

    def test_chainable_and_resumed(self):
        opt = self.optimizer()
        schedule = lrs.StepLR(opt, 2)
        opt.param_groups[0]["lr"] = 10.0
        for _ in range(2):
            schedule.step()
        self.assertAlmostEqual(opt.param_groups[0]["lr"], 1.0)
        self.assertRaises(KeyError, lrs.StepLR, self.optimizer(), 2, last_epoch=3)
        resumed = lrs.StepLR(opt, 2, last_epoch=2)
        self.assertEqual((resumed.last_epoch, resumed.base_lrs[0]), (3, 0.5))
        resumed.step(8)
        self.assertAlmostEqual(opt.param_groups[0]["lr"], 0.5e-4)
        schedule = lrs.LambdaLR(opt, abs)
        opt.add_param_group({"params": parameter()})
        self.assertRaises(ValueError, schedule.step)

    def test_refused(self):
        opt = self.optimizer()
        for error, call in (
            (TypeError, lambda: lrs.StepLR(3, 1)),
            (ValueError, lambda: lrs.StepLR(opt, 0)),
            (TypeError, lambda: lrs.LambdaLR(opt, 3)),
            (ValueError, lambda: lrs.LambdaLR(opt, [abs])),
            (ValueError, lambda: lrs.ConstantLR(opt, 2)),
            (ValueError, lambda: lrs.LinearLR(opt, 0)),
            (ValueError, lambda: lrs.CosineAnnealingLR(opt, 0)),
            (ValueError, lambda: lrs.CosineAnnealingWarmRestarts(opt, 1.5)),
            (ValueError, lambda: lrs.CyclicLR(opt, 0.1, [0.2], 4)),
            (ValueError, lambda: lrs.CyclicLR(opt, 0.1, 0.2, 4, mode="square")),
            (ValueError, lambda: lrs.OneCycleLR(opt, 0.1)),
            (ValueError, lambda: lrs.OneCycleLR(opt, 0.1, 10, anneal_strategy="exp")),
            (ValueError, lambda: lrs.ReduceLROnPlateau(opt, factor=1)),
            (ValueError, lambda: lrs.ChainedScheduler([])),
            (TypeError, lambda: lrs.ChainedScheduler([lrs.ReduceLROnPlateau(opt)])),
            (ValueError, lambda: lrs.SequentialLR(opt, [lrs.StepLR(opt, 1)], [3])),
        ):
            self.assertRaises(error, call)


class Clipping(unittest.TestCase):
    def test_norm(self):
        params = [parameter(), parameter(), parameter()]
        for order in (2.0, 1.0, math.inf, 3):
            give_gradients(params[:2], 1)
            flat = np.concatenate([p.grad.numpy().ravel() for p in params[:2]])
            expected = np.linalg.norm(flat, order)
            self.assertAlmostEqual(_clip.get_total_norm([p.grad for p in params[:2]], order).item(), expected)
            norm = _clip.clip_grad_norm_(iter(params), 0.5, order)
            self.assertAlmostEqual(norm.item(), expected)
            clipped = np.concatenate([p.grad.numpy().ravel() for p in params[:2]])
            np.testing.assert_allclose(clipped, flat * 0.5 / (expected + 1e-6), rtol=1e-12)
        _clip.clip_grads_with_norm_(params, 0.25, mt.tensor(0.5, dtype=mt.float64))
        np.testing.assert_allclose(params[0].grad.numpy(), clipped.reshape(2, 3, 4)[0] / 2, rtol=1e-5)
        self.assertEqual(_clip.clip_grad_norm_([], 1).item(), 0)
        self.assertEqual(_clip.get_total_norm([]).item(), 0)
        params[0].grad.fill_(math.nan)
        self.assertRaises(RuntimeError, _clip.clip_grad_norm_, params, 1.0, error_if_nonfinite=True)
        self.assertRaises(RuntimeError, _clip.get_total_norm, params[0].grad, error_if_nonfinite=True)
        self.assertRaises(ValueError, _clip.clip_grad_norm_, params, -1.0)
        self.assertRaises(TypeError, _clip.clip_grad_norm_, [3], 1.0)
        self.assertRaises(TypeError, _core._clip_grad_norm, [None], 1.0, 2.0, False)

    def test_value(self):
        w = parameter()
        give_gradients([w], 1)
        expected = np.clip(w.grad.numpy(), -0.25, 0.25)
        _clip.clip_grad_value_(w, 0.25)
        np.testing.assert_array_equal(w.grad.numpy(), expected)


if __name__ == "__main__":
    unittest.main()
