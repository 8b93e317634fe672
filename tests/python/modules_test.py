"""Rules of modules that are written in Python: conversion, state, attributes, containers, hooks and copies."""

import copy
import gc
import pickle
import unittest
import warnings
import weakref
from collections import OrderedDict

import mytorch as mt
from mytorch import nn
from mytorch.nn.utils.rnn import PackedSequence


class Scale(nn.Module):
    """Multiplies by a parameter and counts its calls."""

    def __init__(self, size=2):
        super().__init__()
        self.weight = nn.Parameter(mt.ones(size))
        self.register_buffer("calls", mt.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.weight


class Pair(nn.Module):
    """Two outputs of two inputs: the second output has nothing to do with the first input."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(mt.zeros(2))

    def forward(self, a, b):
        return a * b, b + self.shift


class Twin(nn.Module):
    """A module with two parts."""

    def __init__(self):
        super().__init__()
        self.a, self.b = Scale(), Scale()


class Sized(nn.ModuleList):
    """A list whose constructor needs an argument."""

    def __init__(self, count):
        super().__init__(Scale() for _ in range(count))


class Stack(nn.Sequential):
    """A stack whose constructor needs an argument."""

    def __init__(self, count):
        super().__init__(*(Scale() for _ in range(count)))


class Fixed(nn.Sequential):
    """A stack whose constructor makes the parts."""

    def __init__(self):
        super().__init__(Scale(), Scale())


def noted(module, args, output):
    module.noted = True


class Conversion(unittest.TestCase):
    def test_overrides_run(self):
        class Kept(Scale):
            def _apply(self, fn, recurse=True):
                return self

        net = nn.Sequential(Scale(), Kept())
        weight = net[0].weight
        weight.grad = mt.ones(2)
        net.double()
        self.assertIs(net[0].weight, weight)
        self.assertEqual((weight.dtype, weight.grad.dtype), (mt.float64, mt.float64))
        self.assertEqual(net[1].weight.dtype, mt.float32)

    def test_buffers_are_replaced(self):
        class Noting(nn.Module):
            noted = ()

            def _note(self, name, tensor):
                self.noted += ((name, tensor.dtype),)

        mine = mt.ones(2)
        net = Noting()
        net.register_buffer("held", mine)
        net.double()
        self.assertEqual((mine.dtype, net.held.dtype), (mt.float32, mt.float64))
        self.assertEqual(net.noted, (("held", mt.float64),))
        self.assertIsNone(nn.Module()._note("a", mine))

    def test_shared(self):
        net = Twin()
        net.b.weight = net.a.weight
        net.double()
        self.assertIs(net.b.weight, net.a.weight)
        self.assertEqual(net.a.weight.dtype, mt.float64)

    def test_zero_grad(self):
        net = Scale()
        grad = mt.ones(2)
        net.weight.grad = grad
        net.zero_grad(set_to_none=False)
        self.assertEqual(grad.tolist(), [0, 0])
        (net.weight**3).sum().backward(create_graph=True)
        self.assertTrue(net.weight.grad.requires_grad)
        net.zero_grad(set_to_none=False)
        self.assertFalse(net.weight.grad.requires_grad)
        self.assertEqual(net.weight.grad.tolist(), [0, 0])


class State(unittest.TestCase):
    def state(self, **changes):
        return {"weight": mt.full((2,), 5.0), "calls": mt.tensor(3.0), **changes}

    def test_values(self):
        for bad in (None, 3, [1.0, 1.0]):
            net = Scale()
            with self.subTest(bad=bad), self.assertRaisesRegex(RuntimeError, "calls is a"):
                net.load_state_dict(self.state(calls=bad))
            self.assertEqual(net.weight.tolist(), [1, 1])
        self.assertRaises(TypeError, Scale().load_state_dict, [1])
        with self.assertRaisesRegex(RuntimeError, "complex"):
            Scale().load_state_dict(self.state(weight=mt.tensor([1j, 1j])))
        net = Scale()
        net.load_state_dict(self.state(calls=mt.tensor([7.0])))
        self.assertEqual((net.calls.shape, net.calls.item()), ((), 7))
        with self.assertRaisesRegex(RuntimeError, "not in the module: .*7"):
            net.load_state_dict({**self.state(), 7: mt.ones(1), "x": mt.ones(1)})
        self.assertEqual(net.load_state_dict({**self.state(), 7: 1}, strict=False).unexpected_keys, [7])

    def test_assign(self):
        net = Twin()
        given = nn.Parameter(mt.full((2,), 5.0))
        state = {**net.state_dict(), "a.weight": given, "b.weight": mt.ones(2, dtype=mt.int64)}
        before = net.a.weight
        with self.assertRaisesRegex(RuntimeError, "b.weight"):
            net.load_state_dict(state, assign=True)
        self.assertIs(net.a.weight, before)
        state["b.weight"] = mt.full((2,), 6.0)
        net.load_state_dict(state, assign=True)
        self.assertIs(net.a.weight, given)
        self.assertIsInstance(net.b.weight, nn.Parameter)
        net.b.requires_grad_(False)
        net.load_state_dict({**state, "b.weight": mt.ones(2, dtype=mt.int64)}, assign=True)
        self.assertEqual((net.b.weight.dtype, net.b.weight.requires_grad), (mt.int64, False))

    def test_post_hooks(self):
        net = Twin()
        order = []

        def clear(module, keys):
            order.append(module)
            keys.missing_keys.clear()

        state = Twin().state_dict()
        del state["b.weight"]
        state["a.weight"] = mt.full((2,), 4.0)
        handle = net.a.register_load_state_dict_post_hook(lambda module, _: order.append(module))
        self.assertRaises(RuntimeError, net.load_state_dict, state)
        self.assertEqual(net.a.weight.tolist(), [1, 1])
        order.clear()
        net.register_load_state_dict_post_hook(clear)
        net.load_state_dict(state)
        self.assertEqual((order, net.a.weight.tolist()), ([net.a, net], [4, 4]))
        handle.remove()

    def test_pre_hooks(self):
        net = Twin()

        def rename(module, state, prefix, metadata, strict, missing, unexpected, errors):
            self.assertIs(module, net.a)
            self.assertEqual((prefix, strict, missing, unexpected, errors), ("a.", True, [], [], []))
            state["a.weight"] = state.pop("a.old")

        net.a.register_load_state_dict_pre_hook(rename)
        state = net.state_dict()
        state["a.old"] = state.pop("a.weight") * 3
        net.load_state_dict(state)
        self.assertEqual(net.a.weight.tolist(), [3, 3])
        self.assertIn("a.old", state)
        seen = []
        with net.b.register_state_dict_pre_hook(lambda *args: seen.append(args)):
            net.state_dict(keep_vars=True)
        self.assertEqual(seen, [(net.b, "b.", True)])

    def test_overrides(self):
        class Halved(Scale):
            def _load_from_state_dict(self, state_dict, prefix, *rest):
                state_dict.pop(f"{prefix}old", None)
                super()._load_from_state_dict(state_dict, prefix, *rest)
                with mt.no_grad():
                    self.weight /= 2

        net = nn.Sequential(Scale(), Halved(), Scale())
        state = {name: value * 8 for name, value in net.state_dict().items()}
        state["1.old"] = mt.ones(1)
        net.load_state_dict(state)
        self.assertEqual([each.weight.tolist()[0] for each in net], [8, 4, 8])
        state["2.weight"] = mt.ones(9)
        state["1.weight"] = mt.zeros(2)
        self.assertRaises(RuntimeError, net.load_state_dict, state)
        self.assertEqual([each.weight.tolist()[0] for each in net], [8, 4, 8])


class Attributes(unittest.TestCase):
    def test_order(self):
        net = Twin()
        net.weight = nn.Parameter(mt.ones(1))
        for value in (Scale(), mt.ones(1), nn.Buffer(mt.ones(1))):
            with self.assertRaises(TypeError):
                net.weight = value
        net.a = nn.Parameter(mt.ones(1))
        self.assertEqual([name for name, _ in net.named_children()], ["b"])
        net.register_buffer("held", mt.ones(1), persistent=False)
        net.held = Scale()
        del net.held
        net.held = nn.Buffer(mt.ones(1))
        net.held = mt.zeros(1)
        self.assertIn("held", net.state_dict())

    def test_set_submodule(self):
        net = nn.Sequential(Twin())
        new = Scale()
        net.set_submodule("0.a", new)
        self.assertIs(net[0].a, new)
        net.set_submodule("0.c", new)
        self.assertIs(net[0].c, new)
        self.assertRaises(AttributeError, net.set_submodule, "0.d", new, strict=True)
        self.assertRaises(AttributeError, net.set_submodule, "1.d", new)
        self.assertRaises(AttributeError, net.set_submodule, "0.a.weight", new)
        self.assertRaises(ValueError, net.set_submodule, "", new)
        self.assertRaises(ValueError, net.set_submodule, "0.a", mt.ones(1))

    def test_shallow_copy(self):
        net = Twin()
        again = copy.copy(net)
        again.c = Scale()
        again.weight = nn.Parameter(mt.ones(1))
        again.register_buffer("held", mt.ones(1), persistent=False)
        again.register_forward_hook(noted)
        self.assertEqual([name for name, _ in net.named_children()], ["a", "b"])
        self.assertFalse(net._parameters or net._buffers or net._forward_hooks or net._non_persistent_buffers_set)
        self.assertIs(again.a, net.a)


class Containers(unittest.TestCase):
    def test_module_dict(self):
        for key in ("keys", "training", "", "a.b"):
            with self.subTest(key=key), self.assertRaises(KeyError):
                nn.ModuleDict({key: Scale()})
        held = nn.ModuleDict({"a": Scale()})
        held["a"] = held["b"] = Scale()
        self.assertIs(held.pop("a"), held["b"])
        self.assertEqual(list(held.keys()), ["b"])
        with self.assertRaises(TypeError):
            held["c"] = 3

    def test_sequential(self):
        stack = nn.Sequential(Scale(), nn.Sequential())
        for product in (stack * 2, 2 * stack):
            self.assertEqual(list(product), [*stack, *stack])
        self.assertEqual(len(stack), 2)
        parts = list(stack)
        stack *= 3
        self.assertEqual(list(stack), parts * 3)
        self.assertEqual(list(stack._modules), [str(at) for at in range(6)])
        self.assertRaises(TypeError, lambda: stack * 1.5)
        self.assertRaises(ValueError, lambda: stack * 0)

    def test_other_constructors(self):
        held, stack = Sized(3), Stack(3)
        self.assertEqual((type(held[1:]), list(held[1:])), (nn.ModuleList, list(held)[1:]))
        self.assertEqual((type(held + [Scale()]), len(held + [Scale()])), (nn.ModuleList, 4))
        self.assertEqual((type(stack[1:]), list(stack[1:]._modules)), (nn.Sequential, ["1", "2"]))
        self.assertEqual((type(stack + stack), len(stack + stack)), (nn.Sequential, 6))
        fixed = Fixed()
        self.assertEqual((type(fixed[:1]), list(fixed[:1])), (Fixed, [fixed[0]]))

    def test_parameter_list(self):
        held = nn.ParameterList([mt.ones(1), "text", mt.ones(2), None])
        self.assertEqual([name for name, _ in held.named_parameters()], ["0", "2"])
        self.assertEqual((len(held), held[1], held[-1], held[2].shape), (4, "text", None, (2,)))
        held.insert(0, 5)
        self.assertEqual((held[0], held[2], held[3].shape), (5, "text", (2,)))
        self.assertEqual([name for name, _ in held.named_parameters()], ["1", "3"])
        del held[0]
        held[0] = 7
        self.assertEqual((list(held)[:2], len(list(held.parameters()))), ([7, "text"], 1))
        self.assertEqual([type(each).__name__ for each in held[1:3]], ["str", "Parameter"])
        self.assertEqual(held.pop(), None)
        self.assertIn("(1): str\n  (2): Parameter", repr(held))
        state = {"2": mt.full((2,), 9.0)}
        held.load_state_dict(state, assign=True)
        self.assertEqual(held[2].tolist(), [9, 9])
        for again in (copy.deepcopy(held), copy.copy(held), pickle.loads(pickle.dumps(held))):
            again.append(1)
            self.assertEqual((len(again), len(held), again[1]), (4, 3, "text"))

    def test_parameter_dict(self):
        held = nn.ParameterDict(OrderedDict(b=mt.ones(1), note="text"))
        self.assertEqual((held["note"], len(list(held.parameters())), list(held)), ("text", 1, ["b", "note"]))
        made = held.setdefault("a", mt.zeros(2))
        self.assertIsInstance(made, nn.Parameter)
        self.assertIs(held.setdefault("a", mt.ones(3)), made)
        self.assertEqual(list(reversed(held)), ["a", "note", "b"])
        again = held.copy()
        self.assertIs(again["a"], made)
        key, value = again.popitem()
        self.assertEqual((key, "a" in again, "a" in held), ("a", False, True))
        self.assertIs(value, made)
        both = again | {"c": mt.ones(4)}
        self.assertEqual((list(both), list(again)), (["b", "note", "c"], ["b", "note"]))
        self.assertEqual(list({"c": mt.ones(1)} | again), ["c", "b", "note"])
        again |= nn.ParameterDict({"d": mt.ones(1)})
        self.assertEqual(list(again), ["b", "note", "d"])
        self.assertEqual(list(held.fromkeys(["x", "y"], 3).values()), [3, 3])
        self.assertRaises(KeyError, nn.ParameterDict().popitem)
        self.assertRaises(KeyError, held.__getitem__, "training")
        with self.assertRaises(KeyError):
            held["keys"] = 3
        held["note"] = mt.ones(1)
        self.assertEqual(held.get("note").shape, (1,))
        held.clear()
        self.assertEqual((len(held), held.get("note", 1)), (0, 1))


class Hooks(unittest.TestCase):
    def test_handle(self):
        net = Scale()
        handle = net.register_forward_hook(lambda *_, net=net: None)
        gone = weakref.ref(net)
        del net
        gc.collect()
        self.assertIsNone(gone())
        handle.remove()

    def test_handle_copies(self):
        net = Scale()
        net.handle = net.register_forward_hook(noted)
        for again in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            again.handle.remove()
            self.assertFalse(again._forward_hooks)
        self.assertEqual(len(net._forward_hooks), 1)
        net.handle.remove()
        self.assertFalse(net._forward_hooks)

    def test_backward_twice(self):
        net = Scale()
        seen = []
        net.register_full_backward_hook(lambda m, gin, gout: seen.append((gin[0].tolist(), gout[0].tolist())))
        x = mt.ones(2, requires_grad=True)
        y = net(x)
        for factor in (1, 2):
            (y.sum() * factor).backward(retain_graph=True)
        self.assertEqual(seen, [([1, 1], [1, 1]), ([2, 2], [2, 2])])

    def test_several(self):
        net = Pair()
        seen = []

        def listed(grads):
            return [grad if grad is None else grad.tolist() for grad in grads]

        handle = net.register_full_backward_hook(lambda m, gin, gout: seen.append((listed(gin), listed(gout))))
        a = mt.ones(2, requires_grad=True)
        b = mt.full((2,), 3.0, dtype=mt.float64, requires_grad=True)
        one, two = net(a, b)
        self.assertEqual((one.dtype, two.dtype), (mt.float64, mt.float64))
        (one.sum() + 2 * two.sum()).backward(retain_graph=True)
        one.sum().backward(retain_graph=True)
        two.sum().backward()
        self.assertEqual(
            seen,
            [
                ([[3, 3], [3, 3]], [[1, 1], [2, 2]]),
                ([[3, 3], [1, 1]], [[1, 1], None]),
                ([[0, 0], [1, 1]], [None, [1, 1]]),
            ],
        )
        self.assertEqual((a.grad.tolist(), b.grad.tolist()), ([6, 6], [5, 5]))
        handle.remove()
        a.grad = b.grad = None
        net.register_full_backward_pre_hook(lambda m, gout: (gout[0] * 2, gout[1] * 0))
        net.register_full_backward_hook(lambda m, gin, gout: (gin[0] * 10, None))
        one, two = net(a, b)
        (one.sum() + two.sum()).backward()
        self.assertEqual((a.grad.tolist(), a.grad.dtype, b.grad.tolist()), ([60, 60], mt.float32, [0, 0]))
        net.register_full_backward_hook(lambda m, gin, gout: (gin[0],))
        with self.assertRaisesRegex(RuntimeError, "1 gradients"):
            sum(each.sum() for each in net(a, b)).backward()

    def test_without_inputs(self):
        class Both(Scale):
            def forward(self, x):
                return x * self.weight, x + self.weight

        net = Both()
        seen = []
        net.register_full_backward_hook(lambda m, gin, gout: seen.append((gin, gout[1] is None)))
        one, two = net(mt.ones(2))
        (one.sum() + two.sum()).backward(retain_graph=True)
        one.sum().backward()
        self.assertEqual(seen, [((None,), False), ((None,), True)])

    def test_always(self):
        class Failing(nn.Module):
            def forward(self, x):
                raise KeyError("mine")

        seen = []

        def fail(*_):
            raise ValueError("another")

        net = Failing()
        net.register_forward_hook(fail, always_call=True)
        net.register_forward_hook(lambda *args: seen.append(args[2]), always_call=True)
        with warnings.catch_warnings(record=True) as caught, self.assertRaisesRegex(KeyError, "mine"):
            warnings.simplefilter("always")
            net(mt.ones(1))
        self.assertEqual((seen, len(caught)), ([None], 1))


class Packed(unittest.TestCase):
    def test_types(self):
        packed = PackedSequence(mt.ones(3), mt.tensor([2, 1]))
        self.assertEqual(packed.double().data.dtype, mt.float64)
        self.assertEqual(packed.half().data.dtype, mt.float16)
        self.assertEqual(packed.double().float().data.dtype, mt.float32)
        self.assertEqual((packed.cpu().data.device.type, packed.cpu().batch_sizes.tolist()), ("cpu", [2, 1]))
        if mt.cuda.is_available():
            self.assertTrue(packed.cuda().is_cuda and packed.cuda(0).is_cuda)


if __name__ == "__main__":
    unittest.main()
