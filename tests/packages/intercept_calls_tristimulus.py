"""Colour science, functions of tristimulus values: calls of the table of packages.

The arguments are those of the examples in the package's own documentation.
"""

from __future__ import annotations

CALLS: dict[str, dict[str, str]] = {
    "colour": {
        "adaptation.chromatic_adaptation": (
            "np.array([0.20654008, 0.12197225, 0.05136952]), np.array([0.95045593, 1.0, "
            "1.08905775]), np.array([0.96429568, 1.0, 0.8251046])"
        ),
        "adaptation.cie1994.XYZ_to_RGB_CIE1994": "np.array([28.0, 21.26, 5.27])",
        "adaptation.cie1994.chromatic_adaptation_CIE1994": (
            "np.array([28.0, 21.26, 5.27]), np.array([0.4476, 0.4074]), np.array([0.3127, "
            "0.329]), 20, 1000, 1000"
        ),
        "adaptation.cmccat2000.chromatic_adaptation_forward_CMCCAT2000": (
            "np.array([22.48, 22.74, 8.54]), np.array([111.15, 100.0, 35.2]), np.array([94.81, "
            "100.0, 107.3]), 200, 200"
        ),
        "adaptation.cmccat2000.chromatic_adaptation_inverse_CMCCAT2000": (
            "np.array([19.53, 23.07, 24.97]), np.array([111.15, 100.0, 35.2]), np.array([94.81, "
            "100.0, 107.3]), 200, 200"
        ),
        "adaptation.fairchild1990.XYZ_to_RGB_Fairchild1990": "np.array([19.53, 23.07, 24.97])",
        "adaptation.fairchild1990.chromatic_adaptation_Fairchild1990": (
            "np.array([19.53, 23.07, 24.97]), np.array([111.15, 100.0, 35.2]), np.array([94.81, "
            "100.0, 107.3]), 200"
        ),
        "adaptation.fairchild2020.chromatic_adaptation_vK20": (
            "np.array([0.20654008, 0.12197225, 0.05136952]), np.array([0.95045593, 1.0, "
            "1.08905775]), np.array([0.96429568, 1.0, 0.8251046])"
        ),
        "adaptation.fairchild2020.matrix_chromatic_adaptation_vk20": (
            "np.array([0.95045593, 1.0, 1.08905775]), np.array([0.96429568, 1.0, 0.8251046])"
        ),
        "adaptation.li2025.chromatic_adaptation_Li2025": (
            "np.array([48.9, 43.62, 6.25]), np.array([109.85, 100, 35.585]), np.array([95.047, "
            "100, 108.883]), 318.31, 1.0"
        ),
        "adaptation.vonkries.chromatic_adaptation_VonKries": (
            "np.array([0.20654008, 0.12197225, 0.05136952]), np.array([0.95045593, 1.0, "
            "1.08905775]), np.array([0.96429568, 1.0, 0.8251046])"
        ),
        "adaptation.vonkries.matrix_chromatic_adaptation_VonKries": (
            "np.array([0.95045593, 1.0, 1.08905775]), np.array([0.96429568, 1.0, 0.8251046])"
        ),
        "adaptation.zhai2018.chromatic_adaptation_Zhai2018": (
            "np.array([48.9, 43.62, 6.25]), np.array([109.85, 100, 35.585]), np.array([95.047, "
            "100, 108.883]), 0.9407, 0.98, np.array([100, 100, 100])"
        ),
        "algebra.common.normalise_maximum": "np.array([0.48222001, 0.31654775, 0.22070353])",
        "algebra.common.normalise_vector": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "algebra.coordinates.transformations.polar_to_cartesian": (
            "np.array([3.16227766, 0.32175055])"
        ),
        "algebra.coordinates.transformations.spherical_to_cartesian": (
            "np.array([6.78232998, 0.48504979, 0.32175055])"
        ),
        "appearance.atd95.XYZ_to_ATD95": (
            "np.array([19.01, 20.0, 21.78]), np.array([95.05, 100.0, 108.88]), 318.31, 0.0, 50.0"
        ),
        "appearance.atd95.luminance_to_retinal_illuminance": (
            "np.array([19.01, 20.0, 21.78]), 318.31"
        ),
        "appearance.ciecam02.full_chromatic_adaptation_forward": (
            "np.array([18.985456, 20.707422, 21.747482]), np.array([94.930528, 103.536988, "
            "108.717742]), 100.0, 0.994468780088"
        ),
        "appearance.ciecam02.full_chromatic_adaptation_inverse": (
            "np.array([19.99370783, 20.00393634, 20.01326387]), np.array([94.930528, "
            "103.536988, 108.717742]), 100.0, 0.994468780088"
        ),
        "appearance.ciecam16.f_e_forward": (
            "np.array([19.99693975, 20.00186123, 20.0135053]), 1.16754446415"
        ),
        "appearance.ciecam16.f_e_inverse": (
            "np.array([7.8463202, 7.84711528, 7.84899595]), 1.16754446415"
        ),
        "appearance.hellwig2022.achromatic_response_forward": (
            "np.array([7.94634384, 7.94713791, 7.9488967])"
        ),
        "appearance.hunt.XYZ_to_rgb": "np.array([19.01, 20.0, 21.78])",
        "appearance.hunt.f_n": "np.array([0.23350512, 0.23351103, 0.23355179])",
        "appearance.llab.XYZ_to_RGB_LLAB": "np.array([19.01, 20.0, 21.78])",
        "appearance.llab.chromatic_adaptation": (
            "np.array([0.94142795, 1.0404012, 1.08970885]), np.array([0.94146023, 1.04039386, "
            "1.08950293]), np.array([0.94146023, 1.04039386, 1.08950293]), 20.0"
        ),
        "appearance.nayatani95.XYZ_to_RGB_Nayatani95": "np.array([19.01, 20.0, 21.78])",
        "appearance.nayatani95.achromatic_response": (
            "np.array([20.0005206, 19.999783, 19.9988316]), np.array([4.61062223, 4.61058926, "
            "4.65206986]), np.array([1.00004219, 0.99998001, 0.99975794]), 3.681021495604089, "
            "1.0, 1.758, 1.0"
        ),
        "characterisation.correction.matrix_augmented_Cheung2004": (
            "np.array([0.1722481, 0.0917066, 0.06416938]), terms=5"
        ),
        "characterisation.correction.polynomial_expansion_Finlayson2015": (
            "np.array([0.1722481, 0.0917066, 0.06416938]), degree=2"
        ),
        "colorimetry.whiteness.whiteness_Berger1959": (
            "np.array([95.0, 100.0, 105.0]), np.array([94.80966767, 100.0, 107.30513595])"
        ),
        "colorimetry.whiteness.whiteness_Taube1960": (
            "np.array([95.0, 100.0, 105.0]), np.array([94.80966767, 100.0, 107.30513595])"
        ),
        "colorimetry.yellowness.yellowness_ASTMD1925": "np.array([95.0, 100.0, 105.0])",
        "colorimetry.yellowness.yellowness_ASTME313_alternative": "np.array([95.0, 100.0, 105.0])",
        "difference.cam02_ucs.delta_E_CAM02LCD": (
            "np.array([54.90433134, -0.08450395, -0.06854831]), np.array([54.80352754, "
            "-3.96940084, -13.57591013])"
        ),
        "difference.cam02_ucs.delta_E_CAM02SCD": (
            "np.array([54.90433134, -0.08450395, -0.06854831]), np.array([54.80352754, "
            "-3.96940084, -13.57591013])"
        ),
        "difference.delta_E": (
            "np.array([48.99183622, -0.10561667, 400.65619925]), np.array([50.65907324, "
            "-0.1167191, 402.82235718])"
        ),
        "difference.delta_e.delta_E_CIE1976": (
            "np.array([48.99183622, -0.10561667, 400.65619925]), np.array([50.65907324, "
            "-0.1167191, 402.82235718])"
        ),
        "difference.delta_e.delta_E_CIE1994": (
            "np.array([48.99183622, -0.10561667, 400.65619925]), np.array([50.65907324, "
            "-0.1167191, 402.82235718])"
        ),
        "difference.din99.delta_E_DIN99": (
            "np.array([60.2574, -34.0099, 36.2677]), np.array([60.4626, -34.1751, 39.4387])"
        ),
        "difference.huang2015.power_function_Huang2015": "np.array([2.0425, 2.8615, 3.4412])",
        "difference.metamerism_index.Lab_to_metamerism_index": (
            "np.array([37.9013, -19.56327, 16.9346]), np.array([38.17781, -17.4939, 21.0618]), "
            "np.array([38.83253, -19.8787, 20.0453]), np.array([39.0908, -21.3269, 22.6657]), "
            "correction='Additive', method='CIE 1976'"
        ),
        "difference.stress.index_stress": (
            "np.array([2.0425, 2.8615, 3.4412]), np.array([1.2644, 1.263, 1.8731])"
        ),
        "difference.stress.index_stress_Garcia2007": (
            "np.array([2.0425, 2.8615, 3.4412]), np.array([1.2644, 1.263, 1.8731])"
        ),
        "geometry.ellipse.ellipse_coefficients_canonical_form": (
            "np.array([2.5, -3.0, 2.5, -1.0, -1.0, -3.5])"
        ),
        "geometry.ellipse.ellipse_coefficients_general_form": "np.array([0.5, 0.5, 2, 1, 45])",
        "geometry.intersection.extend_line_segment": (
            "np.array([0.95694934, 0.13720932]), np.array([0.28382835, 0.60608318])"
        ),
        "models.cam02_ucs.CAM02LCD_to_JMh_CIECAM02": (
            "np.array([54.90433134, -0.08450395, -0.06854831])"
        ),
        "models.cam02_ucs.CAM02SCD_to_JMh_CIECAM02": (
            "np.array([54.90433134, -0.08436178, -0.06843298])"
        ),
        "models.cie_lab.Lab_to_XYZ": "np.array([41.52787529, 52.63858304, 26.92317922])",
        "models.cie_lab.XYZ_to_Lab": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.cie_luv.Luv_to_XYZ": "np.array([41.52787529, 96.83626054, 17.75210149])",
        "models.cie_luv.XYZ_to_Luv": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.cie_ucs.UCS_to_XYZ": "np.array([0.13769339, 0.12197225, 0.1053731])",
        "models.cie_ucs.XYZ_to_UCS": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.cie_uvw.UVW_to_XYZ": "np.array([94.55035725, 11.55536523, 40.54757405])",
        "models.cie_uvw.XYZ_to_UVW": "np.array([0.20654008, 0.12197225, 0.05136952]) * 100",
        "models.cie_xyy.XYZ_to_xyY": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.cie_xyy.xyY_to_XYZ": "np.array([0.54369557, 0.32107944, 0.12197225])",
        "models.common.JCh_to_Jab": "np.array([41.52787529, 59.12425901, 27.08848784])",
        "models.common.Jab_to_JCh": "np.array([41.52787529, 52.63858304, 26.92317922])",
        "models.din99.DIN99_to_Lab": "np.array([53.22821988, 28.41634656, 3.89839552])",
        "models.din99.Lab_to_DIN99": "np.array([41.52787529, 52.63858304, 26.92317922])",
        "models.hdr_cie_lab.XYZ_to_hdr_CIELab": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.hdr_cie_lab.hdr_CIELab_to_XYZ": "np.array([51.87002062, 60.4763385, 32.14551912])",
        "models.hdr_ipt.XYZ_to_hdr_IPT": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.hdr_ipt.hdr_IPT_to_XYZ": "np.array([48.39376346, 42.44990202, 22.01954033])",
        "models.hunter_lab.XYZ_to_K_ab_HunterLab1966": "np.array([109.85, 100.0, 35.585])",
        "models.icacb.ICaCb_to_XYZ": "np.array([0.06875297, 0.05753352, 0.02081548])",
        "models.icacb.XYZ_to_ICaCb": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.igpgtg.IgPgTg_to_XYZ": "np.array([0.42421258, 0.18632491, 0.10689223])",
        "models.igpgtg.XYZ_to_IgPgTg": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.ipt.IPT_to_XYZ": "np.array([0.38426191, 0.38487306, 0.18886838])",
        "models.ipt.XYZ_to_IPT": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.jzazbz.Izazbz_to_XYZ": "np.array([0.01207793, 0.00924302, 0.00526007])",
        "models.jzazbz.XYZ_to_Izazbz": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.oklab.Oklab_to_XYZ": "np.array([0.51634019, 0.154695, 0.06289579])",
        "models.oklab.XYZ_to_Oklab": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.osa_ucs.OSA_UCS_to_XYZ": "np.array([-3.0049979, 2.99713697, -9.66784231])",
        "models.osa_ucs.XYZ_to_OSA_UCS": "np.array([0.20654008, 0.12197225, 0.05136952]) * 100",
        "models.prolab.ProLab_to_XYZ": "np.array([59.8466286, 115.0396354, 20.12510352])",
        "models.prolab.XYZ_to_ProLab": "np.array([0.51634019, 0.154695, 0.06289579])",
        "models.ragoo2021.IPT_Ragoo2021_to_XYZ": "np.array([0.42248243, 0.2910514, 0.20410663])",
        "models.ragoo2021.XYZ_to_IPT_Ragoo2021": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.rgb.cmyk.CMY_to_RGB": "np.array([0.54379481, 0.96918929, 0.95908048])",
        "models.rgb.cmyk.RGB_to_CMY": "np.array([0.45620519, 0.03081071, 0.04091952])",
        "models.rgb.common.XYZ_to_sRGB": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.rgb.common.sRGB_to_XYZ": "np.array([0.70573936, 0.19248266, 0.22354169])",
        "models.rgb.cylindrical.HSV_to_RGB": "np.array([0.99603944, 0.93246304, 0.45620519])",
        "models.rgb.cylindrical.RGB_to_HSV": "np.array([0.45620519, 0.03081071, 0.04091952])",
        "models.rgb.derivation.chromatically_adapted_primaries": (
            "np.array([0.64, 0.33, 0.3, 0.6, 0.15, 0.06]), np.array([0.3127, 0.329]), "
            "np.array([0.3457, 0.3585]), 'Bradford'"
        ),
        "models.rgb.derivation.normalised_primary_matrix": (
            "np.array([0.7347, 0.2653, 0.0, 1.0, 0.0001, -0.077]), np.array([0.32168, 0.33767])"
        ),
        "models.rgb.hanbury2003.IHLS_to_RGB": "np.array([6.26160518, 0.12162712, 0.42555869])",
        "models.rgb.hanbury2003.RGB_to_IHLS": "np.array([0.45595571, 0.03039702, 0.04087245])",
        "models.rgb.ictcp.ICtCp_to_RGB": "np.array([0.07351364, 0.00475253, 0.09351596])",
        "models.rgb.ictcp.RGB_to_ICtCp": "np.array([0.45620519, 0.03081071, 0.04091952])",
        "models.rgb.prismatic.Prismatic_to_RGB": "np.array([0.75, 0.16666667, 0.33333333, 0.5])",
        "models.rgb.prismatic.RGB_to_Prismatic": "np.array([0.25, 0.5, 0.75])",
        "models.rgb.ycbcr.RGB_to_YCbCr": "np.array([1.0, 1.0, 1.0])",
        "models.sucs.XYZ_to_sUCS": "np.array([0.20654008, 0.12197225, 0.05136952])",
        "models.sucs.sUCS_to_XYZ": "np.array([42.62923653, 36.97646831, 14.12301358])",
        "models.yrg.LMS_to_Yrg": "np.array([0.15639195, 0.06741689, 0.03281398])",
        "models.yrg.Yrg_to_LMS": "np.array([0.13137801, 0.49037644, 0.37777391])",
        "notation.munsell.LCHab_to_munsell_specification": (
            "np.array([100, 17.50664796, 244.93046842])"
        ),
        "recovery.smits1999.XYZ_to_RGB_Smits1999": "np.array([0.21781186, 0.12541048, 0.04697113])",
        "temperature.CCT_to_uv": "np.array([6507.4738046, 0.00322335])",
        "temperature.hernandez1999.xy_to_CCT_Hernandez1999": "np.array([0.3127, 0.329])",
        "temperature.krystek1985.uv_to_CCT_Krystek1985": "np.array([0.20047203, 0.3102929])",
        "temperature.mccamy1992.xy_to_CCT_McCamy1992": "np.array([0.3127, 0.329])",
        "temperature.planck1900.uv_to_CCT_Planck1900": "np.array([0.20042808, 0.31033343])",
        "temperature.robertson1968.CCT_to_uv_Robertson1968": (
            "np.array([6500.008137819906, 0.008333331244225])"
        ),
        "temperature.robertson1968.uv_to_CCT_Robertson1968": (
            "np.array([0.19374137599823, 0.315221043940594])"
        ),
    },
}
