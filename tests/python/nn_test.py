"""Modules in Python: the layers of C++, parts, state, hooks and copies."""

import copy
import gc
import math
import pickle
import re
import threading
import unittest
import weakref
from collections import OrderedDict
from pathlib import Path

import mytorch as mt
import mytorch.nn.functional as F
import numpy as np
from mytorch import nn

ROOT = Path(__file__).resolve().parents[2]


class Net(nn.Module):
    """A module of the program."""

    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(mt.ones(width))
        self.register_buffer("calls", mt.zeros((), dtype=mt.int64))
        self.register_buffer("scratch", mt.zeros(1), persistent=False)
        self.last = nn.Sequential(OrderedDict(act=nn.ReLU(), out=nn.Linear(width, 2, bias=False)))

    def forward(self, x):
        self.calls += 1
        return self.last(self.norm(self.first(x)) * self.scale)


class Doubled(nn.Linear):
    """A layer whose forward is Python's."""

    def forward(self, input):
        return 2 * F.linear(input, self.weight, self.bias)


class Layers(unittest.TestCase):
    def close(self, a, b, tolerance=1e-5):
        np.testing.assert_allclose(a.detach().numpy(), b, rtol=tolerance, atol=tolerance)

    def test_every_layer_of_cpp(self):
        """Every class of the headers is there, under its name."""
        absent = {"Lambda", "Functional"}  # functions are callable as they are
        for path in sorted((ROOT / "nn/include/mytorch/nn").glob("*.h")):
            found = re.findall(
                r"(?<!>\n)^class (\w+)(?: final)? : public (?:Layer|LayerWith|LossWith|Callable)\b",
                path.read_text(),
                re.M,
            )
            for name in found:
                if (
                    name in absent
                    or name.startswith("ModuleHolder")
                    or path.name in ("layer.h", "loss.h")
                    and name in ("Callable", "LayerWith", "LossWith")
                ):
                    continue
                with self.subTest(name=name):
                    self.assertTrue(issubclass(getattr(nn, name), nn.Module))

    def test_numbers(self):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((5, 3))
        fc = nn.Linear(3, 4, dtype=mt.float64)
        self.close(fc(mt.tensor(x)), x @ fc.weight.detach().numpy().T + fc.bias.detach().numpy())
        norm = nn.LayerNorm(3, eps=0.5, dtype=mt.float64)
        self.close(norm(mt.tensor(x)), (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.5))
        conv = nn.Conv2d(2, 2, (2, 3), stride=(1, 2), padding=(1, 0), groups=2, bias=False, dtype=mt.float64)
        image = rng.standard_normal((1, 2, 4, 7))
        padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (0, 0)))
        expected = np.zeros((1, 2, 5, 3))
        w = conv.weight.detach().numpy()
        for c in range(2):
            for i in range(5):
                for j in range(3):
                    expected[0, c, i, j] = (padded[0, c, i : i + 2, 2 * j : 2 * j + 3] * w[c, 0]).sum()
        self.close(conv(mt.tensor(image)), expected)
        cell = nn.LSTMCell(3, 4, dtype=mt.float64)
        h, c = rng.standard_normal((2, 5, 4))
        gates = x @ cell.weight_ih.detach().numpy().T + cell.bias_ih.detach().numpy()
        gates = gates + h @ cell.weight_hh.detach().numpy().T + cell.bias_hh.detach().numpy()
        i, f, g, o = np.split(gates, 4, 1)
        sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
        c2 = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h2, c2_ = cell(mt.tensor(x), (mt.tensor(h), mt.tensor(c)))
        self.close(c2_, c2)
        self.close(h2, sigmoid(o) * np.tanh(c2))

    def test_options_arrive(self):
        """Each option changes the layer as the function with the same option does."""
        x = mt.randn(2, 4, 8, 8)
        pool = nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True, return_indices=True)
        y, indices = pool(x)
        y2, indices2 = F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)
        self.assertTrue((y == y2).all() and (indices == indices2).all())
        self.assertTrue((nn.MaxUnpool2d(2)(*F.max_pool2d(x, 2, return_indices=True)) != 0).any())
        self.assertEqual(nn.AvgPool2d(3, divisor_override=1)(x).shape, (2, 4, 2, 2))
        self.assertTrue((nn.AvgPool2d(3, divisor_override=1)(x) == F.avg_pool2d(x, 3, divisor_override=1)).all())
        self.assertEqual(nn.Conv2d(4, 2, 3, padding="same", padding_mode="circular")(x).shape, (2, 2, 8, 8))
        self.assertEqual(nn.ConvTranspose2d(4, 2, 3, stride=2)(x, output_size=(18, 18)).shape, (2, 2, 18, 18))
        self.assertEqual(nn.Upsample(scale_factor=(1, 2), mode="bilinear", align_corners=True)(x).shape, (2, 4, 8, 16))
        self.assertIsNone(nn.BatchNorm2d(4, affine=False).weight)
        self.assertIsNone(nn.BatchNorm2d(4, track_running_stats=False).running_mean)
        norm = nn.BatchNorm2d(4, momentum=None)  # cumulative averages
        norm(x), norm(3 * x)
        self.close(norm.running_mean, 2 * x.mean((0, 2, 3)).numpy())
        loss = nn.CrossEntropyLoss(weight=mt.tensor([1.0, 0.0]), ignore_index=7, reduction="sum", label_smoothing=0.25)
        logits, labels = mt.randn(3, 2), mt.tensor([0, 7, 1])
        expected = F.cross_entropy(logits, labels, mt.tensor([1.0, 0.0]), 7, "sum", 0.25)
        self.assertEqual(loss(logits, labels).item(), expected.item())
        self.assertEqual(list(dict(loss.named_buffers())), ["weight"])
        self.assertEqual(nn.Embedding(5, 3, padding_idx=1).weight[1].tolist(), [0, 0, 0])
        rows = mt.randn(4, 2)
        table = nn.Embedding.from_pretrained(rows)
        self.assertFalse(table.weight.requires_grad)
        self.assertTrue((table(mt.tensor([2])) == rows[2]).all())
        distance = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: (a - b).abs().sum(-1), margin=3)
        a, p, n = mt.randn(3, 5, 2)
        expected = ((a - p).abs().sum(-1) - (a - n).abs().sum(-1) + 3).clamp(min=0).mean()
        self.assertAlmostEqual(distance(a, p, n).item(), expected.item(), places=5)
        layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, activation=lambda v: v * 0)
        self.assertEqual(layer(mt.randn(3, 1, 4)).shape, (3, 1, 4))

    def test_arguments(self):
        conv = nn.Conv2d(1, 2, 3)
        self.assertEqual((conv.in_channels, conv.kernel_size, conv.bias.shape), (1, (3, 3), (2,)))
        self.assertEqual(nn.Linear(2, 3, device="cpu", dtype=mt.float64).weight.dtype, mt.float64)
        for make in (
            lambda: nn.Linear(2),
            lambda: nn.Linear("2", 3),
            lambda: nn.Conv2d(1, 2, (3, 3, 3)),
            lambda: nn.Linear(2, 3, wrong=1),
            lambda: nn.Embedding(2, 3)(4),
            lambda: F.interpolate(mt.ones(1, 1, 2, 2), size="4"),
        ):
            self.assertRaises(TypeError, make)
        with self.assertRaisesRegex(ValueError, "mean"):
            nn.MSELoss(reduction="most")
        with self.assertRaisesRegex(ValueError, r"in Linear\(in_features=3"):
            nn.Linear(3, 4)(mt.ones(2, 5))

    def test_options_change(self):
        """Options are those of C++, read and written."""
        drop = nn.Dropout(0.5)
        drop.p = 0.0
        self.assertTrue((drop(mt.ones(100)) == 1).all())
        self.assertEqual(drop.p, 0)
        conv = nn.Conv2d(1, 1, 3, bias=False)
        conv.stride = (2, 1)
        self.assertEqual(conv(mt.ones(1, 1, 7, 7)).shape, (1, 1, 3, 5))
        self.assertEqual((conv.stride, conv.padding, conv.dilation), ((2, 1), (0, 0), (1, 1)))
        self.assertEqual(copy.deepcopy(conv).stride, (2, 1))
        norm = nn.LayerNorm(2, elementwise_affine=False)
        norm.eps = 100.0
        self.assertLess(norm(mt.tensor([1.0, -1.0])).abs().max().item(), 0.1)
        self.assertEqual((norm.normalized_shape, nn.MSELoss("sum").reduction), ((2,), "sum"))
        batch = nn.BatchNorm1d(1, momentum=None)
        self.assertIsNone(batch.momentum)
        batch.momentum = 1.0
        batch(mt.tensor([[2.0], [4.0]]))
        self.assertEqual(batch.running_mean.item(), 3)
        with self.assertRaisesRegex(TypeError, "stride"):
            conv.stride = "wide"
        self.assertEqual(nn.Conv2d(1, 1, 3, padding="same").padding, "same")
        self.assertIsNone(nn.Linear(2, 3, bias=None).bias)
        drop.note = 3  # an attribute of the program
        self.assertEqual(drop.note, 3)
        stack = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.9)
        for part in stack.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        stack.self_attn.dropout = 0.0
        x = mt.randn(2, 1, 4)
        self.assertTrue((stack(x) == stack(x)).all())

    def test_computed_weight(self):
        """A weight that is computed in each call, as weight normalization does."""
        layer = nn.Linear(2, 2, bias=False)
        layer.direction = nn.Parameter(layer.weight.detach().clone())
        del layer.weight
        layer.weight = layer.direction * 2
        x = mt.ones(1, 2)
        y = layer(x)
        np.testing.assert_allclose(y.detach().numpy(), 2 * (x @ layer.direction.T).detach().numpy(), rtol=1e-6)
        y.sum().backward()
        self.assertEqual(layer.direction.grad.tolist(), [[2, 2], [2, 2]])
        self.assertEqual([name for name, _ in layer.named_parameters()], ["direction"])

    def test_parts_come_back(self):
        layer = nn.Linear(2, 3)
        del layer.bias
        layer.bias = nn.Parameter(mt.ones(3))
        self.assertTrue((layer(mt.zeros(1, 2)) == 1).all())

    def test_reset(self):
        layer = nn.Linear(3, 3)
        before = layer.weight.detach().clone()
        weight = layer.weight
        layer.reset_parameters()
        self.assertIs(layer.weight, weight)
        self.assertFalse((weight == before).all())
        self.assertFalse(hasattr(nn.ReLU(), "reset_parameters"))
        norm = nn.BatchNorm1d(3)
        norm(mt.randn(4, 3))
        norm.reset_running_stats()
        self.assertEqual((norm.running_mean.tolist(), norm.running_var.tolist()), ([0] * 3, [1] * 3))

        class Ones(nn.Linear):
            def reset_parameters(self):
                super().reset_parameters()
                nn.init.ones_(self.weight)

        self.assertTrue((Ones(2, 2).weight == 1).all())

    def test_more_arguments(self):
        x = mt.tensor([-1.0, 2.0])
        y = nn.SiLU(inplace=True)(x)
        self.assertIs(y, x)
        self.assertTrue((nn.Hardswish()(x) == F.hardswish(x)).all())
        self.assertEqual(F.batch_norm(mt.randn(4, 2), None, None, training=True).shape, (4, 2))
        self.assertEqual(nn.MaxPool2d(2, 2, 0, 1, True)(mt.ones(1, 1, 4, 4))[1].dtype, mt.int64)
        self.assertEqual(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), 1, None, False)(mt.ones(1, 1, 4)).ndim, 3
        )
        layer = nn.TransformerEncoderLayer(4, 2, 4, activation=nn.GELU())
        self.assertEqual(layer(mt.ones(1, 1, 4)).ndim, 3)

    def test_recurrent(self):
        layer = nn.GRU(3, 4, num_layers=2, bidirectional=True)
        y, h = layer(mt.randn(5, 2, 3))
        self.assertEqual((y.shape, h.shape), ((5, 2, 8), (4, 2, 4)))
        self.assertIn("weight_ih_l1_reverse", layer.state_dict())
        rnn = nn.utils.rnn
        sequences = [mt.randn(4, 3), mt.randn(2, 3)]
        packed, h = layer(rnn.pack_sequence(sequences))
        padded, lengths = rnn.pad_packed_sequence(packed)
        self.assertEqual((padded.shape, lengths.tolist()), ((4, 2, 8), [4, 2]))
        alone, _ = layer(sequences[1])
        self.close(padded[:2, 1], alone.detach().numpy())
        lstm = nn.LSTM(3, 4)
        _, state = lstm(sequences[0])
        self.assertEqual(lstm(sequences[1], state)[0].shape, (2, 4))
        with self.assertRaises(TypeError):
            lstm(sequences[1], state[0])

    def test_lazy(self):
        net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
        with self.assertRaisesRegex(ValueError, "first call"):
            list(net.parameters())
        net(mt.ones(2, 3, 5, 5))
        self.assertEqual([type(each).__name__ for each in net], ["Conv2d", "BatchNorm2d", "Flatten", "Linear"])
        self.assertEqual((net[0].in_channels, net[1].num_features, net[3].in_features), (3, 4, 36))
        net.eval()
        again = pickle.loads(pickle.dumps(net))
        x = mt.randn(1, 3, 5, 5)
        self.assertTrue((again(x) == net(x)).all())

    def test_dropout(self):
        layer = nn.Dropout(0.5)
        x = mt.ones(1000)
        self.assertTrue((layer(x) == 0).any())
        layer.eval()
        self.assertTrue((layer(x) == x).all())
        layer.training = True
        self.assertTrue((layer(x) == 0).any())
        generator = mt.Generator()
        mine = nn.Dropout(0.5, generator=generator)
        generator.manual_seed(1)
        first = mine(x)
        generator.manual_seed(1)
        self.assertTrue((mine(x) == first).all())


