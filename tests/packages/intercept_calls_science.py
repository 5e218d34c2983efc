"""Finance, statistics, sea, sky, filters, photovoltaics: calls of the table of packages.

Most arguments are those of the examples in the packages' own documentation.
"""

from __future__ import annotations

CALLS: dict[str, dict[str, str]] = {
    "numpy_financial": {
        "fv": "0.05/12, 10*12, -100.0, -100.0",
        "pmt": "0.075/12, 12*15, 200000.0",
        "nper": "0.07/12, -150.0, 8000.0",
        "ipmt": "0.0824/12, np.arange(1, 13), 12, 2500.0",
        "ppmt": "0.0824/12, 3, 12, 2500.0",
        "pv": "0.05/12, 10*12, -100.0, 15692.93",
        "rate": "10, 0.0, -3500.0, 10000.0",
        "npv": "0.281, np.array([-100.0, 39.0, 59.0, 55.0, 20.0])",
        "irr": "np.array([-100.0, 39.0, 59.0, 55.0, 20.0])",
        "mirr": "np.array([-100.0, 50.0, -60.0, 70.0]), 0.10, 0.12",
    },
    "seawater": {
        "dens": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "dens0": "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3])",
        "smow": "np.array([3.5, 10.2, 19.3])",
        "seck": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "cp": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "svel": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "adtg": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "ptmp": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "pden": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "temp": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "alpha": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "beta": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "aonb": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "fp": "np.array([34.5, 35.1, 36.2]), np.array([100.0, 1500.0, 4000.0])",
        "svan": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "cndr": (
            "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "salt": (
            "np.array([0.8, 1.0, 1.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "pres": "np.array([100.0, 1500.0, 4000.0]), np.array([30.0, 45.0, 10.0])",
        "dpth": "np.array([100.0, 1500.0, 4000.0]), np.array([30.0, 45.0, 10.0])",
        "g": "np.array([30.0, 45.0]), np.array([10.0, 200.0])",
        "f": "np.array([30.0, 45.0])",
        "satO2": "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3])",
        "satN2": "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3])",
        "satAr": "np.array([34.5, 35.1, 36.2]), np.array([3.5, 10.2, 19.3])",
        "salrt": "np.array([3.5, 10.2, 19.3])",
        "salrp": (
            "np.array([0.9, 1.1, 1.2]), np.array([3.5, 10.2, 19.3]), np.array([100.0, "
            "1500.0, 4000.0])"
        ),
        "sals": "np.array([0.9, 1.1, 1.2]), np.array([3.5, 10.2, 19.3])",
        "salds": "np.array([0.9, 1.1, 1.2]), np.array([1.0, 2.0, 3.0])",
        "gpan": (
            "np.array([[34.5], [35.1], [36.2]]), np.array([[19.5], [10.2], [3.3]]), "
            "np.array([[0.0], [50.0], [100.0]])"
        ),
        "bfrq": (
            "np.array([[34.5], [35.1], [36.2]]), np.array([[19.5], [10.2], [3.3]]), "
            "np.array([[0.0], [50.0], [100.0]])"
        ),
        "dist": "np.array([30.0, 35.0, 37.0]), np.array([-10.0, -11.0, -20.0])",
        "swvel": "12.0, 10.0",
    },
    "empyrical": {
        "annual_volatility": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "max_drawdown": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "sharpe_ratio": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "sortino_ratio": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "downside_risk": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "calmar_ratio": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "excess_sharpe": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011]), "
            "np.array([0.008, -0.015, 0.01, 0.006, -0.002, 0.015, -0.003, -0.008])"
        ),
        "alpha": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011]), "
            "np.array([0.008, -0.015, 0.01, 0.006, -0.002, 0.015, -0.003, -0.008])"
        ),
        "beta": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011]), "
            "np.array([0.008, -0.015, 0.01, 0.006, -0.002, 0.015, -0.003, -0.008])"
        ),
        "alpha_beta": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011]), "
            "np.array([0.008, -0.015, 0.01, 0.006, -0.002, 0.015, -0.003, -0.008])"
        ),
        "annual_return": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "cum_returns": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "cum_returns_final": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "cagr": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "omega_ratio": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "stability_of_timeseries": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])"
        ),
        "tail_ratio": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "value_at_risk": "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])",
        "conditional_value_at_risk": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011])"
        ),
        "capture": (
            "np.array([0.01, -0.02, 0.013, 0.004, -0.006, 0.021, 0.002, -0.011]), "
            "np.array([0.008, -0.015, 0.01, 0.006, -0.002, 0.015, -0.003, -0.008])"
        ),
        "simple_returns": "np.array([100.0, 101.0, 99.0, 103.0])",
    },
    "haversine": {
        "haversine": "(45.7597, 4.8422), (48.8567, 2.3508)",
        "haversine_vector": "np.array([[45.7597, 4.8422]]), np.array([[48.8567, 2.3508]])",
        "inverse_haversine": "(45.7597, 4.8422), 32.0, 1.2",
        "inverse_haversine_vector": (
            "np.array([[45.7597, 4.8422]]), np.array([32.0]), np.array([1.2])"
        ),
    },
    "pvlib": {
        "singlediode.bishop88_mpp": "6.0, 1e-9, 0.3, 300.0, 1.5, method='newton'",
        "singlediode.bishop88_i_from_v": "25.0, 6.0, 1e-9, 0.3, 300.0, 1.5, method='newton'",
        "singlediode.bishop88_v_from_i": "4.0, 6.0, 1e-9, 0.3, 300.0, 1.5, method='newton'",
        "pvsystem.max_power_point": "6.0, 1e-9, 0.3, 300.0, 1.5, method='newton'",
        "iam.ashrae": "50.0, 0.05",
        "iam.physical": "np.array([10.0, 50.0, 70.0]), 1.526, 4.0, 0.002",
        "iam.martin_ruiz": "np.array([10.0, 50.0]), 0.16",
        "iam.martin_ruiz_diffuse": "30.0, 0.16, 0.42, 0.1",
        "iam.sapm": (
            "np.array([10.0, 50.0]), dict(B0=1.0, B1=-0.002, B2=3e-4, B3=-1e-5, B4=1e-7, "
            "B5=-1e-9)"
        ),
        "iam.schlick": "np.array([10.0, 50.0])",
        "iam.schlick_diffuse": "30.0",
        "temperature.sapm_cell": "900.0, 20.0, 5.0, -3.47, -0.0594, 3.0",
        "temperature.sapm_module": "900.0, 20.0, 5.0, -3.47, -0.0594",
        "temperature.pvsyst_cell": "900.0, 20.0, 5.0",
        "temperature.faiman": "900.0, 20.0, 5.0",
        "temperature.faiman_rad": "900.0, 20.0, 5.0, 300.0",
        "temperature.ross": "900.0, 20.0, 45.0",
        "temperature.noct_sam": "900.0, 20.0, 5.0, 45.0, 0.18",
        "temperature.generic_linear": "900.0, 20.0, 5.0, 11.0, 6.0, 0.18, 0.9",
        "irradiance.aoi": "20.0, 180.0, 30.0, 170.0",
        "irradiance.aoi_projection": "20.0, 180.0, 30.0, 170.0",
        "irradiance.beam_component": "20.0, 180.0, 30.0, 170.0, 800.0",
        "irradiance.isotropic": "20.0, 100.0",
        "irradiance.klucher": "20.0, 180.0, 100.0, 700.0, 30.0, 170.0",
        "irradiance.haydavies": "20.0, 180.0, 100.0, 800.0, 1400.0, 30.0, 170.0",
        "irradiance.reindl": "20.0, 180.0, 100.0, 800.0, 700.0, 1400.0, 30.0, 170.0",
        "irradiance.king": "20.0, 100.0, 700.0, 30.0",
        "irradiance.perez": "20.0, 180.0, 100.0, 800.0, 1400.0, 30.0, 170.0, 1.2",
        "irradiance.clearness_index": "700.0, 30.0, 1400.0",
        "irradiance.clearsky_index": "700.0, 800.0",
        "irradiance.erbs": "700.0, 30.0, 172",
        "irradiance.disc": "700.0, 30.0, 172",
        "irradiance.boland": "700.0, 30.0, 172",
        "irradiance.get_ground_diffuse": "20.0, 700.0, 0.2",
        "irradiance.poa_components": "40.0, 800.0, 90.0, 10.0",
        "irradiance.campbell_norman": "30.0, 0.6, 95000.0",
        "atmosphere.pres2alt": "95000.0",
        "atmosphere.alt2pres": "500.0",
        "atmosphere.get_absolute_airmass": "1.5, 95000.0",
        "atmosphere.get_relative_airmass": "np.array([10.0, 50.0, 80.0])",
        "atmosphere.gueymard94_pw": "20.0, 50.0",
        "atmosphere.rh_from_tdew": "20.0, 10.0",
        "atmosphere.tdew_from_rh": "20.0, 50.0",
        "atmosphere.bird_hulstrom80_aod_bb": "0.1, 0.2",
        "atmosphere.kasten96_lt": "1.5, 2.0, 0.1",
        "atmosphere.angstrom_aod_at_lambda": "0.1, 500.0, 1.2, 700.0",
        "atmosphere.angstrom_alpha": "0.1, 500.0, 0.08, 700.0",
        "atmosphere.windspeed_powerlaw": "5.0, 10.0, 30.0, 0.14",
        "clearsky.ineichen": "30.0, 1.2, 3.0, 100.0",
        "clearsky.simplified_solis": "50.0, 0.1, 1.0, 101325.0",
        "clearsky.bird": "30.0, 1.2, 0.1, 0.12, 1.5",
        "pvsystem.calcparams_desoto": "900.0, 40.0, 0.003, 1.5, 6.0, 1e-9, 300.0, 0.3",
        "pvsystem.calcparams_cec": "900.0, 40.0, 0.003, 1.5, 6.0, 1e-9, 300.0, 0.3, 10.0",
        "pvsystem.pvwatts_dc": "900.0, 40.0, 240.0, -0.003",
        "pvsystem.pvwatts_losses": "2.0, 3.0",
        "singlediode.estimate_voc": "6.0, 1e-9, 1.5",
        "singlediode.bishop88": "np.array([20.0, 30.0]), 6.0, 1e-9, 0.3, 300.0, 1.5",
        "pvsystem.i_from_v": "25.0, 6.0, 1e-9, 0.3, 300.0, 1.5",
        "pvsystem.v_from_i": "4.0, 6.0, 1e-9, 0.3, 300.0, 1.5",
        "solarposition.declination_spencer71": "172.0",
        "solarposition.declination_cooper69": "172.0",
        "solarposition.equation_of_time_spencer71": "172.0",
        "solarposition.equation_of_time_pvcdrom": "172.0",
        "solarposition.solar_zenith_analytical": "0.6, 0.3, 0.4",
        "solarposition.solar_azimuth_analytical": "0.6, 0.3, 0.4, 0.5",
        "spa.julian_century": "2455000.5",
        "inverter.pvwatts": "200.0, 240.0",
        "tracking.singleaxis": "30.0, 170.0, 10.0, 180.0, 60.0, True, 0.4",
        "tracking.calc_surface_orientation": "30.0, 10.0, 180.0",
        "shading.masking_angle": "20.0, 0.4, 0.5",
        "shading.sky_diffuse_passias": "20.0",
        "shading.projected_solar_zenith_angle": "30.0, 170.0, 10.0, 180.0",
        "shading.shaded_fraction1d": (
            "80.0, 135.0, 90.0, shaded_row_rotation=30.0, shading_row_rotation=30.0, "
            "collector_width=2.0, pitch=3.0, axis_tilt=0.0, surface_to_axis_offset=0.05, "
            "cross_axis_slope=0.0"
        ),
        "spectrum.spectral_factor_firstsolar": "1.5, 1.2, module_type='cdte'",
        "spectrum.spectral_factor_caballero": "1.5, 1.2, 0.1, module_type='cdte'",
        "spectrum.spectral_factor_sapm": (
            "1.2, dict(A0=0.9, A1=0.05, A2=-0.01, A3=0.001, A4=-1e-4)"
        ),
        "scaling.latlon_to_xy": "np.array([[30.0, 40.0], [31.0, 41.0]])",
        "tools.sind": "30.0",
        "tools.cosd": "30.0",
        "tools.asind": "0.3",
        "tools.tand": "30.0",
        "albedo.inland_water_dvoracek": "40.0, 'clear_water_no_waves'",
    },
    "lmfit": {
        "lineshapes.gaussian": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8",
        "lineshapes.lorentzian": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8",
        "lineshapes.voigt": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 0.3",
        "lineshapes.pvoigt": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 0.3",
        "lineshapes.moffat": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.3",
        "lineshapes.pearson4": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.3, 0.2",
        "lineshapes.pearson7": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.3",
        "lineshapes.breit_wigner": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.3",
        "lineshapes.damped_oscillator": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8",
        "lineshapes.dho": "np.linspace(-1.0, 3.0, 7), 2.0, 0.7, 0.8, 1.0",
        "lineshapes.logistic": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8",
        "lineshapes.lognormal": "np.linspace(0.5, 3.0, 5), 2.0, 0.5, 0.8",
        "lineshapes.students_t": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8",
        "lineshapes.expgaussian": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.2",
        "lineshapes.doniach": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 0.1",
        "lineshapes.skewed_gaussian": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 0.3",
        "lineshapes.skewed_voigt": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 0.3, 0.4",
        "lineshapes.sine": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8",
        "lineshapes.expsine": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 0.3",
        "lineshapes.thermal_distribution": "np.linspace(1.0, 3.0, 5), 2.0, 0.5, 0.8",
        "lineshapes.step": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 'erf'",
        "lineshapes.rectangle": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.5, 0.9, 'logistic'",
        "lineshapes.exponential": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5",
        "lineshapes.powerlaw": "np.linspace(0.5, 3.0, 5), 2.0, 0.5",
        "lineshapes.linear": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5",
        "lineshapes.parabolic": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.1",
        "lineshapes.split_lorentzian": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.1",
    },
    "filterpy": {
        "kalman.predict": (
            "np.array([1.0, 2.0]), np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([[1.0, 0.1], "
            "[0.0, 1.0]]), np.eye(2) * 0.1"
        ),
        "kalman.update": (
            "np.array([[1.0], [2.0]]), np.array([[2.0, 0.3], [0.3, 1.0]]), "
            "np.array([[1.2]]), np.array([[0.4]]), np.array([[1.0, 0.5]])"
        ),
        "stats.gaussian": "1.2, 0.5, 2.0",
        "stats.mul": "1.2, 0.5, 2.0, 0.3",
        "stats.add": "1.2, 0.5, 2.0, 0.3",
        "stats.multivariate_gaussian": (
            "np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([[2.0, 0.3], [0.3, 1.0]])"
        ),
        "stats.multivariate_multiply": (
            "np.array([1.0, 2.0]), np.array([[2.0, 0.3], [0.3, 1.0]]), np.array([0.5, 1.5]), "
            "np.array([[2.0, 0.3], [0.3, 1.0]])"
        ),
        "stats.mahalanobis": (
            "np.array([1.0, 2.0]), np.array([0.5, 1.5]), np.array([[2.0, 0.3], [0.3, 1.0]])"
        ),
        "stats.norm_cdf": "(0.1, 1.2), 0.5, 2.0",
        "common.Q_discrete_white_noise": "2, 0.1, 2.0",
        "common.Q_continuous_white_noise": "3, 0.1, 2.0",
        "common.van_loan_discretization": (
            "np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [2.0]]), 0.1"
        ),
        "common.linear_ode_discretation": (
            "np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [2.0]]), np.eye(1), 0.1"
        ),
        "common.inv_diagonal": "np.diag([1.0, 2.0])",
        "kalman.unscented_transform": (
            "np.array([[1.0, 2.0], [1.5, 2.5], [0.5, 1.5]]), np.array([0.5, 0.25, 0.25]), "
            "np.array([0.5, 0.25, 0.25])"
        ),
    },
    "control": {
        "db2mag": "3.0",
        "mag2db": "3.0",
        "ctrb": "np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [1.0]])",
        "obsv": "np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.5]])",
        "acker": (
            "np.array([[0.0, 1.0], [-2.0, -3.0]]), np.array([[0.0], [1.0]]), np.array([-4.0, "
            "-5.0])"
        ),
    },
    "astropy": {
        "modeling.functional_models.Gaussian1D.evaluate": (
            "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8"
        ),
        "modeling.functional_models.Lorentz1D.evaluate": (
            "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8"
        ),
        "modeling.functional_models.Moffat1D.evaluate": (
            "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8, 1.2"
        ),
        "modeling.functional_models.RickerWavelet1D.evaluate": (
            "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8"
        ),
        "modeling.functional_models.Gaussian2D.evaluate": (
            "np.array([0.1, 0.5]), np.array([0.3, 1.0]), 2.0, 0.1, 0.2, 0.8, 0.9, 0.3"
        ),
        "modeling.functional_models.Moffat2D.evaluate": (
            "np.array([0.1, 0.5]), np.array([0.3, 1.0]), 2.0, 0.1, 0.2, 0.8, 0.9"
        ),
        "modeling.functional_models.Sine1D.evaluate": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5, 0.8",
        "modeling.functional_models.Exponential1D.evaluate": "np.linspace(-1.0, 3.0, 7), 2.0, 0.5",
        "modeling.functional_models.Logarithmic1D.evaluate": "np.array([1.0, 2.0]), 2.0, 0.5",
        "modeling.powerlaws.PowerLaw1D.evaluate": "np.array([1.0, 2.0]), 2.0, 0.5, 0.8",
        "modeling.powerlaws.SmoothlyBrokenPowerLaw1D.evaluate": (
            "np.array([1.0, 2.0]), 2.0, 1.5, 0.8, 1.3, 0.5"
        ),
        "modeling.powerlaws.LogParabola1D.evaluate": "np.array([1.0, 2.0]), 2.0, 0.5, 0.8, 0.2",
        "stats.biweight_location": "np.array([1.0, 2.0, 2.5, 9.0])",
        "stats.mad_std": "np.array([1.0, 2.0, 2.5, 9.0])",
        "stats.circmean": "np.array([0.1, 0.5, 1.0])",
        "stats.circvar": "np.array([0.1, 0.5, 1.0])",
        "stats.circmoment": "np.array([0.1, 0.5, 1.0])",
        "stats.vonmisesmle": "np.array([0.1, 0.5, 1.0])",
        "stats.rayleightest": "np.array([0.1, 0.5, 1.0])",
        "coordinates.angles.utils.angular_separation": "0.1, 0.2, 0.4, 0.5",
    },
    "statsmodels": {
        "stats.stattools.durbin_watson": "np.array([0.1, -0.2, 0.3, 0.1, -0.4])",
        "stats.stattools.jarque_bera": "np.array([0.1, -0.2, 0.3, 0.1, -0.4])",
        "tools.tools.add_constant": "np.array([1.0, 2.0, 0.5, 3.0])",
        "tools.eval_measures.mse": (
            "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
        ),
        "tools.eval_measures.rmse": (
            "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
        ),
        "tools.eval_measures.meanabs": (
            "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
        ),
        "tools.eval_measures.rmspe": (
            "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
        ),
        "tools.eval_measures.stde": (
            "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
        ),
        "tools.eval_measures.vare": (
            "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
        ),
        "tools.eval_measures.aic": "-12.3, 30, 3",
        "tools.eval_measures.bic": "-12.3, 30, 3",
        "tsa.stattools.acovf": "np.array([1.0, 2.0, 0.5, 3.0])",
        "tsa.stattools.acf": "np.array([1.0, 2.0, 0.5, 3.0]), nlags=2",
        "tsa.tsatools.detrend": "np.array([1.0, 2.0, 0.5, 3.0])",
        "tsa.tsatools.lagmat": "np.array([1.0, 2.0, 0.5, 3.0]), 1",
        "robust.scale.mad": "np.array([1.0, 2.0, 0.5, 3.0])",
        "stats.moment_helpers.mc2mnc": "[1.0, 2.0, 3.0, 4.0]",
        "stats.moment_helpers.mnc2mc": "[1.0, 5.0, 9.0, 20.0]",
        "stats.moment_helpers.cum2mc": "[1.0, 2.0, 3.0, 4.0]",
        "stats.moment_helpers.cov2corr": "np.array([[2.0, 0.3], [0.3, 1.0]])",
        "stats.moment_helpers.corr2cov": (
            "np.array([[1.0, 0.3], [0.3, 1.0]]), np.array([1.0, 2.0])"
        ),
        "stats.weightstats.ztest": "np.array([1.0, 2.0, 0.5, 3.0])",
        "nonparametric.kernels.gaussian": "0.5, np.array([[0.1], [0.6]]), 0.4",
        "regression.linear_model.yule_walker": "np.array([1.0, 2.0, 0.5, 3.0, 1.2, 0.8]), 2",
        "stats.correlation_tools.cov_nearest": "np.array([[2.0, 0.3], [0.3, 1.0]])",
        "tsa.arima_process.arma_impulse_response": (
            "np.array([1.0, -0.5]), np.array([1.0, 0.3]), 5"
        ),
        "tsa.arima_process.arma_acovf": "np.array([1.0, -0.5]), np.array([1.0, 0.3]), 4",
        "tsa.arima_process.lpol_fima": "0.3, 5",
        "tsa.arima_process.lpol_fiar": "0.3, 5",
        "tools.eval_measures.iqr": (
            "np.array([1.0, 2.0, 0.5, 3.0]), np.array([1.1, 1.8, 0.7, 2.5])"
        ),
    },
    "skyfield": {
        "functions.length_of": "np.array([1.0, 2.0, 3.0])",
        "functions.dots": "np.array([1.0, 2.0, 3.0]), np.array([0.3, 1.0, 2.0])",
        "functions.angle_between": "np.array([1.0, 2.0, 3.0]), np.array([0.3, 1.0, 2.0])",
        "functions.to_spherical": "np.array([1.0, 2.0, 3.0])",
        "functions.from_spherical": "1.0, 0.3, 0.5",
        "functions.rot_x": "0.3",
        "functions.rot_y": "0.3",
        "functions.rot_z": "0.3",
        "functions.mxv": "np.eye(3), np.array([1.0, 2.0, 3.0])",
        "functions.to_polar": "np.array([1.0, 2.0, 3.0])",
        "earthlib.refraction": "10.0, 15.0, 1010.0",
        "nutationlib.mean_obliquity": "2451545.3",
        "precessionlib.compute_precession": "2455000.3",
        "keplerlib.true_anomaly_hyperbolic": "1.3, 0.4",
        "keplerlib.eccentric_anomaly": "0.3, 0.4",
        "keplerlib.stumpff": "np.array([0.3])",
    },
}  # fmt: skip
