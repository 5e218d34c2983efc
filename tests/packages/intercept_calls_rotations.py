"""Rotations, control, speech: calls of the table of packages, ``{package: {function: arguments}}``.

Matrices are made by the package itself (``pkg``); `_R` is a rotation, `_UNIT` a
quaternion of about unit length.
"""

from __future__ import annotations

_R = "pkg.euler.euler2mat(0.3, 0.5, 0.7)"
_DCM = "pkg.common.orientation.q2R(np.array([0.6, 0.5, -0.1, 0.7]))"
_V, _W = "np.array([0.3, -1.2, 0.8])", "np.array([1.1, 0.4, -0.5])"
_Q, _P = "np.array([0.5, 0.5, -0.1, 0.7])", "np.array([0.7, -0.2, 0.4, 0.5])"
_UNIT = "np.array([0.8, 0.36, -0.36, 0.32])"
_PLANE = "fixed(np.array([1.0, 0.0, 0.0])), fixed(np.array([0.0, 1.0, 0.0]))"  # orthogonal
_SIGNAL = "np.sin(np.arange(40.0)) + 0.1 * np.cos(0.3 * np.arange(40.0))"
_FRAMES = f"{_SIGNAL}, 100, fixed(0.2), fixed(0.1)"
_SPECTRA = "np.array([[1.0, 2.0, 3.0], [2.0, 0.5, 1.0]]), 4"
_A, _B = "np.array([[0.5, 0.1], [0.2, -0.3]])", "np.array([[1.0], [0.5]])"
_COST = "fixed(np.array([[1.0, 0.1], [0.1, 2.0]]))"  # must be symmetric