class Composite(unittest.TestCase):
    """Layers of C++ that hold others."""

    def test_parts(self):
        stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, norm=nn.LayerNorm(8))
        names = [name for name, _ in stack.named_modules()]
        self.assertIn("layers.1.self_attn.out_proj", names)
        self.assertIsInstance(stack.layers, nn.ModuleList)
        self.assertIsInstance(stack.layers[0].self_attn, nn.MultiheadAttention)
        self.assertEqual(len(stack.layers), 2)
        x = mt.randn(2, 3, 8)
        before = stack.eval()(x)
        with mt.no_grad():
            stack.layers[1].linear1.weight.mul_(3)
        self.assertFalse((stack(x) == before).all())
        stack.layers[1].linear1.weight = nn.Parameter(mt.zeros(16, 8))  # C++ uses it, too
        stack.layers[1].linear2.weight = nn.Parameter(mt.zeros(8, 16))
        stack(x).sum().backward()
        self.assertIsNotNone(stack.layers[1].linear2.weight.grad)
        with self.assertRaisesRegex(NotImplementedError, "self_attn"):
            stack.layers[0].self_attn = nn.MultiheadAttention(8, 2)
        with self.assertRaisesRegex(NotImplementedError, "ModuleList"):
            nn.TransformerEncoder(type("Mine", (nn.TransformerEncoderLayer,), {"forward": lambda s, x: x})(8, 2), 2)

    def test_modes(self):
        stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5), 1)
        x = mt.randn(3, 2, 8)
        self.assertFalse((stack(x) == stack(x)).all())
        stack.eval()
        self.assertTrue((stack(x) == stack(x)).all())
        stack.layers[0].dropout.train()  # of this part alone
        self.assertFalse((stack(x) == stack(x)).all())

    def test_hooks_of_parts(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
        seen = []
        handles = [
            layer.linear1.register_forward_hook(lambda m, args, out: seen.append((m, args[0].shape, out.shape))),
            layer.linear1.register_full_backward_hook(lambda m, gin, gout: seen.append(gout[0].shape)),
        ]
        layer(mt.randn(3, 2, 8)).sum().backward()
        self.assertEqual(seen, [(layer.linear1, (3, 2, 8), (3, 2, 16)), (3, 2, 16)])
        for handle in handles:
            handle.remove()
        layer(mt.randn(3, 2, 8)).sum().backward()
        self.assertEqual(len(seen), 2)
        layer.linear2.register_forward_hook(lambda m, args, out: out * 0)
        expected = layer.norm2(
            layer.norm1(0 * mt.ones(3, 2, 8) + (x := mt.randn(3, 2, 8)) + layer.self_attn(x, x, x)[0])
        )
        np.testing.assert_allclose(layer(x).detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)

    def test_failing_hook(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16)

        def fail(*_):
            raise KeyError("mine")

        layer.linear1.register_forward_hook(fail)
        with self.assertRaisesRegex(KeyError, "mine"):
            layer(mt.randn(3, 2, 8))

    def test_parts_stay(self):
        stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
        other = nn.TransformerEncoderLayer(8, 2, 16)
        for change in (
            lambda: stack.layers.__setitem__(0, other),
            lambda: stack.layers.append(other),
            lambda: stack.layers.__delitem__(0),
            lambda: stack.layers.insert(0, other),
            lambda: stack.layers[0].add_module("norm1", nn.Identity()),
            lambda: stack.layers[0].__delattr__("norm1"),
            lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2]).tail[0].append(nn.ReLU()),
        ):
            self.assertRaises(NotImplementedError, change)
        self.assertIs(type(stack.layers[0].linear1), nn.Linear)
        self.assertEqual((stack.layers[0].linear1.in_features, stack.layers[0].dropout.p), (8, 0.1))
        alone = copy.deepcopy(stack.layers[0].linear1)
        x = mt.randn(3, 8)
        self.assertTrue((alone(x) == stack.layers[0].linear1(x)).all())
        self.assertIsNot(alone.weight, stack.layers[0].linear1.weight)

    def test_prototypes(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16).eval()
        norm = nn.LayerNorm(8)
        stack = nn.TransformerEncoder(layer, 2, norm)
        self.assertFalse(stack.layers[0].training)
        self.assertIs(stack.norm.weight, norm.weight)
        layer.linear1.register_forward_hook(lambda *_: None)
        layer.register_forward_hook(lambda *_: None)
        with self.assertRaisesRegex(NotImplementedError, "hooks"):
            nn.TransformerEncoder(layer, 2)

    def test_hooks_survive_copies(self):
        layer = nn.TransformerEncoderLayer(8, 2, 16)
        layer.linear1.register_forward_hook(hook_for_pickle)
        x = mt.randn(3, 1, 8)
        for again in (copy.deepcopy(layer).eval(), pickle.loads(pickle.dumps(layer)).eval()):
            self.assertTrue((again(x) == layer.eval()(x)).all())
            plain = nn.TransformerEncoderLayer(8, 2, 16).eval()
            plain.load_state_dict(layer.state_dict())
            self.assertFalse((plain(x) == again(x)).all())

    def test_copies(self):
        stack = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2).eval()
        target, memory = mt.randn(3, 2, 8), mt.randn(4, 2, 8)
        for again in (copy.deepcopy(stack), pickle.loads(pickle.dumps(stack))):
            self.assertTrue((again(target, memory) == stack(target, memory)).all())
            with mt.no_grad():
                again.layers[0].linear1.weight.zero_()
            self.assertFalse((stack.layers[0].linear1.weight == 0).all())
            self.assertFalse((again(target, memory) == stack(target, memory)).all())
        mask = nn.Transformer.generate_square_subsequent_mask(3)
        self.assertEqual(mask.tolist()[1], [0, 0, -math.inf])


