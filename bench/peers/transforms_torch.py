"""The cases of bench/transforms.cpp in torchvision, on tensors, one thread. Prints {case: microseconds} as JSON.

Usage: transforms_torch.py JPEG SECONDS
"""

import json
import sys
import time

import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

path, seconds = sys.argv[1], float(sys.argv[2])
torch.set_num_threads(1)


def read():
    with Image.open(path) as image:
        return F.pil_to_tensor(image.convert("RGB"))


image = read()
small = F.resize(image, [224, 224], antialias=True)
unit = F.to_dtype(small, torch.float32, scale=True)
nearest, bilinear = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR
normalize = v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
crop, erase = v2.RandomResizedCrop(224, antialias=True), v2.RandomErasing(p=1)
cases = {
    "read_jpeg": read,
    "resize": lambda: F.resize(image, [256], antialias=True),
    "resize_up": lambda: F.resize(image, [512], antialias=True),
    "random_resized_crop": lambda: crop(image),
    "center_crop": lambda: F.center_crop(image, [224, 224]).contiguous(),
    "horizontal_flip": lambda: F.horizontal_flip(small),
    "to_float": lambda: F.to_dtype(small, torch.float32, scale=True),
    "normalize": lambda: normalize(unit),
    "random_erasing": lambda: erase(unit),
    "rotate": lambda: F.rotate(small, 10, interpolation=bilinear),
    "affine_nearest": lambda: F.affine(small, 10, [0, 0], 1.1, [0.0, 0.0], interpolation=nearest),
    "brightness": lambda: F.adjust_brightness(small, 1.2),
    "contrast": lambda: F.adjust_contrast(small, 1.2),
    "saturation": lambda: F.adjust_saturation(small, 1.2),
    "hue": lambda: F.adjust_hue(small, 0.1),
    "grayscale": lambda: F.rgb_to_grayscale(small, 3).contiguous(),
    "gaussian_blur": lambda: F.gaussian_blur(small, [5, 5], [1.5, 1.5]),
    "sharpness": lambda: F.adjust_sharpness(small, 1.5),
    "autocontrast": lambda: F.autocontrast(small),
    "equalize": lambda: F.equalize(small),
    "solarize": lambda: F.solarize(small, 128),
    "posterize": lambda: F.posterize(small, 4),
}


def microseconds(function):
    """The fastest of ten repetitions."""
    function()
    begin = time.perf_counter()
    function()
    count = max(1, int(seconds / 10 / max(time.perf_counter() - begin, 1e-7)))
    fastest = float("inf")
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(count):
            function()
        fastest = min(fastest, (time.perf_counter() - begin) / count)
    return fastest * 1e6


print(json.dumps({name: microseconds(function) for name, function in cases.items()}))
