"""Calls that do not differentiate, or where differences cannot agree: {package: {name: ...}}.

Each has its arguments and the reason in words.
"""

from __future__ import annotations

_SPLINE = "a spline of SciPy (FITPACK, compiled) is evaluated at a traced position"
_QUAD = "the derivative of the integrand is infinite at an end of the interval"
_KINK = "the arguments stand at a kink, where differences mix both sides"
_STEP = "a nominal size is looked up: piecewise constant"
_PANDAS = "pandas takes the array"
_SOLVER = "the derivative of an iteration lags behind its value at this tolerance"

FAILURES: dict[str, dict[str, tuple[str, str]]] = {
    "fluids": {
        "filters.round_edge_grill": (".4", _SPLINE),
        "fittings.bend_rounded_Miller": (
            "Di=.6, bend_diameters=2, angle=90, Re=2e6, roughness=2E-5, L_unimpeded=30*.6", _SPLINE
        ),
        "fittings.contraction_round_Miller": ("Di1=1, Di2=0.4, rc=0.04", _SPLINE),
        "safety_valve.API520_SH": ("593+273.15, 1066.325E3, '7E'", _SPLINE),
        "separator.K_separator_Watkins": ("0.88, 985.4, 1.3, horizontal=True", _SPLINE),
        "geometry.SA_partial_horiz_guppy_head": ("D=72., a=48.0, h=24.0", _QUAD),
        "geometry.V_from_h": (
            "h=7, D=1.5, L=5., horizontal=False, sideA='conical', sideB='conical', "
            "sideA_a=2., sideB_a=1.",
            _KINK,
        ),
        "packed_bed.Montillet_Akkari_Comiti": (
            "dp=0.0008, voidage=0.4, L=0.5, vs=0.00132629120, rho=1000., mu=1.00E-003", _KINK
        ),
        "piping.nearest_pipe": ("Di=0.021", _STEP),
        "pump.motor_round_size": ("1E5", _STEP),
    },
    "chemicals": {
        "iapws.iapws97_rho": ("648.6, 22.5e6", _SOLVER),
        "refractivity.RI_to_brix": ("1.341452", _SOLVER),
        "thermal_conductivity.Missenard": ("304., 6330E5, 591.8, 41E5, 0.129", _SPLINE),
        "viscosity.viscosity_converter": ("8.79, 'engler', 'parlin cup #7'", _SPLINE),
    },
    "ht": {
        "conv_tube_bank.dP_Zukauskas": (
            "Re=13943., n=7, ST=0.0313, SL=0.0343, D=0.0164, rho=1.217, Vmax=12.6", _SPLINE
        ),
        "conv_tube_bank.baffle_correction_Bell": ("0.82", _SPLINE),
        "conv_plate.Nu_plate_Martin": ("Re=2000.0, Pr=.7, chevron_angle=45.0", _KINK),
        "hx.temperature_effectiveness_plate": (
            "R1=1/3., NTU1=1., Np1=3, Np2=1",
            "a branch of its own for R1 * Np1 == 1 is constant in R1, where the function is not",
        ),
        "hx.shell_clearance": ("DBundle=1.245", _STEP),
    },
    "colour": {
        "algebra.interpolation.kernel_linear": ("np.linspace(0, 1, 10)", _KINK),
        "models.rgb.transfer_functions.aces.log_encoding_ACESproxy": (
            "0.18", "the result is rounded to code values"
        ),
        "temperature.xy_to_CCT": (
            "np.array([0.31270, 0.32900])",
            "scipy.optimize.minimize gets an objective that depends on traced values",
        ),
        "blindness.machado2009.matrix_cvd_Machado2009": (
            "'Protanomaly', 0.15", "a traced number is looked up in a dictionary"
        ),
    },
    "empyrical": {
        "up_capture": (
            "np.array([0.01, -0.02, 0.013, 0.004]), np.array([0.008, -0.015, 0.01, 0.006])", _PANDAS
        ),
        "roll_max_drawdown": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006]), 4",
            "it makes windows of memory by hand (as_strided)",
        ),
    },
    "filterpy": {
        "stats.log_likelihood": (
            "np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([[2.0, 0.3], [0.3, 1.0]]), "
            "np.eye(2), np.eye(2)",
            "multivariate_normal with allow_singular=True has no derivative",
        ),
        "stats.rand_student_t": ("3.0", "Python's own random module draws with the parameter"),
    },
    "skyfield": {
        "keplerlib.propagate": (
            "np.array([1.0, 0.1, 0.2]), np.array([0.1, 0.02, 0.0]), 0.0, np.array([10.0]), 3e-4",
            "it assigns to x.shape",
        ),
    },
    "statsmodels": {
        "tsa.filters.hp_filter.hpfilter": (
            "np.array([1.0, 2.0, 0.5, 3.0, 1.2, 0.8]), 1600.0",
            "a traced number times a sparse matrix of SciPy",
        ),
        "stats.stattools.omni_normtest": (
            "np.array([0.1, -0.2, 0.3, 0.1, -0.4, 0.2, 0.7, -0.9, 0.3])",
            "scipy.stats.normaltest has no drop-in",
        ),
    },
}  # fmt: skip