class Parts(unittest.TestCase):
    def test_registration(self):
        net = Net()
        self.assertEqual(
            [name for name, _ in net.named_parameters()],
            ["scale", "first.weight", "first.bias", "norm.weight", "norm.bias", "last.out.weight"],
        )
        self.assertEqual([name for name, _ in net.named_buffers()], ["calls", "scratch"])
        self.assertNotIn("scratch", net.state_dict())
        self.assertEqual([name for name, _ in net.named_children()], ["first", "norm", "last"])
        self.assertIs(net.get_submodule("last.out"), net.last[1])
        self.assertIs(net.get_parameter("first.weight"), net.first.weight)
        self.assertIs(net.last.act, net.last[0])
        net(mt.ones(1, 3))
        self.assertEqual(net.calls.item(), 1)
        self.assertIs(net.get_buffer("calls"), net.calls)

    def test_assignment(self):
        net = Net()
        weight = nn.Parameter(mt.zeros(4, 3))
        net.first.weight = weight
        net.first.bias = None
        self.assertIs(net.first.weight, weight)
        self.assertTrue((net.first(mt.ones(1, 3)) == 0).all())
        with self.assertRaisesRegex(TypeError, "nn.Parameter"):
            net.scale = mt.ones(4)
        with self.assertRaises(TypeError):
            net.first = 3
        net.calls = mt.tensor(5)
        self.assertEqual(net.state_dict()["calls"].item(), 5)
        with self.assertRaises(TypeError):
            net.calls = 3
        net.shift = nn.Buffer(mt.ones(1))
        self.assertIn("shift", net.state_dict())
        del net.norm
        self.assertFalse(hasattr(net, "norm"))
        with self.assertRaisesRegex(AttributeError, "nothing"):
            net.nothing
        for name in ("", "a.b"):
            self.assertRaises(KeyError, net.register_buffer, name, mt.ones(1))
        self.assertRaises(KeyError, net.register_buffer, "forward", mt.ones(1))
        self.assertRaises(ValueError, net.register_parameter, "p", nn.Parameter(mt.ones(1)) * 1 and computed())

        class Early(nn.Module):
            def __init__(self):
                self.fc = nn.Linear(1, 1)

        self.assertRaisesRegex(AttributeError, "super", Early)

    def test_shared(self):
        net = nn.Module()
        net.a = nn.Linear(2, 2)
        net.b = nn.Linear(2, 2)
        net.b.weight = net.a.weight
        net.c = net.a
        self.assertEqual(len(list(net.parameters())), 3)
        self.assertEqual(len(list(net.named_parameters(remove_duplicate=False))), 6)
        self.assertEqual(len(net.state_dict()), 6)
        again = copy.deepcopy(net)
        self.assertIs(again.b.weight, again.a.weight)
        self.assertIs(again.c, again.a)
        (net.a(mt.ones(1, 2)) + net.b(mt.ones(1, 2))).sum().backward()
        self.assertEqual(net.a.weight.grad.tolist(), [[2, 2], [2, 2]])

    def test_containers(self):
        seq = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        seq.append(nn.Linear(3, 1)).insert(1, nn.Tanh())
        self.assertEqual([type(each).__name__ for each in seq], ["Linear", "Tanh", "ReLU", "Linear"])
        self.assertEqual(type(seq[1:3]), nn.Sequential)
        self.assertIs(seq[-1], seq[3])
        self.assertEqual(seq(mt.ones(4, 2)).shape, (4, 1))
        del seq[1]
        self.assertEqual(list(seq.state_dict()), ["0.weight", "0.bias", "2.weight", "2.bias"])
        self.assertRaises(IndexError, lambda: seq[3])
        self.assertRaises(TypeError, seq.append, 3)
        layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
        layers += [nn.ReLU()]
        self.assertEqual((len(layers), type(layers.pop()).__name__), (4, "ReLU"))
        self.assertRaises(NotImplementedError, layers, mt.ones(1))
        heads = nn.ModuleDict({"a": nn.Linear(1, 2)})
        heads["b"] = nn.Linear(1, 3)
        self.assertEqual((list(heads), "a" in heads, len(heads)), (["a", "b"], True, 2))
        weights = nn.ParameterList([mt.ones(2), nn.Parameter(mt.ones(3))])
        self.assertEqual([each.shape for each in weights], [(2,), (3,)])
        self.assertEqual(len(list(nn.ParameterDict({"x": mt.ones(1)}).parameters())), 1)

    def test_conversion(self):
        net = Net()
        net(mt.ones(1, 3)).sum().backward()
        weight = net.first.weight
        net.double()
        self.assertIs(net.first.weight, weight)
        self.assertEqual((weight.dtype, weight.grad.dtype, net.calls.dtype), (mt.float64, mt.float64, mt.int64))
        self.assertEqual(net(mt.ones(1, 3, dtype=mt.float64)).dtype, mt.float64)
        self.assertEqual(net.to(mt.ones(1)).first.weight.dtype, mt.float32)
        self.assertRaises(TypeError, net.to, mt.int64)
        net.zero_grad(set_to_none=False)
        self.assertTrue((weight.grad == 0).all())
        net.zero_grad()
        self.assertIsNone(weight.grad)
        net.requires_grad_(False)
        self.assertFalse(net(mt.ones(1, 3)).requires_grad)
        seen = []
        net.apply(lambda module: seen.append(type(module).__name__))
        self.assertEqual(seen, ["Linear", "LayerNorm", "ReLU", "Linear", "Sequential", "Net"])

    def test_repr(self):
        text = repr(Net())
        self.assertIn("(first): Linear(in_features=3, out_features=4)", text)
        self.assertIn("\n    (act): ReLU(inplace=False)\n", text)
        self.assertIn("Parameter containing", repr(nn.Parameter(mt.ones(1))))


