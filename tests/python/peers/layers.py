"""Compares layers with PyTorch's in one process: names of states and modules, results, gradients and states after a call.

    python tests/python/peers/layers.py [--verbose]

Both get PyTorch's weights. PyTorch refuses three of the cases: targets of SoftMarginLoss that require gradients.
"""

import argparse
import sys

import mytorch as mt
import numpy as np
import torch
from mytorch import nn

RNG = np.random.default_rng(0)
CASES = []  # (class, arguments, keywords, inputs, evaluation mode, whether inputs require gradients)


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def p(*shape):
    return (1 / (1 + np.exp(-f(*shape)))).astype(np.float32)


def case(name, *args, x, evaluation=False, grads=True, **keywords):
    CASES.append((name, args, keywords, x, evaluation, grads))


def linear_and_tables():
    case("Linear", 5, 3, x=[f(4, 5)])
    case("Linear", 5, 3, bias=False, x=[f(2, 4, 5)])
    case("Bilinear", 3, 4, 5, x=[f(2, 3), f(2, 4)])
    case("Identity", x=[f(2, 3)])
    case("Flatten", x=[f(2, 3, 4)])
    case("Flatten", 0, 1, x=[f(2, 3, 4)])
    case("Unflatten", 1, (2, 3), x=[f(4, 6)])
    rows = RNG.integers(0, 7, (3, 4))
    case("Embedding", 7, 5, x=[rows], grads=False)
    case("Embedding", 7, 5, padding_idx=2, x=[rows], grads=False)
    case("EmbeddingBag", 7, 5, x=[rows], grads=False)
    case("EmbeddingBag", 7, 5, mode="sum", x=[rows], grads=False)


def planes():
    for n in (1, 2, 3):
        size = (7, 8, 6)[:n]
        for keywords in (
            {},
            {"padding": 1, "stride": 2},
            {"padding": "same"},
            {"groups": 2, "bias": False, "dilation": 2, "padding": 2},
            {"padding": 1, "padding_mode": "circular"},
            {"padding": 1, "padding_mode": "reflect"},
        ):
            case(f"Conv{n}d", 4, 6, 3, x=[f(2, 4, *size)], **keywords)
        case(f"ConvTranspose{n}d", 4, 6, 3, x=[f(2, 4, *size)])
        case(f"ConvTranspose{n}d", 4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, x=[f(2, 4, *size)])
        case(f"MaxPool{n}d", 2, x=[f(2, 4, *size)])
        case(f"MaxPool{n}d", 3, 2, 1, ceil_mode=True, x=[f(2, 4, *size)])
        case(f"MaxPool{n}d", 2, return_indices=True, x=[f(2, 4, *size)])
        case(f"AvgPool{n}d", 2, x=[f(2, 4, *size)])
        case(f"AvgPool{n}d", 3, 2, 1, count_include_pad=False, x=[f(2, 4, *size)])
        case(f"AdaptiveAvgPool{n}d", 3, x=[f(2, 4, *size)])
        case(f"AdaptiveMaxPool{n}d", 3, x=[f(2, 4, *size)])
        case(f"LPPool{n}d", 2, 2, x=[abs(f(2, 4, *size))])
        case(f"BatchNorm{n}d", 4, x=[f(3, 4, *size)])
        case(f"BatchNorm{n}d", 4, evaluation=True, x=[f(3, 4, *size)])
        case(f"BatchNorm{n}d", 4, momentum=None, x=[f(3, 4, *size)])
        case(f"BatchNorm{n}d", 4, affine=False, track_running_stats=False, x=[f(3, 4, *size)])
        case(f"InstanceNorm{n}d", 4, affine=True, x=[f(3, 4, *size)])
        for pad in ("ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"):
            case(f"{pad}{n}d", 1, x=[f(2, 3, *size)])
        case(f"ConstantPad{n}d", 1, 2.5, x=[f(2, 3, *size)])
    case("ZeroPad2d", (1, 2, 3, 4), x=[f(2, 3, 4, 5)])
    case("AdaptiveAvgPool2d", (3, 2), x=[f(2, 3, 7, 5)])
    case("Upsample", scale_factor=2, x=[f(2, 3, 4, 5)])
    case("Upsample", (7, 9), mode="bilinear", align_corners=True, x=[f(2, 3, 4, 5)])
    case("Upsample", scale_factor=(1.5, 2), mode="bicubic", x=[f(2, 3, 4, 5)])
    case("PixelShuffle", 2, x=[f(2, 8, 3, 3)])
    case("PixelUnshuffle", 2, x=[f(2, 2, 4, 4)])
    case("ChannelShuffle", 2, x=[f(2, 4, 3, 3)])
    case("Unfold", 2, x=[f(2, 3, 4, 5)])
    case("Unfold", (2, 3), stride=2, padding=1, x=[f(2, 3, 4, 5)])
    case("Fold", (4, 5), 2, x=[f(2, 12, 12)])


