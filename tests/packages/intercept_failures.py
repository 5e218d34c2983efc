"""Calls that do not differentiate, or where differences cannot agree: {package: {name: ...}}.

Each has its arguments and the reason in words.
"""

from __future__ import annotations

_PANDAS = "the package hands the array to pandas"
_COMPILED = "the package hands the array to compiled code of its own"
_SPLINE = "scipy.interpolate.bisplev (FITPACK, compiled) has no rule in adarray"
_STEP = "piecewise constant: a nominal size is looked up, and both derivatives are zero"
_REPEATED = "eigenvalues or singular values are equal, and the vectors that belong to them are any"
_SOLVER = (
    "the package's own iteration stops when its value has converged, and the derivative of the "
    "iteration lags behind"
)
_SINGULAR = (
    "scipy.integrate.quad: the derivative of the integrand is infinite at a limit that is "
    "differentiated too, and the gradient is not a number there"
)
_MINIMUM = (
    "minimizes a norm that is almost zero: the solver stops farther from the minimum than the "
    "kink of the norm is wide, and the derivative is that of where it stopped"
)

FAILURES: dict[str, dict[str, tuple[str, str]]] = {
    "fluids": {
        "fittings.bend_rounded_Miller": (
            "Di=.6, bend_diameters=2, angle=90, Re=2e6, roughness=2E-5, L_unimpeded=30*.6", _SPLINE
        ),
        "fittings.contraction_round_Miller": ("Di1=1, Di2=0.4, rc=0.04", _SPLINE),
        "safety_valve.API520_SH": ("593+273.15, 1066.325E3, '7E'", _SPLINE),
        "geometry.SA_partial_horiz_guppy_head": ("D=72., a=48.0, h=24.0", _SINGULAR),
        "geometry.SA_partial_horiz_spherical_head": ("D=72., a=48.0, h=24.0", _SINGULAR),
        "geometry.SA_partial_horiz_torispherical_head": ("D=72., f=1, k=.06, h=24.0", _SINGULAR),
        "piping.nearest_pipe": ("Di=0.021", _STEP),
        "pump.motor_round_size": ("1E5", _STEP),
    },
    "chemicals": {
        "thermal_conductivity.Missenard": ("304., 6330E5, 591.8, 41E5, 0.129", _SPLINE),
        "viscosity.viscosity_converter": ("8.79, 'engler', 'parlin cup #7'", _SOLVER),
    },
    "ht": {
        "conv_tube_bank.dP_Zukauskas": (
            "Re=13943., n=7, ST=0.0313, SL=0.0343, D=0.0164, rho=1.217, Vmax=12.6", _SPLINE
        ),
        "hx.temperature_effectiveness_plate": (
            "R1=1/3., NTU1=1., Np1=3, Np2=1",
            "the function has a branch for R1 * Np1 == 1, whose formula does not depend on R1; "
            "elsewhere it differentiates",
        ),
        "hx.shell_clearance": ("DBundle=1.245", _STEP),
    },
    "colour": {
        "geometry.section.unique_vertices": (
            "np.array([[0.0, 0.5, 0.0], [0.0, 0.0, 0.5], [0.0, 0.5, 0.0]])",
            "rounds to decimals: zero derivative, but the differences are wider than a step",
        ),
        "models.rgb.transfer_functions.aces.log_encoding_ACESproxy": (
            "0.18", "piecewise constant: the result is rounded to code values"
        ),
        "notation.munsell.munsell_specification_to_xyY": (
            "np.array([2.1, 8.0, 17.9, 4])",
            "np.asarray(x, dtype=int) of a traced array is refused, as it has no derivative",
        ),
        "notation.munsell.xyY_to_munsell_specification": (
            "np.array([0.38736945, 0.35751656, 0.59362])",
            "scipy.spatial.Delaunay.find_simplex (Qhull, compiled) takes the array",
        ),
        "recovery.jakob2019.find_coefficients_Jakob2019": (
            "np.array([0.20654008, 0.12197225, 0.05136952])",
            "the objective leaves scipy.optimize.minimize by an exception that carries the "
            "solver's position, which is a plain array",
        ),
        "temperature.cie_d.xy_to_CCT_CIE_D": ("np.array([0.31270775, 0.32911283])", _MINIMUM),
        "temperature.hernandez1999.CCT_to_xy_Hernandez1999": (
            "6500.742043178653",
            "the minimum is not unique: two unknowns, one equation, and a norm that has a kink "
            "at zero",
        ),
    },
    "empyrical": {
        "up_capture": (
            "np.array([0.01, -0.02, 0.013, 0.004]), np.array([0.008, -0.015, 0.01, 0.006])", _PANDAS
        ),
        "roll_max_drawdown": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006]), 4",
            "makes windows of memory by hand (as_strided), which is refused",
        ),
    },
    "filterpy": {
        "stats.log_likelihood": (
            "np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([[2.0, 0.3], [0.3, 1.0]]), "
            "np.eye(2), np.eye(2)",
            "multivariate_normal with allow_singular=True is refused: no derivative across ranks",
        ),
    },
    "skyfield": {
        "keplerlib.propagate": (
            "np.array([1.0, 0.1, 0.2]), np.array([0.1, 0.02, 0.0]), 0.0, np.array([10.0]), 3e-4",
            "assigns to x.shape, which is refused",
        ),
    },
    "statsmodels": {
        "genmod.families.links.Cauchy().inverse": (
            "np.array([0.4, 0.5])",
            "the object took scipy.stats.cauchy in when it was made, and instance attributes are "
            "not rebound",
        ),
        "robust.scale.qn_scale": ("np.array([1.0, 2.0, 0.5, 3.0])", _COMPILED),
        "tools.tools.recipr": ("np.array([1.0, 2.0])", "x.flat of a traced array is refused"),
        "tsa.filters.hp_filter.hpfilter": (
            "np.array([1.0, 2.0, 0.5, 3.0, 1.2, 0.8]), 1600.0",
            "multiplies a traced number by a sparse matrix of SciPy",
        ),
        "stats.stattools.omni_normtest": (
            "np.array([0.1, -0.2, 0.3, 0.1, -0.4, 0.2, 0.7, -0.9, 0.3])",
            "scipy.stats.normaltest has no rule in adarray",
        ),
    },
    "transforms3d": {
        "shears.mat2sadn": ("pkg.shears.sadn2mat(0.5, [1, 0, 0], [0, 1, 0])", _REPEATED),
        "zooms.mat2zfdir": ("pkg.zooms.zfdir2mat(1.7, [0.3, -1.2, 0.8])", _REPEATED),
        "zooms.aff2zfdir": ("pkg.zooms.zfdir2aff(1.7, [0.3, -1.2, 0.8])", _REPEATED),
    },
    "python_speech_features": {
        "mfcc": (
            "np.sin(np.arange(40.0)), 100, fixed(0.2), fixed(0.1), 4, 6, 32",
            "scipy.fftpack.dct, the legacy interface, has no rule in adarray; scipy.fft.dct has",
        ),
    },
    "control": {
        "place": (
            "np.array([[0.5, 0.1], [0.2, -0.3]]), np.array([[1.0], [0.5]]), np.array([-1.0, -2.0])",
            "scipy.signal.place_poles has no rule in adarray",
        ),
    },
}  # fmt: skip