def computed():
    made = nn.Parameter(mt.ones(1))
    return mt._core._same_as(nn.Parameter, made * 2)


class State(unittest.TestCase):
    def test_round_trip(self):
        a, b = Net(), Net()
        keys = b.load_state_dict(a.state_dict())
        self.assertEqual((keys.missing_keys, keys.unexpected_keys), ([], []))
        x = mt.randn(2, 3)
        self.assertTrue((a(x) == b(x)).all())
        c = Net()
        c.load_state_dict(a.state_dict(), assign=True)
        self.assertEqual(c.first.weight.data_ptr(), a.first.weight.data_ptr())
        self.assertTrue((c(x) == b(x)).all())

    def test_faults_change_nothing(self):
        net = Net()
        before = net.first.weight.detach().clone()
        state = {name: tensor * 2 for name, tensor in Net().state_dict().items()}
        del state["scale"]
        state["more"] = mt.ones(1)
        state["norm.bias"] = mt.ones(9)
        with self.assertRaisesRegex(RuntimeError, r"scale.*more.*norm.bias has shape \(9,\)"):
            net.load_state_dict(state)
        self.assertTrue((net.first.weight == before).all())
        del state["norm.bias"]
        keys = net.load_state_dict(state, strict=False)
        self.assertEqual((keys.missing_keys, keys.unexpected_keys), (["scale", "norm.bias"], ["more"]))
        self.assertFalse((net.first.weight == before).all())

    def test_extra(self):
        class Counted(nn.Module):
            count = 3

            def get_extra_state(self):
                return self.count

            def set_extra_state(self, state):
                self.count = state

        a, b = nn.Sequential(Counted()), nn.Sequential(Counted())
        a[0].count = 7
        b.load_state_dict(a.state_dict())
        self.assertEqual(b[0].count, 7)

    def test_copies(self):
        net = Net()
        net.register_forward_hook(hook_for_pickle)
        generator_before = mt._core._default_generator().get_state().tolist()
        copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
        self.assertEqual(mt._core._default_generator().get_state().tolist(), generator_before)
        x = mt.randn(2, 3)
        for each in copies:
            self.assertTrue((each(x) == net(x)).all())
            self.assertIsInstance(each.scale, nn.Parameter)
            with mt.no_grad():
                each.first.weight.zero_()
            self.assertFalse((each(x) == net(x)).all())
        doubled = copy.deepcopy(Doubled(3, 2))
        self.assertIs(type(doubled), Doubled)
        np.testing.assert_allclose(
            doubled(x).detach().numpy(), 2 * F.linear(x, doubled.weight, doubled.bias).detach().numpy()
        )