def pointwise():
    case("LayerNorm", 5, x=[f(2, 5)])
    case("LayerNorm", (4, 5), x=[f(2, 4, 5)], bias=False)
    case("RMSNorm", 5, x=[f(2, 5)])
    case("GroupNorm", 2, 4, x=[f(2, 4, 5)])
    case("LocalResponseNorm", 3, x=[f(2, 5, 4)])
    names = (
        "ReLU ReLU6 SELU SiLU Mish Tanh Sigmoid LogSigmoid Softsign Hardsigmoid Hardswish Tanhshrink LeakyReLU PReLU"
    )
    for name in f"{names} ELU CELU GELU Softplus Hardtanh Hardshrink Softshrink GLU".split():
        case(name, x=[f(3, 4)])
    case("GELU", "tanh", x=[f(3, 4)])
    case("Threshold", 0.1, 20.0, x=[f(3, 4)])
    case("RReLU", evaluation=True, x=[f(3, 4)])
    case("PReLU", 4, x=[f(2, 4, 3)])
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        case(name, 1, x=[f(3, 4)])
        case(name, dim=-1, x=[f(3, 4)])
    case("Softmax2d", x=[f(2, 3, 4, 5)])
    for name in ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout", "FeatureAlphaDropout"):
        case(name, 0.3, evaluation=True, x=[f(2, 3, 4)])
    case("Dropout3d", 0.3, evaluation=True, x=[f(2, 3, 4, 5, 6)])


def losses():
    labels, signs = RNG.integers(0, 4, (3,)), np.sign(f(3)).astype(np.float32)
    for reduction in ("mean", "sum", "none"):
        r = {"reduction": reduction}
        case("MSELoss", **r, x=[f(3, 4), f(3, 4)])
        case("L1Loss", **r, x=[f(3, 4), f(3, 4)])
        case("SmoothL1Loss", **r, beta=0.5, x=[f(3, 4), f(3, 4)])
        case("HuberLoss", reduction, 0.7, x=[f(3, 4), f(3, 4)])
        case("CrossEntropyLoss", **r, label_smoothing=0.1, x=[f(3, 4), labels])
        case("NLLLoss", **r, ignore_index=int(labels[0]), x=[f(3, 4), labels])
        case("BCELoss", **r, x=[p(3, 4), p(3, 4)])
        case("BCEWithLogitsLoss", **r, x=[f(3, 4), p(3, 4)])
        case("KLDivLoss", **r, x=[f(3, 4), p(3, 4)])
        case("PoissonNLLLoss", **r, x=[f(3, 4), p(3, 4)])
        case("GaussianNLLLoss", **r, x=[f(3, 4), f(3, 4), p(3, 4)])
        case("MultiMarginLoss", **r, x=[f(3, 4), labels])
        case("MultiLabelMarginLoss", **r, x=[f(3, 4), np.array([[1, 0, -1, 2]] * 3)])
        case("MultiLabelSoftMarginLoss", **r, x=[f(3, 4), (p(3, 4) > 0.5).astype(np.float32)])
        case("SoftMarginLoss", **r, x=[f(3), signs])
        case("HingeEmbeddingLoss", **r, x=[f(3), signs])
        case("MarginRankingLoss", **r, x=[f(3), f(3), signs])
        case("CosineEmbeddingLoss", **r, margin=0.1, x=[f(3, 4), f(3, 4), signs])
        case("TripletMarginLoss", **r, x=[f(3, 4), f(3, 4), f(3, 4)])
        steps = torch.log_softmax(torch.from_numpy(f(6, 2, 5)), -1).numpy()
        lengths = [np.array([6, 5]), np.array([3, 2])]
        case("CTCLoss", **r, x=[steps, RNG.integers(1, 5, (2, 3)), *lengths], grads=False)
    case("PairwiseDistance", x=[f(3, 4), f(3, 4)])
    case("CosineSimilarity", x=[f(3, 4), f(3, 4)])
    case("AdaptiveLogSoftmaxWithLoss", 8, 10, [3, 6], x=[f(4, 8), RNG.integers(0, 10, (4,))])


