"""All layers."""

from mytorch import _layers
from mytorch._layers import *  # noqa: F403


class UpsamplingNearest2d(_layers.Upsample):
    """Upsample by the nearest elements."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(_layers.Upsample):
    """Upsample by bilinear interpolation, with aligned corners."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