def hook_for_pickle(module, args, output):
    return output + 1


class Hooks(unittest.TestCase):
    def test_forward(self):
        layer = nn.Linear(2, 2)
        x = mt.ones(1, 2)
        plain = layer(x)
        with layer.register_forward_pre_hook(lambda m, args: (args[0] * 0,)):
            self.assertTrue((layer(x) == layer.bias).all())
        with layer.register_forward_hook(lambda m, args, out: out * 2):
            self.assertTrue((layer(x) == 2 * plain).all())
        order = []
        layer.register_forward_hook(lambda *_: order.append("second"))
        layer.register_forward_hook(lambda *_: order.append("first"), prepend=True)
        layer(x)
        self.assertEqual(order, ["first", "second"])
        self.assertTrue((layer(x) == plain).all())
        with layer.register_forward_pre_hook(lambda m, args, kwargs: ((), {"input": args[0] * 0}), with_kwargs=True):
            self.assertTrue((layer(x) == layer.bias).all())
        always = []
        layer.register_forward_hook(lambda m, args, out: always.append(out), always_call=True)
        self.assertRaises(ValueError, layer, mt.ones(1, 3))
        self.assertEqual(always, [None])

    def test_backward(self):
        layer = nn.Linear(2, 3)
        seen = []
        handle = layer.register_full_backward_hook(lambda m, gin, gout: seen.append((gin, gout[0].shape)))
        x = mt.ones(1, 2, requires_grad=True)
        layer(x).sum().backward()
        layer(mt.ones(1, 2)).sum().backward()  # no gradient of the input
        handle.remove()
        self.assertEqual((seen[0][0][0].shape, seen[0][1]), ((1, 2), (1, 3)))
        self.assertEqual(seen[1:], [((None,), (1, 3))])
        x.grad = None
        with layer.register_full_backward_hook(lambda m, gin, gout: (gin[0] * 0,)):
            layer(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [[0, 0]])
        x.grad = None
        layer.zero_grad()
        with layer.register_full_backward_pre_hook(lambda m, gout: (gout[0] * 2,)):
            layer(x).sum().backward()
        self.assertEqual(layer.bias.grad.tolist(), [2, 2, 2])


