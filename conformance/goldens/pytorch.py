"""Calls the operators in PyTorch, for scripts/make-goldens.

Most operators have the same name and arguments in torch.ops.aten. For those that have another name or other arguments
in PyTorch 1.13, or do not exist there, TWINS has an equivalent made of PyTorch's operators."""

from __future__ import annotations

import functools
import itertools
import math

import torch

from conformance import golden

F = torch.nn.functional
aten = torch.ops.aten
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


class Missing(Exception):
    """Raised for a call that PyTorch does not support; the text is the reason."""


def dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


# ---- tensors -------------------------------------------------------------------------------------------


def placed(values: torch.Tensor, layout: str) -> torch.Tensor:
    """Returns the values with the strides of conformance/inputs.cpp, and its values in the memory between them."""
    if layout == "transposed" and values.dim() >= 2:
        return values.mT.contiguous().mT
    if layout == "sliced" and values.dim() >= 1:
        shape = list(values.shape)
        shape[-1] *= 2
        memory = (1 + torch.arange(math.prod(shape)) % 3).to(values.dtype).reshape(shape)
        view = memory[..., ::2]
        view.copy_(values)
        return view
    if layout == "channels_last" and values.dim() >= 3:
        return values.movedim(1, -1).contiguous().movedim(-1, 1)
    return values


def tensor(spec: dict, type_: str, open_: str, counter: int) -> torch.Tensor:
    """Returns the tensor that a sample describes. `counter` is its index among the tensors of the call."""
    name = golden.dtype_of(spec, type_, open_)
    shape = golden.shape_of(spec)
    values = golden.elements(spec, name, counter)
    exact = torch.float64 if name in golden.FLOATS else torch.complex128 if name in golden.COMPLEX else dtype(name)
    if name not in golden.FLOATS and name not in golden.COMPLEX:
        values = [int(v) for v in values]
    if spec.get("layout") == "broadcast" and shape and shape[0] > 0:
        return torch.tensor(values, dtype=exact).to(dtype(name)).reshape([1] + shape[1:]).expand(shape)
    return placed(torch.tensor(values, dtype=exact).to(dtype(name)).reshape(shape), spec.get("layout", ""))


# ---- operators with other names ------------------------------------------------------------------------


def losses(function):
    """Returns a loss without reduction."""
    return lambda *args, **keys: function(*args, **keys, reduction="none")


def convolution_backward(which):
    def call(grad_output, other, size, stride, padding, dilation, transposed, output_padding, groups, order=None):
        like = torch.zeros(size, dtype=other.dtype)
        pair = (like, other) if which == 0 else (other, like)
        return aten.convolution_backward(
            grad_output,
            *pair,
            None,
            stride,
            padding,
            dilation,
            transposed,
            output_padding,
            groups,
            [which == 0, which == 1, False],
        )[which]

    return call


def cdist_backward(grad, x1, x2, p, distances):
    batches = grad.shape[:-2]
    whole = [x.expand(*batches, *x.shape[-2:]).contiguous() for x in (x1, x2)]
    return aten._cdist_backward(grad.contiguous(), *whole, p, distances.contiguous())


def max_pool2d_backward(grad_output, input_size, indices):
    planes = torch.zeros([*input_size[:-2], input_size[-2] * input_size[-1]], dtype=grad_output.dtype)
    return planes.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).reshape(input_size)


def nll_loss_forward(x, target, weight, reduction, ignore_index):
    args = (weight, REDUCTIONS[reduction], ignore_index)
    if x.dim() <= 2:
        return aten.nll_loss_forward(x, target, *args)
    rows = x.reshape(*x.shape[:2], -1, 1)
    out, total = aten.nll_loss2d_forward(rows, target.reshape(target.shape[0], -1, 1), *args)
    return out.reshape(target.shape) if reduction == "none" else out, total


def nll_loss_backward(grad, size, target, weight, reduction, ignore_index, total):
    args = (weight, REDUCTIONS[reduction], ignore_index, total)
    if len(size) <= 2:
        return aten.nll_loss_backward(grad, torch.zeros(size, dtype=grad.dtype), target, *args)
    rows = [*size[:2], math.prod(size[2:]), 1]
    grad = grad.reshape(size[0], -1, 1) if reduction == "none" else grad
    return aten.nll_loss2d_backward(
        grad, torch.zeros(rows, dtype=grad.dtype), target.reshape(size[0], -1, 1), *args
    ).reshape(size)


def cross_entropy(x, target, weight, reduction, ignore_index, smoothing):
    return F.cross_entropy(x, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=smoothing)


def cross_entropy_forward(x, target, weight, reduction, ignore_index, smoothing):
    valid = target != ignore_index
    total = (valid if weight is None else weight[target.where(valid, target * 0)] * valid).sum()
    if reduction == "none":
        total = total * 0
    wide = torch.promote_types(x.dtype, torch.float32)
    return (
        cross_entropy(x, target, weight, reduction, ignore_index, smoothing),
        x.to(wide).logsumexp(0 if x.dim() == 1 else 1),
        total.to(wide).detach(),
    )


def cross_entropy_backward(grad, x, target, weight, log_sum, total, reduction, ignore_index, smoothing):
    """Computes the gradient from sums that it treats as constants."""
    if not x.is_floating_point():
        raise RuntimeError("scores are floats, as for cross_entropy itself")
    dim = 0 if x.dim() == 1 else 1
    classes = x.shape[dim]
    valid = (target != ignore_index).unsqueeze(dim)
    index = target.unsqueeze(dim).where(valid, torch.zeros((), dtype=torch.int64))
    weights = torch.ones(classes, dtype=x.dtype) if weight is None else weight
    weights = weights.reshape([-1] + [1] * (x.dim() - 1 - dim)).expand(x.shape)
    wanted = torch.zeros(x.shape, dtype=x.dtype).scatter(dim, index, 1 - smoothing) + smoothing / classes
    wanted = wanted * weights
    p = (x - log_sum.unsqueeze(dim)).exp()
    scale = grad / total if reduction == "mean" else grad
    scale = scale.unsqueeze(dim) if reduction == "none" else scale
    return (scale * valid * (p * wanted.sum(dim, keepdim=True) - wanted)).to(x.dtype)


