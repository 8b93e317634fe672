"""Idioms: gradients."""

from idioms.table import close, idiom, same
import mytorch as mt
import mytorch.nn as nn
import mytorch.nn.functional as F


@idiom
def regression_by_hand():
    x = mt.linspace(-1, 1, 50)
    y = 3 * x + 1
    w, b = mt.zeros(1, requires_grad=True), mt.zeros(1, requires_grad=True)
    for epoch in range(60):
        loss = ((w * x + b - y) ** 2).mean()
        loss.backward()
        with mt.no_grad():
            w -= 0.5 * w.grad
            b -= 0.5 * b.grad
            w.grad.zero_()
            b.grad.zero_()
    close((w.item(), b.item()), (3, 1), 1e-3)


@idiom
def updates_of_data():
    w = mt.ones(2, requires_grad=True)
    (w**2).sum().backward()
    w.data -= 0.1 * w.grad.data
    w.grad = None
    close(w, [0.8, 0.8])
    w.data.normal_(0, 0.02)
    assert w.requires_grad and w.is_leaf and w.grad is None
    w.data = mt.zeros(2)
    same(w.detach(), [0, 0])


@idiom
def no_grad_forms():
    model = nn.Linear(2, 1)
    with mt.no_grad():
        assert not model(mt.ones(2)).requires_grad

    @mt.no_grad()
    def predict(x):
        return model(x)

    assert not predict(mt.ones(2)).requires_grad
    for train in (True, False):
        with mt.set_grad_enabled(train):
            assert model(mt.ones(2)).requires_grad == train and mt.is_grad_enabled() == train
    with mt.no_grad():
        model.weight.copy_(mt.zeros(1, 2))
        model.bias[:] = 1
    assert model(mt.ones(2)).item() == 1


@idiom
def inference_mode():
    model = nn.Linear(2, 1)
    with mt.inference_mode():
        assert not model(mt.ones(2)).requires_grad

    @mt.inference_mode()
    def predict(x):
        return model(x)

    assert not predict(mt.ones(2)).requires_grad


@idiom
def graph_fields():
    x = mt.ones(2, requires_grad=True)
    y = (x * 2).sum()
    assert x.is_leaf and x.grad_fn is None and y.grad_fn is not None and not y.is_leaf and x.grad is None
    z = x * 3
    z.retain_grad()
    z.sum().backward()
    same(z.grad, [1, 1])
    assert not x.detach().requires_grad


@idiom
def retained_graph():
    x = mt.tensor(2.0, requires_grad=True)
    y = x**2
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad == 8
    v = mt.ones(3, requires_grad=True)
    (v * 2).backward(mt.tensor([1.0, 0.0, 2.0]))
    same(v.grad, [2, 0, 4])
    v.grad.zero_()
    (v * 2).backward(gradient=mt.ones_like(v))
    same(v.grad, [2, 2, 2])
    try:
        y.backward()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a second backward")


@idiom
def variables_of_old_programs():
    from mytorch.autograd import Variable

    x = Variable(mt.ones(2), requires_grad=True)
    (x * 2).sum().backward()
    same(x.grad.data, [2, 2])


@idiom
def detached_targets():
    x = mt.tensor(3.0, requires_grad=True)
    (x * x.detach()).backward()
    assert x.grad == 3
    hard = (x > 1).float() + x - x.detach()
    assert hard == 1 and mt.autograd.grad(hard, x)[0] == 1


@idiom
def grad_of_grad():
    x = mt.tensor(2.0, requires_grad=True)
    (g,) = mt.autograd.grad(x**3, x, create_graph=True)
    g2 = mt.autograd.grad(g, x)[0]
    assert g.item() == 12 and g2.item() == 12


@idiom
def gradient_penalty():
    critic = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    real, fake = mt.randn(4, 3), mt.randn(4, 3)
    alpha = mt.rand(real.size(0), 1).expand_as(real)
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d = critic(interpolates)
    gradients = mt.autograd.grad(
        outputs=d,
        inputs=interpolates,
        grad_outputs=mt.ones_like(d),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    penalty = ((gradients.view(gradients.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()
    penalty.backward()
    assert penalty > 0 and critic[0].weight.grad.abs().sum() > 0


@idiom
def jacobian_by_loop():
    x = mt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = mt.stack([x[0] * x[1], x[2] ** 2])
    rows = []
    for i in range(len(y)):
        rows.append(mt.autograd.grad(y[i], x, retain_graph=True)[0])
    same(mt.stack(rows), [[2, 1, 0], [0, 0, 6]])


@idiom
def jacobian_and_hessian():
    f = lambda x: mt.stack([x[0] * x[1], x[1] ** 2])
    same(mt.autograd.functional.jacobian(f, mt.tensor([1.0, 2.0])), [[2, 1], [0, 4]])
    same(mt.autograd.functional.hessian(lambda x: x.pow(3).sum(), mt.tensor([1.0, 2.0])), [[6, 0], [0, 12]])


@idiom
def gradients_per_sample():
    model, x, y = nn.Linear(3, 1), mt.randn(5, 3), mt.randn(5, 1)
    per_sample = []
    for i in range(len(x)):
        model.zero_grad()
        F.mse_loss(model(x[i : i + 1]), y[i : i + 1]).backward()
        per_sample.append(model.weight.grad.clone())
    model.zero_grad()
    F.mse_loss(model(x), y).backward()
    close(mt.stack(per_sample).mean(0), model.weight.grad)


@idiom
def own_function():
    class MyReLU(mt.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            ctx.save_for_backward(input)
            return input.clamp(min=0)

        @staticmethod
        def backward(ctx, grad_output):
            (input,) = ctx.saved_tensors
            grad_input = grad_output.clone()
            grad_input[input < 0] = 0
            return grad_input

    x = mt.tensor([-1.0, 2.0], requires_grad=True)
    MyReLU.apply(x).sum().backward()
    same(x.grad, [0, 1])


@idiom
def checked_gradients():
    x = mt.randn(3, dtype=mt.double, requires_grad=True)
    assert mt.autograd.gradcheck(lambda x: (x.sin() * x).sum(), (x,), eps=1e-6, atol=1e-4)


@idiom
def anomaly_detection():
    x = mt.tensor(1.0, requires_grad=True)
    with mt.autograd.set_detect_anomaly(True):
        (x * 2).backward()
    assert x.grad == 2


@idiom
def hooks_of_tensors():
    x = mt.ones(2, requires_grad=True)
    seen = []
    h = x.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
    (x * 3).sum().backward()
    h.remove()
    same(seen[0], [3, 3])
    same(x.grad, [6, 6])


@idiom
def hooks_for_activations():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    activation = {}

    def get_activation(name):
        def hook(model, input, output):
            activation[name] = output.detach()

        return hook

    handles = [m.register_forward_hook(get_activation(n)) for n, m in model.named_modules() if isinstance(m, nn.ReLU)]
    x = mt.randn(5, 3)
    model(x)
    for handle in handles:
        handle.remove()
    close(activation["1"], F.relu(model[0](x)))
    grads = []
    model[0].register_full_backward_hook(lambda m, gi, go: grads.append(go[0]))
    model[2].register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    close(model(x)[0], model[2].bias)
    model(x).sum().backward()
    assert grads[0].shape == (5, 4)