class Functions(unittest.TestCase):
    def test_functions(self):
        x = mt.randn(3, 4)
        self.assertTrue((F.relu(x) == x.clamp(min=0)).all())
        y = x.clone()
        self.assertIs(F.relu_(y), F.relu(y, inplace=True))
        self.assertTrue((y >= 0).all())
        self.assertTrue((F.dropout(x, 0.5, training=False) == x).all())
        self.assertTrue((F.softmax(x, 1) == F.softmax(x)).all())
        self.assertEqual(F.pad(x, (1, 2), value=3).shape, (3, 7))
        self.assertEqual(F.one_hot(mt.tensor([1]), 3).tolist(), [[0, 1, 0]])
        self.assertTrue((F.embedding(mt.tensor([1]), x) == x[1]).all())
        norm = F.normalize(x, dim=1)
        np.testing.assert_allclose((norm * norm).sum(1).numpy(), np.ones(3), rtol=1e-5)

    def test_init(self):
        w = mt.empty(64, 32)
        init = nn.init
        self.assertIs(init.constant_(w, 3), w)
        self.assertTrue((w == 3).all())
        mt.manual_seed(1)
        init.kaiming_uniform_(w, a=math.sqrt(5))
        self.assertLessEqual(w.abs().max().item(), 1 / math.sqrt(32))
        init.orthogonal_(w)
        np.testing.assert_allclose((w.T @ w).numpy(), np.eye(32), atol=1e-4)
        self.assertRaises(ValueError, init.xavier_uniform_, mt.empty(3))
        parameter = nn.Parameter(mt.ones(2))
        self.assertIs(init.zeros_(parameter), parameter)  # without recording
        self.assertEqual(init.calculate_gain("tanh"), 5 / 3)
        self.assertRaises(ValueError, init.calculate_gain, "none")

    def test_vector(self):
        net = nn.Linear(2, 3)
        vector = nn.utils.parameters_to_vector(net.parameters())
        self.assertEqual(vector.shape, (9,))
        nn.utils.vector_to_parameters(mt.ones(9), net.parameters())
        self.assertEqual(net.bias.tolist(), [1, 1, 1])
        self.assertRaises(ValueError, nn.utils.vector_to_parameters, mt.ones(8), net.parameters())


