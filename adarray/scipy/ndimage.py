"""Drop-in for `scipy.ndimage`: filters, splines, morphology and measures of images.

Linear filters have the derivative of their adjoint, exact in every boundary mode.
Filters by rank give the gradient to the element that they pick. Positions, labels
and binary images carry no derivative.

References
----------
- J. F. Claerbout, "Earth Soundings Analysis: Processing versus Inversion", Blackwell 1992 (adjoints
  of linear filters).
"""

from __future__ import annotations

import scipy.ndimage

from adarray.scipy._drop_in import constant, fill_in

# isort: off
from adarray.scipy._image_filters import (
    convolve as convolve,
    convolve1d as convolve1d,
    correlate as correlate,
    correlate1d as correlate1d,
    gaussian_filter as gaussian_filter,
    gaussian_filter1d as gaussian_filter1d,
    gaussian_gradient_magnitude as gaussian_gradient_magnitude,
    gaussian_laplace as gaussian_laplace,
    laplace as laplace,
    maximum_filter as maximum_filter,
    maximum_filter1d as maximum_filter1d,
    median_filter as median_filter,
    minimum_filter as minimum_filter,
    minimum_filter1d as minimum_filter1d,
    percentile_filter as percentile_filter,
    prewitt as prewitt,
    rank_filter as rank_filter,
    sobel as sobel,
    uniform_filter as uniform_filter,
    uniform_filter1d as uniform_filter1d,
)
from adarray.scipy._image_measures import (
    black_tophat as black_tophat,
    center_of_mass as center_of_mass,
    extrema as extrema,
    fourier_ellipsoid as fourier_ellipsoid,
    fourier_gaussian as fourier_gaussian,
    fourier_shift as fourier_shift,
    fourier_uniform as fourier_uniform,
    grey_closing as grey_closing,
    grey_dilation as grey_dilation,
    grey_erosion as grey_erosion,
    grey_opening as grey_opening,
    maximum as maximum,
    mean as mean,
    median as median,
    minimum as minimum,
    morphological_gradient as morphological_gradient,
    morphological_laplace as morphological_laplace,
    standard_deviation as standard_deviation,
    sum as sum,
    sum_labels as sum_labels,
    variance as variance,
    white_tophat as white_tophat,
)
from adarray.scipy._image_splines import (
    affine_transform as affine_transform,
    geometric_transform as geometric_transform,
    map_coordinates as map_coordinates,
    rotate as rotate,
    shift as shift,
    spline_filter as spline_filter,
    spline_filter1d as spline_filter1d,
    zoom as zoom,
)
# isort: on

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
