"""The layers of C++ with what PyTorch's constructors and calls have besides."""

from mytorch import _core, _layers
from mytorch.nn.layer import Layer
from mytorch.nn.utils.rnn import PackedSequence

_pooled = [f"{kind}MaxPool{n}d" for kind in ("", "Adaptive") for n in (1, 2, 3)]
_pooled += ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _Pooled:
    """A pooling that returns the indices of the elements, too, by `return_indices`."""

    return_indices = False

    def __init__(self, *args, return_indices=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.return_indices = return_indices

    def forward(self, input):
        return self.forward_with_indices(input) if self.return_indices else super().forward(input)


class _Transposed:
    """A transposed convolution whose call takes the size of its output."""

    def forward(self, input, output_size=None):
        if output_size is None:
            return super().forward(input)
        return self.forward_to_size(input, list(output_size)[-(self._dims) :])


class _Recurrent:
    """A recurrent layer that takes packed sequences and names its parameters by layer."""

    def forward(self, input, hx=None):
        output, state = super().forward(input, hx)
        return (PackedSequence(*output) if isinstance(input, PackedSequence) else output), state

    def flatten_parameters(self):
        """Does nothing: the parameters need no common memory."""


def _with(mixin, base, **fields):
    made = type(base.__name__, (mixin, base), {"__doc__": base.__doc__, "__module__": __name__, **fields})
    return made


for _name, _value in list(vars(_layers).items()):
    if not (isinstance(_value, type) and issubclass(_value, Layer)) or _name in ("Layer", "LazyLayer"):
        continue
    if _name in _pooled:
        _value = _with(_Pooled, _value)
    elif "ConvTranspose" in _name:
        _value = _with(_Transposed, _value, _dims=int(_name[-2]))
    elif _name in ("RNN", "GRU", "LSTM"):
        _value = _with(_Recurrent, _value)
    else:
        _value.__module__ = __name__
    globals()[_name] = _value
del _name, _value


class UpsamplingNearest2d(_layers.Upsample):
    """Upsample by the nearest elements."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(_layers.Upsample):
    """Upsample by bilinear interpolation, with aligned corners."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


def _from_pretrained(cls, embeddings, freeze=True, **options):
    """Returns a table of given rows, whose memory it shares."""
    rows, width = embeddings.shape
    made = cls(rows, width, **options)
    from mytorch.nn.parameter import Parameter

    made.weight = Parameter(embeddings, requires_grad=not freeze)
    return made


for _each in (_layers.Embedding, _layers.EmbeddingBag):
    _each.from_pretrained = classmethod(_from_pretrained)


def _generate_square_subsequent_mask(sz, device=None, dtype=None):
    """Returns a mask of scores: minus infinity for the keys behind each query, else 0."""
    mask = _core.full((sz, sz), float("-inf"), dtype=dtype or _core.float32, device=device or "cpu")
    return mask.triu(1)


_layers.Transformer.generate_square_subsequent_mask = staticmethod(_generate_square_subsequent_mask)