def sequences():
    for name in ("RNN", "GRU", "LSTM"):
        case(name, 4, 5, x=[f(6, 3, 4)])
        case(name, 4, 5, 2, batch_first=True, bidirectional=True, x=[f(3, 6, 4)])
        case(f"{name}Cell", 4, 5, x=[f(3, 4)])
    case("LSTM", 4, 5, proj_size=3, x=[f(6, 3, 4)])
    case("RNN", 4, 5, nonlinearity="relu", x=[f(6, 3, 4)])
    case("MultiheadAttention", 8, 2, x=[f(5, 3, 8)] * 3)
    case("MultiheadAttention", 8, 2, batch_first=True, kdim=4, vdim=6, x=[f(3, 5, 8), f(3, 7, 4), f(3, 7, 6)])
    case("TransformerEncoderLayer", 8, 2, 16, dropout=0.0, x=[f(5, 3, 8)])
    case("TransformerDecoderLayer", 8, 2, 16, 0.0, "gelu", x=[f(5, 3, 8), f(4, 3, 8)])
    case("Transformer", 8, 2, 1, 1, 16, 0.0, x=[f(5, 3, 8), f(4, 3, 8)])


def flat(result):
    if isinstance(result, (tuple, list)):
        return [tensor for each in result for tensor in flat(each)]
    return [] if result is None else [result]


def class_name(module):
    return type(module).__name__.replace("NonDynamicallyQuantizable", "")


def near(ours, theirs, what, rtol=2e-4, atol=2e-5):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=atol, err_msg=what)


def compare(name, args, keywords, inputs, evaluation, grads):
    theirs, ours = getattr(torch.nn, name)(*args, **keywords), getattr(nn, name)(*args, **keywords)
    state = theirs.state_dict()
    for listed in ("named_parameters", "named_buffers", "named_modules"):
        names = [[key for key, _ in getattr(module, listed)()] for module in (theirs, ours)]
        assert names[0] == names[1], names
    assert list(state) == list(ours.state_dict())
    assert list(map(class_name, theirs.modules())) == list(map(class_name, ours.modules()))
    ours.load_state_dict({key: mt.tensor(value.numpy()) for key, value in state.items()})
    if evaluation:
        theirs.eval(), ours.eval()
    xs = [[lib.tensor(value) for value in inputs] for lib in (torch, mt)]
    for x in (x for side in xs for x in side if grads and x.is_floating_point()):
        x.requires_grad_()
    results = [flat(module(*side)) for module, side in zip((theirs, ours), xs)]
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results):
        assert tuple(a.shape) == tuple(b.shape), (a.shape, b.shape)
        near(b, a, "result")
    if results[0][0].requires_grad:
        weights = np.asarray(f(*results[0][0].shape))
        for lib, (first, *_) in zip((torch, mt), results):
            (first * lib.tensor(weights)).sum().backward()
        leaves = [
            [*module.named_parameters(), *(("input", x) for x in side)] for module, side in zip((theirs, ours), xs)
        ]
        for (key, a), (_, b) in zip(*leaves):
            if a.grad is not None and b.grad is not None:
                near(b.grad, a.grad, key, 2e-3, 1e-4)
            else:  # of a parameter that was not used, one side may have zeros
                assert all(grad is None or grad.abs().max() == 0 for grad in (a.grad, b.grad)), key
    for key, value in theirs.state_dict().items():
        near(ours.state_dict()[key], value, key, 1e-4, 1e-5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="prints every case")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for add in (linear_and_tables, planes, pointwise, losses, sequences):
        add()
    refused, wrong = 0, 0
    for each in CASES:
        title = f"{each[0]}{each[1]} {each[2] or ''}"
        try:
            compare(*each)
        except Exception as error:
            refused += "soft_margin_loss" in str(error)
            wrong += "soft_margin_loss" not in str(error)
            print(f"{title}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
        else:
            if args.verbose:
                print(f"{title}: equal")
    print(f"{len(CASES)} cases with PyTorch {torch.__version__}: {wrong} differ, PyTorch refuses {refused}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