def linear_gelu_forward(x, weight, bias, approximate, keep):
    product = F.linear(x, weight, bias)
    return F.gelu(product, approximate=approximate), product if keep else product.new_empty(0)


def linear_gelu_backward(grad, x, approximate, mask):
    of_linear = torch.ops.aten.gelu_backward(grad, x, approximate=approximate)
    of_bias = of_linear.reshape(-1, x.shape[-1]).sum(0)
    return tuple(y if wanted else x.new_empty(0) for y, wanted in zip((of_linear, of_bias), mask, strict=True))


def attention_keeps(draw, p, shape):
    """Returns which weights dropout keeps, by the Philox 4x32-10 of mytorch/backend/philox.h."""
    b, h, length, keys = shape
    row = 4 * -(-keys // 4)
    limit = math.ceil(torch.tensor(1 - p, dtype=torch.float32).item() * 2**24)

    def keeps(index):
        number, (seed, call) = index // 4, draw
        c = [number & 0xFFFFFFFF, number >> 32 & 0xFFFF, call & 0xFFFFFFFF, call >> 32]
        k = [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            x, y = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [y >> 32 ^ c[1] ^ k[0], y & 0xFFFFFFFF, x >> 32 ^ c[3] ^ k[1], x & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        return c[index % 4] >> 8 < limit

    rows = [[keeps(r * row + j) for j in range(keys)] for r in range(b * h * length)]
    return torch.tensor(rows, dtype=torch.bool).reshape(shape)


def attention_scores(query, key, mask, slopes, left, right, diagonal, softcap, scale):
    scores = query @ key.repeat_interleave(query.shape[1] // max(key.shape[1], 1), 1).mT * scale
    if softcap != 0:
        scores = softcap * torch.tanh(scores / softcap)
    i, j = torch.arange(query.shape[2])[:, None] + diagonal, torch.arange(key.shape[2])
    if slopes is not None:
        scores = scores - slopes[..., None, None] * (i - j).abs()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    if left >= 0:
        scores = scores.masked_fill(j < i - left, -math.inf)
    if right >= 0:
        scores = scores.masked_fill(j > i + right, -math.inf)
    return scores


def attention_forward(
    query, key, value, mask, slopes, left, right, diagonal, softcap, scale, dropout_p, generator=None
):
    if dropout_p != 0:
        raise Missing("random")
    type_ = query.dtype
    query, key, value = wide(query), wide(key), wide(value)
    mask = wide(mask) if mask is not None else None
    scores = attention_scores(query, key, mask, slopes, left, right, diagonal, softcap, scale)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    p = F.softmax(scores.masked_fill(empty, 0), -1).masked_fill(empty, 0)
    value = value.repeat_interleave(query.shape[1] // max(key.shape[1], 1), 1)
    draw = torch.zeros(0, dtype=torch.int64)
    return (p @ value).to(type_), scores.logsumexp(-1), draw


def attention_backward(
    grad, grad_sum, q, k, v, mask, slopes, out, sums, draw, left, right, diagonal, softcap, scale, dropout_p, wanted
):
    types = [x if x is None else x.dtype for x in (q, k, v, mask)]
    grad, grad_sum, q, k, v, mask, out = (None if x is None else wide(x) for x in (grad, grad_sum, q, k, v, mask, out))
    group = q.shape[1] // max(k.shape[1], 1)
    p = torch.exp(attention_scores(q, k, mask, slopes, left, right, diagonal, softcap, scale) - sums[..., None])
    p = torch.where(sums[..., None] == -math.inf, 0, p)
    keep = 1 if dropout_p == 0 else attention_keeps(draw.tolist(), dropout_p, p.shape) / (1 - dropout_p)
    inner = keep * (grad @ v.repeat_interleave(group, 1).mT) - (grad * out).sum(-1, keepdim=True)
    inner = inner if grad_sum is None else inner + grad_sum[..., None]
    d_mask = d_scores = p * inner
    keys = k.repeat_interleave(group, 1)
    if softcap != 0:
        d_scores = d_scores * (1 - torch.tanh(q @ keys.mT * (scale / softcap)) ** 2)
    results = [d_scores @ keys * scale]
    for x in (d_scores.mT @ q * scale, (keep * p).mT @ grad):
        results.append(x.unflatten(1, (k.shape[1], group)).sum(2))
    float_mask = mask is not None and mask.dtype != torch.bool
    results.append(d_mask.sum_to_size(mask.shape) if float_mask else None)
    return tuple(
        x.to(t) if x is not None and w else torch.zeros(0, dtype=types[0]) for x, t, w in zip(results, types, wanted)
    )


def attention_paged(query, key_pages, value_pages, table, lengths, slopes, left, right, softcap, scale):
    outputs, sums = [], []
    for b, length in enumerate(lengths.tolist()):
        used = table[b, : -(-length // key_pages.shape[1])].long()
        k, v = (x[used].flatten(0, 1)[:length].transpose(0, 1)[None] for x in (key_pages, value_pages))
        slope = slopes[b : b + 1] if slopes is not None and slopes.dim() == 2 else slopes
        diagonal = length - query.shape[2]
        out, total, _ = attention_forward(
            query[b : b + 1], k, v, None, slope, left, right, diagonal, softcap, scale, 0.0
        )
        outputs.append(out)
        sums.append(total)
    return torch.cat(outputs), torch.cat(sums)


def packed(x, offsets, b):
    return x[offsets[b] : offsets[b + 1]].transpose(0, 1)[None]


def attention_varlen_forward(q, k, v, cu_q, cu_k, max_q, max_k, slopes, left, right, bottom, softcap, scale):
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    sums = wide(q).new_zeros(q.shape[1], q.shape[0])
    if cu_q[0] != 0 or cu_q[-1] != q.shape[0] or (cu_q.diff() < 0).any():
        raise ValueError("offsets")
    outs, totals = [out[:0]], [sums[:, :0]]
    for b in range(len(cu_q) - 1):
        one, keys, values = packed(q, cu_q, b), packed(k, cu_k, b), packed(v, cu_k, b)
        slope = slopes[b : b + 1] if slopes is not None and slopes.dim() == 2 else slopes
        diagonal = keys.shape[2] - one.shape[2] if bottom else 0
        o, s, _ = attention_forward(one, keys, values, None, slope, left, right, diagonal, softcap, scale, 0.0)
        outs.append(o[0].transpose(0, 1))
        totals.append(s[0])
    return torch.cat(outs), torch.cat(totals, 1)


def binary_cross_entropy_terms(x, y, weight):
    terms = F.binary_cross_entropy(x, y, reduction="none")
    return terms if weight is None else weight * terms  # PyTorch has no gradient of the weight


def product(factor, x):
    """Returns factor * x, which is 0 where the factor is, of infinite elements, too."""
    return torch.where(factor == 0, 0, factor * x)


def binary_cross_entropy_with_logits_terms(x, y, weight, pos_weight):
    if torch.isinf(x).any():  # PyTorch has NaN
        positive = product(y, -F.logsigmoid(x))
        terms = product(1 - y, -F.logsigmoid(-x)) + (positive if pos_weight is None else pos_weight * positive)
    elif pos_weight is not None and pos_weight.requires_grad:  # PyTorch lacks this gradient, too
        terms = (1 - y) * x - ((pos_weight - 1) * y + 1) * F.logsigmoid(x)
    else:
        terms = F.binary_cross_entropy_with_logits(x, y, pos_weight=pos_weight, reduction="none")
    return terms if weight is None else weight * terms


def kl_div_terms(x, y, log):
    terms = F.kl_div(x, y, reduction="none", log_target=log)
    if log:
        return torch.where((y == -math.inf) & (x < math.inf), 0, terms)  # PyTorch has NaN
    return torch.where((y == 0) & (x == -math.inf), 0, terms)


def by_dimension(name):
    """Returns a reduction over several dimensions, made of PyTorch's reduction over a single one."""

    def call(x, dim, keepdim):
        dims = range(x.dim()) if not dim else [d % max(x.dim(), 1) for d in dim]
        x = x != 0
        for d in sorted(dims, reverse=True):
            x = getattr(x, name)(d, keepdim)
        return x

    return call


def scaled_dot_product_attention(query, key, value, mask, dropout_p, causal, scale, enable_gqa):
    if dropout_p != 0:
        raise Missing("random")
    empty = mask is not None and mask.dtype == torch.bool and not mask.any(-1).all()
    if empty:
        mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(
        query, key, value, mask, dropout_p, causal, scale=scale, enable_gqa=enable_gqa
    )


def wide(x):
    """Converts float16 and bfloat16 to float32, the type of statistics."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def native_layer_norm(x, shape, weight, bias, eps):
    # aten.native_layer_norm ignores the gradients of mean and rstd.
    dims = list(range(-len(shape), 0))
    var, mean = torch.var_mean(wide(x), dims, unbiased=False, keepdim=True)
    return F.layer_norm(x, shape, weight, bias, eps), mean, (var + eps).rsqrt()


def norm_backward(grad, x_hat, rstd, weight, over, others, mask, like):
    """Computes native_layer_norm_backward, treating the statistics as constants."""
    h = grad if weight is None else grad * weight
    dx = rstd * (h - h.mean(over, True) - x_hat * (h * x_hat).mean(over, True))
    results = (dx, (grad * x_hat).sum(others), grad.sum(others)) if others else (dx, grad * x_hat, grad)
    return tuple(r if wanted else torch.empty(0, dtype=like.dtype) for r, wanted in zip(results, mask))


def native_layer_norm_backward(grad, x, shape, mean, rstd, weight, mask):
    over = list(range(-len(shape), 0))
    return norm_backward(grad, (x - mean) * rstd, rstd, weight, over, list(range(x.dim() - len(shape))), mask, x)


def native_rms_norm(x, shape, weight, eps):
    rstd = (wide(x).square().mean(list(range(-len(shape), 0)), True) + eps).rsqrt()
    normal = wide(x) * rstd
    return (normal if weight is None else normal * weight).to(x.dtype), rstd


def native_rms_norm_backward(grad, x, shape, rstd, weight, mask):
    over, others = list(range(-len(shape), 0)), list(range(x.dim() - len(shape)))
    x_hat, h = x * rstd, grad if weight is None else grad * weight
    dx = rstd * (h - x_hat * (h * x_hat).mean(over, True))
    dw = (grad * x_hat).sum(others) if others else grad * x_hat
    return tuple(r if wanted else torch.empty(0, dtype=x.dtype) for r, wanted in zip((dx, dw), mask))


def rms_norm(x, shape, weight, eps):
    return native_rms_norm(x, shape, weight, torch.finfo(x.dtype).eps if eps is None else eps)[0]


def in_groups(x, group):
    """Returns x as (N, groups, channels of a group, elements of a plane)."""
    return x.reshape(x.shape[0], group, x.shape[1] // group, math.prod(x.shape[2:]))


def native_group_norm(x, weight, bias, group, eps):
    # aten.native_group_norm ignores the gradients of mean and rstd.
    var, mean = torch.var_mean(in_groups(wide(x), group), (2, 3), unbiased=False)
    return F.group_norm(x, group, weight, bias, eps), mean, (var + eps).rsqrt()


def native_group_norm_backward(grad, x, mean, rstd, weight, group, mask):
    of_group = (*mean.shape, 1, 1)
    h = None if weight is None else weight.reshape(1, group, -1, 1)
    rstd = rstd.reshape(of_group)
    dx, dw, db = norm_backward(
        in_groups(grad, group), (in_groups(x, group) - mean.reshape(of_group)) * rstd, rstd, h, (2, 3), (0, 3), mask, x
    )
    return dx.reshape(x.shape) if mask[0] else dx, dw.flatten(), db.flatten()


def channels(parameter, x):
    return None if parameter is None else parameter.reshape([-1] + [1] * (x.dim() - 2))


def over_samples(x):
    return [d for d in range(x.dim()) if d != 1]


def batch_norm_training(x, weight, bias, eps):
    var, mean = torch.var_mean(wide(x), over_samples(x), unbiased=False)
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps), mean, var


def batch_norm_training_backward(grad, x, weight, mean, var, eps, mask):
    rstd = (channels(var, x) + eps).rsqrt()
    over = over_samples(x)
    return norm_backward(grad, (x - channels(mean, x)) * rstd, rstd, channels(weight, x), over, over, mask, x)


def native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    # aten.native_batch_norm ignores the gradients of the statistics.
    if training:
        var, mean = torch.var_mean(wide(x), over_samples(x), unbiased=False)
        statistics = mean, (var + eps).rsqrt()
    else:
        statistics = torch.empty(0, dtype=x.dtype), torch.empty(0, dtype=x.dtype)
    return (F.batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps), *statistics)


def squeeze_dims(x, dims):
    for d in sorted((d % max(x.dim(), 1) for d in dims), reverse=True):
        x = x.squeeze(d)
    return x


# The operations of torch.optim's single-tensor optimizers, in place and in the same order.


def sgd_step(p, g, buffer, lr, momentum, rate=1.0, weight_decay=0.0, scale=1.0, nesterov=False):
    g = (g * scale).add(p, alpha=weight_decay)
    buffer = buffer.clone().mul_(momentum).add_(g, alpha=rate)
    g = g.add(buffer, alpha=momentum) if nesterov else buffer
    return p.add(g, alpha=-lr), buffer


def adam_step(p, g, m, v, lr, rate1, rate2, eps, shrink=1.0, weight_decay=0.0, scale=1.0):
    g = (g * scale).add(p, alpha=weight_decay)
    m = m.clone().mul_(1 - rate1).add_(g, alpha=rate1)
    v = v.clone().mul_(1 - rate2).addcmul_(g, g, value=rate2)
    return p.mul(shrink).addcdiv_(m, v.sqrt().add_(eps), value=-lr), m, v


def rmsprop_step(p, g, v, lr, rate, eps, weight_decay=0.0, scale=1.0):
    g = (g * scale).add(p, alpha=weight_decay)
    v = v.clone().mul_(1 - rate).addcmul_(g, g, value=rate)
    return p.addcdiv(g, v.sqrt().add_(eps), value=-lr), v


def adagrad_step(p, g, total, lr, eps, weight_decay=0.0, scale=1.0):
    g = (g * scale).add(p, alpha=weight_decay)
    total = total.clone().addcmul_(g, g, value=1)
    return p.addcdiv(g, total.sqrt().add_(eps), value=-lr), total


def added(norm):
    """Returns a norm of the sum of two operands, which also returns the sum."""

    def call(x, residual, *rest):
        total = x + residual
        out, *statistics = norm(total, *rest)
        return out, total, *statistics

    return call


def added_backward(norm_backward):
    def call(grad, grad_sum, *rest):
        if wide(grad) is not grad:
            raise Missing("rounds in other places")
        dx, *parameters = norm_backward(grad, *rest)
        return dx + grad_sum if rest[-1][0] else dx, *parameters

    return call


def rotary_embedding(x, cos, sin, positions, interleaved, inverse):
    n, rows = cos.shape[1], x.shape[-2]
    if {cos.dtype, sin.dtype} - {x.dtype, wide(x).dtype}:
        raise Missing("other types")

    def placed(table):
        table = wide(table[:rows] if positions is None else table[positions.long()])
        if positions is not None and positions.dim() == 2:
            table = table.reshape(x.shape[0], *[1] * (x.dim() - 3), rows, n)
        return table

    c, s = placed(cos), placed(sin) * (-1 if inverse else 1)
    rotated = wide(x[..., : 2 * n])
    if interleaved:
        a, b = rotated[..., ::2], rotated[..., 1::2]
        turned = torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)
    else:
        a, b = rotated[..., :n], rotated[..., n:]
        turned = torch.cat([a * c - b * s, b * c + a * s], -1)
    return torch.cat([turned.to(x.dtype), x[..., 2 * n :]], -1)


def gated(activation):
    """Returns a gated activation, its gradients, and that of one packed operand."""

    def pair(gate, up, *mode):
        return activation(wide(gate), *mode).mul(wide(up)).to(torch.promote_types(gate.dtype, up.dtype))

    def backward(grad, gate, up, *mode):
        a = wide(gate) if gate.requires_grad else wide(gate).detach().requires_grad_()
        with torch.enable_grad():
            act = activation(a, *mode)
            (slope,) = torch.autograd.grad(act.sum(), a, create_graph=True)
        kind = torch.promote_types(torch.promote_types(grad.dtype, gate.dtype), up.dtype)
        return (wide(grad) * wide(up) * slope).to(kind), (wide(grad) * act).to(kind)

    return pair, backward, lambda x, dim, *mode: pair(*x.chunk(2, dim), *mode)


swiglu, swiglu_backward, swiglu_packed = gated(F.silu)
geglu, geglu_backward, geglu_packed = gated(lambda x, mode: F.gelu(x, approximate=mode))


def common_type(*tensors):
    kind = functools.reduce(torch.promote_types, [x.dtype for x in tensors])
    return kind if kind.is_floating_point else torch.float32


def lstm_gates(*gates):
    i, f, g, o, cell = map(wide, gates)
    state = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    kind = common_type(*gates)
    return (torch.sigmoid(o) * torch.tanh(state)).to(kind), state.to(kind)


def gru_gates(*gates):
    r, z, candidate, product, hidden = map(wide, gates)
    n = torch.tanh(candidate + torch.sigmoid(r) * product)
    return (torch.sigmoid(z) * hidden + (1 - torch.sigmoid(z)) * n).to(common_type(*gates))


def backward_of(function, results):
    """Returns the gradients of the last arguments, given those of the results."""

    def backward(*args):
        kind = common_type(*args)
        all_ = [wide(x.to(kind)) for x in torch.broadcast_tensors(*args)]
        inputs = [x.detach().requires_grad_() for x in all_[results:]]
        with torch.enable_grad():
            found = torch.autograd.grad(function(*inputs), inputs, all_[:results])
        return tuple(x.to(kind) for x in found)

    return backward


def recurrent_rows(batch_sizes, reverse):
    """Yields the first row, the rows, and the rows with an earlier state of each step, in the order of computation."""
    order = list(zip(itertools.accumulate([0, *batch_sizes]), batch_sizes))
    order = order[::-1] if reverse else order
    for i, (first, rows) in enumerate(order):
        yield first, rows, order[i - 1][0] if i else 0, min(rows, order[i - 1][1]) if i else 0


def recurrent_layer(step, gates, states, batch_sizes, reverse):
    """Returns the results of `step`, given the rows of gates and the states before, joined in the order of rows. Its
    first results are the states."""
    done = {}
    for first, rows, before, carried in recurrent_rows(batch_sizes, reverse):
        now = [
            torch.cat([done[before][k][:carried], states[k][carried:rows]]) if carried else states[k][:rows]
            for k in range(len(states))
        ]
        done[first] = step(gates[first : first + rows], *now)
    return tuple(torch.cat([done[first][k] for first in sorted(done)]) for k in range(len(done[0])))


def lstm_layer(gates, hx, cx, weight, batch_sizes, reverse=False):
    def step(rows, h, c):
        sums = rows + h @ weight.T
        return (*lstm_gates(*sums.chunk(4, 1), c), sums)

    return recurrent_layer(step, gates, [hx, cx], batch_sizes, reverse)


def gru_layer(gates, hx, weight, bias, batch_sizes, reverse=False):
    def step(rows, h):
        n = h.shape[1]
        product = h @ weight.T
        last = product[:, 2 * n :] if bias is None else product[:, 2 * n :] + bias
        sums = torch.cat([rows[:, : 2 * n] + product[:, : 2 * n], last], 1)
        return gru_gates(sums[:, :n], sums[:, n : 2 * n], rows[:, 2 * n :], last, h), sums

    return recurrent_layer(step, gates, [hx], batch_sizes, reverse)


def rnn_layer(gates, hx, weight, batch_sizes, relu=False, reverse=False):
    act = torch.relu if relu else torch.tanh
    return recurrent_layer(lambda rows, h: (act(rows + h @ weight.T),), gates, [hx], batch_sizes, reverse)[0]


def linear_cross_entropy(x, matrix, target, bias, weight, reduction, ignore_index, smoothing, cap):
    scores = wide(F.linear(x, matrix, bias)).flatten(0, -2)
    scores = torch.tanh(scores / cap) * cap if cap != 0 else scores
    weight = None if weight is None else wide(weight)
    loss = cross_entropy(scores, target.flatten(), weight, reduction, ignore_index, smoothing)
    return loss.reshape(target.shape) if reduction == "none" else loss


def linear_cross_entropy_forward(x, matrix, target, bias, weight, reduce, ignore_index, smoothing, cap, mask):
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, matrix, bias)]
    with torch.enable_grad():
        loss = linear_cross_entropy(
            *leaves[:2], target, leaves[2], weight, "sum" if reduce else "none", ignore_index, smoothing, cap
        )
    wanted = [leaf for leaf, want in zip(leaves, mask) if want and leaf is not None]
    found = list(torch.autograd.grad(loss, wanted)) if wanted else []
    results = [found.pop(0) if want else x.new_zeros(0) for want in mask]
    return loss.detach(), results[0], wide(results[1]), wide(results[2])


def get_total_norm(tensors, order):
    kind = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    norms = [torch.linalg.vector_norm(t, order, dtype=kind) for t in tensors]
    return torch.linalg.vector_norm(torch.stack(norms), order)


def clip_grads_with_norm_(tensors, total, limit):
    for t in tensors:
        t.mul_(torch.clamp(limit / (total + 1e-6), max=1.0))


def need_floats(x):
    if not x.is_floating_point():
        raise RuntimeError("steps of optimizers only support floating-point types")


def averages(g, m, v, rate1, rate2):
    need_floats(g)
    return m.clone().mul_(1 - rate1).add_(g, alpha=rate1), v.clone().mul_(1 - rate2).addcmul_(g, g, value=rate2)


def nadam_step(p, g, m, v, grad_rate, mean_rate, correction, shrink, rate1, rate2, eps, weight_decay=0.0, scale=1.0):
    g = (g * scale).add(p, alpha=weight_decay)
    m, v = averages(g, m, v, rate1, rate2)
    denominator = v.div(correction).sqrt().add_(eps)
    return p.mul(shrink).sub_(g * grad_rate / denominator).sub_(m * mean_rate / denominator), m, v


def radam_step(p, g, m, v, plain_rate, adaptive_rate, shrink, rate1, rate2, eps, weight_decay=0.0, scale=1.0):
    g = (g * scale).add(p, alpha=weight_decay)
    m, v = averages(g, m, v, rate1, rate2)
    adaptive = torch.as_tensor(adaptive_rate)
    rate = torch.where(adaptive == 0, plain_rate, adaptive / v.sqrt().add_(eps))
    return p.mul(shrink).sub_(m * rate), m, v


def adamax_step(p, g, m, bound, lr, rate1, beta2, eps, weight_decay=0.0, scale=1.0):
    need_floats(p)
    g = (g * scale).add(p, alpha=weight_decay)
    m, bound = m.mul(1 - rate1).add_(g, alpha=rate1), torch.maximum(bound * beta2, g.abs().add_(eps))
    return p.sub(m / bound * lr), m, bound


def adadelta_step(p, g, v, acc, lr, rho, eps, weight_decay=0.0, scale=1.0):
    need_floats(p)
    g = (g * scale).add(p, alpha=weight_decay)
    v = v.clamp(min=0).mul(rho).addcmul_(g, g, value=1 - rho)
    delta = acc.clamp(min=0).add(eps).sqrt_().div_(v.add(eps).sqrt_()).mul_(g)
    return p.sub(delta * lr), v, acc.mul(rho).addcmul_(delta, delta, value=1 - rho)


def asgd_step(p, g, ax, eta, mu, lambd, weight_decay=0.0, scale=1.0):
    need_floats(p)
    g = (g * scale).add(p, alpha=weight_decay)
    p = p.mul(1 - lambd * eta).sub_(g * eta)
    return p, ax.add(p.sub(ax).mul_(mu))


def lion_step(p, g, m, lr, beta1, beta2, weight_decay=0.0, scale=1.0):
    need_floats(p)
    g = g * scale
    return p.mul(1 - lr * weight_decay).sub_(m.lerp(g, 1 - beta1).sign_() * lr), m.mul(beta2).add_(g, alpha=1 - beta2)


# By full name; each takes the record's arguments in order.
def sinc(x):
    """Returns torch.sinc, exact at integers and accurate far from 0."""
    x = x if x.is_floating_point() else x.to(torch.float32)
    n = x.round()
    sine = (1 - 2 * n.remainder(2)) * (math.pi * (x - n)).sin()
    return torch.where(x == 0, 1.0, sine / (math.pi * torch.where(x == 0, 1.0, x)))


def lerp(x, y, w):
    """Returns torch.lerp, but weighs ends whose difference is no finite number."""
    out = torch.lerp(x, y, w)
    with torch.no_grad():
        out.copy_(torch.where((y - x).abs() < math.inf, out, x * (1 - w) + y * w))
    return out


def gcd_steps(a, b):
    torch.gcd(a, b)  # refuses other types
    for _ in range(8):
        ended = b == 0
        a, b = torch.where(ended, a, b), torch.where(ended, 0, a.remainder(torch.where(ended, 1, b)))
    return a, b


def frexp_parts(x):
    mantissa, exponent = torch.frexp(x)
    return mantissa, torch.where(x.isfinite(), exponent, 0).to(x.dtype)


def signal_window(name):
    """Returns a function of torch.signal.windows that takes the record's arguments in order."""

    def call(length, *args):
        *shape, sym, dtype, device = args
        names = {"exponential": ("center", "tau"), "gaussian": ("std",), "general_cosine": ("a",)}
        names |= {"general_hamming": ("alpha",), "kaiser": ("beta",)}
        options = dict(zip(names.get(name, ()), shape))
        return getattr(torch.signal.windows, name)(length, **options, sym=sym, dtype=dtype or torch.float32)

    return call


SIGNAL_WINDOWS = (
    "bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall"
)

# ---- linear algebra ------------------------------------------------------------------------------------


def signs(vectors):
    """Returns the factors that make the first element of each column that is near its largest one positive."""
    size = vectors.abs() if vectors.is_complex() else vectors.detach().abs()
    near = size >= 0.9 * size.amax(-2, keepdim=True) if vectors.numel() else size > 0
    first = near & (near.cumsum(-2) == 1)
    factors = (vectors / size).conj() if vectors.is_complex() else vectors.detach().sign()
    return torch.where(first, factors, 0).sum(-2, keepdim=True)


def eigh_forward(x, triangle, compute=True):
    if not compute:
        return torch.linalg.eigvalsh(x, triangle), x.new_empty(0)
    values, vectors = torch.linalg.eigh(x, triangle)
    return values, vectors * signs(vectors)


def order_of_eigenvalues(values):
    """Returns their order by sdk::order_of_eigenvalues."""
    rounding = 64 * torch.finfo(values.dtype).eps * max((abs(v) for v in values.tolist()), default=0)
    order, groups = sorted(range(len(values)), key=lambda i: values[i].real.item()), []
    for i in order:
        near = groups and values[i].real - values[groups[-1][-1]].real <= rounding
        groups[-1].append(i) if near else groups.append([i])
    return [i for group in groups for i in sorted(group, key=lambda i: values[i].imag.item())]


def eig_forward(x, compute=True):
    values, vectors = torch.linalg.eig(x)
    orders = [order_of_eigenvalues(row) for row in values.detach().reshape(-1, values.shape[-1])]
    order = torch.tensor(orders, dtype=torch.int64).reshape(values.shape)
    values = values.gather(-1, order)
    if not compute:
        return values, values.new_empty(0)
    vectors = vectors.gather(-1, order.unsqueeze(-2).expand(vectors.shape))
    return values, vectors * signs(vectors)


def svd_forward(x, full, compute=True):
    if not compute:
        return x.new_empty(0), torch.linalg.svdvals(x), x.new_empty(0)
    u, s, vh = torch.linalg.svd(x, full_matrices=full)
    factors, k = signs(u), s.shape[-1]
    ones = torch.ones_like(factors)
    own = torch.cat([factors[..., :k], ones[..., k:]], -1)
    own_rows = factors[..., 0, :k].conj()
    rows = torch.cat([own_rows, torch.ones(*vh.shape[:-2], vh.shape[-2] - k, dtype=vh.dtype)], -1)
    return u * own, s, vh * rows.unsqueeze(-1)


def svd(x, some, compute):
    if not compute:
        return tuple(torch.svd(x, some, False))
    u, s, vh = svd_forward(x, not some)
    return u, s, vh.mH


def svd_lowrank(x, q, niter, m=None, generator=None):
    """The exact values, which any start gives if the others are 0."""
    if q < 0 or niter < 0:
        raise ValueError
    u, s, vh = svd_forward(x if m is None else x - m, False)
    return u[..., :q], s[..., :q], vh.mH[..., :q]


def pca_lowrank(x, q, center, niter, generator=None):
    q = min(6, *x.shape[-2:]) if q is None else q
    return svd_lowrank(x - x.mean(-2, keepdim=True) if center else x, q, niter)


def lu_permutation(pivots, size):
    if pivots.dtype != torch.int32:
        raise Missing("pivots are int32")
    order = torch.arange(size).expand(*pivots.shape[:-1], size).clone()
    for row, own in zip(order.reshape(-1, size), pivots.reshape(-1, pivots.shape[-1])):
        for i, pivot in enumerate(own.tolist()):
            row[i], row[pivot - 1] = row[pivot - 1].clone(), row[i].clone()
    return order


def embedding_bag(weight, indices, offsets, by_freq, mode, scales, last, padding):
    padding = None if padding == -1 else padding
    return F.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=by_freq, mode=mode, per_sample_weights=scales,
        include_last_offset=last, padding_idx=padding,
    )  # fmt: skip


TWINS = {
    "embedding_bag": embedding_bag,
    "interpolate": lambda *args: F.interpolate(*args),
    "upsample_nearest": lambda x, size, scale: F.interpolate(x, size, scale, "nearest"),
    "upsample_bilinear": lambda x, size, scale: F.interpolate(x, size, scale, "bilinear", True),
    "grid_sample": lambda *args: F.grid_sample(*args),
    "max_unpool1d": lambda x, at, size: aten.max_unpool2d(x.unsqueeze(-2), at.unsqueeze(-2), [1, *size]).squeeze(-2),
    "nextafter_steps": lambda x, to, unit, least, most: torch.nextafter(x, to),
    "igamma_integrand": lambda d, x, u: torch.exp(-d * u.abs() - x * (torch.expm1(u) - u)),
    "linalg_eigh_forward": eigh_forward,
    "linalg_eigh": eigh_forward,
    "linalg_eig_forward": eig_forward,
    "linalg_eig": eig_forward,
    "linalg_eigvals": lambda x: eig_forward(x)[0],
    "linalg_svd_forward": svd_forward,
    "linalg_svd": lambda x, full, driver: svd_forward(x, full),
    "svd": svd,
    "svd_lowrank": svd_lowrank,
    "pca_lowrank": pca_lowrank,
    "lu": lambda x, pivot, infos: list(torch.lu(x, pivot, infos)),
    "linalg_matrix_sqrth": torch.linalg.matrix_sqrth,
    "linalg_lu_permutation": lu_permutation,
    "linalg_solve_forward": lambda a, b, left: aten._linalg_solve_ex(a, b, left=left),
    **{f"signal_windows_{name}": signal_window(name) for name in SIGNAL_WINDOWS.split()},
    "gcd_steps": gcd_steps,
    "frexp_parts": frexp_parts,
    **{f"upsample_nearest_exact{n}d": getattr(aten, f"_upsample_nearest_exact{n}d") for n in (1, 2, 3)},
    "upsample_bilinear2d_aa": lambda *args: aten._upsample_bilinear2d_aa(*args),
    "upsample_bicubic2d_aa": lambda *args: aten._upsample_bicubic2d_aa(*args),
    "sinc": sinc,
    # PyTorch's gradient is a number below 1, where the function is NaN.
    "special_zeta": lambda x, q: torch.special.zeta(x, q * torch.where(torch.as_tensor(x) < 1, math.nan, 1)),
    "logit_terms": torch.logit,
    "ldexp_terms": torch.ldexp,
    "lerp.Tensor": lerp,
    "prelu_terms": lambda x, weight: torch.where(x > 0, x, x * weight),
    "normalize": lambda x, p=2, dim=(1,), eps=1e-12: x / torch.linalg.vector_norm(x, p, dim, True).clamp_min(eps),
    "sgd_step": sgd_step,
    "adam_step": adam_step,
    "rmsprop_step": rmsprop_step,
    "adagrad_step": adagrad_step,
    "nadam_step": nadam_step,
    "radam_step": radam_step,
    "adamax_step": adamax_step,
    "adadelta_step": adadelta_step,
    "asgd_step": asgd_step,
    "lion_step": lion_step,
    "trunc_divide": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "masked_fill.Tensor": lambda x, mask, value: (
        torch.where(mask, value, x)
        if isinstance(value, torch.Tensor) and mask.dtype == torch.bool
        else x.masked_fill(mask, value)
    ),
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "mse_loss_terms": losses(F.mse_loss),
    "l1_loss_terms": losses(F.l1_loss),
    "smooth_l1_loss_terms": lambda x, y, beta: F.smooth_l1_loss(x, y, reduction="none", beta=beta),
    "huber_loss_terms": lambda x, y, delta: F.huber_loss(x, y, reduction="none", delta=delta),
    "binary_cross_entropy_terms": binary_cross_entropy_terms,
    "binary_cross_entropy_with_logits_terms": binary_cross_entropy_with_logits_terms,
    "all.dims": by_dimension("all"),
    "any.dims": by_dimension("any"),
    "kl_div_terms": kl_div_terms,
    "kl_div": lambda x, y, reduction, log: F.kl_div(x, y, reduction=reduction, log_target=log),
    "full": lambda size, value, dtype, device: torch.full(size, value, dtype=dtype),
    "to.device": lambda x, device, type_, non_blocking, copy: x.to(device, type_ or x.dtype, copy=copy),
    "convolution_backward_input": convolution_backward(0),
    "convolution_backward_weight": convolution_backward(1),
    "cdist_backward": cdist_backward,
    "interleave_indices": lambda ends, size: torch.searchsorted(ends, torch.arange(size), right=True),
    "max_pool2d_with_indices_backward": max_pool2d_backward,
    "avg_pool2d_backward": lambda grad, size, *rest: aten.avg_pool2d_backward(
        grad, torch.zeros(size, dtype=grad.dtype), *rest
    ),
    "nll_loss_forward": nll_loss_forward,
    "nll_loss_backward": nll_loss_backward,
    "cross_entropy": cross_entropy,
    "cross_entropy_forward": cross_entropy_forward,
    "cross_entropy_backward": cross_entropy_backward,
    "linear_gelu": lambda x, weight, bias, approximate: linear_gelu_forward(x, weight, bias, approximate, True)[0],
    "linear_gelu_backward": linear_gelu_backward,
    "linear_gelu_forward": linear_gelu_forward,
    "squeeze.dims": squeeze_dims,
    "as_strided_relative": lambda x, size, stride, offset: x.as_strided(size, stride, x.storage_offset() + offset),
    "attention_backward": attention_backward,
    "attention_forward": attention_forward,
    "attention_paged": attention_paged,
    "attention_varlen_forward": attention_varlen_forward,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    # PyTorch returns wrong results for operands that are not contiguous.
    "softmax_backward": lambda grad, out, dim: aten._softmax_backward_data(
        grad.contiguous(), out.contiguous(), dim, out.dtype
    ),
    "log_softmax_backward": lambda grad, out, dim: aten._log_softmax_backward_data(
        grad.contiguous(), out.contiguous(), dim, out.dtype
    ),
    "native_add_layer_norm": added(native_layer_norm),
    "native_add_layer_norm_backward": added_backward(native_layer_norm_backward),
    "native_add_rms_norm": added(native_rms_norm),
    "native_add_rms_norm_backward": added_backward(native_rms_norm_backward),
    "add_layer_norm": lambda x, residual, *rest: added(native_layer_norm)(x, residual, *rest)[:2],
    "add_rms_norm": lambda x, residual, shape, weight, eps: (rms_norm(x + residual, shape, weight, eps), x + residual),
    "rotary_embedding": rotary_embedding,
    "swiglu": swiglu,
    "swiglu_backward": swiglu_backward,
    "swiglu.packed": swiglu_packed,
    "geglu": geglu,
    "geglu_backward": geglu_backward,
    "geglu.packed": geglu_packed,
    "lstm_gates": lstm_gates,
    "lstm_gates_backward": backward_of(lstm_gates, 2),
    "gru_gates": gru_gates,
    "gru_gates_backward": backward_of(gru_gates, 1),
    "lstm_layer": lstm_layer,
    "gru_layer": gru_layer,
    "rnn_layer": rnn_layer,
    "softcap": lambda x, cap: torch.tanh(x / cap) * cap,
    "linear_cross_entropy": linear_cross_entropy,
    "linear_cross_entropy_forward": linear_cross_entropy_forward,
    "get_total_norm": get_total_norm,
    "clip_grads_with_norm_": clip_grads_with_norm_,
    "native_layer_norm": native_layer_norm,
    "native_layer_norm_backward": native_layer_norm_backward,
    "native_rms_norm": native_rms_norm,
    "native_rms_norm_backward": native_rms_norm_backward,
    "rms_norm": rms_norm,
    "native_group_norm": native_group_norm,
    "native_group_norm_backward": native_group_norm_backward,
    "batch_norm_training": batch_norm_training,
    "batch_norm_training_backward": batch_norm_training_backward,
    "native_batch_norm": native_batch_norm,
    "batch_norm": lambda x, weight, bias, mean, var, training, momentum, eps, cudnn: F.batch_norm(
        x, mean, var, weight, bias, training, momentum, eps
    ),
    "instance_norm": lambda x, weight, bias, mean, var, use_input, momentum, eps, cudnn: F.instance_norm(
        x, mean, var, weight, bias, use_input, momentum, eps
    ),
}


# ---- calls -----------------------------------------------------------------------------------------------


def plain_value(arg, given):
    """Returns an argument that is not a tensor."""
    if given is None:
        return None
    if arg.type == "ScalarType":
        return dtype(given)
    if arg.type == "Device":
        return torch.device(given)
    if arg.type in ("Scalar", "float", "Operand") and isinstance(given, str):
        return golden.number(given)
    return given


def arguments(op, case: dict, open_: str) -> dict:
    """Returns the arguments that the case gives, by name."""
    found, counter = {}, 0
    for arg in op.schema.args:
        if arg.name not in case["args"] or arg.type == "Generator":
            continue
        given = case["args"][arg.name]
        type_ = op.types.get(arg.name, "same")
        if arg.is_tensor_list:
            found[arg.name] = []
            for item in given:
                found[arg.name].append(None if item is None else tensor(item, type_, open_, counter))
                counter += item is not None
        elif arg.is_tensor and isinstance(given, dict):
            found[arg.name] = tensor(given, type_, open_, counter)
            counter += 1
        else:
            found[arg.name] = plain_value(arg, given)
    return found


def call(op, given: dict) -> list:
    """Returns the results as a flat list. Raises Missing if PyTorch has no such call, and PyTorch's exception if it
    refuses the arguments."""
    args = [a for a in op.schema.args if a.type != "Generator"]
    twin = TWINS.get(op.full_name)
    if twin is not None:
        result = twin(*(given.get(a.name, plain_default(a)) for a in args))
    else:
        result = _call_aten(op, args, given)
    if isinstance(result, (tuple, list)):
        return list(itertools.chain.from_iterable(r if isinstance(r, (tuple, list)) else [r] for r in result))
    return [result]


def plain_default(arg):
    if not arg.has_default:
        return None
    return list(arg.default) if isinstance(arg.default, tuple) else arg.default


def _call_aten(op, args, given):
    packet = getattr(aten, op.schema.name, None)
    if packet is None:
        raise Missing("no such operator")
    positional = [a for a in args if not a.kw_only]
    # Without trailing defaults, the arguments may also fit another overload.
    while positional and positional[-1].name not in given:
        positional.pop()
    values = [given.get(a.name, plain_default(a)) for a in positional]
    values = [REDUCTIONS.get(v, v) if a.name == "reduction" else v for a, v in zip(positional, values)]
    named = {a.name: given[a.name] for a in args if a.kw_only and a.name in given}
    refused = None
    for function in (getattr(packet, op.schema.overload or "default", None), packet):
        if function is None:
            continue
        try:
            return function(*values, **named)
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError) as error:
            refused = refused or error
    raise refused or Missing("no such overload")
