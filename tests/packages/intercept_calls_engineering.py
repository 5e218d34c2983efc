"""Process engineering: calls of the table of packages.

Most arguments are those of the examples in the packages' own documentation.
"""

from __future__ import annotations

CALLS: dict[str, dict[str, str]] = {
    "fluids": {
        "compressible.isothermal_work_compression": "1E5, 1E6, 300",
        "compressible.isentropic_work_compression": "P1=1E5, P2=1E6, T1=300, k=1.4, eta=0.78",
        "compressible.isentropic_T_rise_compression": "286.8, 54050, 432400, 1.4",
        "compressible.isentropic_efficiency": "1E5, 1E6, 1.4, eta_p=0.78",
        "control_valve.cavitation_index": "1E6, 8E5, 2E5",
        "control_valve.FF_critical_pressure_ratio_l": "70100.0, 22120000.0",
        "control_valve.control_valve_choke_P_l": "69682.89291024722, 22048320.0, 0.6, 680000.0",
        "control_valve.control_valve_choke_P_g": "1.0, 1.3, 1E5",
        "core.thermal_diffusivity": "k=0.02, rho=1., Cp=1000.",
        "core.c_ideal_gas": "T=303, k=1.4, MW=28.96",
        "core.Reynolds": "2.5, 0.25, 1.1613, 1.9E-5",
        "core.Peclet_heat": "1.5, 2, 1000., 4000., 0.6",
        "design_climate.heating_degree_days": "303.8",
        "drag.Stokes": "0.1",
        "drag.Barati": "200.",
        "drag.Barati_high": "200.",
        "drag.Rouse": "200.",
        "filters.round_edge_grill": ".4",
        "filters.round_edge_screen": "0.5, 100",
        "filters.round_edge_open_mesh": "0.96, angle=33.",
        "filters.square_edge_screen": "0.99",
        "filters.square_edge_grill": ".45",
        "fittings.change_K_basis": "K1=32.68875692997804, D1=.01, D2=.02",
        "fittings.entrance_distance": "Di=0.1, t=0.0005",
        "fittings.entrance_distance_45_Miller": "Di=0.1, Di0=0.14",
        "fittings.entrance_rounded": "Di=0.1, rc=0.0235",
        "flow_meter.flow_meter_discharge": (
            "D=0.0739, Do=0.0222, P1=1E5, P2=9.9E4, rho=1.1646, C=0.5988, expansibility=0.9975"
        ),
        "flow_meter.orifice_expansibility": "D=0.0739, Do=0.0222, P1=1E5, P2=9.9E4, k=1.4",
        "flow_meter.orifice_expansibility_1989": "D=0.0739, Do=0.0222, P1=1E5, P2=9.9E4, k=1.4",
        "flow_meter.C_Reader_Harris_Gallagher": (
            "D=0.07391, Do=0.0222, rho=1.165, mu=1.85E-5, m=0.12, taps='flange'"
        ),
        "friction.Colebrook": "1E5, 1E-4",
        "friction.Clamond": "1E5, 1E-4",
        "friction.Moody": "1E5, 1E-4",
        "friction.Alshul_1952": "1E5, 1E-4",
        "geometry.SA_partial_sphere": "1., 0.7",
        "geometry.V_partial_sphere": "1., 0.7",
        "geometry.SA_torispheroidal": "D=2.54, f=1.039370079, k=0.062362205",
        "geometry.V_from_h": (
            "h=5.0, D=1.5, L=5., horizontal=False, sideA='conical', sideB='conical', "
            "sideA_a=2., sideB_a=1."
        ),
        "geometry.V_tank": (
            "D=1.5, L=5., horizontal=False, sideA='conical', sideB='conical', sideA_a=2., "
            "sideB_a=1."
        ),
        "mixing.agitator_time_homogeneous": (
            "D=36*.0254, N=56/60., P=957., T=1.83, H=1.83, mu=0.018, rho=1020, homogeneity=.995"
        ),
        "mixing.Kp_helical_ribbon_Rieger": "D=1.9, h=1.9, nb=2, pitch=1.9, width=.19, T=2",
        "mixing.time_helical_ribbon_Grenville": "357.4, 4/60.",
        "mixing.size_tee": "Q1=11.7, Q2=2.74, D=0.762, D2=None, n=1, pipe_diameters=5",
        "numerics.interp": "2.5, [1, 2, 3], [3, 2, 0]",
        "numerics.damping_maintain_sign": "100, -200, factor=.5",
        "numerics.polylog2": "0.5",
        "numerics.polynomial_evaluation.horner": "[1.0, 3.0], 2.0",
        "numerics.polynomial_roots.roots_cubic": "1.0, 100.0, 1000.0, 10.0",
        "open_flow.Q_weir_V_Shen": "0.6, angle=45",
        "open_flow.Q_weir_rectangular_Kindsvater_Carter": "0.2, 0.5, 1",
        "open_flow.Q_weir_rectangular_SIA": "0.2, 0.5, 1, 2",
        "open_flow.Q_weir_rectangular_full_Ackers": "h1=0.9, h2=0.6, b=5",
        "optional.spa.transit_sunrise_sunset": "1523836800, 51.0486, -114.07, 70.68302220312503",
        "packed_bed.Ergun": "dp=8E-4, voidage=0.4, vs=1E-3, rho=1E3, mu=1E-3",
        "packed_bed.Montillet_Akkari_Comiti": (
            "dp=0.0008, voidage=0.45, L=0.5, vs=0.00132629120, rho=1000., mu=1.00E-003"
        ),
        "packed_bed.Kuo_Nydegger": "dp=8E-1, voidage=0.4, vs=1E-3, rho=1E3, mu=1E-3",
        "packed_bed.Tallmadge": "dp=8E-4, voidage=0.4, vs=1E-3, rho=1E3, mu=1E-3",
        "packed_bed.Jones_Krier": "dp=8E-4, voidage=0.4, vs=1E-3, rho=1E3, mu=1E-3",
        "packed_tower.dP_demister_dry_Setekleiv_Svendsen": (
            "S=250, voidage=.983, vs=1.2, rho=10, mu=3E-5, L=1"
        ),
        "packed_tower.dP_demister_dry_Setekleiv_Svendsen_lit": (
            "S=250, voidage=.983, vs=1.2, rho=10, mu=3E-5, L=1.0"
        ),
        "packed_tower.dP_demister_wet_ElDessouky": "6, 0.978, 0.00032",
        "packed_tower.separation_demister_ElDessouky": "1.35, 0.974, 0.0002, 0.005",
        "particle_size_distribution.pdf_lognormal": "1E-4, 1E-5, 1.1",
        "particle_size_distribution.cdf_lognormal": "d=1E-4, d_characteristic=1E-5, s=1.1",
        "particle_size_distribution.pdf_lognormal_basis_integral": (
            "d=1E-4, d_characteristic=1E-5, s=1.1, n=-2"
        ),
        "particle_size_distribution.pdf_Gates_Gaudin_Schuhman": (
            "d=2E-4, d_characteristic=1E-3, m=2.3"
        ),
        "pump.Corripio_pump_efficiency": "461./15850.323",
        "pump.Corripio_motor_efficiency": "137*745.7",
        "pump.specific_speed": "0.0402, 100, 3550",
        "pump.specific_diameter": "Q=0.1, H=10., D=0.1",
        "safety_valve.API520_C": "1.35",
        "safety_valve.API520_F2": "1.8, 1E6, 7E5",
        "safety_valve.API520_N": "10500e3",
        "safety_valve.API520_B": "1E6, 5E5",
        "saltation.Rizk": "mp=0.25, dp=100E-6, rhog=1.2, D=.078",
        "saltation.Matsumoto_1974": "mp=1., rhop=1000., dp=1E-3, rhog=1.2, D=0.1, Vterminal=5.24",
        "saltation.Matsumoto_1975": "mp=1., rhop=1000., dp=1E-3, rhog=1.2, D=0.1, Vterminal=5.24",
        "saltation.Matsumoto_1977": "mp=1., rhop=1000., dp=1E-3, rhog=1.2, D=0.1, Vterminal=5.24",
        "separator.K_separator_Watkins": "0.88, 985.4, 1.3, horizontal=True",
        "separator.v_Souders_Brown": "K=0.08, rhol=985.4, rhog=1.3",
        "separator.K_Souders_Brown_theoretical": "D=150E-6, Cd=0.5",
        "two_phase.Lombardi_Pedrocchi": (
            "m=0.6, x=0.1, rhol=915., rhog=2.67, sigma=0.045, D=0.05, L=1.0"
        ),
        "two_phase.Kim_Mudawar": (
            "m=0.6, x=0.1, rhol=915., rhog=2.67, mul=180E-6, mug=14E-6, sigma=0.0487, "
            "D=0.05, L=1.0"
        ),
        "two_phase.Lockhart_Martinelli": (
            "m=0.6, x=0.1, rhol=915., rhog=2.67, mul=180E-6, mug=14E-6, D=0.05, L=1.0"
        ),
        "two_phase.two_phase_dP": (
            "m=0.6, x=0.1, rhol=915., rhog=2.67, mul=180E-6, mug=14E-6, sigma=0.0487, "
            "D=0.05, L=1.0"
        ),
        "two_phase_voidage.Thom": ".4, 800, 2.5, 1E-3, 1E-5",
        "two_phase_voidage.Zivi": ".4, 800, 2.5",
        "two_phase_voidage.Smith": ".4, 800, 2.5",
        "two_phase_voidage.Fauske": ".4, 800, 2.5",
    },
    "chemicals": {
        "acentric.omega_definition": "999542, 22048320.0",
        "acentric.LK_omega": "425.6, 631.1, 32.1E5",
        "acentric.Stiel_polar_factor": "Psat=169745, Pc=22048321.0, omega=0.344",
        "air.lemmon2000_air_A0": "132.6312/200.0, 13000/10447.7",
        "air.lemmon2000_air_dA0_dtau": "132.6312/200.0, 13000/10447.7",
        "air.lemmon2000_air_d2A0_dtau2": "132.6312/200.0, 13000/10447.7",
        "air.lemmon2000_air_d3A0_dtau3": "132.6312/200.0, 13000/10447.7",
        "combustion.Perez_Boehman_RON_from_ignition_delay": "1/150",
        "combustion.Perez_Boehman_MON_from_ignition_delay": "1/150",
        "combustion.IDT_to_DCN": "4e-3",
        "combustion.HHV_stoichiometry": "{'O2': -2.0, 'CO2': 1, 'H2O': 2.0}, -74520.0",
        "critical.Tb_Tc_relationship": "Tb=427.15, fit='Perry8E'",
        "critical.Ihmels": "Tc=851.0, Vc=0.000308",
        "critical.Meissner": "Tc=851.0, Vc=0.000308",
        "critical.Grigoras": "Tc=851.0, Vc=0.000308",
        "dippr.EQ100": "300, 276370., -2090.1, 8.125, -0.014116, 0.0000093701",
        "dippr.EQ101": "300, 73.649, -7258.2, -7.3037, 4.1653E-6, 2",
        "dippr.EQ102": "300, 1.7096E-8, 1.1146, 0, 0",
        "dippr.EQ104": "300, 0.02222, -26.38, -16750000, -3.894E19, 3.133E21",
        "elements.mixture_atomic_composition": (
            "[{'O': 2}, {'N': 1, 'O': 2}, {'C': 1, 'H': 4}], [0.95, 0.025, .025]"
        ),
        "elements.mixture_atomic_composition_ordered": (
            "[{'O': 2}, {'N': 1, 'O': 2}, {'C': 1, 'H': 4}], [0.95, 0.025, .025]"
        ),
        "flash_basic.K_value": "101325, 3000.",
        "flash_basic.Wilson_K_value": "270.0, 7600000.0, 305.4, 4880000.0, 0.098",
        "flash_basic.PR_water_K_value": "300, 1e5, 568.7, 2490000.0",
        "heat_capacity.Poling": (
            "T=300., a=4.568, b=-0.008975, c=3.631e-05, d=-3.407e-08, e=1.091e-11"
        ),
        "heat_capacity.Poling_integral": (
            "T=300., a=4.568, b=-0.008975, c=3.631e-05, d=-3.407e-08, e=1.091e-11"
        ),
        "heat_capacity.Poling_integral_over_T": (
            "T=300., a=4.568, b=-0.008975, c=3.631e-05, d=-3.407e-08, e=1.091e-11"
        ),
        "heat_capacity.TDE_CSExpansion": (
            "550.0, 778.0, 0.626549, 120.705, 0.255987, 0.000381027, -3.03077e-7"
        ),
        "iapws.iapws97_rho": "700.0, 25e6",
        "iapws.iapws97_boundary_2_3": "0.623150000E3",
        "iapws.iapws97_boundary_2_3_reverse": "16529164.2526216",
        "iapws.iapws97_boundary_3uv": "22.3E6",
        "iapws.iapws97_boundary_3ef": "40E6",
        "interface.sigma_IAPWS": "300.",
        "interface.REFPROP_sigma": "298.15, 647.096, -0.1306, 2.471, 0.2151, 1.233",
        "interface.PPDS14": "T=280, Tc=562.05, a0=0.0786269, a1=1.28646, a2=-0.112304",
        "interface.ISTExpansion": "T=400.0, Tc=776.0, a1=0.037545, a2=0.0363288",
        "lennard_jones.sigma_Flynn": "0.000268",
        "lennard_jones.sigma_Bird_Stewart_Lightfoot_critical_2": "560.1, 4550000",
        "lennard_jones.sigma_Bird_Stewart_Lightfoot_critical_1": "0.000268",
        "lennard_jones.sigma_Bird_Stewart_Lightfoot_boiling": "0.0001015",
        "permittivity.permittivity_CRC": "450., 487, -1.5, 0.00129, 0.",
        "permittivity.permittivity_IAPWS": "373., 958.46",
        "phase_change.Clapeyron": "T=294.0, Tc=466.0, Pc=5.55E6",
        "phase_change.Pitzer": "452, 645.6, 0.35017",
        "phase_change.SMK": "553.15, 751.35, 0.302",
        "phase_change.MK": "553.15, 751.35, 0.302",
        "rachford_rice.Rachford_Rice_polynomial": "zs=[0.5, 0.3, 0.2], Ks=[1.685, 0.742, 0.532]",
        "rachford_rice.Rachford_Rice_solution_polynomial": (
            "zs=[0.5, 0.3, 0.2], Ks=[1.685, 0.742, 0.532]"
        ),
        "rachford_rice.Rachford_Rice_flash_error": (
            "0.5, zs=[0.5, 0.3, 0.2], Ks=[1.685, 0.742, 0.532]"
        ),
        "rachford_rice.Rachford_Rice_solution": "zs=[0.5, 0.3, 0.2], Ks=[1.685, 0.742, 0.532]",
        "reaction.Gibbs_formation": "-285830, 69.91, [0, 0], [130.571, 205.147], [1, .5]",
        "reaction.stoichiometry_mass_to_molar": (
            "[68.12208, 159.994, 120.0244, 108.09168], [17.03052, 31.9988, 30.0061, 18.01528]"
        ),
        "reaction.stoichiometry_MW_error": (
            "[4.0, 5.0, 4.0, 6.0], [17.03052, 31.9988, 30.0061, 18.01528], [True, True, "
            "False, False]"
        ),
        "refractivity.polarizability_from_RI": "1.3611, 5.8676E-5",
        "refractivity.molar_refractivity_from_RI": "1.3611, 5.8676E-5",
        "refractivity.RI_from_molar_refractivity": "1.2985e-5, 5.8676E-5",
        "refractivity.RI_to_brix": "1.341452",
        "refractivity.RI_IAPWS": "298.15, 997.047435",
        "safety.ppmv_to_mgm3": "1.0, 40.0",
        "safety.mgm3_to_ppmv": "1.635, 40.0",
        "solubility.solubility_parameter": "T=298.2, Hvapm=26403.3, Vml=0.000116055",
        "solubility.solubility_eutectic": (
            "T=260., Tm=278.68, Hm=9952., Cpl=0, Cps=0, gamma=3.0176"
        ),
        "solubility.Tm_depression_eutectic": "353.35, 19110, .02",
        "solubility.Henry_converter": (
            "1.2e-5, old_scale='Hcp', new_scale='SI', rhom=55344.59, MW=18.01528"
        ),
        "temperature.ITS90_68_difference": "1000.",
        "thermal_conductivity.PPDS8": (
            "T=500.0, Tc=562.05, a0=0.0641126, a1=0.61057, a2=-1.72442, a3=3.94394"
        ),
        "thermal_conductivity.PPDS3": "T=400.0, Tc=470.008, a1=11.6366, a2=25.1191, a3=-7.21674",
        "thermal_conductivity.Chemsep_16": (
            "300.0, -0.12682, -1.5015, -1.0467, -0.00088709, -9.3679E-07"
        ),
        "thermal_conductivity.k_IAPWS": "647.35, 750.",
        "utils.Parachor": "100.15888, 800.8088185536124, 4.97865317223119, 0.02672166960656005",
        "utils.property_molar_to_mass": "500, 18.015",
        "utils.property_mass_to_molar": "20.0, 18.015",
        "utils.v_to_v_molar": "500, 18.015",
        "vapor_pressure.dYaws_Psat_dT": (
            "T=400.0, A=42.7918, B=-2965.83, C=-12.073, D=0.0033269, E=1.58609e-6"
        ),
        "vapor_pressure.d2Yaws_Psat_dT2": (
            "T=400.0, A=42.7918, B=-2965.83, C=-12.073, D=0.0033269, E=1.58609e-6"
        ),
        "vapor_pressure.Antoine": "100.0, 8.7687, 395.744, -6.469",
        "vapor_pressure.dAntoine_dT": "100.0, 8.7687, 395.744, -6.469",
        "virial.B_to_Z": "-0.0015, 300, 1E5",
        "virial.B_from_Z": "0.94, 300, 1E5",
        "virial.Z_from_virial_density_form": "300, 122057.233762653, (1E-4, 1E-5, 1E-6, 1E-7)",
        "virial.Z_from_virial_pressure_form": (
            "102919.99946855308, (4.032286555169439e-09, 1.6197059494442215e-13, "
            "6.483855042486911e-19)"
        ),
        "viscosity.mu_IAPWS": "298.15, 998.",
        "viscosity.mu_air_lemmon": "300.0, 40.10292351061862",
        "viscosity.Viswanath_Natarajan_2_exponential": "288.15, 4900800, -3.8075",
        "viscosity.dmu_Yaws_dT": "300.0, -9.4406, 1117.6, 0.0137, -0.000015465",
        "volume.TDE_VDNS_rho": (
            "T=400.0, Tc=772.999, rhoc=320.037, a1=795.092, a2=-169.132, a3=448.929, a4=-102.931"
        ),
        "volume.PPDS17": "300, 562.05, a0=0.0115508, a1=0.281004, a2=-0.00635447",
        "volume.Yen_Woods_saturation": "300, 647.14, 55.45E-6, 0.245",
        "volume.Rackett_fit": "T=400.0, Tc=748.402, rhoc=314.629, b=0.257033, n=0.280338",
    },
    "ht": {
        "air_cooler.Ft_aircooler": "Thi=125., Tho=45., Tci=25., Tco=95., Ntp=1, rows=4",
        "boiling_flow.Lazarek_Black": "m=10, D=0.3, mul=1E-3, kl=0.6, Hvap=2E6, Te=100",
        "boiling_flow.Sun_Mishima": (
            "m=1, D=0.3, rhol=567., rhog=18.09, kl=0.086, mul=156E-6, sigma=0.02, Hvap=9E5, Te=10"
        ),
        "boiling_flow.Yun_Heo_Kim": (
            "m=1, x=0.4, D=0.3, rhol=567., mul=156E-6, sigma=0.02, Hvap=9E5, q=1E4"
        ),
        "boiling_nucleic.McNelly": (
            "Te=4.3, P=101325, Cpl=4180., kl=0.688, sigma=0.0588, Hvap=2.25E6, rhol=958., "
            "rhog=0.597"
        ),
        "boiling_nucleic.Montinsky": "P=101325, Pc=22048321, Te=4.3",
        "boiling_nucleic.HEDH_Taborek": "Te=16.2, P=310.3E3, Pc=2550E3",
        "boiling_nucleic.Bier": "101325., 22048321.0, Te=4.3",
        "boiling_nucleic.Cooper": "P=101325., Pc=22048321.0, MW=18.02, Te=4.3",
        "condensation.Nusselt_laminar": (
            "Tsat=370, Tw=350, rhog=7.0, rhol=585., kl=0.091, mul=158.9E-6, Hvap=776900, L=0.1"
        ),
        "condensation.Akers_Deans_Crosser": (
            "m=0.35, rhog=6.36, rhol=582.9, kl=0.098, mul=159E-6, Cpl=2520., D=0.03, x=0.85"
        ),
        "condensation.h_kinetic": "300, 1E5, 18.02, 2441674",
        "condensation.Cavallini_Smith_Zecchin": (
            "m=1, x=0.4, D=.3, rhol=800, rhog=2.5, mul=1E-5, mug=1E-3, kl=0.6, Cpl=2300"
        ),
        "condensation.Shah": (
            "m=1, x=0.4, D=.3, rhol=800, mul=1E-5, kl=0.6, Cpl=2300, P=1E6, Pc=2E7"
        ),
        "conduction.R_to_k": "R=0.05, t=0.025",
        "conduction.k_to_R": "k=0.5, t=0.025",
        "conduction.k_to_thermal_resistivity": "0.25",
        "conduction.R_cylinder": "0.9, 1., 20, 10",
        "conduction.S_isothermal_pipe_to_isothermal_pipe": ".1, .2, 1, 1",
        "conv_external.Nu_cylinder_Zukauskas": "7992, 0.707, 0.69",
        "conv_external.Nu_cylinder_Churchill_Bernstein": "6071, 0.7",
        "conv_external.Nu_cylinder_Sanitjai_Goldstein": "6071, 0.7",
        "conv_external.Nu_cylinder_Fand": "6071, 0.7",
        "conv_external.Nu_cylinder_McAdams": "6071, 0.7",
        "conv_free_enclosed.Nu_Nusselt_Rayleigh_Holling_Herwig": "5.54, 3.21e8, buoyancy=True",
        "conv_free_enclosed.Nu_Nusselt_Rayleigh_Probert": "5.54, 3.21e8, buoyancy=True",
        "conv_free_enclosed.Nu_Nusselt_Rayleigh_Hollands": "5.54, 3.21e8, buoyancy=True",
        "conv_free_enclosed.Nu_Nusselt_vertical_Thess": ".7, 3.21e6",
        "conv_free_enclosed.Nu_vertical_helical_coil_Ali": "4.4, 1E11",
        "conv_free_immersed.Nu_vertical_plate_Churchill": "0.69, 2.63E9",
        "conv_free_immersed.Nu_free_vertical_plate": "0.69, 2.63E9, False",
        "conv_free_immersed.Nu_horizontal_plate_McAdams": "5.54, 3.21e8, buoyancy=True",
        "conv_free_immersed.Nu_horizontal_plate_VDI": "5.54, 3.21e8, buoyancy=True",
        "conv_free_immersed.Nu_horizontal_plate_Rohsenow": "5.54, 3.21e8, buoyancy=True",
        "conv_internal.laminar_entry_thermal_Hausen": "Re=100000, Pr=1.1, L=5, Di=.5",
        "conv_internal.laminar_entry_Seider_Tate": "Re=100000, Pr=1.1, L=5, Di=.5",
        "conv_internal.laminar_entry_Baehr_Stephan": "Re=100000, Pr=1.1, L=5, Di=.5",
        "conv_internal.turbulent_Dittus_Boelter": "Re=1E5, Pr=1.2",
        "conv_internal.turbulent_Sieder_Tate": "Re=1E5, Pr=1.2",
        "conv_packed_bed.Nu_packed_bed_Gnielinski": (
            "dp=8E-4, voidage=0.4, vs=1, rho=1E3, mu=1E-3, Pr=0.7"
        ),
        "conv_packed_bed.Nu_Wakao_Kagei": "2000, 0.7",
        "conv_packed_bed.Nu_Achenbach": "2000, 0.7, 0.4",
        "conv_packed_bed.Nu_KTA": "2000, 0.7, 0.4",
        "conv_plate.Nu_plate_Martin": "Re=2500.0, Pr=.7, chevron_angle=45.0",
        "conv_plate.Nu_plate_Kumar": "Re=2000, Pr=0.7, chevron_angle=30",
        "conv_plate.Nu_plate_Muley_Manglik": (
            "Re=2000, Pr=.7, chevron_angle=45, plate_enlargement_factor=1.18"
        ),
        "conv_plate.Nu_plate_Khan_Khan": "Re=1000, Pr=4.5, chevron_angle=30",
        "conv_supercritical.Nu_McAdams": "1E5, 1.2",
        "conv_supercritical.Nu_Shitsman": "1E5, 1.2, 1.6",
        "conv_supercritical.Nu_Griem": "1E5, 1.2",
        "conv_supercritical.Nu_Jackson": "1E5, 1.2",
        "conv_supercritical.Nu_Gupta": "1E5, 1.2, 330, 290., 8e-4, 9e-4",
        "conv_tube_bank.Nu_Zukauskas_Bejan": (
            "Re=1E4, Pr=7., tube_rows=10, pitch_parallel=.05, pitch_normal=.05"
        ),
        "conv_tube_bank.Nu_ESDU_73031": (
            "Re=1.32E4, Pr=0.71, tube_rows=8, pitch_parallel=.09, pitch_normal=.05"
        ),
        "conv_tube_bank.Nu_HEDH_tube_bank": (
            "Re=1E4, Pr=7., tube_rows=10, pitch_normal=.05, pitch_parallel=.05, Do=.03"
        ),
        "conv_tube_bank.baffle_correction_Bell": "0.82",
        "conv_tube_bank.unequal_baffle_spacing_Bell": "16, .1, .15, 0.15",
        "conv_two_phase.Davis_David": (
            "m=1, x=.9, D=.3, rhol=1000, rhog=2.5, Cpl=2300, kl=.6, mul=1E-3"
        ),
        "conv_two_phase.Elamvaluthi_Srinivas": (
            "m=1, x=.9, D=.3, rhol=1000, rhog=2.5, Cpl=2300, kl=.6, mug=1E-5, mu_b=1E-3, "
            "mu_w=1.2E-3"
        ),
        "conv_two_phase.Groothuis_Hendal": (
            "m=1, x=.9, D=.3, rhol=1000, rhog=2.5, Cpl=2300, kl=.6, mug=1E-5, mu_b=1E-3, "
            "mu_w=1.2E-3"
        ),
        "conv_two_phase.Hughmark": (
            "m=1, x=.9, alpha=.9, D=.3, L=.5, Cpl=2300, kl=0.6, mu_b=1E-3, mu_w=1.2E-3"
        ),
        "conv_two_phase.Knott": (
            "m=1, x=.9, D=.3, rhol=1000, rhog=2.5, Cpl=2300, kl=.6, mu_b=1E-3, mu_w=1.2E-3, L=4"
        ),
        "core.LMTD": "100., 60., 30., 40.2",
        "core.wall_factor_fd": "mu=8E-4, mu_wall=3E-4, turbulent=True, liquid=True",
        "core.wall_factor_Nu": "mu=8E-4, mu_wall=3E-4, turbulent=True, liquid=True",
        "core.wall_factor": (
            "mu=8E-4, mu_wall=3E-4, Pr=1.2, Pr_wall=1.1, T=300, T_wall=350, "
            "property_option='Prandtl'"
        ),
        "core.fin_efficiency_Kern_Kraus": "0.0254, 0.05715, 3.8E-4, 200, 58",
        "hx.effectiveness_from_NTU": "NTU=5, Cr=0.7, subtype='parallel'",
        "hx.calc_Cmin": "mh=22., mc=5.5, Cph=2200, Cpc=4400.",
        "hx.calc_Cmax": "mh=22., mc=5.5, Cph=2200, Cpc=4400.",
        "hx.calc_Cr": "mh=22., mc=5.5, Cph=2200, Cpc=4400.",
        "hx.NTU_from_UA": "4400., 22.",
        "radiation.blackbody_spectral_radiance": "800., 4E-6",
        "radiation.grey_transmittance": "3.8e-4, molar_density=55300, length=1e-2",
    },
}  # fmt: skip