CALLS: dict[str, dict[str, str]] = {
    "transforms3d": {
        "euler.euler2mat": "0.3, 0.5, 0.7, 'sxyz'",
        "euler.mat2euler": f"{_R}, 'rzyx'",
        "euler.euler2quat": "0.3, 0.5, 0.7, 'ryxz'",
        "euler.quat2euler": f"{_UNIT}, 'sxyz'",
        "euler.euler2axangle": "0.3, 0.5, 0.7",
        "euler.axangle2euler": f"{_V}, 0.7",
        "axangles.axangle2mat": f"{_V}, 0.7",
        "axangles.axangle2aff": f"{_V}, 0.7, {_W}",
        "quaternions.quat2mat": _Q,
        "quaternions.mat2quat": _R,
        "quaternions.qmult": f"{_Q}, {_P}",
        "quaternions.qconjugate": _Q,
        "quaternions.qnorm": _Q,
        "quaternions.qinverse": _Q,
        "quaternions.qexp": _Q,
        "quaternions.qlog": _Q,
        "quaternions.qpow": f"{_Q}, 1.7",
        "quaternions.rotate_vector": f"{_V}, {_UNIT}",
        "quaternions.fillpositive": "np.array([0.3, 0.4, 0.5])",
        "quaternions.axangle2quat": f"{_V}, 0.7",
        "quaternions.quat2axangle": _UNIT,
        "affines.compose": f"{_V}, {_R}, np.array([1.0, 2.0, 0.5]), np.array([0.1, 0.2, 0.3])",
        "affines.decompose": (
            f"pkg.affines.compose([0.3, -1.2, 0.8], {_R}, [1.0, 2.0, 0.5], [0.1, 0.2, 0.3])"
        ),
        "affines.decompose44": (
            f"pkg.affines.compose([0.3, -1.2, 0.8], {_R}, [1.0, 2.0, 0.5], [0.1, 0.2, 0.3])"
        ),
        "reflections.rfnorm2mat": _V,
        "reflections.rfnorm2aff": f"{_V}, {_W}",
        "shears.striu2mat": "[0.1, 0.2, 0.3]",
        "shears.sadn2mat": f"0.5, {_PLANE}",
        "shears.sadn2aff": f"0.5, {_PLANE}, np.array([0.3, 0.1, 0.2])",
        "zooms.zfdir2mat": f"1.7, {_V}",
        "zooms.zfdir2aff": f"1.7, {_V}, {_W}",
        "taitbryan.euler2mat": "0.3, 0.5, 0.7",
        "taitbryan.mat2euler": "pkg.taitbryan.euler2mat(0.3, 0.5, 0.7)",
        "taitbryan.euler2quat": "0.3, 0.5, 0.7",
        "taitbryan.quat2euler": _UNIT,
        "taitbryan.euler2axangle": "0.3, 0.5, 0.7",
        "taitbryan.axangle2euler": f"{_V}, 0.7",
        "utils.normalized_vector": _V,
        "utils.vector_norm": _V,
    },
    "ahrs": {
        "common.orientation.q_conj": _Q,
        "common.orientation.q_norm": _Q,
        "common.orientation.q_prod": f"{_Q}, {_P}",
        "common.orientation.q_mult_L": _Q,
        "common.orientation.q_mult_R": _Q,
        "common.orientation.q_rot": f"{_Q}, {_V}",
        "common.orientation.axang2quat": "[1.0, 0.5, 0.2], 1.1",
        "common.orientation.quat2axang": _UNIT,
        "common.orientation.q_correct": (
            "np.array([[0.8, 0.36, -0.36, 0.32], [0.7, -0.2, 0.4, 0.5]])"
        ),
        "common.orientation.q2R": _Q,
        "common.orientation.q2euler": _UNIT,
        "common.orientation.dcm2quat": _DCM,
        "common.orientation.rpy2q": _V,
        "common.orientation.q2rpy": _UNIT,
        "common.orientation.ecompass": f"{_V}, {_W}",
        "common.orientation.am2DCM": f"{_V}, {_W}",
        "common.orientation.am2q": f"{_V}, {_W}",
        "common.orientation.acc2q": _V,
        "common.orientation.am2angles": (
            "np.array([[0.3, -1.2, 0.8]]), np.array([[1.1, 0.4, -0.5]])"
        ),
        "common.orientation.slerp": f"{_Q}, {_P}, np.array([0.2, 0.5])",
        "common.orientation.chiaverini": _DCM,
        "common.orientation.hughes": _DCM,
        "common.orientation.itzhack": _DCM,
        "common.orientation.sarabandi": _DCM,
        "common.orientation.shepperd": _DCM,
        "common.dcm.rotation": "'x', 10.5",
        "common.dcm.rot_seq": "'zyx', [10.5, 20.5, 30.5]",
        "common.frames.geodetic2ecef": "42.0, -82.0, 200.0",
        "common.frames.geodetic2enu": "42.0, -82.0, 200.0, 42.5, -82.5, 100.0",
        "common.frames.ecef2geodetic": "660675.2518, -4700948.6832, 4245737.6622",
        "common.frames.llf2ecef": "42.0, -82.0",
        "common.frames.ecef2llf": "42.0, -82.0",
        "common.frames.ecef2lla": "660675.2518, -4700948.6832, 4245737.6622",
        "common.frames.eci2ecef": "7.292e-5, 100.0",
        "common.frames.ecef2enu": "660930.1926, -4701424.0157, 4246579.6005, 42.0, -82.0, 200.0",
        "common.frames.enu2uvw": "10.0, 20.0, 30.0, 42.0, -82.0",
        "common.frames.enu2ecef": "186.28, 286.84, 939.69, 42.0, -82.0, 200.0",
        "common.frames.ned2enu": _V,
        "common.frames.aer2enu": "34.1, 4.2, 15.0",
        "common.frames.enu2aer": "8.4, 12.3, 1.1",
        "common.frames.enu2dca": "8.4, 12.3, 1.1, 0.4",
        "common.frames.dca2enu": "8.4, 12.3, 1.1, 0.4",
        "common.mathfuncs.cosd": "30.0",
        "common.mathfuncs.sind": "30.0",
        "common.mathfuncs.skew": _V,
        "utils.metrics.euclidean": f"{_V}, {_W}",
        "utils.metrics.chordal": (
            "np.array([[0.9, 0.1, 0.2], [0.0, 1.1, 0.3], [0.1, 0.2, 0.8]]), np.eye(3)"
        ),
        "utils.metrics.qdist": f"{_UNIT}, {_P}",
        "utils.metrics.qeip": f"{_UNIT}, {_P}",
        "utils.metrics.qcip": f"{_UNIT}, {_P}",
        "utils.metrics.qad": f"{_UNIT}, {_P}",
        "utils.metrics.rmse": f"{_V}, {_W}",
        "utils.wgs84.international_gravity": "52.3",
        "utils.wgs84.welmec_gravity": "52.3, 80.0",
    },
    "python_speech_features": {
        "hz2mel": "440.0",
        "mel2hz": "549.6",
        "lifter": "np.arange(12.0).reshape(3, 4) + 1.0",
        "delta": "np.array([[1.0, 2.0], [2.5, 1.0], [0.5, 3.0]]), 2",
        "fbank": f"{_FRAMES}, 6, 32",
        "logfbank": f"{_FRAMES}, 6, 32",
        "ssc": f"{_FRAMES}, 6, 32",
        "sigproc.framesig": "np.sin(np.arange(20.0)), 6, 3",
        "sigproc.deframesig": "np.array([[1.0, 2.0, 3.0], [2.0, 0.5, 1.0]]), 5, 3, 2",
        "sigproc.magspec": _SPECTRA,
        "sigproc.powspec": _SPECTRA,
        "sigproc.logpowspec": _SPECTRA,
        "sigproc.preemphasis": "np.array([1.0, 2.0, 3.0, 2.5]), 0.95",
    },
    "control": {
        "lyap": f"np.array([[-1.0, 0.3], [0.2, -2.0]]), {_COST}",
        "dlyap": f"{_A}, {_COST}",
        "care": f"{_A}, {_B}, {_COST}",
        "dare": f"{_A}, {_B}, {_COST}, np.array([[0.7]])",
        "lqr": f"{_A}, {_B}, {_COST}, np.array([[0.7]])",
        "unwrap": "np.array([0.1, 3.0, 6.0, 9.5])",
    },
}
