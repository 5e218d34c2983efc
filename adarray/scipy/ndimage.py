"""Drop-in for `scipy.ndimage`: filters, splines, morphology and measures of images.

Linear filters have the derivative of their adjoint, exact in every boundary mode.
Filters by rank give the gradient to the element that they pick. Positions, labels
and binary images carry no derivative.
"""

from __future__ import annotations

import scipy.ndimage

from adarray.scipy._drop_in import constant, fill_in
from adarray.scipy._image_filters import (  # noqa: F401
    convolve,
    convolve1d,
    correlate,
    correlate1d,
    gaussian_filter,
    gaussian_filter1d,
    gaussian_gradient_magnitude,
    gaussian_laplace,
    laplace,
    maximum_filter,
    maximum_filter1d,
    median_filter,
    minimum_filter,
    minimum_filter1d,
    percentile_filter,
    prewitt,
    rank_filter,
    sobel,
    uniform_filter,
    uniform_filter1d,
)  # fmt: skip
from adarray.scipy._image_measures import (  # noqa: F401
    black_tophat,
    center_of_mass,
    extrema,
    fourier_ellipsoid,
    fourier_gaussian,
    fourier_shift,
    fourier_uniform,
    grey_closing,
    grey_dilation,
    grey_erosion,
    grey_opening,
    maximum,
    mean,
    median,
    minimum,
    morphological_gradient,
    morphological_laplace,
    standard_deviation,
    sum,
    sum_labels,
    variance,
    white_tophat,
)  # fmt: skip
from adarray.scipy._image_splines import (  # noqa: F401
    affine_transform,
    geometric_transform,
    map_coordinates,
    rotate,
    shift,
    spline_filter,
    spline_filter1d,
    zoom,
)  # fmt: skip

_PLAIN = (
    "binary_closing", "binary_dilation", "binary_erosion", "binary_fill_holes",
    "binary_hit_or_miss", "binary_opening", "binary_propagation", "distance_transform_bf",
    "distance_transform_cdt", "distance_transform_edt", "find_objects", "histogram", "label",
    "maximum_position", "minimum_position", "value_indices", "watershed_ift",
)  # fmt: skip
globals().update({name: constant(getattr(scipy.ndimage, name)) for name in _PLAIN})

_CALLS = "it calls a function of yours on plain values"
__getattr__, __dir__, __all__ = fill_in(
    globals(),
    scipy.ndimage,
    dict.fromkeys(
        ("generic_filter", "generic_filter1d", "generic_laplace", "generic_gradient_magnitude",
         "labeled_comprehension", "vectorized_filter"),
        _CALLS,
    ),
)  # fmt: skip