class Life(unittest.TestCase):
    def test_no_leak(self):
        class Holder(nn.Module):
            """Functions of C++ that refer back to what owns them."""

            def __init__(self):
                super().__init__()
                self.layer = nn.TransformerEncoderLayer(4, 2, 4, activation=self.act)
                self.layer.linear1.register_forward_hook(self.hook)
                self.loss = nn.TripletMarginWithDistanceLoss(distance_function=self.distance)

            def act(self, x):
                return x

            def hook(self, *_):
                pass

            def distance(self, a, b):
                return (a - b).abs().sum(-1)

        net, holder = Net(), Holder()
        holder.layer(mt.ones(2, 1, 4))
        holder.loss(*mt.randn(3, 2, 2))
        parts = (net, net.first, net.scale, holder, holder.layer, holder.layer.linear1, holder.loss)
        gone = [weakref.ref(each) for each in parts]
        del net, holder, parts
        gc.collect()
        self.assertEqual([each() for each in gone], [None] * len(gone))

    def test_changes_beside_calls(self):
        layer = nn.TransformerEncoderLayer(8, 2, 8, 0.0)
        x = mt.randn(16, 8, 8)
        end = threading.Event()
        faults = []

        def call():
            while not end.is_set():
                try:
                    layer(x)
                except Exception as fault:  # noqa: BLE001
                    faults.append(fault)

        threads = [threading.Thread(target=call) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            layer.linear1.weight = nn.Parameter(mt.randn(8, 8))
            layer.linear1.register_forward_hook(lambda m, args, out: None).remove()
            layer.dropout.p = 0.0
        end.set()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [])

        def change(module, args, out):
            layer.linear1.weight = nn.Parameter(mt.randn(8, 8))

        layer.linear1.register_forward_hook(change)
        with self.assertRaisesRegex(RuntimeError, "being called"):
            layer(x)

    def test_threads(self):
        net = Net()
        x = mt.randn(64, 3)
        expected = net(x)
        results = []
        threads = [threading.Thread(target=lambda: results.append(net(x))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all((each == expected).all() for each in results))


class Training(unittest.TestCase):
    def test_learns(self):
        """A network fits a function that is not linear."""
        mt.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        x = mt.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        y = mt.tensor([[0.0], [1.0], [1.0], [0.0]])
        for _ in range(300):
            net.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            with mt.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.3 * parameter.grad
        self.assertLess(loss.item(), 0.02)


if __name__ == "__main__":
    unittest.main()
